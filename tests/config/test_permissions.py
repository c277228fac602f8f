"""Permission decisions for the requests that the tools of agent CLIs make."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from remoteclaw.config.model import AgentConfig
from remoteclaw.config.permissions.permissions import PermissionRule, PermissionRuling, decide
from remoteclaw.events import Intent, PermissionEvent, Question
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec
from tests.support.rows import for_each


@pytest.fixture
def workspace(directory: Path) -> Path:
    """A workspace with symlinks that lead out of it, and one after which `..` is ambiguous."""
    workspace = directory / "work"
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    (workspace / "out").symlink_to(directory)
    (workspace / "deep").symlink_to(workspace / "a" / "b" / "c")
    (workspace / "dangling").symlink_to(directory / "not-there")
    (workspace / "round").symlink_to(workspace / "round")
    (workspace / "loose.git").symlink_to(workspace / ".git")
    (directory / "beside").mkdir()
    return workspace


def verdict(
    workspace: Path,
    intent: Intent | None,
    *allow: str,
    permissions: str = "ask",
    server: str | None = None,
    branch: Literal["", "read", "ask", "auto"] = "",
) -> str:
    event = PermissionEvent("1", "a tool", {}, server, intent)
    spec = AgentSpec(
        *("claude", ("claude",), str(workspace)),
        env={},
        permissions=permissions,
        branch=branch,
        allow=allow,
    )
    return decide(event, spec, workspace.parent / "files").verdict


def bash(command: str, cwd: str = "") -> Intent:
    return Intent("Bash", command=command, cwd=cwd)


def edit(*paths: str) -> Intent:
    return Intent("Edit", paths=paths)


# -- edits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["new.txt", "{work}/new.txt", "a/b/new.txt", "a/../new.txt", "deep/x", "docs/CLAUDE.md"]
)
def test_permission_edits_allows_edits_in_the_workspace(workspace: Path, path: str) -> None:
    intent = edit(path.format(work=workspace))

    assert verdict(workspace, intent, permissions="edits") == "allow"
    assert verdict(workspace, intent, permissions="ask") == "ask"


@for_each(
    "path",
    [
        "",
        "..",
        "../beside/x",
        "{work}/../beside/x",
        "{work}-other/x",
        "/etc/passwd",
        " /etc/passwd",
        "/etc/passwd\n",
        "a\x00/etc/passwd",
        "~/x",
        "~root/x",
        "out/x",
        "a/../out/beside/x",
        "dangling",
        "deep/../../../x",
        "deep/../../../../etc/x",
        "deep/../../../../../beside/x",
        ".git/config",
        ".GIT/hooks/pre-commit",
        "a/.git",
        "loose.git/config",
        "HEAD",
        "a/b/HEAD",
        ".claude/settings.json",
        ".mcp.json",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".opencode/plugin/x.ts",
        "opencode.json",
        ".vscode/tasks.json",
        ".husky/pre-commit",
        ".bashrc",
        ".ssh/authorized_keys",
        *(
            ".zed/tasks.json",
            ".devcontainer/devcontainer.json",
            ".cursor/mcp.json",
            "x.code-workspace",
        ),
        *(
            ".exrc",
            ".nvim.lua",
            ".dir-locals.el",
            ".gdbinit",
            ".env",
            "a/mise.toml",
            "lefthook.yml",
        ),
        *(
            ".pre-commit-config.yaml",
            ".hg/hgrc",
            ".npmrc",
            ".yarnrc.yml",
            ".pnpmfile.cjs",
            ".Rprofile",
        ),
        *(".cargo/config.toml", ".mvn/extensions.xml", ".venv/bin/activate", ".aider.conf.yml"),
    ],
)
def test_permission_edits_asks_for_any_other_path(workspace: Path, path: str) -> None:
    intent = edit(path.format(work=workspace))
    mixed = edit("new.txt", path.format(work=workspace))

    assert verdict(workspace, intent, permissions="edits") == "ask"
    assert verdict(workspace, mixed, permissions="edits") == "ask"
    assert verdict(workspace, intent, "Edit(/**)") == "ask"


def test_permission_edits_asks_for_files_that_programs_find_in_a_home_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = directory / "me"
    (home / "project" / ".github").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    for path in (
        *(".config/autostart/x.desktop", ".config/git/config", ".local/bin/ls", ".anything"),
        *("bin/ls", "Library/LaunchAgents/x.plist", ".vimrc", ".gnupg/gpg-agent.conf"),
    ):
        for workspace in (home, directory):
            intent = edit(str(home / path))
            assert verdict(workspace, intent, permissions="edits") == "ask"
        assert verdict(home, edit(path), "Edit(~/**)") == "ask"
        assert verdict(home, edit(path), f"Edit(~/{path})") == "allow"
    for workspace, path in ((home, "project/bin/x"), (home, "notes"), (home / "project", "bin/x")):
        assert verdict(workspace, edit(path), permissions="edits") == "allow"
    assert verdict(home / "project", edit(".github/x.yml"), permissions="edits") == "allow"


def test_permission_edits_asks_for_a_file_with_several_names(workspace: Path) -> None:
    """The others may be anywhere, such as in the home directory."""
    (workspace / "one").touch()
    assert verdict(workspace, edit("one"), permissions="edits") == "allow"

    (workspace.parent / "beside" / "other").hardlink_to(workspace / "one")

    assert verdict(workspace, edit("one"), permissions="edits") == "ask"
    assert verdict(workspace, edit("one"), "Edit(/**)") == "ask"
    assert verdict(workspace, edit("one"), "Edit(one)") == "allow"


@for_each(
    "intent",
    [
        None,
        edit(),
        bash("make"),
        bash("ls", cwd="/"),
        bash(""),
        Intent("WebFetch", url="https://example.org/"),
        Intent("WebSearch"),
        Intent("mcp__other__tool"),
        Intent("Read", paths=("out/beside/x",)),
        Intent("Read", paths=("/etc/passwd",)),
        Intent("Read"),
    ],
)
def test_permission_edits_asks_for_commands_network_and_other_files(
    workspace: Path, intent: Intent | None
) -> None:
    assert verdict(workspace, intent, permissions="edits") == "ask"


def test_reading_the_workspace_and_received_files_is_allowed(workspace: Path) -> None:
    for path in ("a/x", str(workspace), str(workspace.parent / "files" / "x"), ".git/config"):
        assert verdict(workspace, Intent("Read", paths=(path,))) == "allow"


def test_auto_allows_and_deny_refuses_every_request(workspace: Path) -> None:
    for intent in (None, bash("rm -rf /"), edit("/etc/passwd")):
        assert verdict(workspace, intent, permissions="auto") == "allow"
        assert verdict(workspace, intent, permissions="deny") == "refuse"
    assert verdict(workspace, edit("new.txt"), permissions="deny") == "refuse"
    assert verdict(workspace, None, server="remoteclaw", permissions="deny") == "refuse"
    assert verdict(workspace, None, server="remoteclaw") == "allow"
    assert verdict(workspace, None, server="another") == "ask"


def test_with_deny_only_claude_reads_in_the_workspace_by_requests(workspace: Path) -> None:
    """Its shell is its only tool to search there."""
    for runtime, expected in (("claude", "allow"), ("codex", "refuse"), ("acp", "refuse")):
        for intent in (bash("ls"), Intent("Read", paths=("a/x",))):
            event = PermissionEvent("1", "a tool", {}, None, intent)
            spec = AgentSpec(runtime, ("x",), str(workspace), env={}, permissions="deny")
            assert decide(event, spec, workspace.parent / "files").verdict == expected


def test_a_command_in_an_unknown_directory_needs_a_person(workspace: Path) -> None:
    unknown = Intent("Bash", command="ls", cwd=None)

    assert verdict(workspace, unknown, "Bash(ls)") == "ask"
    assert verdict(workspace, unknown, "Bash") == "allow"


# -- branches -------------------------------------------------------------------------------------


def test_a_branch_may_only_read_and_only_what_its_parent_may_read(workspace: Path) -> None:
    for permissions in ("auto", "edits", "ask"):
        inside = Intent("Read", paths=("a/x",))
        assert verdict(workspace, inside, permissions=permissions, branch="read") == "allow"
        own = verdict(workspace, None, permissions=permissions, branch="read", server="remoteclaw")
        assert own == "allow"  # the tool policy decides about the call
        assert verdict(workspace, bash("ls"), permissions=permissions, branch="read") == "allow"
        for intent in (None, bash("make"), bash("ls /"), edit("new.txt")):
            assert verdict(workspace, intent, permissions=permissions, branch="read") == "refuse"
        other = verdict(workspace, None, permissions=permissions, branch="read", server="another")
        assert other == "refuse"
    web = Intent("WebFetch", url="https://example.org")
    assert verdict(workspace, web, permissions="auto", branch="read") == "allow"
    assert verdict(workspace, web, branch="read") == "ask"
    for permissions, expected in (("ask", "ask"), ("deny", "refuse")):
        outside = Intent("Read", paths=("/etc/passwd",))
        assert verdict(workspace, outside, permissions=permissions, branch="read") == expected


def test_a_branch_with_more_permissions_never_exceeds_its_parent(
    workspace: Path,
) -> None:
    for permissions, as_ask, as_auto in (
        *(("auto", "ask", "allow"), ("edits", "ask", "allow"), ("ask", "ask", "ask")),
        ("deny", "refuse", "refuse"),
    ):
        of_ask, of_auto = (
            verdict(workspace, edit("new.txt"), permissions=permissions, branch=branch)
            for branch in ("ask", "auto")
        )
        assert (of_ask, of_auto) == (as_ask, as_auto)


def test_a_branch_may_not_use_other_mcp_servers_without_asking(workspace: Path) -> None:
    servers = {name: McpServerConfig(command="x") for name in ("remoteclaw", "other")}
    spec = AgentSpec("claude", ("claude",), str(workspace), env={}, mcp_servers=servers)

    assert spec.unasked_servers == ("remoteclaw", "other")
    assert replace(spec, branch="read").unasked_servers == ("remoteclaw",)
    assert replace(spec, permissions="deny").unasked_servers == ()


# -- allow ----------------------------------------------------------------------------------------


@for_each(
    ("rule", "intent"),
    [
        ("Bash", bash("a; b && c")),
        ("Bash(git status)", bash("git status")),
        ("Bash(git status)", bash(" git status ")),
        ("Bash(git status)", bash("git status", cwd="a")),
        ("Bash(make && make test)", bash("make && make test")),
        ("Bash(npm test:*)", bash("npm test")),
        ("Bash(npm test:*)", bash("npm test -- --watch 'one two' *.js")),
        ("Edit", edit("/etc/passwd")),
        ("Write", edit("/etc/passwd")),
        ("Edit(a/**)", edit("a/b/x", "deep/y")),
        ("Edit(.git/info/exclude)", edit(".git/info/exclude")),
        ("Edit(/.claude/**)", edit(".claude/settings.json")),
        ("Edit(//etc/hosts)", edit("/etc/hosts")),
        ("Read", Intent("Read", paths=("/etc/passwd",))),
        ("Read(//etc/**)", Intent("Read", paths=("/etc/passwd",))),
        ("Read(out/beside/**)", Intent("Read", paths=("out/beside/.git/config",))),
        ("WebFetch", Intent("WebFetch", url="ftp://anything")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://Example.org/a?b#c")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="http://example.org:8080")),
        ("WebSearch", Intent("WebSearch")),
        ("mcp__github", Intent("mcp__github__list_issues")),
        ("mcp__github__list_issues", Intent("mcp__github__list_issues")),
    ],
)
def test_an_allow_rule_allows_matching_requests(workspace: Path, rule: str, intent: Intent) -> None:
    assert verdict(workspace, intent, "Bash(other)", rule) == "allow"
    assert verdict(workspace, intent, "Bash(other)", rule, permissions="edits") == "allow"


@for_each(
    "command",
    [
        "git status; rm x",
        "git status && rm x",
        "git status & rm x",
        "git status | sh",
        "git status || rm x",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > x",
        "git status >> x",
        "git status < x",
        "git status <(rm x)",
        "git status\nrm x",
        "git status\rrm x",
        "git status \\\nx",
        "git status\x0brm x",
        "git status\u2028rm x",
        "git status $HOME",
        "git status 'a;b'",
        "git status;",
        "git statusx",
        "git",
        "GIT STATUS",
        "sudo git status",
        "A=1 git status",
        "(git status)",
        "! git status",
        "",
    ],
)
def test_an_allowed_command_does_not_allow_commands_chained_to_it(
    workspace: Path, command: str
) -> None:
    assert verdict(workspace, bash(command), "Bash(git status)") == "ask"
    assert verdict(workspace, bash(command), "Bash(git status:*)") == "ask"


@for_each(
    "words",
    [
        *(
            "/etc/x",
            "../x",
            "out/x",
            "a/../../x",
            "~/x",
            "'~/x'",
            "deep/../../../../x",
            "{{a,/etc/x}}",
        ),
        *("--require /etc/x.js", "--require=/etc/x.js", "-r/etc/x.js", "-xI/etc/x", "-f../x"),
        *("--file=../x", "X=/etc/x", "file:///etc/x", "@/etc/x", "a,/etc/x", "host:/etc/x"),
        *(
            "-- --require ./x.js",
            "--import=./x.js",
            "--loader ./x.js",
            "--node-options=--require=x",
        ),
        *("--script-shell=./x", "--prefix other", "--exec x", "--exec=x", "--exe x", "-exec x"),
        *("-c x", "-e x", "-ce x", "-lc x", "-ne x", "-e'x y'", "-c'x y'", "'-c' x", '"--exec" x'),
        *(
            "--use-compress-program=x",
            "--use-comp x",
            "--to-command=x",
            "--checkpoint-action=exec=x",
        ),
        *("--ext-diff", "--upload-pack=x", "--upload-p=x", "--pre=x", "--pager=x", "--rsh=x"),
        *("*", "o*", "ou?", "/etc/*", "odd/*", "\\-\\-exec", "a\\/b", "[o]ut", "{{a,b}}", "#x"),
    ],
)
def test_a_rule_with_more_arguments_allows_no_files_elsewhere_and_no_programs(
    workspace: Path, words: str
) -> None:
    """Else `npm test` would run a stranger's file: an option of node loads one."""
    (workspace / "odd").mkdir(exist_ok=True)
    (workspace / "odd" / "link").unlink(missing_ok=True)
    (workspace / "odd" / "link").symlink_to("/etc")
    command = f"npm test {words.format()}"

    assert verdict(workspace, bash(command), "Bash(npm test:*)") == "ask"
    assert verdict(workspace, bash(command), "Bash") == "allow"


@for_each(
    "words",
    [
        *(
            "a",
            "a/b x.js",
            "-- --watch 'one two' *.js",
            "--grep=a,b",
            "-x -q tests/test_a.py::test_b",
        ),
        *(
            "--check .",
            "-m 'fix a/b, at 12:30'",
            "https://example.org/a?b=c",
            "--url=http://localhost:1/",
        ),
        *(
            "-rf a",
            "-la",
            "-p a",
            "-race -count=1 -cover",
            "--recursive",
            "--port 80",
            "-j4",
            "HEAD~1",
        ),
    ],
)
def test_a_rule_with_more_arguments_allows_plain_words(workspace: Path, words: str) -> None:
    assert verdict(workspace, bash(f"npm test {words}"), "Bash(npm test:*)") == "allow"


def test_paths_of_a_rule_with_more_arguments_count_from_the_directory_of_the_command(
    workspace: Path,
) -> None:
    for cwd, expected in (("a/b", "allow"), ("a", "allow"), ("", "ask")):
        command = bash("make ../x", cwd=cwd)
        assert verdict(workspace, command, "Bash(make:*)") == expected


@for_each(
    ("rule", "intent"),
    [
        ("Bash(git status)", bash("git status -s")),
        ("Bash(git status)", bash("git status", cwd="out")),
        ("Bash(git status:*)", bash("git status", cwd="/tmp")),
        ("Bash(git status)", edit("git status")),
        ("Edit(a/**)", edit("a/b/x", "y")),
        ("Edit(a/**)", edit("a/../y")),
        ("Edit(a/**)", edit("ab/y")),
        ("Edit(a/**)", edit("a/.git/config")),
        ("Edit(a)", edit("a/b")),
        ("Edit(x)", Intent("Read", paths=("/etc/passwd",))),
        ("Read(a/**)", edit("a/x")),
        ("Read(deep/../x)", Intent("Read", paths=("/etc/x",))),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://evil.example.org/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://example.org.evil/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://example.org@evil/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://evil\\@example.org/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://evil/#@example.org/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://example.org\\@evil/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://example.org:80@evil/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="file://example.org/etc/passwd")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="https://exa\tmple.org/")),
        ("WebFetch(domain:example.org)", Intent("WebFetch", url="")),
        ("WebFetch(domain:example.org)", Intent("WebFetch")),
        ("mcp__github", Intent("mcp__githubevil__tool")),
        ("mcp__github__list", Intent("mcp__github__listen")),
        ("mcp__github__list", Intent("mcp__github")),
        ("WebSearch", None),
    ],
)
def test_an_allow_rule_does_not_allow_other_requests(
    workspace: Path, rule: str, intent: Intent | None
) -> None:
    assert verdict(workspace, intent, rule) == "ask"


@for_each(
    ("rule", "why"),
    [
        ("Bsh", "is no rule: write one of Bash, Bash(COMMAND)"),
        ("Bash()", "is no rule"),
        ("Bash(git status) ", "is no rule"),
        ("Task(x)", "is no rule"),
        ("WebSearch(x)", "is no rule"),
        ("Bash(:*)", "a * is valid only in :* after"),
        ("Bash(*)", "a * is valid only in :* after"),
        ("Bash(npm run *)", "a * is valid only in :* after"),
        ("Bash(cd a && npm:*)", "no operators of a shell"),
        ("Read(**/*.py)", "a directory followed by /**"),
        ("Read(//**)", "for every file, write Read"),
        ("Read(/**/x)", "a directory followed by /**"),
        ("WebFetch(example.org)", "write WebFetch(domain:NAME)"),
        ("WebFetch(domain:*.example.org)", "write WebFetch(domain:NAME)"),
        ("mcp__github__*", "is no rule"),
    ],
)
def test_an_invalid_allow_rule_is_refused_with_the_reason(rule: str, why: str) -> None:
    with pytest.raises(ValueError, match="allow") as refused:
        AgentConfig.model_validate({"allow": ["Read", rule]})

    assert repr(rule) in str(refused.value)
    assert why in str(refused.value)


def test_allow_rules_with_permissions_deny_are_refused() -> None:
    with pytest.raises(ValueError, match='set permissions = "ask", or take allow out'):
        AgentConfig.model_validate({"permissions": "deny", "allow": ["Read"]})


# -- remedies that a refusal names ----------------------------------------------------------------


@for_each(
    "intent",
    [
        bash("git push --force"),
        bash("make && make test"),
        bash('say "it\'s"'),
        bash("ls", cwd="/"),
        edit(".git/config"),
        edit("/etc/hosts", "out/x"),
        Intent("Read", paths=("~user/x",)),
        Intent("Read", paths=("/etc/hosts",)),
        Intent("WebFetch", url="https://example.org/a"),
        Intent("WebFetch"),
        Intent("WebSearch"),
        Intent("mcp__github__list"),
    ],
)
def test_a_refusal_names_the_rule_that_would_allow_the_request(
    workspace: Path, intent: Intent
) -> None:
    spec = AgentSpec("claude", ("claude",), str(workspace), env={}, permissions="edits")
    remedy = decide(PermissionEvent("1", "", {}, None, intent), spec, workspace).remedy

    assert remedy.startswith("allow = [")
    if "…" not in remedy:
        rules = json.loads(remedy.removeprefix("allow = "))
        assert all(map(PermissionRule.parse, rules))
        assert verdict(workspace, intent, *rules) == "allow"
    assert ("…" in remedy) == ("~user/x" in intent.paths)


def test_a_refusal_names_the_permissions_that_would_allow_the_request(workspace: Path) -> None:
    spec = AgentSpec("claude", ("claude",), str(workspace), env={})

    def remedy(intent: Intent | None) -> str:
        return decide(PermissionEvent("1", "", {}, None, intent), spec, workspace).remedy

    assert remedy(edit("new.txt")) == 'permissions = "edits"'
    assert remedy(None) == 'permissions = "auto"'
    for unreadable in ("x" * 300, "a `b`", "ls *", ""):
        assert remedy(bash(unreadable)) == 'allow = ["Bash(…)"]'


@pytest.mark.parametrize("permissions", ["auto", "edits", "ask", "deny"])
def test_no_setting_answers_a_question(workspace: Path, permissions: str) -> None:
    spec = AgentSpec("claude", ("claude",), str(workspace), {}, permissions=permissions)
    event = PermissionEvent("1", "AskUserQuestion", {}, questions=(Question("Which?"),))

    assert decide(event, spec, workspace) == PermissionRuling("ask")
