"""The turn of a branch that answers a person's message which was moved to it."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.moves import MovedEnd, Moves
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import AgentDeliveryResult, Entry, ReplyPayload, SessionKey, Turn
from remoteclaw.session.attempt import Attempt
from remoteclaw.tasks.branches import MAX_CHARS

ENDED_ABOVE = "(Our conversation has ended since you asked this.)"


def moved_entry(turn: Turn) -> Entry | None:
    """Return the message of a turn that was moved to this session; None for any other turn."""
    first = turn.entries[0] if turn.entries else None
    return first if first and first.moved else None


def answered_by(turn: Turn) -> list[str]:
    """Return the entries that the turn's last message answers, for those who wait for them."""
    ids = [entry.id for entry in (*turn.left_out, *turn.entries)]
    entry = moved_entry(turn)
    return [entry.moved.entry, *ids] if entry and entry.moved else ids


async def say_that_it_ended(lease: Lease, attempt: Attempt) -> None:
    """Say before the answer that its conversation has ended, if it has."""
    if moved_entry(attempt.turn) and await Moves(lease).has_ended_above():
        await attempt.reply.say(ENDED_ABOVE)


async def with_end(
    lease: Lease, attempt: Attempt, result: AgentDeliveryResult
) -> AgentDeliveryResult:
    """Return the result with that sentence, if the conversation ended while it was made."""
    reply = attempt.reply
    rest = [payload for payload in result.payloads if payload.index >= reply.next_index]
    has_said = any(payload.text == ENDED_ABOVE for payload in reply.said)
    if not rest or not moved_entry(attempt.turn) or has_said:
        return result
    if not await Moves(lease).has_ended_above():
        return result
    said = replace(rest[0], text=f"{ENDED_ABOVE}\n\n{rest[0].text}".strip())
    payloads = (said if payload is rest[0] else payload for payload in result.payloads)
    return replace(result, payloads=tuple(payloads))


def moved_end(turn: Turn, status: str, payloads: Sequence[ReplyPayload]) -> MovedEnd | None:
    """Return how a message that was moved to this session ends where it came from."""
    entry = moved_entry(turn)
    if entry is None or entry.moved is None:
        return None
    text = "\n\n".join(payload.text for payload in payloads if payload.text)
    told = {
        "at": entry.at_ms,
        "from": entry.message.user_name or entry.message.from_,
        "said": shortened(entry.message.text, MAX_CHARS),
        "you": shortened(text, MAX_CHARS),
    }
    said = orjson.dumps(told) if text and status not in ("stopped", "dead") else None
    return MovedEnd(SessionKey.parse(entry.moved.of), entry.moved.entry, said)
