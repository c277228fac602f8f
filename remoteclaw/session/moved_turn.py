"""The turn of a branch that answers a message moved to it from the conversation."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.moves import MovedEnd, Moves
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import AgentDeliveryResult, Entry, ReplyPayload, SessionKey, Turn
from remoteclaw.session.attempt import Attempt
from remoteclaw.tasks.branches import MAX_MESSAGE_CHARS

#: Sent before the answer, or at its beginning.
ENDED_ABOVE = "(Our conversation has ended since you asked this.)"


def moved_entry(turn: Turn) -> Entry | None:
    """Return the entry that was moved to this session; None if the turn has none."""
    first = turn.entries[0] if turn.entries else None
    return first if first and first.moved else None


def answered_entries(turn: Turn) -> list[str]:
    """Return the ids of the entries that the turn's last message answers, for waiting clients.

    The id of a moved entry in its original session comes first.
    """
    ids = [entry.id for entry in (*turn.left_out, *turn.entries)]
    entry = moved_entry(turn)
    return [entry.moved.entry, *ids] if entry and entry.moved else ids


async def send_end_notice(lease: Lease, attempt: Attempt) -> None:
    """Send `ENDED_ABOVE` if the conversation that a moved message came from has ended."""
    if moved_entry(attempt.turn) and await Moves(lease).has_ended_above():
        await attempt.reply.send_notice(ENDED_ABOVE)


async def with_end_notice(
    lease: Lease, attempt: Attempt, result: AgentDeliveryResult
) -> AgentDeliveryResult:
    """Return the result with `ENDED_ABOVE` in front if the conversation ended during the turn."""
    reply = attempt.reply
    undelivered = [payload for payload in result.payloads if payload.index >= reply.next_index]
    was_sent = any(payload.text == ENDED_ABOVE for payload in reply.notices)
    if not undelivered or not moved_entry(attempt.turn) or was_sent:
        return result
    if not await Moves(lease).has_ended_above():
        return result
    first = undelivered[0]
    changed = replace(first, text=f"{ENDED_ABOVE}\n\n{first.text}".strip())
    payloads = (changed if payload is first else payload for payload in result.payloads)
    return replace(result, payloads=tuple(payloads))


def moved_end(turn: Turn, status: str, payloads: Sequence[ReplyPayload]) -> MovedEnd | None:
    """Return the end of a moved entry for the session that it came from; None without one."""
    entry = moved_entry(turn)
    if entry is None or entry.moved is None:
        return None
    text = "\n\n".join(payload.text for payload in payloads if payload.text)
    note = {
        "at": entry.at_ms,
        "from": entry.message.user_name or entry.message.from_,
        "said": shortened(entry.message.text, MAX_MESSAGE_CHARS),
        "you": shortened(text, MAX_MESSAGE_CHARS),
    }
    encoded = orjson.dumps(note) if text and status not in ("stopped", "dead") else None
    return MovedEnd(SessionKey.parse(entry.moved.of), entry.moved.entry, encoded)
