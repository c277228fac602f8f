"""Opencode: its configuration in the environment, plugins, MCP servers, and the log."""

import asyncio
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.events import CompactionEvent, Intent, PermissionEvent
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec, BridgeCallbacks, Decision, prompt_file
from remoteclaw.runtimes.acp import turn
from remoteclaw.runtimes.opencode.config import ASIDE
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime
from tests.support.bridges import acp_script, agent_bridge
from tests.support.rows import for_each
from tests.support.stack import message
from tests.support.waiting import HANG_S


def texts_of(result: Any) -> list[str]:
    return [payload.text for payload in result.payloads]


@pytest.mark.parametrize("permissions", ["ask", "auto", "deny"])
def test_opencode_gets_our_settings_and_keeps_its_own(tmp_path: Path, permissions: str) -> None:
    own = {"model": "mine/best", "instructions": ["rules.md"], "agent": {"build": {"steps": 3}}}
    spec = AgentSpec(
        runtime="opencode",
        command=("opencode",),
        workspace="/w",
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(own)},
        system_prompt="who you are",
        permissions=permissions,
        mcp_servers={"probe": McpServerConfig(command="probe")},
    )

    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=tmp_path)

    config = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "mine/best"
    assert config["instructions"] == ["rules.md", str(launch.prompt_file)]
    assert launch.prompt_file == prompt_file(tmp_path, "who you are")
    aside = config["agent"].pop(ASIDE)
    assert (aside["mode"], aside["permission"]) == ("primary", {"*": "ask"})
    assert config["agent"].pop("title") == {"disable": True}
    assert config["agent"]["build"].pop("steps") == 3
    last = "" if permissions == "auto" else " *"
    rules = config["permission"]
    assert rules.get(f"*{last}") == (None if permissions == "auto" else "ask")
    server = {"ask": "allow", "auto": None, "deny": "ask"}[permissions]
    assert rules.get(f"probe_*{last}") == server
    assert rules[f"external_directory{last}"][f"{tmp_path}/files/**"] == "allow"
    if permissions == "auto":
        assert config["agent"] == {"build": {}}
    else:
        assert config["agent"]["build"] == {"permission": rules}
        assert '"ask"' not in json.dumps(config["agent"]["general"])
    assert launch.env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert (launch.env.get("OPENCODE_PURE") == "1") is (permissions == "deny")


@pytest.mark.parametrize(
    ("own", "prompt"),
    [
        (
            {"agent": {"build": {"prompt": "Be brief.", "permission": {"bash": "allow"}}}},
            "Be brief.",
        ),
        (
            {
                "agent": {"build": {"prompt": "no"}, "mine": {"prompt": "Yes."}},
                "default_agent": "mine",
            },
            "Yes.",
        ),
        ({}, None),
    ],
)
def test_asides_of_opencode_have_only_the_prompt_of_the_default_mode(
    tmp_path: Path, own: dict[str, Any], prompt: str | None
) -> None:
    """Other settings of the mode may allow tools."""
    spec = AgentSpec(
        runtime="opencode",
        command=("opencode",),
        workspace="/w",
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(own)},
    )

    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=tmp_path)

    aside = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["agent"][ASIDE]
    assert aside.get("prompt") == prompt
    assert aside["permission"] == {"*": "ask"}


PLUGINS = {
    "work/.opencode/plugin/p.js": "",
    "work/.opencode/plugins/p.ts": "",
    "work/opencode.json": '{"plugin": ["./evil.js"]}',
    "work/opencode.jsonc": '{/* */ "plugins" /* */ : [{"package": "evil"}]}',
    "work/.opencode/opencode.json": '{"pl\\u0075gin": ["./evil.js"]}',
    "work/.opencode/opencode.jsonc": " " * 1024 * 1024 + '{"plugin": ["./evil.js"]}',
    ".opencode/plugin/p.js": "",
    "opencode.json": '{"plugin": ["./evil.js"]}',
    "elsewhere/opencode.json": '{"plugin": ["./evil.js"]}',
}


@pytest.mark.parametrize("file", PLUGINS)
def test_opencode_does_not_start_in_a_workspace_with_plugins(directory: Path, file: str) -> None:
    (directory / "elsewhere" / "part").mkdir(parents=True)
    where = "work"
    if file.startswith("elsewhere"):
        (directory / "work").symlink_to("elsewhere/part")
    (directory / file).parent.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text(PLUGINS[file])
    (directory / "work").mkdir(exist_ok=True)
    spec = opencode_in(directory / where, home=directory / "user")

    with pytest.raises(AgentUnavailable, match="trust_workspace = true"):
        OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=directory)

    trusted = dataclasses.replace(spec, trust_workspace=True)
    assert OpencodeRuntime().launch(trusted, session_id=None, fork=False, run_dir=directory)


def test_opencode_starts_in_a_workspace_without_plugins(directory: Path) -> None:
    """Plugins in the user's home are the user's own and allowed."""
    work = directory / "work"
    harmless = {
        "work/.opencode/plugin/readme.md": "",
        "work/opencode.json": '{"model": "mine/best", "mcp": {}}',
        "work/opencode.jsonc/a": "",
        ".opencode/plugins/mine.js": "",
        "opencode.json": '{"plugin": ["mine"]}',
    }
    for name, content in harmless.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    spec = opencode_in(work, home=directory)

    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=directory)

    assert launch.cwd == str(work)


def test_a_pipe_instead_of_a_settings_file_does_not_block_the_start(directory: Path) -> None:
    os.mkfifo(directory / "opencode.json")

    with pytest.raises(AgentUnavailable):
        OpencodeRuntime().launch(
            opencode_in(directory, home=directory), session_id=None, fork=False, run_dir=directory
        )


def opencode_in(workspace: Path, *, home: Path) -> AgentSpec:
    return AgentSpec(
        runtime="opencode",
        command=("opencode",),
        workspace=str(workspace),
        env={"HOME": str(home)},
        system_prompt="",
        permissions="deny",
    )


async def test_an_agent_that_is_not_allowed_to_start_leaves_no_run_directory(home: Home) -> None:
    command = ("/bin/true",)
    async with agent_bridge(home, "opencode", command=command) as (bridge, *_):
        (home.path / "work" / "opencode.json").write_text('{"plugin": ["evil"]}')
        result = await bridge.handle(message("hello"))

    assert result.error_category is ErrorCategory.NOT_INSTALLED
    assert "opencode.json makes opencode run plugins" in str(result.error)
    assert [*home.runs.iterdir()] == []


@for_each("own", [None, "allow", {"external_directory": "ask"}])
@for_each("permissions", ["ask", "auto", "deny"])
def test_opencode_hides_mcp_servers_that_are_not_inherited(
    tmp_path: Path, permissions: str, own: Any
) -> None:
    config = {"permission": own} if own else {}
    spec = AgentSpec(
        runtime="opencode",
        command=("opencode",),
        workspace="/w",
        env={"OPENCODE_CONFIG_CONTENT": json.dumps(config)},
        system_prompt="",
        permissions=permissions,
        inherit_mcp=False,
        mcp_servers={"probe": McpServerConfig(command="probe")},
    )

    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=tmp_path)

    rules = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["permission"]
    last = "" if permissions == "auto" else " *"
    order = [*rules]
    assert rules[f"*_*{last}"] == "deny"
    assert rules[f"read{last}"] == {"*": "allow", "mcp:*": "deny", "mcp:probe:*": "allow"}
    assert rules[f"probe_*{last}"] == ("ask" if permissions == "deny" else "allow")
    later = (order.index(f"{name}{last}") for name in ("probe_*", "doom_loop"))
    assert order.index(f"*_*{last}") < min(later)
    assert f"*_*{last}" in order[: order.index(f"external_directory{last}")]


def test_no_name_of_a_server_overrides_opencodes_rules_to_ask(tmp_path: Path) -> None:
    spec = AgentSpec(
        runtime="opencode",
        command=("opencode",),
        workspace="/w",
        env={},
        system_prompt="",
        mcp_servers={
            "external": McpServerConfig(command="x"),
            "doom": McpServerConfig(command="x"),
        },
    )

    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=tmp_path)

    rules = [*json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["permission"]]
    assert rules.index("external_* *") < rules.index("external_directory *")
    assert rules.index("doom_* *") < rules.index("doom_loop *")


#: Lines of opencode's log, as version 1.18.33 prints them.
LOG = "timestamp=2026-11-22T04:30:48.169Z level=INFO run=e82e28e3 message="
NOTES = (
    "def note(words, session='s'):\n"
    f"    line = {LOG!r} + words.format(session)\n"
    "    if 'error' in words: line = line.replace('INFO', 'ERROR')\n"
    "    print(line, file=sys.stderr, flush=True)\n"
    "def message(name, words):\n"
    "    update('agent_message_chunk', messageId=name, content=dict(type='text', text=words))\n"
    "def stream(name, agent, session='s'):\n"
    "    note('process session.id={} messageID=' + name, session)\n"
    "    note('stream providerID=p session.id={} small=false agent=' + agent, session)\n"
)


async def test_text_of_an_opencode_compaction_is_recognized_by_the_log_and_dropped(
    home: Home, directory: Path
) -> None:
    body = NOTES + (
        "prompt = begin()\n"
        "stream('m1', 'build'); message('m1', 'first')\n"
        "stream('m2', 'compaction'); message('m2', '## Objective'); message('m2', ' none')\n"
        "stream('m3', 'compaction', session='another'); message('m3', 'last')\n"
        "answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "opencode", command=command) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert texts_of(result) == ["first\n\nlast"]
    assert result.compaction == CompactionEvent("done", summary="## Objective none")


@pytest.mark.parametrize(
    ("summary", "last", "done"),
    [
        ("message('m2', 'so far')", "answer(prompt, stopReason='end_turn')", "so far"),
        ("pass", "answer(prompt, stopReason='end_turn')", None),
        ("message('m2', 'so')", "fail(prompt, -32603, 'too long')", None),
    ],
)
async def test_opencode_has_compacted_only_with_a_whole_summary(
    home: Home, directory: Path, summary: str, last: str, done: str | None
) -> None:
    """It answers a request to compact without an error even if the model refused it."""
    body = NOTES + (
        "answer(begin(), stopReason='end_turn'); prompt = asked('session/prompt')\n"
        "assert prompt['params']['prompt'][0]['text'] == '/compact'\n"
        f"stream('m2', 'compaction'); {summary}; {last}; asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "opencode", command=command) as (bridge, *_):
        await bridge.handle(message("hello"))
        compacted = await bridge.compact_last(asyncio.Event())

    assert compacted.done == (CompactionEvent("done", "manual", summary=done) if done else None)


async def test_log_lines_are_not_reported_as_the_reason_of_an_exit(
    home: Home, directory: Path
) -> None:
    body = NOTES + (
        "begin(); note('x error=\"401 unauthorized\"')\n"
        "print('out of memory', file=sys.stderr); sys.exit(1)\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "opencode", command=command) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert result.error == "opencode ended in mid-turn: out of memory"


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ('error.error="AI_APICallError: The usage limit is reached"', ErrorCategory.USAGE_LIMIT),
        ('small=true error.error="The usage limit is reached"', None),
        ('error.error="The model `x` does not exist."', None),
    ],
)
async def test_retries_of_opencode_are_read_from_its_log(
    home: Home, directory: Path, reason: str, category: ErrorCategory | None
) -> None:
    next_step = "pass" if category is None else "asked('session/cancel')"
    body = NOTES + (
        f"prompt = begin(); note('\"stream error\" session.id={{}} ' + {reason!r})\n"
        f"text('x'); {next_step}; answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with asyncio.timeout(HANG_S), agent_bridge(home, "opencode", command=command) as (b, *_):
        result = await b.handle(message("hello"))

    assert result.error_category is category


async def test_a_text_that_opencode_asks_for_again_replaces_the_first_part(
    home: Home, directory: Path
) -> None:
    """A second request for the same message repeats the first, whose stream has broken."""
    body = NOTES + (
        "def settle(name):\n"  # until everything so far has been read
        "    say(jsonrpc='2.0', id=name, method='x', params={})\n"
        "    while asked().get('id') != name: pass\n"
        "prompt = begin()\n"
        "stream('m1', 'build'); message('m1', 'one two'); settle('a')\n"
        "note('stream providerID=p session.id={} small=false agent=build')\n"
        "message('m1', 'one two three'); settle('b')\n"
        "stream('m2', 'build'); message('m2', 'four')\n"
        "answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with agent_bridge(home, "opencode", command=command) as (bridge, *_):
        result = await bridge.handle(message("hello"))

    assert texts_of(result) == ["one two three\n\nfour"]


@pytest.mark.parametrize(
    ("late", "usage", "is_done"),
    [
        # the retry that opencode has begun answers before opencode is stopped
        ("asked('session/cancel'); message('m1', 'late words')", 7, True),
        # opencode is stopped in the middle of that answer
        ("asked('session/cancel'); message('m1', 'late words')", 0, False),
        # the retry does not answer
        ("asked('session/cancel')", 0, False),
    ],
)
async def test_a_late_answer_counts_and_one_that_breaks_off_is_called_so(
    home: Home, directory: Path, late: str, usage: int, is_done: bool
) -> None:
    limit = '\'"stream error" session.id={} error.error="The usage limit is reached"\''
    body = NOTES + (
        f"prompt = begin(); stream('m1', 'build'); note({limit})\n{late}\n"
        f"answer(prompt, stopReason='end_turn', usage=dict(outputTokens={usage}))\n"
        "asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with asyncio.timeout(HANG_S), agent_bridge(home, "opencode", command=command) as (b, *_):
        result = await b.handle(message("hello"))

    shown = "\n".join(texts_of(result))
    assert (result.error_category is None) is is_done
    assert ("late words" in shown) is ("late words" in late)
    assert ("The answer above breaks off" in shown) is ("late words" in late and not is_done)
    assert ("Your message was not answered" in shown) is ("late words" not in late)


async def test_a_summary_that_fails_behind_the_answer_leaves_the_turn_done(
    home: Home, directory: Path
) -> None:
    limit = '\'"stream error" session.id={} error.error="The usage limit is reached"\''
    body = NOTES + (
        "prompt = begin(); stream('m1', 'build'); message('m1', 'the answer')\n"
        f"stream('m2', 'compaction'); note({limit})\n"
        "asked('session/cancel'); answer(prompt, stopReason='end_turn'); asked('nothing')\n"
    )
    command = acp_script(directory, body)
    async with asyncio.timeout(HANG_S), agent_bridge(home, "opencode", command=command) as (b, *_):
        result = await b.handle(message("hello"))

    assert result.error_category is None
    assert texts_of(result) == ["the answer"]


@pytest.mark.parametrize(("updates", "cwd"), [(True, "sub"), (False, None)])
async def test_a_command_is_decided_once_its_directory_is_known(
    home: Home, directory: Path, updates: bool, cwd: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opencode asks before it reports the arguments, of which the request has only the command."""
    monkeypatch.setattr(turn, "ARGUMENTS_S", HANG_S if updates else 0.1)
    body = f"""
prompt = begin()
options = [dict(optionId=kind, kind=kind, name=kind) for kind in ("allow_once", "reject_once")]
update("tool_call", toolCallId="1", title="bash", status="pending", rawInput=dict(cwd="/work"))
for number, kind, more in ((8, "other", dict(directories=["/etc"])), (9, "execute", dict())):
    say(jsonrpc="2.0", id=number, method="session/request_permission", params=dict(
        sessionId="s", options=options, toolCall=dict(
            toolCallId="1", title="make", kind=kind, rawInput=dict(command="make", **more))))
    if {updates} and number == 8:
        update("tool_call_update", toolCallId="1", title="make", status="in_progress",
            rawInput=dict(command="make", workdir="sub"))
    asked()
answer(prompt, stopReason="end_turn")
"""
    intents: list[Intent | None] = []

    async def allow(event: PermissionEvent) -> Decision:
        assert event.input["command"] == "make"
        intents.append(event.intent)
        return Decision("allow")

    command = acp_script(directory, body)
    async with agent_bridge(home, "opencode", command=command, permissions="ask") as (bridge, *_):
        async with asyncio.timeout(HANG_S):
            await bridge.handle(message("go"), BridgeCallbacks(on_permission=allow))

    assert intents == [Intent("Bash", command="make", cwd=cwd)] * 2


# -- the user's own configuration -----------------------------------------------------------------


def rules_with(directory: Path, files: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Return opencode's configuration with these files of the user."""
    for name, content in files.items():
        file = directory / "user" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    spec = dataclasses.replace(opencode_in(directory, home=directory / "user"), **options)
    launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=directory)
    config: dict[str, Any] = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    return config


def test_every_agent_of_opencode_gets_our_rules_and_a_subagent_asks_nothing(
    directory: Path,
) -> None:
    files = {
        ".config/opencode/opencode.jsonc": '{"agent": {"a": {"mode": "primary"},}, // own\n}',
        ".opencode/agent/team/b.md": "---\npermission:\n  bash: allow\n---\n",
        ".config/opencode/modes/c.md": "---\ntools:\n  bash: true\n---\n",
        ".config/opencode/agents/d.md": "---\nmode: primary\npermission: {edit: deny}\n---\n",
        "own.json": {"mode": {"e": {}}, "default_agent": "f"},
        "more/opencode.json": {"agent": {"g": {"permission": "allow"}}},
    }
    env = {
        "HOME": str(directory / "user"),
        "OPENCODE_CONFIG": str(directory / "user" / "own.json"),
        "OPENCODE_CONFIG_DIR": str(directory / "user" / "more"),
    }

    config = rules_with(directory, files, permissions="edits", env=env)

    main = {"build", "plan", "a", "c", "e", "f"}
    for name in (*main, "team/b", "g", "general", "explore"):
        rules = config["agent"][name]["permission"]
        assert rules["bash *"] == ("ask" if name in main else "deny")
        assert rules["* *"] == ("ask" if name in main else "deny")
        assert rules["glob *"] == "allow"
    assert "d" not in config["agent"]  # it allows nothing, and keeps what it refuses
    assert config["agent"]["plan"]["permission"]["edit *"] == "deny"
    assert config["agent"]["build"]["permission"]["task *"]["team/b"] == "allow"
    assert (config["share"], config["formatter"], config["lsp"]) == ("disabled", False, False)
    assert config["snapshot"] is False


def test_what_the_user_has_opencode_refuse_stays_refused(directory: Path) -> None:
    own = {
        "permission": {
            "*": "allow",
            "webfetch": "deny",
            "bash": {"*": "allow", "rm *": "deny"},
            "read": {"*.key": "deny"},
        },
        "agent": {"build": {"permission": {"edit": "deny"}}},
    }
    env = {"HOME": str(directory / "user"), "OPENCODE_PERMISSION": '{"websearch": "deny"}'}

    config = rules_with(
        directory, {".config/opencode/opencode.json": own}, permissions="ask", env=env
    )

    rules = config["permission"]
    assert (rules["webfetch *"], rules["websearch *"], rules["write *"]) == ("deny", "deny", "ask")
    assert rules["bash *"] == {"*": "ask", "rm *": "deny"}
    assert rules["read *"] == {"*": "allow", "*.key": "deny"}
    assert (rules["edit *"], config["agent"]["build"]["permission"]["edit *"]) == ("ask", "deny")


def test_a_variable_with_permissions_does_not_reach_opencode(directory: Path) -> None:
    env = {"HOME": str(directory), "OPENCODE_PERMISSION": '{"bash": "allow"}'}
    for permissions in ("ask", "auto"):
        spec = opencode_in(directory, home=directory)
        spec = dataclasses.replace(spec, env=env, permissions=permissions)
        launch = OpencodeRuntime().launch(spec, session_id=None, fork=False, run_dir=directory)
        assert ("OPENCODE_PERMISSION" in launch.env) is (permissions == "auto")


def test_tools_and_plugins_of_the_user_are_named_and_unused_under_deny(directory: Path) -> None:
    files = {
        ".config/opencode/tool/deploy.ts": "",
        ".opencode/plugins/p.js": "",
        ".config/opencode/opencode.json": {"plugin": ["some-package"]},
    }
    rules = rules_with(directory, files)["permission"]
    spec = opencode_in(directory, home=directory / "user")

    openings = OpencodeRuntime().openings(dataclasses.replace(spec, permissions="ask"))

    assert (rules["deploy *"], rules["deploy_* *"]) == ("deny", "deny")
    assert OpencodeRuntime().openings(spec) == []
    named = "\n".join(openings)
    assert all(name in named for name in ("tool/deploy.ts", "plugins/p.js", "some-package"))
    assert "deploy *" not in rules_with(directory, {}, permissions="ask")["permission"]
