"""Progress notes of a task's turn, for the sessions above it."""

import asyncio
import contextlib

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.host.terminal import one_line
from remoteclaw.session.reply import TurnReply

#: The minimum pause between two notes, in seconds.
NOTE_INTERVAL_S = 2.0
#: The maximum lengths in a note of the tool with its argument, and of the agent's text, in
#: characters.
MAX_TOOL_CHARS, MAX_TEXT_CHARS = 120, 200
#: This much of the end of the agent's text is scrubbed, in characters: more than is kept, because a
#: secret may begin before the kept part.
MAX_READ_CHARS = 2000


async def keep_noting(lease: Lease, turn: str, reply: TurnReply, scrubber: Scrubber) -> None:
    """Store a note of the turn's last tool and last text each time they change, until cancelled.

    A session without a parent stores none.
    """
    if lease.state.parent is None:
        return
    stored: dict[str, str] | None = None
    while True:
        reply.has_changed.clear()
        note = progress_note(reply, scrubber)
        if note == stored:
            await reply.has_changed.wait()
            continue
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await lease.progress.note(turn, note, is_first=stored is None)
            stored = note
        await asyncio.sleep(NOTE_INTERVAL_S)


def progress_note(reply: TurnReply, scrubber: Scrubber) -> dict[str, str]:
    """Return the last tool and the end of the last text, without secrets and on one line each."""
    note, tool = {}, reply.last_tool
    if tool is not None:  # its argument was scrubbed when it was shown
        note["tool"] = one_line(tool.name, max_chars=MAX_TOOL_CHARS // 2)
        note["argument"] = one_line(tool.argument, max_chars=MAX_TOOL_CHARS - 2 - len(note["tool"]))
    if text := one_line(scrubber.text(reply.last_text[-MAX_READ_CHARS:], MAX_READ_CHARS)):
        is_short = len(text) <= MAX_TEXT_CHARS
        note["said"] = text if is_short else f"…{text[1 - MAX_TEXT_CHARS :]}"
    return note
