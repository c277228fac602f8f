"""A small program like an agent's own: runs in a terminal, reports activity, writes a transcript.

Tests of behaviour that all terminals share run it in a real holder instead of a CLI.
"""

import asyncio
import contextlib
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.clock import boottime, now_ms
from remoteclaw.config.home import private_directory
from remoteclaw.config.load import load_config
from remoteclaw.events import PermissionEvent
from remoteclaw.fleet.terminals.state import HeldLease, TerminalPlace, TerminalTurn
from remoteclaw.holder.runs import run_name
from remoteclaw.holder.terminal_client import ENDED_FILE, TerminalClient, end_terminal
from remoteclaw.holder.terminal_launch import TerminalLaunch
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.protocols import Activity, AgentSpec, Decision, Launch, ModelRequest, TranscriptItem
from remoteclaw.runtimes.demo.runtime import DemoRuntime
from tests.support.stack import Stack

#: The queries that programs send to the terminal, and the pattern of an answer.
QUERIES = "\x1b[c\x1b[>c\x1b[>q\x1b[5n\x1b[6n\x1b[?2026$p\x1b[?u\x1b]10;?\x1b\\\x1b]11;?\x1b\\"
ANSWER = re.compile(rb"\x1b\[[?>]?[\d;]*\$?[a-zA-Z]|\x1b[]P][^\x07\x1b]*(?:\x07|\x1b\\)")
#: The program. Its composer is the last row. After `quiz`, it queries the terminal before each of
#: its answers, and ignores the replies. `ask` opens a dialog that any Enter answers, `work` works
#: until the next key, `flood` prints much output, `goto X` opens the conversation X, and `exit`
#: ends the program. It answers any other input.
PROGRAM = (
    f"QUERIES, ANSWER = {QUERIES!r}, {ANSWER.pattern!r}"
    + r"""
import json, os, re, sys, tty
notes, prompt, asks = sys.argv[1], sys.argv[2:], False
first, now = notes, notes + ".now"
if os.path.exists(now):
    os.unlink(now)
tty.setraw(0)
out = lambda text: os.write(1, text.encode())
draft, pasted, waits = "", False, ""
def note(kind, text, count=[len(open(notes).readlines()) if os.path.exists(notes) else 0]):
    count[0] += 1
    with open(notes, "a") as file:
        file.write(json.dumps({"id": f"i{count[0]}", "kind": kind, "text": text}) + "\n")
def state(what):
    out(f"\x1b]7501;{what}\x07")
def take(text):
    global waits, asks, notes
    if text.startswith("goto "):
        name = text.partition(" ")[2] + os.path.splitext(first)[1]
        notes = os.path.join(os.path.dirname(first), name)
        open(now, "w").write(notes)
        return out("\r\n> ")
    note("user", text)
    asks = asks or text == "quiz"
    if asks:
        out(QUERIES)
    state("working")
    if text.startswith("exit"):
        sys.exit(0)
    if text.startswith("ask"):
        waits = "ask"
        out("\r\nRun the tool? [Enter]\r\n")
        return state("blocked")
    if text.startswith("work"):
        waits = "work"
        return out("\r\nworking\r\n")
    if text.startswith("flood"):
        for number in range(30000):
            out(f"\r\nline {number}")
    out(f"\r\nYou said {text}.\a\r\n> ")
    note("agent", f"You said {text}.")
    state("idle")
out("\x1b[?2004h\x1b]0;shown\x07> ")
state("ready")
state("idle")
for text in prompt:
    take(text)
while True:
    data = os.read(0, 65536)
    if not data:
        break
    with open(notes + ".read", "ab") as file:
        file.write(data)
    if asks:
        data = re.sub(ANSWER, b"", data)
    for part in data.replace(b"\x1b[200~", b"\0").replace(b"\x1b[201~", b"\1").decode():
        if part == "\0" or part == "\1":
            pasted = part == "\0"
        elif waits == "work" and not pasted:
            waits = ""
            out("worked\r\n> ")
            state("idle")
        elif part == "\r" and not pasted:
            if waits == "ask":
                waits = ""
                note("tool", "ran")
                out("The tool ran.\r\n> " + draft)
                state("idle")
            else:
                text, draft = draft, ""
                take(text)
        elif part == "\x03":
            out("^C")
        elif part == "\x07":
            out("\x1b[c")
        else:
            draft += part
            out(part.replace("\n", "\r\n"))
"""
)


class Nobody:
    """A listener that ignores everything."""

    def screen_changed(self) -> None: ...

    def status_changed(self) -> None: ...

    def bell_rang(self) -> None: ...

    def clipboard_offered(self, text: str) -> None: ...


@dataclass(eq=False)
class Transcript:
    """The transcript that the program writes."""

    path: Path

    @property
    def is_resumable(self) -> bool:
        return self.path.exists()

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        lines = self.path.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        done = int(position or 0)
        items = [TranscriptItem(**json.loads(line)) for line in whole[done : done + 2]]
        return items, str(done + len(items)) if done or items else ""

    def end(self) -> str:
        return str(len(self.path.read_text().splitlines()))


class Watch:
    """The activity that the program reports."""

    def __init__(self, path: Path, conversation: str = "conversation") -> None:
        self._path, self._conversation = path, conversation
        self._changed: Callable[[], None] = lambda: None
        self.activity: Activity = "unknown"
        self.is_ready = False

    @property
    def waiting_for(self) -> str:
        return "permission to run the tool" if self.activity == "waiting" else ""

    requests: Sequence[PermissionEvent] = ()

    async def answer(self, request: str, decision: Decision) -> None:
        raise AssertionError("only keys answer it")

    @property
    def conversation(self) -> str | None:
        if not self._notes.exists():
            return None
        return self._conversation if self._notes == self._path else self._notes.stem

    @property
    def transcript(self) -> Transcript | None:
        return Transcript(self._notes) if self._notes.exists() else None

    @property
    def _notes(self) -> Path:
        """The file of the conversation that is open now."""
        now = Path(f"{self._path}.now")
        return Path(now.read_text()) if now.exists() else self._path

    def title(self, text: str) -> None:
        pass

    def osc(self, number: int, data: str) -> None:
        states: dict[str, Activity] = {"idle": "idle", "working": "busy", "blocked": "waiting"}
        if number == 7501:
            self.is_ready = True
            self.activity = states.get(data, self.activity)
            self._changed()

    def typed(self) -> None:
        pass

    def rested(self) -> None:
        pass

    async def run(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await asyncio.Event().wait()


class ProgramTerminal:
    """The program as a terminal of a runtime, started and watched like a CLI."""

    shows_prompt = False

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        argv = [
            sys.executable,
            "-c",
            PROGRAM,
            str(run_dir / "notes"),
            *([prompt] if prompt else []),
        ]
        return Launch(argv=tuple(argv), env=dict(spec.env), cwd=spec.workspace, session_id=None)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> Watch:
        return Watch(run_dir / "notes")

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> Transcript:
        return Transcript(Path(workspace) / "nothing")

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        return []

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        return {}


class ProgramRuntime(DemoRuntime):
    """The demo runtime, with this program in terminals."""

    terminal = ProgramTerminal()


@contextlib.asynccontextmanager
async def held_terminal(stack: Stack, *, thread: str | None = None) -> AsyncIterator[HeldLease]:
    """Run the program in a holder as a drain leaves it, in a person's chat; end it at exit."""
    host = stack.home.host_id
    session = SessionKey("main", "web", "default", "admin.ada", "admin.ada", thread)
    wish = TerminalWish(by="Ada", cols=60, rows=10)
    limits = load_config(stack.home.config_file).terminals
    accepted = await stack.fleet.terminals.open(
        session, wish, people=(), call=uuid.uuid4().hex, host=host, name="main", limits=limits
    )
    lease = await stack.fleet.leases.acquire(session.sid, worker="test", host=host)
    assert lease is not None
    await lease.turns.begin([accepted.entry_id], phase="accepted")
    run_dir = private_directory(stack.home.runs / run_name("tty-"))
    stack.home.terminals.mkdir(mode=0o700, exist_ok=True)
    files = private_directory(stack.home.terminals / session.sid)
    notes = files / "notes"
    place = TerminalPlace(
        turn=accepted.entry_id,
        path=str(run_dir / "holder.sock"),
        key=uuid.uuid4().hex,
        files=str(files),
        ended=str(files / ENDED_FILE),
        runtime="demo",
        workspace=str(files),
        cwd=str(files),
        places={},
        conversation=None,
        name="demo",
        position="",
        by="Ada",
        host=host,
        started_ms=now_ms(),
    )
    turn = TerminalTurn(lease)
    await turn.place(place)
    client = await TerminalClient.start(
        TerminalLaunch(
            argv=(sys.executable, "-c", PROGRAM, str(notes)),
            env={},
            cwd=place.cwd,
            cwd_fd=None,
            run_dir=run_dir,
            key=place.key,
            ended=Path(place.ended),
            cols=wish.cols,
            rows=wish.rows,
        ),
        deadline=boottime() + 3600,
    )
    try:
        await turn.hold(place, client.holder, hold_s=limits.hold_s)
        client.close()
        (held,) = [
            each for each in await stack.fleet.terminals.held(host) if each.sid == session.sid
        ]
        yield held
    finally:
        await end_terminal(Path(place.path), key=place.key, grace_s=0.0)
