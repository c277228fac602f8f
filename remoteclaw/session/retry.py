"""The retry of a turn whose agent could not work: whether, when, and the notice about it.

Pure functions; `asking.py` waits and writes.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime

from remoteclaw.bridge.failures import as_code
from remoteclaw.clock import local_time
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.turn import Postponement
from remoteclaw.messages import AgentDeliveryResult
from remoteclaw.session.reply import TurnReply

#: Failures after which another agent process is asked at once: the process has died, or it has lost
#: the conversation.
RETRIED_AT_ONCE = frozenset((ErrorCategory.SESSION_EXPIRED, ErrorCategory.DIED))
#: Temporary failures of the provider or the network, after which the turn is asked again later, and
#: the sentence for the person.
REASONS = {
    ErrorCategory.USAGE_LIMIT: "The plan's limit is used up.",
    ErrorCategory.RETRYABLE: "The model is busy.",
    ErrorCategory.UNREACHABLE: "I can't reach the model over the network.",
}
_NOTICE = "{why} Your message is kept, and I try again from {at} on; /stop drops it."
#: Pauses between two tries if the provider names no time, in milliseconds. Every CLI has retried
#: several times before it reports the failure, so a few pauses that cover minutes are enough.
PAUSES_MS = (2_000, 6_000, 30_000, 120_000, 300_000)
#: The random variation of a pause, as a part of it, so that sessions don't all retry at once.
JITTER = 0.2
#: During a pause up to this length, in milliseconds, the worker keeps the session and its agent.
SHORT_MS = 10_000
#: The minimum pause before the next try after a plan's usage limit, and the pause if the end of the
#: limit is not known, in milliseconds.
LIMIT_MIN_PAUSE_MS, LIMIT_PAUSE_MS = 15_000, 1_800_000
#: An end of a limit further away than this is ignored, in milliseconds: no limit lasts longer
#: than a month.
MAX_LIMIT_MS = 31 * 24 * 3600 * 1000
#: Two ends of a limit that differ by less than this are the same, in milliseconds: some CLIs report
#: a duration, so the end varies.
SAME_END_MS = 120_000


def next_try_ms(
    category: ErrorCategory | None,
    *,
    tries: int,
    retry_at_ms: int | None,
    now_ms: int,
    draw: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Return the time of a turn's next try, in milliseconds since 1970; None if it has failed.

    A usage limit is waited for as long as it lasts; after any other failure, the number of `tries`
    is limited. `retry_at_ms` is the time at which the provider accepts requests again, if known.
    """
    known = retry_at_ms if retry_at_ms is not None and retry_at_ms < now_ms + MAX_LIMIT_MS else 0
    if category is ErrorCategory.USAGE_LIMIT:
        return max(known, now_ms + (LIMIT_MIN_PAUSE_MS if known else LIMIT_PAUSE_MS))
    if category not in REASONS or tries > len(PAUSES_MS):
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
    """Return the postponement of a turn until `at_ms`, with a notice if its content is new.

    `told` is the content of the last notice: a category and the end of a usage limit, in
    milliseconds. It is empty if there was no notice.
    """
    category = result.error_category
    assert category is not None, "nothing failed"
    end_ms = (result.retry_at_ms or 0) if category is ErrorCategory.USAGE_LIMIT else 0
    told_category, _, told_end_ms = told.partition(" ")
    is_new = told_category != category or end_ms > int(told_end_ms) + SAME_END_MS
    why = REASONS[category]
    if result.reason:
        why = f"{why.removesuffix('.')} ({as_code(result.reason)})."
    notice = _NOTICE.format(why=why, at=f"{local_time(at_ms, zone):%a %d %b, %H:%M %Z}")
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    return Postponement(
        until_ms=at_ms,
        why=category,
        tries=tries,
        last_notice=f"{category} {end_ms}" if is_new else told,
        detail=f"until {moment}: {category}",
        notice=reply.notice_payload(notice) if is_new else None,
    )
