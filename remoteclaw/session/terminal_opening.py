"""The start of a terminal's turn: starts its program and hands the lease to its holder."""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remoteclaw.bridge.bridge import Prepared
from remoteclaw.clock import boottime, now_ms
from remoteclaw.config.home import Home, private_directory
from remoteclaw.config.model import Config
from remoteclaw.errors import AgentUnavailable, ConfigError, ErrorCategory, StateDirectoryError
from remoteclaw.fleet.terminals.state import TerminalPlace, TerminalTurn
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.leased_session import KILL_FRACTION
from remoteclaw.holder.runs import terminal_run_name
from remoteclaw.holder.terminal_client import (
    ENDED_FILE,
    TerminalClient,
    TerminalEnded,
    TerminalOutput,
)
from remoteclaw.holder.terminal_launch import TerminalLaunch
from remoteclaw.holder.wire import LaunchFailed
from remoteclaw.host.load import Overloaded, check_load
from remoteclaw.host.process import end_orphans
from remoteclaw.host.safe_open import BadSubdir, open_below
from remoteclaw.messages import TerminalWish, people_of
from remoteclaw.protocols import TerminalProgram
from remoteclaw.runtimes import create_cli_runtime, terminal_problem
from remoteclaw.session.attempt import Attempt
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.launch import LIFELINE, UP_PREFIX
from remoteclaw.session.terminal_end import take_over_conversation

#: A worker waits at most `START_S` seconds for a program to start, which limits how many start at
#: once. A program has started when it has printed something and then nothing for `QUIET_S` seconds.
START_S, QUIET_S = 5.0, 0.1
#: The error about a program that ended at its start has the end of its output, in characters.
MAX_OUTPUT_CHARS = 300
_ESCAPES = re.compile(
    rb"\x1b(\][^\x07\x1b]*(\x07|\x1b\\)|\[[0-9;?<>=!]*[ -/]*[@-~]|[()][0-9A-B]|.)"
)
#: A query to the terminal (attributes, cursor position, colours), which only a gateway answers.
_QUERY = re.compile(rb"\x1b(\[[>=]?0?c|\[6n|\]1[01];\?)")

log = logging.getLogger(__name__)


class TerminalOpening:
    """Opens the terminals of a session under one lease."""

    def __init__(
        self, terminals: Terminals, lease: Lease, bridge: SessionBridge, config: Config, home: Home
    ) -> None:
        self._terminals = terminals
        self._lease = lease
        self._bridge = bridge
        self._config = config
        self._home = home
        self._terminal_turn = TerminalTurn(lease)

    # -- opening -------------------------------------------------------------------------------

    async def open(self, attempt: Attempt, left: TerminalPlace | None) -> None:
        """Start the turn's terminal and hand the lease to its holder.

        `left` is the terminal of an earlier attempt whose worker was killed; the new one continues
        its conversation. Raises `AgentUnavailable` if no terminal can be started; then this worker
        keeps the lease.
        """
        (entry,) = attempt.turn.entries
        wish = entry.terminal
        assert wish is not None, "only a terminal's turn is opened"
        try:
            earlier = None
            if left:
                earlier = await take_over_conversation(self._terminals, self._lease, left)
            if earlier and any(item.kind == "user" for item in earlier.items):
                # The program has received the first message already.
                wish = wish.model_copy(update={"prompt": ""})
            prepared, program = await self._prepared(attempt, wish)
            is_same = earlier and earlier.transcript and earlier.conversation == prepared.session_id
            await self._start(attempt, wish, prepared, program, left if is_same else None)
        except (AgentUnavailable, BadSubdir, ConfigError, Overloaded) as problem:
            reason = _reason_of(problem, wish)
            await self._change(
                state="crashed", reason=reason, activity="unknown", writer="", viewers=0
            )
            raise AgentUnavailable(reason, category=_category(problem)) from None

    async def _prepared(
        self, attempt: Attempt, wish: TerminalWish
    ) -> tuple[Prepared, TerminalProgram]:
        bridge, state = self._bridge, self._lease.state
        if bridge.channel is None or bridge.workspace is None:
            raise ConfigError(bridge.problem)
        terminals = self._config.terminals
        check_load(terminals.max_load, terminals.min_memory_mb)
        await bridge.keeper.forget()  # a warm agent has the conversation open
        workspace = bridge.workspace(state.turn_project)
        model, _ = bridge.model_of(attempt.turn, state)
        prepared = await bridge.channel.prepared(
            attempt.turn, model=model, workspace=workspace, subdir=wish.subdir
        )
        program = create_cli_runtime(prepared.spec.runtime).terminal
        if program is None:
            raise AgentUnavailable(
                terminal_problem(prepared.spec.runtime), category=ErrorCategory.NOT_INSTALLED
            )
        if prepared.is_fork:
            raise AgentUnavailable(
                "This conversation begins as a copy of another one: send it a message first.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        return prepared, program

    async def _start(
        self,
        attempt: Attempt,
        wish: TerminalWish,
        prepared: Prepared,
        program: TerminalProgram,
        earlier: TerminalPlace | None,
    ) -> None:
        """Start the program and hand over the lease.

        `earlier` is the terminal of an earlier attempt with the same conversation. Its items count
        as this terminal's, so its transcript position and start time are kept.
        """
        lease, turn = self._lease, attempt.turn
        cwd_fd = await asyncio.to_thread(open_below, prepared.root, wish.subdir)
        try:
            files = await asyncio.to_thread(_new_files, self._home, lease.sid)
            spec = await self._bridge.keeper.with_tool_server(prepared.spec)
            launch = program.launch(
                spec, session_id=prepared.session_id, prompt=wish.prompt, run_dir=files
            )
            run_dir = private_directory(self._home.runs / _run_name())
            (run_dir / "session").write_text(lease.sid)
            places = program.places(launch.env)
            conversation = prepared.session_id
            position = ""
            if earlier and earlier.conversation == conversation:
                position = earlier.position
            elif not earlier:
                position = await _transcript_end(program, conversation, spec.workspace, places)
            place = TerminalPlace(
                turn=turn.id,
                path=str(run_dir / "holder.sock"),
                key=secrets.token_hex(16),
                files=str(files),
                ended=str(files / ENDED_FILE),
                runtime=spec.runtime,
                workspace=spec.workspace,
                cwd=launch.cwd,
                places=places,
                conversation=launch.session_id,
                name=prepared.name,
                position=position,
                by=wish.by,
                host=lease.host,
                started_ms=earlier.started_ms if earlier else now_ms(),
                people=people_of(turn.entries),
            )
            await self._terminal_turn.place(place)
            changes: dict[str, Any] = {}
            if not earlier:
                changes = {"conversation": place.conversation, "position": position}
            await self._change(state="starting", host=lease.host, where=place.where, **changes)
            terminal_launch = TerminalLaunch(
                argv=launch.argv,
                env=launch.env,
                cwd=launch.cwd,
                cwd_fd=cwd_fd,
                run_dir=run_dir,
                key=place.key,
                lifeline=os.environ.get(LIFELINE, ""),
                ended=Path(place.ended),
                cols=wish.cols,
                rows=wish.rows,
                idle_s=self._config.terminals.idle_s,
            )
            await self._start_in_holder(place, terminal_launch)
        except (OSError, EOFError, LaunchFailed, StateDirectoryError) as error:
            why = str(error) or type(error).__name__
            raise AgentUnavailable(
                f"{prepared.spec.command[0]} could not be started: {why}.",
                category=ErrorCategory.NOT_INSTALLED,
            ) from None
        finally:
            os.close(cwd_fd)

    async def _start_in_holder(self, place: TerminalPlace, launch: TerminalLaunch) -> None:
        """Start a holder with the program, wait until it runs, and hand the lease to the holder."""
        hold_s = self._config.terminals.hold_s
        client = None
        try:
            client = await TerminalClient.start(launch, deadline=self._lease.kill_at)
            if (ended := await _until_started(client)) is not None:
                raise AgentUnavailable(ended, category=ErrorCategory.NOT_INSTALLED)
            sent_at = boottime()
            await self._terminal_turn.hold(place, client.holder, hold_s=hold_s)
            client.beat(sent_at + KILL_FRACTION * hold_s)
        finally:
            if client:
                client.close()
            if not self._lease.is_given_away:  # also if the holder was too slow to answer
                await asyncio.to_thread(end_orphans, launch.run_dir)

    async def abandon(self, reason: str) -> None:
        """Record that the terminal will not be opened."""
        await self._change(state="exited", reason=reason, activity="unknown", writer="", viewers=0)

    async def _change(self, **changes: Any) -> None:
        await self._terminals.change(self._lease.sid, self._lease.epoch, **changes)


def _run_name() -> str:
    return terminal_run_name(UP_PREFIX if os.environ.get(LIFELINE) else "")


def _new_files(home: Home, sid: str) -> Path:
    """Make an empty directory for the files that outlive a session's terminal."""
    directory = home.terminals / sid
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return private_directory(directory)


async def _until_started(client: TerminalClient) -> str | None:
    """Wait until the program has started; return an error sentence if it has ended, else None.

    A program that sends its terminal a query has started: it waits for the gateway's answer.
    """
    printed, until = b"", boottime() + START_S
    while (left := until - boottime()) > 0:
        try:
            async with asyncio.timeout(min(left, QUIET_S) if printed else left):
                match await client.read():
                    case TerminalOutput(_, data):
                        printed = (printed + data)[-65_536:]
                        if _QUERY.search(printed):
                            return None
                    case TerminalEnded(status):
                        return _ended_at_start(status, printed)
                    case _:  # the gateway has connected to it
                        return None
        except TimeoutError:
            if printed:
                return None
    return None


def _ended_at_start(status: int | None, printed: bytes) -> str:
    """Return the error sentence about a program that ended at its start."""
    text = _ESCAPES.sub(b" ", printed).decode(errors="replace")
    text = " ".join(word for word in text.split() if any(map(str.isalnum, word)))  # no drawing
    output = "".join(filter(str.isprintable, text))[-MAX_OUTPUT_CHARS:] or "it printed nothing"
    end = "" if status is None else f" (status {status})"
    return f"The program ended at its start{end}: {output}"


async def _transcript_end(
    program: TerminalProgram, conversation: str | None, workspace: str, places: Mapping[str, str]
) -> str:
    """Return the position of a transcript's current end; empty if there is no transcript."""
    if conversation is None:
        return ""
    transcript = program.transcript(conversation, workspace=workspace, env=places)
    with contextlib.suppress(OSError):
        return await asyncio.to_thread(transcript.end)
    return ""


def _reason_of(problem: Exception, wish: TerminalWish) -> str:
    if isinstance(problem, BadSubdir):
        return f"The directory {wish.subdir or 'of the agent'!r} {problem}."
    return str(problem)


def _category(problem: Exception) -> ErrorCategory:
    known = isinstance(problem, AgentUnavailable)
    return problem.category if known else ErrorCategory.NOT_INSTALLED  # type: ignore[attr-defined]
