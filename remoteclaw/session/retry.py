"""The retry of a turn whose agent could not work: whether, when, and what the person reads.

Pure: the turn asks, waits and writes (`turn.py`).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from remoteclaw.bridge.failures import LONG_MESSAGE
from remoteclaw.clock import named_zone
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.turn import Batch, Postponement
from remoteclaw.messages import AgentDeliveryResult, Turn
from remoteclaw.session.notices import reworded
from remoteclaw.session.reply import TurnReply

__all__ = [
    "SHORT_MS",
    "Tries",
    "again_at_ms",
    "failed_after",
    "is_told",
    "may_repeat",
    "postponement",
    "time_in",
]

#: Failures of the provider's or the network's: the same question may be answered a while later.
AGAIN = frozenset((ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE, ErrorCategory.UNREACHABLE))
#: Pauses between two tries where nothing is known, in milliseconds. Every CLI has asked several
#: times by itself before it reports this, so there are few, and they cover what lasts for minutes.
PAUSES_MS = (2_000, 6_000, 30_000, 120_000, 300_000)
#: Part of a pause by which it may differ, so that sessions don't all come back at once.
JITTER = 0.2
#: The longest pause, in milliseconds, for which a worker waits with the agent at hand.
SHORT_MS = 10_000
#: Pauses before the next try at a plan's limit, in milliseconds: one that should have ended, and
#: one whose end is not known.
LIMIT_AGAIN_MS, LIMIT_LOOK_MS = 60_000, 1_800_000
#: Tries of one message at a plan's limit before it is given up: a day without a known end.
MOST_LIMITS = 48
#: The furthest end of a limit that is believed, in milliseconds: the longest plans count by month.
LONGEST_MS = 31 * 24 * 3600 * 1000
#: Ends of a limit that differ by less are the same, in milliseconds: some CLIs tell a duration.
SAME_MS = 120_000
#: A pause that is longer is told with its end, in milliseconds.
TOLD_MS = 600_000

_LIMIT = (
    "I can't work before {at}: the plan's limit is used up. Your message is kept and runs then; "
    "/stop drops it."
)
_LIMIT_WITHOUT_END = (
    "I can't work now: the plan's limit is used up, and its end is not known. Your message is "
    "kept, and I try again at {at}; /stop drops it."
)
_WHY = {
    ErrorCategory.RETRYABLE: "The model is busy.",
    ErrorCategory.UNREACHABLE: "I can't reach the model over the network.",
}
_SOON = "{why} Your message is kept, and I try again over the next minutes; /stop drops it."
_AT = "{why} Your message is kept, and I try again at {at}; /stop drops it."
_LATER = "I still wait until {at}. This message is kept as well, and comes after the others."
#: Said before a failure that stayed although the agent was asked several times.
_ASKED = "I asked {tries} times. "


@dataclass(frozen=True, slots=True)
class Tries:
    """The tries of a turn, in all attempts: each asks its agent once."""

    count: int = 0
    last: str = ""
    """The category of the failure before."""
    told: str = ""
    """The pause that the person was told of: its category and its end."""

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the tries of the attempts before."""
        return cls(batch.tries, batch.told.partition(" ")[0], batch.told)

    def failed(self, category: ErrorCategory) -> "Tries":
        """Return these and one more; what comes behind a plan's limit has all its own tries."""
        limit = ErrorCategory.USAGE_LIMIT
        is_first = self.last == limit and category is not limit
        return replace(self, count=1 if is_first else self.count + 1, last=category)


def may_repeat(category: ErrorCategory | None, turn: Turn, *, is_first: bool) -> bool:
    """Return whether another agent process may be asked at once after this failure.

    The one before was ending already, or no longer knew the conversation, or the conversation had
    become too long: not that of a session's first turn, nor by this message alone.
    """
    if category is ErrorCategory.CONTEXT_OVERFLOW:
        length = sum(len(entry.message.text) for entry in turn.entries)
        return not is_first and length < LONG_MESSAGE
    return category in (ErrorCategory.SESSION_EXPIRED, ErrorCategory.DIED)


def again_at_ms(
    category: ErrorCategory | None,
    *,
    tries: int,
    retry_at_ms: int | None,
    now_ms: int,
    draw: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Return when a turn is asked again that was asked `tries` times; None if it isn't.

    `retry_at_ms` is when the provider takes requests again, as far as it says so.
    """
    if category not in AGAIN:
        return None
    known = retry_at_ms if retry_at_ms is not None and retry_at_ms < now_ms + LONGEST_MS else None
    if category is ErrorCategory.USAGE_LIMIT:
        if tries > MOST_LIMITS:
            return None
        if tries <= 1 and known is not None and known > now_ms:
            return known
        return max(known or 0, now_ms + (LIMIT_AGAIN_MS if known else LIMIT_LOOK_MS))
    if tries > len(PAUSES_MS):
        return None
    pause_ms = PAUSES_MS[tries - 1] * draw(1 - JITTER, 1 + JITTER)
    return max(known or 0, now_ms + int(pause_ms))


def is_told(told: str, category: ErrorCategory, at_ms: int) -> bool:
    """Return whether the person knows of a pause already, by what they were `told` last."""
    what, _, until = told.partition(" ")
    if what != category:
        return False
    return category is not ErrorCategory.USAGE_LIMIT or at_ms <= int(until) + SAME_MS


def failed_after(tries: Tries, result: AgentDeliveryResult) -> AgentDeliveryResult:
    """Return a failure that is told after all, with how often the agent was asked."""
    if result.error_category in AGAIN and tries.count > 1:
        return reworded(result, _ASKED.format(tries=tries.count) + result.payloads[-1].text)
    return result


def postponement(
    result: AgentDeliveryResult,
    tries: Tries,
    reply: TurnReply,
    *,
    at_ms: int,
    now_ms: int,
    zone: str | None,
) -> Postponement:
    """Return what is written when a turn waits for a time, and said if that is new."""
    category = result.error_category
    assert category is not None, "nothing failed"
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    waits = Postponement(
        until_ms=at_ms,
        why=category,
        tries=tries.count,
        told=tries.told,
        detail=f"until {moment}: {category}",
        blocks_login=category is ErrorCategory.USAGE_LIMIT,
    )
    if is_told(tries.told, category, at_ms):
        return waits
    at = time_in(zone, at_ms, now_ms=now_ms)
    is_known = result.retry_at_ms == at_ms
    if category is ErrorCategory.USAGE_LIMIT:
        words = _LIMIT if is_known else _LIMIT_WITHOUT_END
    else:
        words = _AT if at_ms > now_ms + TOLD_MS else _SOON
    return replace(
        waits,
        told=f"{category} {at_ms}",
        notice=reply.aside(words.format(at=at, why=_WHY.get(category))),
        later=reply.aside(_LATER.format(at=at), after=1) if is_known else None,
    )


def time_in(zone: str | None, at_ms: int, *, now_ms: int) -> str:
    """Return a time as people read it in a zone, else in the host's; with the day if that differs.

    The zone is named, because the person may be in another one.
    """
    here = named_zone(zone)
    moment, now = (
        datetime.fromtimestamp(ms / 1000, tz=here).astimezone(here) for ms in (at_ms, now_ms)
    )
    day = "" if moment.date() == now.date() else f"{moment:%a %Y-%m-%d} "
    return f"{day}{moment:%H:%M} ({here.key if here else moment.tzname()})"
