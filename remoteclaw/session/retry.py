"""The retry of a turn whose agent could not work: whether, when, and what the person reads.

Pure: the turn asks, waits and writes (`asking.py`).
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime

from remoteclaw.bridge.failures import code
from remoteclaw.clock import local_time
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.turn import Postponement
from remoteclaw.messages import AgentDeliveryResult
from remoteclaw.session.reply import TurnReply

#: Failures after which another agent process is asked at once: the one before was ending already,
#: no longer knew the conversation, or the conversation had become too long.
REPEATED = frozenset(
    (ErrorCategory.SESSION_EXPIRED, ErrorCategory.DIED, ErrorCategory.CONTEXT_OVERFLOW)
)
#: Failures of the provider's or the network's, and what the person reads of them: the same question
#: may be answered a while later.
WHY = {
    ErrorCategory.USAGE_LIMIT: "The plan's limit is used up.",
    ErrorCategory.RETRYABLE: "The model is busy.",
    ErrorCategory.UNREACHABLE: "I can't reach the model over the network.",
}
_WAITS = "{why} Your message is kept, and I try again from {at} on; /stop drops it."
#: Pauses between two tries where nothing is known, in milliseconds. Every CLI has asked several
#: times by itself before it reports this, so there are few, and they cover what lasts for minutes.
PAUSES_MS = (2_000, 6_000, 30_000, 120_000, 300_000)
#: Part of a pause by which it may differ, so that sessions don't all come back at once.
JITTER = 0.2
#: The longest pause, in milliseconds, for which a worker waits with the agent at hand.
SHORT_MS = 10_000
#: The shortest pause before the next try at a plan's limit, and the pause if its end is not known,
#: in milliseconds.
LIMIT_AGAIN_MS, LIMIT_LOOK_MS = 15_000, 1_800_000
#: The furthest end of a limit that is believed, in milliseconds: the longest plans count by month.
LONGEST_MS = 31 * 24 * 3600 * 1000
#: Ends of a limit that differ by less are the same, in milliseconds: some CLIs tell a duration.
SAME_MS = 120_000


def again_at_ms(
    category: ErrorCategory | None,
    *,
    tries: int,
    retry_at_ms: int | None,
    now_ms: int,
    draw: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Return when a turn is asked again; None if it isn't.

    A plan's limit is waited for as long as it lasts; any other failure is told after `tries` tries.
    `retry_at_ms` is when the provider takes requests again, as far as it says so.
    """
    known = retry_at_ms if retry_at_ms is not None and retry_at_ms < now_ms + LONGEST_MS else 0
    if category is ErrorCategory.USAGE_LIMIT:
        return max(known, now_ms + (LIMIT_AGAIN_MS if known else LIMIT_LOOK_MS))
    if category not in WHY or tries > len(PAUSES_MS):
        return None
    pause_ms = PAUSES_MS[tries - 1] * draw(1 - JITTER, 1 + JITTER)
    return max(known, now_ms + int(pause_ms))


def postponement(
    result: AgentDeliveryResult,
    reply: TurnReply,
    *,
    tries: int,
    told: str,
    at_ms: int,
    zone: str | None,
) -> Postponement:
    """Return what is written when a turn waits for a time, with a notice if that is new.

    `told` is what the person knows already: a category, and the end of a plan's limit.
    """
    category = result.error_category
    assert category is not None, "nothing failed"
    end_ms = (result.retry_at_ms or 0) if category is ErrorCategory.USAGE_LIMIT else 0
    told_of, _, told_end = told.partition(" ")
    is_new = told_of != category or end_ms > int(told_end) + SAME_MS
    why = WHY[category]
    if result.reason:
        why = f"{why.removesuffix('.')} ({code(result.reason)})."
    words = _WAITS.format(why=why, at=f"{local_time(at_ms, zone):%a %d %b, %H:%M %Z}")
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    return Postponement(
        until_ms=at_ms,
        why=category,
        tries=tries,
        told=f"{category} {end_ms}" if is_new else told,
        detail=f"until {moment}: {category}",
        notice=reply.aside(words) if is_new else None,
    )
