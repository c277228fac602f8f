"""Renews the leases of a host's terminals, and ends terminals that are stopped or unknown."""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet.terminals.state import HeldLease, LeaseRenewal
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.turns.leased_session import KILL_FRACTION
from remoteclaw.holder.runs import has_holder, terminal_runs
from remoteclaw.holder.terminal_client import ENDED_FILE, beat_terminal, end_terminal
from remoteclaw.host.process import end_orphans, is_alive
from remoteclaw.messages import stream_order

#: How many times a lease is renewed within its duration.
RENEWALS = 20
#: How long a terminal that no session knows is left alone, in seconds: it may be starting.
STARTING_S = 30.0
#: How long the files of an ended terminal are kept, in seconds.
KEPT_S = 3600.0

log = logging.getLogger(__name__)


class LeaseRenewer:
    """Renews the leases of a host's terminals. Several processes of the host may do so at once."""

    def __init__(self, terminals: Terminals, host: str) -> None:
        self._terminals = terminals
        self._host = host
        self._renewed_at: dict[str, float] = {}
        """When each lease was renewed last, on `boottime()`, by the path of the holder's socket."""

    async def renew_all(self, *, hold_s: float) -> None:
        """Renew the leases that are due, and end the terminals whose turn was stopped.

        `hold_s` is the duration of a lease.
        """
        terminals = await self._terminals.held(self._host)
        for held in terminals:
            if not is_alive(held.holder):
                continue  # `release_dead()` releases the lease, and the next owner settles the turn
            if is_stopped(held):
                await end_program(held)
            elif boottime() - self._renewed_at.get(held.place.path, 0.0) >= hold_s / RENEWALS:
                await self._renew(held, hold_s=hold_s)
        paths = {held.place.path for held in terminals}
        self._renewed_at = {p: at for p, at in self._renewed_at.items() if p in paths}

    async def _renew(self, held: HeldLease, *, hold_s: float) -> None:
        with contextlib.suppress(LeaseLost):
            renewed = await renew_lease(self._terminals, held, hold_s=hold_s)
            self._renewed_at[held.place.path] = renewed.sent_at


async def renew_lease(terminals: Terminals, held: HeldLease, *, hold_s: float) -> LeaseRenewal:
    """Renew a terminal's lease, and extend its holder's deadline accordingly.

    Raises `LeaseLost` if the lease is not the holder's. The terminal is ended in this case, unless
    its turn is still recorded as running: then the new owner of the lease ends it, or Redis has
    lost its last second of writes and the lease is about to be restored.
    """
    try:
        renewed = await terminals.renew(held, hold_s=hold_s)
    except LeaseLost:
        if not await terminals.is_placed(held.sid, held.place.path):
            log.warning("session %s has another owner: its terminal is ended", held.sid[:8])
            await end_program(held)
        raise
    await beat_terminal(
        Path(held.place.path), key=held.place.key, deadline=renewed.sent_at + KILL_FRACTION * hold_s
    )
    return renewed


def is_stopped(held: HeldLease) -> bool:
    """Whether the turn of a terminal was stopped."""
    stop = held.stop_entry
    return bool(stop) and stream_order(held.place.turn) <= stream_order(stop)


async def end_program(held: HeldLease, *, interrupt: bool = True) -> None:
    """End a terminal's program; the next owner of the session settles its turn.

    `interrupt` interrupts the program's work first.
    """
    path = Path(held.place.path)
    with contextlib.suppress(TimeoutError):
        if await end_terminal(path, key=held.place.key, interrupt=interrupt):
            return
    await asyncio.to_thread(end_orphans, path.parent)


async def end_unknown_terminals(terminals: Terminals, runs: Path) -> int:
    """End the terminals on this host that no session knows; return their number.

    Redis forgets a terminal if it loses its last second of writes.
    """
    count = 0
    for run in await asyncio.to_thread(terminal_runs, runs):
        with contextlib.suppress(OSError):
            sid = await asyncio.to_thread(_session_of, run)
            if sid is None:
                continue
            if not await terminals.is_placed(sid, str(run / "holder.sock")):
                log.warning("session %s does not know its terminal: it is ended", sid[:8])
                await asyncio.to_thread(end_orphans, run)
                count += 1
    return count


def _session_of(run: Path) -> str | None:
    """Return the session of a terminal; None if it has ended or may be starting."""
    is_starting = time.time() - run.stat().st_ctime < STARTING_S
    return None if is_starting or not has_holder(run) else (run / "session").read_text().strip()


async def remove_old_files(terminals: Path, is_open: Callable[[str], Awaitable[bool]]) -> None:
    """Remove the directories below `terminals` of terminals that ended an hour ago.

    `is_open` returns whether the session with an id, the directory's name, has an open terminal.
    """
    for directory in await asyncio.to_thread(_old_directories, terminals):
        if not await is_open(directory.name):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _old_directories(terminals: Path) -> list[Path]:
    """Return the directories of terminals that ended, or else changed, more than an hour ago."""
    directories = []
    for directory in terminals.iterdir() if terminals.is_dir() else ():
        with contextlib.suppress(OSError):
            ended = directory / ENDED_FILE
            changed_at = (ended if ended.exists() else directory).stat().st_mtime
            directories += [directory] if time.time() - changed_at > KEPT_S else []
    return directories
