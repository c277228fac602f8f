"""The workspace of the agent: the question, the stored answer and the introduction of `up`."""

import contextlib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from remoteclaw.cli import main
from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.up.agents import fallbacks_problem, introduction, rules_problem
from tests.support.command import REMOTECLAW
from tests.support.terminal import Terminal, env
from tests.support.up import running

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(directory: Path) -> Path:
    """A directory with a file that the demo agent names when it lists its workspace."""
    path = directory / "project"
    path.mkdir()
    (path / "plan.txt").touch()
    return path


def kept(home: Home) -> object:
    """Return the table `agents` of the configuration file."""
    return tomllib.loads(home.config_file.read_text())["agents"]


@contextlib.contextmanager
def start(home: Home, project: Path, *options: str, **more: str) -> Iterator[Terminal]:
    """Run `up` in a terminal in `project`."""
    command = (REMOTECLAW, "up", *options)
    with Terminal.running(*command, env=env(home, **more), directory=project) as terminal:
        yield terminal


def leave(terminal: Terminal) -> None:
    terminal.type("exit\r")
    assert terminal.leave() == 0


def test_up_asks_once_whether_the_agent_works_in_this_project(home: Home, project: Path) -> None:
    with start(home, project) as terminal:
        terminal.see(f"Should it work here, in {project}? [Y/n]")
        terminal.type("\r")
        terminal.see("›")
        terminal.type("hello\r")
        shown = terminal.see("what happens when an agent dies.")
        assert "plan.txt" in shown
        assert f"  works in {project}\n" in shown
        leave(terminal)
    assert kept(home) == {"main": {"workspace": str(project)}}
    assert (project / ".demo-agent/.gitignore").read_text() == "*\n"

    (another := project.with_name("another")).mkdir()
    with start(home, another) as terminal:
        shown = terminal.see("›")
        assert "Should it work here" not in shown
        assert f"  works in {project}\n" in shown
        leave(terminal)


def test_the_answer_no_about_the_project_is_stored(home: Home, project: Path) -> None:
    with start(home, project) as terminal:
        terminal.see("[Y/n]")
        terminal.type("n\r")
        terminal.see("›")
        leave(terminal)

    assert kept(home) == {"main": {"workspace": str(home.workspaces / "main")}}


def test_up_without_a_terminal_prints_the_option_for_the_project_and_takes_yes(
    home: Home, project: Path
) -> None:
    with contextlib.chdir(project):
        printed: list[str] = []
        with running(home, printed):
            command = f"`remoteclaw up {project}`"
            assert f"  hint     {command}, or --yes, makes it work here\n" in printed
            assert f"  works in {home.workspaces}/main, a directory of its own\n" in printed
            assert "  page     `remoteclaw open` prints a link to it that logs you in\n" in printed
            assert "/#" not in "".join(printed)
        assert not home.config_file.exists()

        with running(home, printed, "--yes"):
            pass
    no_chat = "There is no chat here: use the page, or `remoteclaw chat` in a terminal.\n"
    assert no_chat in printed
    assert f"  works in {project}\n" in printed
    assert kept(home) == {"main": {"workspace": str(project)}}


def test_up_names_once_what_is_not_passed_to_agents(home: Home) -> None:
    set_here = {"SSH_AUTH_SOCK": "/run/ssh", "GH_TOKEN": "of-a-person", "EDITOR": "vi"}
    home.config_file.write_text(
        "[agents.main]\n[agents.coder]\n[agents.tester]\nenv_pass = ['GH_TOKEN', 'JAVA_HOME']"
    )

    printed: list[str] = []
    with running(home, printed, **set_here):
        pass

    assert [line for line in printed if "SSH_AUTH_SOCK" in line or "JAVA_HOME" in line] == [
        "  problem  tester: JAVA_HOME of its env_pass is not set here\n",
        "  hint     SSH_AUTH_SOCK, GH_TOKEN: set here, and not passed to main, coder. "
        '[agents.main] env_pass = ["SSH_AUTH_SOCK", "GH_TOKEN"] passes them, env_pass = [] hides '
        "this\n",
    ]
    assert "of-a-person" not in "".join(printed)

    home.config_file.write_text("agents.main.env_pass = []")
    with running(home, printed, **set_here):
        assert "SSH_AUTH_SOCK" not in "".join(printed)


@pytest.mark.parametrize("place", ["HOME", "/", "checkout", "state"])
def test_up_does_not_ask_in_a_directory_that_is_no_project(
    home: Home, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remoteclaw.cli.up import _project

    places: dict[str, str | Path] = {"HOME": os.environ["HOME"], "checkout": ROOT / "tests"}
    places["state"] = home.path
    monkeypatch.chdir(places.get(place, place))

    assert _project(home) is None


def test_options_of_up_are_stored_and_a_second_up_opens_a_chat_with_the_first(
    home: Home, project: Path
) -> None:
    with start(home, project, "--runtime", "demo", str(project)) as first:
        first.see("›")
        assert kept(home) == {"main": {"workspace": str(project), "runtime": "demo"}}
        second_up = f"already runs in {home.path} (process {first.pid}): this is the chat with it."
        with start(home, project) as second:
            second.see_words(second_up)
            second.see("›")
            second.type("hello\r")
            second.see("what happens when an agent dies.")
            leave(second)
        first.see("what happens when an agent dies.")
        leave(first)


@pytest.mark.parametrize(
    ("options", "why", "code"),
    [
        (("--workspace", "nowhere"), "Directory 'nowhere' does not exist.", 2),
        (("--no-chat", "nowhere"), "Directory 'nowhere' does not exist.", 2),
        ((".", "--workspace", "."), "DIR and --workspace are the same: give one of them.", 2),
        (("--agent", "nobody"), "There is no agent 'nobody': the configuration has 'main'.", 1),
        (("--runtime", "clod"), "'clod' is none of claude, codex, ", 1),
        (("--workspace", ".."), "contains RemoteClaw's state directory", 1),
    ],
)
def test_invalid_options_of_up_are_refused_before_anything_starts(
    home: Home, options: tuple[str, ...], why: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.path)

    result = CliRunner().invoke(main, ["up", *options])

    assert result.exit_code == code
    assert why in result.output.replace("\n", " ")
    assert not home.config_file.exists()
    assert not (home.path / "redis").exists() or not any((home.path / "redis").iterdir())


def test_up_says_what_the_agent_may_do(
    home: Home, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = AgentConfig(runtime="claude", workspace=project, permissions="auto", model="opus")

    lines = dict(introduction(home, "main", settings))

    assert lines["agent"] == "main is claude, as configured"
    assert lines["model"] == "opus"
    assert lines["works in"] == str(project)
    assert lines["may"].startswith("run commands, change files and use every tool without asking")
    assert "CLAUDE.md" in lines["ignores"]
    assert "careful" not in lines

    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert "you are root" in dict(introduction(home, "main", settings))["careful"]
    default = AgentConfig(runtime="claude")
    assert "careful" not in dict(introduction(home, "main", default))
    assert dict(introduction(home, "main", default))["model"] == "what claude itself is set to"


def test_up_names_permissions_that_the_cli_cannot_enforce(home: Home) -> None:
    rules = ("Bash(git status)", "Read", "WebFetch", "WebFetch(domain:example.org)", "mcp__theirs")

    def problem(runtime: str, permissions: str = "edits", **more: Any) -> str:
        settings = AgentConfig.model_validate(
            {"runtime": runtime, "permissions": permissions, "allow": rules, **more}
        )
        return rules_problem(settings) or ""

    ineffective = "WebFetch(domain:example.org), mcp__theirs in its allow has no effect with gemini"
    assert problem("claude") == problem("demo") == problem("codex", "auto") == ""
    assert problem("codex").startswith("Read, WebFetch, WebFetch(domain:example.org) in its allow")
    assert problem("gemini").startswith(f"Read, {ineffective}")
    assert problem("opencode").startswith("mcp__theirs in its allow has no effect with opencode")
    assert '"edits" is like "ask"' in problem("acp", command=["some-agent"])
    settings = AgentConfig(runtime="claude", permissions="edits", allow=rules)
    lines = introduction(home, "main", settings)
    assert any("change files in that directory" in text for _, text in lines)
    assert any("Bash(git status), Read" in text for _, text in lines)


def test_up_names_fallbacks_that_cannot_keep_to_the_agents_rules(home: Home) -> None:
    config = Config.model_validate(
        {
            "agents": {
                "main": {
                    "runtime": "claude",
                    "allow": ["Read(~/notes/**)"],
                    "fallbacks": ["opus", "agent:codex", "agent:second", "agent:other"],
                },
                "codex": {"runtime": "codex"},
                "second": {"runtime": "claude"},
                "other": {"runtime": "acp", "command": ["some-agent"]},
            }
        }
    )

    assert fallbacks_problem(home, config, "main") == (
        "agent:codex in its fallbacks is never asked: codex can't keep to Read(~/notes/**) in "
        "allow; agent:other in its fallbacks is never asked: an ACP agent decides by itself what "
        "it asks for"
    )
    assert fallbacks_problem(home, config, "codex") is None
