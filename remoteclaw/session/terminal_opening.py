"""A terminal's turn begins: its program is started, and the lease given to its holder."""

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
from remoteclaw.fleet.lease import KILL_AT, Lease
from remoteclaw.fleet.terminal_state import TerminalPlace, TerminalTurn
from remoteclaw.fleet.terminals import Terminals
from remoteclaw.holder.runs import terminal_run_name
from remoteclaw.holder.terminal_client import ENDED, Ended, Output, TerminalClient
from remoteclaw.holder.terminal_launch import TerminalLaunch
from remoteclaw.holder.wire import LaunchFailed
from remoteclaw.host.load import Overloaded, check_load
from remoteclaw.host.process import end_orphans
from remoteclaw.host.safe_open import BadSubdir, open_below
from remoteclaw.messages import TerminalWish, people_of
from remoteclaw.protocols import TerminalProgram
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.session.attempt import Attempt
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.launch import LIFELINE, UP_PREFIX
from remoteclaw.session.terminal_end import found

#: How long a worker stays with a program that starts, in seconds, and how long it has to be quiet
#: to count as started: so no more than the workers start at once.
START_S, QUIET_S = 5.0, 0.1
#: The part of a program's output that is told when it ended at its start, in characters.
MAX_SAID = 300
_ESCAPES = re.compile(
    rb"\x1b(\][^\x07\x1b]*(\x07|\x1b\\)|\[[0-9;?<>=!]*[ -/]*[@-~]|[()][0-9A-B]|.)"
)
#: A question to the terminal: attributes, the cursor's place, colours. Only a gateway answers.
_QUESTION = re.compile(rb"\x1b(\[[>=]?0?c|\[6n|\]1[01];\?)")

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
        self._own = TerminalTurn(lease)

    # -- opening -------------------------------------------------------------------------------

    async def open(self, attempt: Attempt, left: TerminalPlace | None) -> None:
        """Start the turn's terminal and give the lease to its holder.

        It goes on from one that an attempt before has `left`, whose worker was killed. Raises
        `AgentUnavailable` where it can't be; then the lease is still ours.
        """
        (entry,) = attempt.turn.entries
        wish = entry.terminal
        assert wish is not None, "its origin says so"
        try:
            begun = await found(self._terminals, self._lease, left) if left else None
            if begun and any(item.kind == "user" for item in begun.items):
                wish = wish.model_copy(update={"prompt": ""})  # it was asked
            prepared, program = await self._prepared(attempt, wish)
            is_same = begun and begun.transcript and begun.conversation == prepared.session_id
            await self._start(attempt, wish, prepared, program, left if is_same else None)
        except (AgentUnavailable, BadSubdir, ConfigError, Overloaded) as problem:
            words = _words(problem, wish)
            await self._change(
                state="crashed", reason=words, activity="unknown", writer="", viewers=0
            )
            raise AgentUnavailable(words, category=_category(problem)) from None

    async def _prepared(
        self, attempt: Attempt, wish: TerminalWish
    ) -> tuple[Prepared, TerminalProgram]:
        bridge, state = self._bridge, self._lease.state
        if bridge.channel is None or bridge.workspace is None:
            raise ConfigError(bridge.problem)
        terminals = self._config.terminals
        check_load(terminals.max_load, terminals.min_memory_mb)
        await bridge.keeper.forget()  # an agent that is warm has the conversation open
        workspace = bridge.workspace(state.turn_project)
        prepared = await bridge.channel.prepared(
            attempt.turn, model=state.model, workspace=workspace, subdir=wish.subdir
        )
        program = create_cli_runtime(prepared.spec.runtime).terminal
        if program is None:
            raise AgentUnavailable(
                f"{prepared.spec.runtime} has no program for terminals; "
                f"{', '.join(name for name in CLIS if create_cli_runtime(name).terminal)} do.",
                category=ErrorCategory.NOT_INSTALLED,
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
        begun: TerminalPlace | None,
    ) -> None:
        """Start a program; where an attempt before has `begun`, what was said since counts."""
        lease, turn = self._lease, attempt.turn
        cwd_fd = await asyncio.to_thread(open_below, prepared.root, wish.subdir)
        try:
            files = await asyncio.to_thread(_new_files, self._home, lease.sid)
            spec = await self._bridge.keeper.equipped(prepared.spec)
            launch = program.launch(
                spec, session_id=prepared.session_id, prompt=wish.prompt, run_dir=files
            )
            run_dir = private_directory(self._home.runs / _run_name())
            (run_dir / "session").write_text(lease.sid)
            places = program.places(launch.env)
            known = prepared.session_id
            position = begun.position if begun and begun.conversation == known else ""
            if not begun:
                position = await _end_of(program, known, spec.workspace, places)
            place = TerminalPlace(
                turn=turn.id,
                path=str(run_dir / "holder.sock"),
                key=secrets.token_hex(16),
                files=str(files),
                ended=str(files / ENDED),
                runtime=spec.runtime,
                workspace=spec.workspace,
                cwd=launch.cwd,
                places=places,
                conversation=launch.session_id,
                name=prepared.name,
                position=position,
                by=wish.by,
                host=lease.host,
                started_ms=begun.started_ms if begun else now_ms(),
                people=people_of(turn.entries),
            )
            await self._own.place(place)
            told = {} if begun else {"conversation": place.conversation, "position": position}
            await self._change(state="starting", host=lease.host, where=place.where, **told)
            held = TerminalLaunch(
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
            await self._hold(place, held)
        except (OSError, EOFError, LaunchFailed, StateDirectoryError) as error:
            why = str(error) or type(error).__name__
            raise AgentUnavailable(
                f"{prepared.spec.command[0]} could not be started: {why}.",
                category=ErrorCategory.NOT_INSTALLED,
            ) from None
        finally:
            os.close(cwd_fd)

    async def _hold(self, place: TerminalPlace, launch: TerminalLaunch) -> None:
        """Start a program, stay until it is there, and give the lease to its holder."""
        hold_s = self._config.terminals.hold_s
        client = None
        try:
            client = await TerminalClient.start(launch, deadline=self._lease.kill_at)
            if (ended := await _until_started(client)) is not None:
                raise AgentUnavailable(ended, category=ErrorCategory.NOT_INSTALLED)
            sent_at = boottime()
            await self._own.hold(place, client.holder, hold_s=hold_s)
            client.beat(sent_at + KILL_AT * hold_s)
        finally:
            if client:
                client.close()
            if not self._lease.is_given_away:  # also a holder that was too slow to answer
                await asyncio.to_thread(end_orphans, launch.run_dir)

    async def give_up(self, why: str) -> None:
        """Tell that a terminal will not be opened."""
        await self._change(state="exited", reason=why, activity="unknown", writer="", viewers=0)

    async def _change(self, **changes: Any) -> None:
        await self._terminals.change(self._lease.sid, self._lease.epoch, **changes)


def _run_name() -> str:
    return terminal_run_name(UP_PREFIX if os.environ.get(LIFELINE) else "")


def _new_files(home: Home, sid: str) -> Path:
    """Make the empty directory of what outlives a session's terminal."""
    directory = home.terminals / sid
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return private_directory(directory)


async def _until_started(client: TerminalClient) -> str | None:
    """Wait until a program has printed something and is quiet; a sentence if it ended instead.

    One that asks its terminal something is there, and waits for the gateway.
    """
    printed, until = b"", boottime() + START_S
    while (left := until - boottime()) > 0:
        try:
            async with asyncio.timeout(min(left, QUIET_S) if printed else left):
                match await client.read():
                    case Output(_, data):
                        printed = (printed + data)[-65_536:]
                        if _QUESTION.search(printed):
                            return None
                    case Ended(status):
                        return _ended_at_start(status, printed)
                    case _:  # the gateway has taken it over: it is there
                        return None
        except TimeoutError:
            if printed:
                return None
    return None


def _ended_at_start(status: int | None, printed: bytes) -> str:
    """Return the sentence about a program that ended when it had hardly begun."""
    text = _ESCAPES.sub(b" ", printed).decode(errors="replace")
    words = " ".join(word for word in text.split() if any(map(str.isalnum, word)))  # no drawing
    said = "".join(filter(str.isprintable, words))[-MAX_SAID:] or "it said nothing"
    what = "" if status is None else f" (status {status})"
    return f"The program ended at its start{what}: {said}"


async def _end_of(
    program: TerminalProgram, conversation: str | None, workspace: str, places: Mapping[str, str]
) -> str:
    """Return how far a conversation's transcript goes now; empty where there is none."""
    if conversation is None:
        return ""
    transcript = program.transcript(conversation, workspace=workspace, env=places)
    with contextlib.suppress(OSError):
        return await asyncio.to_thread(transcript.end)
    return ""


def _words(problem: Exception, wish: TerminalWish) -> str:
    if isinstance(problem, BadSubdir):
        return f"The directory {wish.subdir or 'of the agent'!r} {problem}."
    return str(problem)


def _category(problem: Exception) -> ErrorCategory:
    known = isinstance(problem, AgentUnavailable)
    return problem.category if known else ErrorCategory.NOT_INSTALLED  # type: ignore[attr-defined]
