"""Codex's own program in a terminal: its launch, and its activity (states, title, rollout)."""

import itertools
import os
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec, Launch
from remoteclaw.runtimes.codex.runtime import CodexRuntime
from remoteclaw.runtimes.codex.terminal import CodexTerminal, CodexWatch

ID = "01a207ba-dadb-7820-a23c-83adb57e1d47"
SPEC = AgentSpec(
    runtime="codex",
    command=("codex",),
    workspace="/w",
    env={"HOME": "/home/ada"},
    system_prompt='who you are: "Ada\'s"',
    mcp_servers={
        "remoteclaw": McpServerConfig(url="http://x", headers={"Authorization": "Bearer secret"}),
        "notes": McpServerConfig(command="printenv", args=("KEY",), env={"KEY": "it's $secret"}),
    },
    tools=("send",),
)
BUSY_TITLE, WAITING_TITLE, IDLE_TITLE = (
    "⠂ scripted | w",
    "[ ! ] Action Required | w",
    "scripted | w",
)


def launched(spec: AgentSpec, run_dir: Path, *, id_: str | None = ID, prompt: str = "") -> Launch:
    run_dir.mkdir(exist_ok=True)
    return CodexTerminal().launch(spec, session_id=id_, prompt=prompt, run_dir=run_dir)


def options_of(argv: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of codex's `-c` options."""
    options = [words for flag, words in itertools.pairwise(argv) if flag == "-c"]
    return tomllib.loads("\n".join(options))


# -- the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "note", "expected"),
    [("o", "hash d @point", "o"), (None, "hash d @point", "d"), (None, "hash @point", None)],
)
def test_codexs_terminal_has_the_chosen_or_the_default_model(
    directory: Path, chosen: str | None, note: str, expected: str | None
) -> None:
    """Without one, codex continues a thread with its last model."""
    launch = launched(replace(SPEC, model=chosen, note=note), directory / "run")

    assert options_of(launch.argv).get("model") == expected


def test_secrets_are_in_no_command_line(directory: Path) -> None:
    launch = launched(SPEC, directory / "run", prompt="--help")

    assert "secret" not in " ".join(launch.argv), "other users read command lines"
    assert launch.argv[-2:] == ("--", "--help"), "a prompt is never an option"
    options = options_of(launch.argv)
    (name,) = options["mcp_servers"]["remoteclaw"]["env_http_headers"].values()
    assert launch.env[name] == "Bearer secret"
    assert name.startswith(options["shell_environment_policy"]["exclude"][-1].rstrip("*"))
    server = options["mcp_servers"]["notes"]
    started = subprocess.run(
        [server["command"], *server["args"]], capture_output=True, text=True, check=True
    )
    assert started.stdout == "it's $secret\n"
    assert {file.stat().st_mode & 0o777 for file in (directory / "run").iterdir()} == {0o600}


def test_a_terminal_has_the_same_options_as_a_turn(directory: Path) -> None:
    spec = replace(SPEC, model="gpt", inherit_mcp=False, env={"HOME": str(directory)})
    (directory / ".codex").mkdir()
    (directory / ".codex" / "config.toml").write_text('[mcp_servers.own]\ncommand = "x"\n')
    turn = CodexRuntime().launch(spec, session_id=ID, fork=False, run_dir=directory / "run")
    terminal = options_of(launched(spec, directory / "run").argv)

    of_turn = options_of(turn.argv)
    of_turn["mcp_servers"] |= terminal["mcp_servers"]
    assert of_turn["features"].pop("view_image") is False
    assert of_turn["mcp_servers"]["own"] == {"enabled": False}
    assert terminal == {**terminal, **of_turn}
    assert terminal["model"] == "gpt"


@pytest.mark.parametrize(
    ("permissions", "asks", "sandbox"),
    [
        *(("ask", True, "read-only"), ("edits", True, "read-only")),
        *(("auto", False, "danger-full-access"), ("deny", False, "read-only")),
    ],
)
def test_a_terminal_has_the_permissions_of_its_agent(
    directory: Path, permissions: str, asks: bool, sandbox: str
) -> None:
    options = options_of(launched(replace(SPEC, permissions=permissions), directory / "run").argv)

    assert (options["approval_policy"] != "never") is asks
    assert options["sandbox_mode"] == sandbox
    mode = options["mcp_servers"]["remoteclaw"]["default_tools_approval_mode"]
    assert mode == ("prompt" if permissions == "deny" else "approve")


def test_only_a_new_codex_thread_gets_the_instructions(directory: Path) -> None:
    begun = launched(SPEC, directory / "new", id_=None).argv
    resumed = launched(SPEC, directory / "run").argv

    assert options_of(begun)["developer_instructions"] == SPEC.system_prompt
    assert "developer_instructions" not in options_of(resumed)
    assert resumed[1:4] == ("--no-daemon", "resume", ID)


# -- activity -------------------------------------------------------------------------------------


class Codex:
    """Stands in for a codex: reports its states, sets its title and writes its rollout."""

    def __init__(self, directory: Path) -> None:
        self.home, self.run_dir = directory, directory / "run"
        launched(SPEC, self.run_dir)
        self.new_watch()

    def new_watch(self) -> None:
        """Start a new watch, as a restarted gateway does."""
        self.watch: CodexWatch = CodexTerminal().watch(
            run_dir=self.run_dir, workspace="/w", env={"HOME": str(self.home)}, conversation=ID
        )

    def report(self, state: str) -> str:
        self.watch.osc(7501, f"state={state}")
        return self.watch.activity

    def title(self, text: str) -> str:
        self.watch.title(text)
        return self.watch.activity

    async def poll(self) -> str:
        await self.watch.poll()
        return self.watch.activity

    def typed(self) -> str:
        self.watch.typed()
        return self.watch.activity

    def rollout(self, id_: str = ID) -> Path:
        day = self.home / ".codex" / "sessions" / "2026" / "11" / "23"
        day.mkdir(parents=True, exist_ok=True)
        return day / f"rollout-2026-11-23T09-26-55-{id_}.jsonl"

    def record(self, kind: str) -> None:
        with self.rollout().open("ab") as file:
            file.write(orjson.dumps({"type": "event_msg", "payload": {"type": kind}}) + b"\n")


@pytest.fixture
def codex(directory: Path) -> Codex:
    return Codex(directory)


async def test_an_idle_title_alone_leaves_the_activity_unknown(codex: Codex) -> None:
    await codex.watch.poll()
    assert (codex.watch.activity, codex.watch.is_ready) == ("unknown", False)
    codex.watch.osc(9, "state=idle")
    assert not codex.watch.is_ready
    assert codex.title(IDLE_TITLE) == "unknown"
    assert codex.report("sleeping") == "unknown"


def test_codex_is_idle_only_if_its_state_and_its_title_agree(codex: Codex) -> None:
    assert codex.report("idle:app=codex") == "idle"
    assert codex.watch.is_ready
    assert codex.report("working:app=codex") == "busy"
    assert codex.report("blocked:app=codex:kind=permission") == "waiting"
    assert codex.watch.waiting_for == "permission"
    assert codex.title(BUSY_TITLE) == "waiting", "the title's spinner turns for another half second"
    assert codex.report("working") == "busy"
    for state in ("done", "error"):
        assert codex.report(state) == "busy", "its title is the busy one"
    assert codex.title(WAITING_TITLE) == "waiting"
    assert codex.title(IDLE_TITLE) == "idle"


def test_after_a_key_while_idle_the_activity_is_unknown_even_after_a_restart(codex: Codex) -> None:
    codex.report("done")
    assert codex.typed() == "unknown"
    assert codex.report("idle") == "unknown", "codex reports this at any key press"

    codex.new_watch()
    assert codex.report("idle") == "unknown"
    codex.report("working")
    assert codex.typed() == "busy"
    assert codex.report("done") == "idle"
    codex.new_watch()
    assert codex.report("done") == "idle"


async def test_a_new_watch_learns_from_the_rollout_that_a_turn_is_over(codex: Codex) -> None:
    codex.record("task_started")
    codex.title(IDLE_TITLE)
    assert await codex.poll() == "busy"

    codex.record("turn_aborted")
    codex.new_watch()
    assert await codex.poll() == "unknown", "its title is not known"
    assert codex.title(IDLE_TITLE) == "idle"
    assert codex.title(WAITING_TITLE) == "waiting"


async def test_another_codex_in_the_same_workspace_is_not_mistaken_for_this_one(
    codex: Codex, directory: Path
) -> None:
    """Both run at the same time."""
    other, own = (f"01a207bb-234f-7213-b77a-{number:012}" for number in (1, 2))
    mark = {"REMOTECLAW_TERMINAL": str(codex.run_dir)}
    with (
        writer(codex.rollout(other), dict(os.environ)),
        writer(codex.rollout(own), {**os.environ, **mark}),
    ):
        await codex.watch.poll()

    assert codex.watch.conversation == own
    codex.new_watch()
    assert codex.watch.conversation == own, "even after its process has ended"
    transcript = codex.watch.transcript
    assert transcript is not None
    assert transcript.end() != "", "its file exists"


def writer(file: Path, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process that keeps a file open until its input ends."""
    script = 'exec 3>>"$0"; echo; read x'
    process = subprocess.Popen(
        ["/bin/sh", "-c", script, str(file)],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    file.write_text("{}\n")
    return process
