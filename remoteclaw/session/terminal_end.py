"""The end of a terminal's turn: takes over the conversation that its program has left."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.config.model import Config
from remoteclaw.fleet.sessions.session_map import LeasedSessionMap
from remoteclaw.fleet.terminals.state import TerminalPlace
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import RecordAppend
from remoteclaw.holder.terminal_client import end_terminal
from remoteclaw.host.process import end_orphans
from remoteclaw.protocols import Conversation, Transcript, TranscriptItem
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.session.record import added, lines_of_terminal, published_items
from remoteclaw.tty import handover
from remoteclaw.tty.program import transcript_of, watch_of
from remoteclaw.tty.terminal_usage import TerminalUsage
from remoteclaw.tty.transcript_events import CopyFilter, TranscriptPublisher, is_of_terminal

#: How long the CLI's own notes of its open conversation are read after its end, in seconds.
NOTES_S = 0.5
#: At most this many items of a transcript are added to the record, the last ones.
MAX_ITEMS = 2_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TerminalLeftovers:
    """The conversation that an ended terminal leaves to its session."""

    conversation: str | None
    """The CLI's id of the conversation that the session continues."""
    transcript: Transcript | None
    """The conversation's transcript; None if the CLI has nothing to continue from."""
    items: Sequence[TranscriptItem]
    """The messages and tool calls of the terminal's turn."""
    stray: str = ""
    """Why this is not the conversation that was open last; empty if it is."""


@dataclass(frozen=True, slots=True)
class SettledTerminal:
    """The final state of a terminal."""

    state: str
    reason: str
    exit: int | None
    conversation: str | None
    resumable: bool
    record: RecordAppend | None

    @property
    def has_failed(self) -> bool:
        """Whether the terminal ended unexpectedly."""
        return self.state in ("crashed", "lost")


async def end_left_terminal(lease: Lease) -> TerminalPlace | None:
    """End the terminal that an earlier owner has started; return its place, None without one.

    A new owner of a session does this first, because only one program may have the session's
    conversation open.
    """
    if lease.state.terminal is None:
        return None
    place = TerminalPlace(**lease.state.terminal)
    if place.host == lease.host:
        path = Path(place.path)
        with contextlib.suppress(TimeoutError):
            await end_terminal(path, key=place.key)
        if count := await asyncio.to_thread(end_orphans, path.parent):
            log.warning("a terminal's holder was killed or frozen: %d processes were ended", count)
        await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)
    return place


async def settle_terminal(
    terminals: Terminals, lease: Lease, place: TerminalPlace, config: Config
) -> SettledTerminal:
    """Take over an ended terminal's conversation, and record the terminal's final state."""
    is_here = place.host == lease.host
    ended = await asyncio.to_thread(_end_report, place) if is_here else None
    left = await take_over_conversation(terminals, lease, place)
    if is_here:
        root = await lease.progress.root()
        usage = TerminalUsage(terminals, lease.session, lease.epoch, place)
        await usage.count(config, root.sid, left.conversation)
    state, reason = _state_of(ended, is_here=is_here, host=place.host)
    reason = reason or left.stray
    items = left.items
    if left.transcript is None and not left.stray:  # it is lost, with its host or its files
        unrecorded = await terminals.unrecorded(lease.sid)
        items = published_items(unrecorded[1]) if unrecorded else ()
    lines = partial(lines_of_terminal, items, turn=place.turn, by=place.by)
    settled = SettledTerminal(
        state=state,
        reason=reason,
        exit=ended["status"] if ended else None,
        conversation=left.conversation,
        resumable=left.transcript is not None,
        record=added(config.record, lines) if items else None,
    )
    await terminals.change(
        lease.sid,
        lease.epoch,
        event={"type": "state", "state": state, "reason": reason},
        state=state,
        reason=reason,
        needs="",
        activity="unknown",
        waiting_for="",
        writer="",
        viewers=0,
        exit=settled.exit,
        conversation=left.conversation,
        resumable=settled.resumable,
        where=place.where,
    )
    return settled


async def take_over_conversation(
    terminals: Terminals, lease: Lease, place: TerminalPlace
) -> TerminalLeftovers:
    """Store a terminal's conversation as the session's, and return it with the terminal's items.

    Items that are not published yet are published, because the gateway may have been away.
    """
    if place.host != lease.host or create_cli_runtime(place.runtime).terminal is None:
        return TerminalLeftovers(place.conversation, None, ())
    conversation, transcript, stray = await _conversation_of(terminals, lease.sid, place)
    if transcript is None or conversation is None:
        return TerminalLeftovers(conversation, None, (), stray)
    session_map = LeasedSessionMap(lease)
    before = await session_map.get(place.name)
    # Without what others have said before the terminal, the conversation is told that first.
    lacks = before is not None and before.seen not in ("", lease.state.finished_turn)
    seen = before.seen if before and lacks else place.turn
    note = before.note if before and before.id == conversation else ""
    identity = before.identity if before and before.id == conversation else ""
    await session_map.set(place.name, Conversation(conversation, note, seen, identity))
    publisher = TranscriptPublisher(terminals, lease.sid, lease.epoch, place)
    publisher.follow(conversation, transcript)
    await publisher.publish()
    items = await _items_of_terminal(terminals, lease.sid, place, conversation)
    return TerminalLeftovers(conversation, transcript, items, stray)


async def _items_of_terminal(
    terminals: Terminals, sid: str, place: TerminalPlace, last: str
) -> Sequence[TranscriptItem]:
    """Return the terminal's items of all conversations that were open, except other sessions'."""
    record = await terminals.record(sid)
    items: list[TranscriptItem] = []
    copies = CopyFilter()
    for conversation in (*(record.earlier if record else ()), last):
        transcript = transcript_of(place, conversation)
        if conversation == place.conversation:
            new_items = await asyncio.to_thread(_items_after, transcript, place.position)
            items += copies.without_copies(new_items, conversation=conversation)
        elif conversation == last or not await terminals.other_session_with(conversation, but=sid):
            all_items = await asyncio.to_thread(_items_after, transcript, "")
            new_items = [item for item in all_items if is_of_terminal(item, place)]
            items += copies.without_copies(new_items, conversation=conversation)
    return items


async def _conversation_of(
    terminals: Terminals, sid: str, place: TerminalPlace
) -> tuple[str | None, Transcript | None, str]:
    """Return a terminal's last conversation, its transcript, and why it is not the last, if so.

    A conversation of another session is skipped; then an earlier one is returned with the reason.
    """
    record, watch, stray = await terminals.record(sid), watch_of(place), ""
    following = asyncio.create_task(watch.run(lambda: None))
    await asyncio.wait((following,), timeout=NOTES_S)
    following.cancel()
    await asyncio.wait((following,))
    recorded = record.conversation if record else None
    for conversation in (watch.conversation, recorded, place.conversation):
        if conversation is None:
            continue
        is_own = conversation == place.conversation
        if not is_own and (other := await terminals.other_session_with(conversation, but=sid)):
            stray = handover.stray_reason(other)
            continue
        transcript = transcript_of(place, conversation)
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(getattr, transcript, "is_resumable"):
                return conversation, transcript, stray
    return place.conversation, None, stray


def _items_after(transcript: Transcript, position: str) -> Sequence[TranscriptItem]:
    """Return the items after `position`, the last `MAX_ITEMS` of them."""
    items: list[TranscriptItem] = []
    with contextlib.suppress(OSError):
        while len(items) < 20 * MAX_ITEMS:
            more, next_position = transcript.read(position)
            items += more
            if next_position == position:
                break
            position = next_position
    return items[-MAX_ITEMS:]


def _end_report(place: TerminalPlace) -> dict[str, Any] | None:
    """Return the end report that a holder has written; None if it was killed."""
    try:
        report = orjson.loads(Path(place.ended).read_bytes())
        return report if isinstance(report, dict) else None
    except (OSError, ValueError):
        return None


def _state_of(ended: Mapping[str, Any] | None, *, is_here: bool, host: str) -> tuple[str, str]:
    """Return the state of an ended terminal, and the reason for it."""
    if not is_here:
        return "lost", f"its host {host} was away for too long"
    if ended is None:
        return "crashed", "killed"
    status = ended.get("status")
    if ended.get("reason") != "exited":
        return "parked", ""
    return ("exited", "") if status == 0 else ("crashed", f"status {status}")
