"""A terminal's turn ends: what its program has left is taken over."""

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

from remoteclaw.config.model import RecordConfig
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.session_map import LeasedSessionMap
from remoteclaw.fleet.terminal_state import TerminalPlace
from remoteclaw.fleet.terminals import Terminals
from remoteclaw.fleet.turn import RecordAppend
from remoteclaw.holder.terminal_client import end_terminal
from remoteclaw.host.process import end_orphans
from remoteclaw.protocols import Transcript, TranscriptItem
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.session.record import added, lines_of_terminal
from remoteclaw.tty import handover
from remoteclaw.tty.program import transcript_of, watch_of
from remoteclaw.tty.transcript_events import Copies, TranscriptTale, is_of_now

#: How long what a CLI's own notes say is read after its end, in seconds.
NOTES_S = 0.5
#: How many items of a transcript are taken into the record.
MAX_ITEMS = 2_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What was said in a terminal that has ended."""

    conversation: str | None
    """The CLI's id of the conversation that was open in it last."""
    transcript: Transcript | None
    """None where nothing is left that the CLI could go on from."""
    items: Sequence[TranscriptItem]
    stray: str = ""
    """Why it is not the conversation that was open last."""


@dataclass(frozen=True, slots=True)
class SettledTerminal:
    """What has become of a terminal."""

    state: str
    reason: str
    exit: int | None
    conversation: str | None
    resumable: bool
    record: RecordAppend | None

    @property
    def has_failed(self) -> bool:
        """Whether it ended unintended."""
        return self.state in ("crashed", "lost")


async def end_left(lease: Lease) -> TerminalPlace | None:
    """End the terminal that an owner before has started; return where it was.

    The owner that takes a session over does this first: no second program may have its conversation
    open.
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


async def settle(
    terminals: Terminals, lease: Lease, place: TerminalPlace, settings: RecordConfig
) -> SettledTerminal:
    """Take over what a terminal has left: its conversation, and what was said in it."""
    is_here = place.host == lease.host
    ended = await asyncio.to_thread(_left_by_holder, place) if is_here else None
    left = await found(terminals, lease, place)
    state, reason = _state_of(ended, is_here=is_here, host=place.host)
    reason = reason or left.stray
    lines = partial(lines_of_terminal, left.items, turn=place.turn, by=place.by)
    settled = SettledTerminal(
        state=state,
        reason=reason,
        exit=ended["status"] if ended else None,
        conversation=left.conversation,
        resumable=left.transcript is not None,
        record=added(settings, lines) if left.items else None,
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


async def found(terminals: Terminals, lease: Lease, place: TerminalPlace) -> Found:
    """Return what a terminal has left on this host; the session goes on with its conversation.

    What nobody has told of it yet is told: the gateway may have been away.
    """
    if place.host != lease.host or create_cli_runtime(place.runtime).terminal is None:
        return Found(place.conversation, None, ())
    conversation, transcript, stray = await _conversation_of(terminals, lease.sid, place)
    if transcript is None or conversation is None:
        return Found(conversation, None, (), stray)
    known = LeasedSessionMap(lease)
    is_same = conversation == await known.get(place.name)
    note = await known.note(place.name) if is_same else ""
    await known.set(place.name, conversation, note)
    tale = TranscriptTale(terminals, lease.sid, lease.epoch, place)
    tale.follow(conversation, transcript)
    await tale.tell()
    items = await _said(terminals, lease.sid, place, conversation)
    return Found(conversation, transcript, items, stray)


async def _said(
    terminals: Terminals, sid: str, place: TerminalPlace, last: str
) -> Sequence[TranscriptItem]:
    """Return what was said in all conversations that were open, those of other sessions aside."""
    record = await terminals.record(sid)
    items: list[TranscriptItem] = []
    copies = Copies()
    for conversation in (*(record.earlier if record else ()), last):
        transcript = transcript_of(place, conversation)
        if conversation == place.conversation:
            found = await asyncio.to_thread(_items, transcript, place.position)
            items += copies.left_out(found, of=conversation)
        elif conversation == last or not await terminals.other_with(conversation, but=sid):
            found = await asyncio.to_thread(_items, transcript, "")
            of_now = [each for each in found if is_of_now(each, place)]
            items += copies.left_out(of_now, of=conversation)
    return items


async def _conversation_of(
    terminals: Terminals, sid: str, place: TerminalPlace
) -> tuple[str | None, Transcript | None, str]:
    """Return the conversation that a terminal had open last, and its transcript if there is one.

    The third is why it is an earlier one: the last is another session's, and stays that alone.
    """
    record, watch, stray = await terminals.record(sid), watch_of(place), ""
    following = asyncio.create_task(watch.run(lambda: None))
    await asyncio.wait((following,), timeout=NOTES_S)
    following.cancel()
    await asyncio.wait((following,))
    told = record.conversation if record else None
    for conversation in (watch.conversation, told, place.conversation):
        if conversation is None:
            continue
        is_own = conversation == place.conversation
        if not is_own and (other := await terminals.other_with(conversation, but=sid)):
            stray = handover.strayed(other)
            continue
        found = transcript_of(place, conversation)
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(getattr, found, "is_there"):
                return conversation, found, stray
    return place.conversation, None, stray


def _items(transcript: Transcript, position: str) -> Sequence[TranscriptItem]:
    """Return what a transcript has behind a position, the last of it where that is much."""
    items: list[TranscriptItem] = []
    with contextlib.suppress(OSError):
        while len(items) < 20 * MAX_ITEMS:
            more, behind = transcript.read(position)
            items += more
            if behind == position:
                break
            position = behind
    return items[-MAX_ITEMS:]


def _left_by_holder(place: TerminalPlace) -> dict[str, Any] | None:
    """Return what a holder has left when it ended; None if it was killed."""
    try:
        left = orjson.loads(Path(place.ended).read_bytes())
        return left if isinstance(left, dict) else None
    except (OSError, ValueError):
        return None


def _state_of(ended: Mapping[str, Any] | None, *, is_here: bool, host: str) -> tuple[str, str]:
    """Return the state of a terminal that has ended, and why it is in it."""
    if not is_here:
        return "lost", f"its host {host} was away for too long"
    if ended is None:
        return "crashed", "killed"
    status = ended.get("status")
    if ended.get("reason") != "exited":
        return "parked", ""
    return ("exited", "") if status == 0 else ("crashed", f"status {status}")
