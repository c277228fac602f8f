"""The leases of a host's terminals: renewed while their holders live."""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet.lease import KILL_AT
from remoteclaw.fleet.terminal_state import Held, Renewed
from remoteclaw.fleet.terminals import Terminals
from remoteclaw.holder.runs import listens
from remoteclaw.holder.runs import terminals as living
from remoteclaw.holder.terminal_client import ENDED, beat_terminal, end_terminal
from remoteclaw.host.process import end_orphans, is_alive
from remoteclaw.messages import stream_order

#: How many times a lease is renewed in its time.
RENEWALS = 20
#: How old a terminal may be that no session knows, in seconds: it is just starting.
YOUNG_S = 30.0
#: How long what terminals leave is kept, in seconds.
KEPT_S = 3600.0

log = logging.getLogger(__name__)


class Holding:
    """Renews, and ends what is stopped; any number of processes of a host may do it."""

    def __init__(self, terminals: Terminals, host: str) -> None:
        self._terminals = terminals
        self._host = host
        self._renewed_at: dict[str, float] = {}
        """When each holder's lease was renewed last, on `boottime()`."""

    async def look(self, *, hold_s: float) -> None:
        """Look at each terminal of the host once."""
        held = await self._terminals.held(self._host)
        for each in held:
            if not is_alive(each.holder):
                continue  # its lease is released, and settled by the session's next owner
            if is_stopped(each):
                await end(each)
            elif boottime() - self._renewed_at.get(each.place.path, 0.0) >= hold_s / RENEWALS:
                await self._renew(each, hold_s=hold_s)
        paths = {each.place.path for each in held}
        self._renewed_at = {p: at for p, at in self._renewed_at.items() if p in paths}

    async def _renew(self, held: Held, *, hold_s: float) -> None:
        with contextlib.suppress(LeaseLost):
            renewed = await renew(self._terminals, held, hold_s=hold_s)
            self._renewed_at[held.place.path] = renewed.sent_at


async def renew(terminals: Terminals, held: Held, *, hold_s: float) -> Renewed:
    """Renew a terminal's lease, and let its holder live for that time.

    Raises `LeaseLost` if it is not the holder's. The terminal is ended then, unless its turn still
    runs: whoever has that ends it, or a server that has lost its last second is about to be told
    again whose the lease is.
    """
    try:
        renewed = await terminals.renew(held, hold_s=hold_s)
    except LeaseLost:
        if not await terminals.is_placed(held.sid, held.place.path):
            log.warning("session %s has another owner: its terminal is ended", held.sid[:8])
            await end(held)
        raise
    await beat_terminal(
        Path(held.place.path), key=held.place.key, deadline=renewed.sent_at + KILL_AT * hold_s
    )
    return renewed


def is_stopped(held: Held) -> bool:
    """Whether the turn that a terminal is was stopped."""
    stop = held.stop_entry
    return bool(stop) and stream_order(held.place.turn) <= stream_order(stop)


async def end(held: Held, *, interrupt: bool = True) -> None:
    """End a terminal's program; the session's next owner settles it."""
    path = Path(held.place.path)
    with contextlib.suppress(TimeoutError):
        if await end_terminal(path, key=held.place.key, interrupt=interrupt):
            return
    await asyncio.to_thread(end_orphans, path.parent)


async def end_unheld(terminals: Terminals, runs: Path) -> int:
    """End the terminals on this host that no session knows; return how many there were.

    A server that has lost its last second of writes may have forgotten one.
    """
    count = 0
    for run in await asyncio.to_thread(living, runs):
        with contextlib.suppress(OSError):
            sid = await asyncio.to_thread(_known_by, run)
            if sid is None:
                continue
            if not await terminals.is_placed(sid, str(run / "holder.sock")):
                log.warning("a terminal is ended that session %s does not know", sid[:8])
                await asyncio.to_thread(end_orphans, run)
                count += 1
    return count


def _known_by(run: Path) -> str | None:
    """Return the session of a terminal that lives, and is not just starting."""
    is_young = time.time() - run.stat().st_ctime < YOUNG_S
    return None if is_young or not listens(run) else (run / "session").read_text().strip()


async def forget_old(terminals: Path, is_open: Callable[[str], Awaitable[bool]]) -> None:
    """Remove what terminals have left there, and whatever else of theirs, after an hour."""
    for directory in await asyncio.to_thread(_old, terminals):
        if not await is_open(directory.name):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _old(terminals: Path) -> list[Path]:
    """Return the directories in which nothing was left for an hour."""
    found = []
    for directory in terminals.iterdir() if terminals.is_dir() else ():
        with contextlib.suppress(OSError):
            ended = directory / ENDED
            changed = (ended if ended.exists() else directory).stat().st_mtime
            found += [directory] if time.time() - changed > KEPT_S else []
    return found
