"""Recordings of real CLIs, for replays without them.

    python -m tests.support.recording [CLI …]

records the installed CLIs (scripts/record); git shows the changes.
A recording is a file of JSON lines in order: `to` and `from` the CLI, and `event` for what our
runtime made of them. Directories and addresses are replaced by fixed ones.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import FleetConfig
from remoteclaw.events import AgentEvent, PermissionEvent
from remoteclaw.protocols import AgentProcess, AgentSpec, Decision
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.runtimes.pipes import LinePipes
from remoteclaw.session import agent as keeper_module
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.up.agents import version_of
from tests.support.agents import AgentCli, ModelServerProcess, find_cli

DIRECTORY = Path(__file__).parents[1] / "recordings"
#: The replaced workspace, run directory, home directory and model address.
WORKSPACE, RUN, USER, MODEL = "/work", "/run/agent", "/home/me", "http://model.invalid"
#: The messages of a recording, one for each turn.
PROMPTS = (
    "SAY:hello from the model",
    "THINK:pondering\nSAY:an answer",
    "LONG:3000",
    "SHELL:touch made-by-the-agent",
    "HTTP:401",
    "SAY:fine again",
    "HTTP:400:context",
)
#: How many requests for a summary the model refuses, so that no CLI repairs the last failure.
REFUSED_SUMMARIES = 99
#: Ids that each process generates.
_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f-]{27}$")


def spec_of(name: str, workspace: str = WORKSPACE, **more: Any) -> AgentSpec:
    """Return the specification of a recorded agent."""
    fields: dict[str, Any] = {"command": (name,), "env": {}, **more}
    return AgentSpec(
        runtime=name, workspace=workspace, system_prompt="You are being recorded.", **fields
    )


async def conversation(process: AgentProcess) -> AsyncIterator[AgentEvent]:
    """Send all messages and deny all permissions; yield the agent's events."""
    for prompt in PROMPTS:
        async for event in process.turn(prompt):
            if isinstance(event, PermissionEvent):
                await process.answer(event.id, Decision("deny", "Not while it is recorded."))
            yield event


#: Fields of a permission request that are empty, or that only the bridge sets.
_UNSET = re.compile(
    r", (?:(?:(?:full_)?description|workspace|incomplete)=''|questions=\(\)|plan=None"
    r"|awaits_edits=False)"
)


def described(event: AgentEvent) -> str:
    """Return an event of a runtime in the short form of a recording."""
    return _UNSET.sub("", repr(event))


# -- recording ------------------------------------------------------------------------------------


class Tap(LinePipes):
    """Pipes that record all lines."""

    lines: list[tuple[str, bytes]]

    async def read(self) -> bytes | None:
        """Return the next line."""
        line = await super().read()
        if line is not None:
            self.lines.append(("from", line))
        return line

    def take_unread(self) -> list[bytes]:
        """Return the lines that have arrived."""
        lines = super().take_unread()
        self.lines += [("unread", line) for line in lines]
        return lines

    async def write(self, line: bytes) -> None:
        """Send one line."""
        self.lines.append(("to", line))
        await super().write(line)


async def record(cli: AgentCli, directory: Path) -> list[dict[str, Any]]:
    """Return a conversation with a real CLI, as lines of a recording."""
    os.environ["HOME"] = str(directory / "user")
    home = Home(directory / "home").create()
    workspace = directory / "work"
    for path in (Path(os.environ["HOME"]), workspace):
        path.mkdir()
    Tap.lines = []
    vars(keeper_module)["LinePipes"] = Tap
    runtime = create_cli_runtime(cli.name)
    keeper = AgentKeeper(
        home,
        epoch=1,
        kill_at=lambda: boottime() + 600,
        warm_s=0,
        budget=FleetConfig(),
        parked=None,
        finished_turn=None,
    )
    spec = spec_of(
        cli.name,
        str(workspace),
        command=cli.command,
        env={**runtime.environment(os.environ), **cli.env},
        model=cli.model_name,
    )
    process = await keeper.obtain(spec, session_id=None)
    names = {
        str(keeper.run_dir): RUN,
        str(workspace): WORKSPACE,
        re.sub(r"[^A-Za-z0-9]", "-", str(workspace)): WORKSPACE.replace("/", "-"),  # claude's
        os.environ["HOME"]: USER,
        cli.model.url: MODEL,
    }
    lines: list[dict[str, Any]] = []

    def take(events: list[AgentEvent]) -> None:
        for kind, line in Tap.lines:
            lines.append({kind: orjson.loads(_renamed(line.decode(), names))})
        Tap.lines.clear()
        lines.extend({"event": _renamed(described(event), names)} for event in events)

    take([])
    with cli.model.limited(summaries=REFUSED_SUMMARIES):
        async for event in conversation(process):
            take([event])
    await keeper.discard()
    return lines


def _renamed(text: str, names: dict[str, str]) -> str:
    for name, to in names.items():
        text = text.replace(name, to)
    return re.sub(r'"serverName": ?"[^"]*"', '"serverName":"host"', text)


def main(names: list[str]) -> None:
    """Record the named CLIs, or all installed ones."""
    DIRECTORY.mkdir(exist_ok=True)
    for name in names or CLIS:
        program = find_cli(name)
        if program is None:
            sys.stderr.write(f"{name} is not installed: its recording stays as it is\n")
            continue
        with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as temporary:
            directory = Path(temporary)
            with ModelServerProcess.running(directory) as model:
                lines = asyncio.run(record(AgentCli(name, program, model), directory))
        version = version_of(program, dict(os.environ))
        for old in DIRECTORY.glob(f"{name}-*.jsonl"):
            old.unlink()
        file = DIRECTORY / f"{name}-{version}.jsonl"
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        sys.stdout.write(f"{file.relative_to(Path.cwd())}: {len(lines)} lines\n")


# -- replaying ------------------------------------------------------------------------------------


class Replay:
    """Pipes that answer like the recorded CLI, and check that it receives the same lines."""

    is_clean = True

    def __init__(self, file: Path) -> None:
        lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        self.events = [line["event"] for line in lines if "event" in line]
        """The events of the recording."""
        self._lines = [line for line in lines if "event" not in line]
        self._position = 0
        self._moved = asyncio.Event()
        self._ids: dict[str, str] = {}
        """Our ids in the recording, and our ids now."""

    async def read(self) -> bytes | None:
        """Return the CLI's next line, once the recorded lines before it were written."""
        while self._position < len(self._lines):
            if "from" in (line := self._lines[self._position]):
                self._position += 1
                return self._now(line["from"])
            self._moved.clear()
            await self._moved.wait()
        return None

    def take_unread(self) -> list[bytes]:
        """Return the lines that had arrived between two turns."""
        unread = []
        while self._position < len(self._lines) and "unread" in self._lines[self._position]:
            unread.append(self._now(self._lines[self._position]["unread"]))
            self._position += 1
        return unread

    async def write(self, line: bytes) -> None:
        """Check that a line is the same as in the recording."""
        sent = orjson.loads(line)
        recorded = self._lines[self._position].get("to")
        self._position += 1
        self._moved.set()
        self._ids.update(_made_up(recorded, sent))
        assert orjson.loads(self._now(recorded)) == sent

    def last_errors(self) -> str:
        """Return nothing, because errors are not recorded."""
        return ""

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Do nothing: the log's lines were recorded among the others."""

    def event(self, recorded: str) -> str:
        """Return a recorded event with our ids of this run."""
        for old, new in self._ids.items():
            recorded = recorded.replace(old, new)
        return recorded

    def _now(self, line: Any) -> bytes:
        return self.event(orjson.dumps(line).decode()).encode()


def _made_up(recorded: Any, sent: Any) -> Iterator[tuple[str, str]]:
    """Yield pairs of ids in the same place: the recorded one, and the one of this run."""
    if isinstance(recorded, dict) and isinstance(sent, dict):
        for name in recorded.keys() & sent.keys():
            yield from _made_up(recorded[name], sent[name])
    elif isinstance(recorded, str) and isinstance(sent, str) and recorded != sent:
        both = (recorded, sent)
        if all(map(_ID.match, both)):
            yield both


if __name__ == "__main__":
    main(sys.argv[1:])
