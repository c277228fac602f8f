"""The retry of a turn whose agent could not work: whether, when, and the notice about it.

Pure functions; `asking.py` waits and writes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from remoteclaw.bridge.failures import as_code
from remoteclaw.clock import local_time
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.turns.turn import Postponement
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
#: How long after the announced end of a usage limit a turn is asked again, in milliseconds: clocks
#: differ by seconds, and the sessions that wait for the same end should not all come at once.
AFTER_END_MS = (5_000, 60_000)
#: The pauses before the next try if a usage limit is reached although its announced end is over or
#: near, in milliseconds. The last one repeats, and is the pause if no end was announced.
LIMIT_PAUSES_MS = (15_000, 60_000, 300_000, 1_800_000)
#: The number of refusals after the announced end after which the person is told that it goes on.
LATE_REFUSALS = 3
#: An end of a limit further away than this is ignored, in milliseconds: no limit lasts longer
#: than a month.
MAX_LIMIT_MS = 31 * 24 * 3600 * 1000
#: Two ends of a limit that differ by less than this are the same, in milliseconds: some CLIs report
#: a duration, so the end varies.
SAME_END_MS = 120_000
#: An end of a limit within this time is no new one, in milliseconds: some providers name a few
#: seconds with each refusal, whenever the limit ends.
NEAR_END_MS = 300_000


@dataclass(frozen=True, slots=True)
class LastNotice:
    """The content of the last notice to the person about a postponed turn, and what came after."""

    category: str = ""
    """Empty if there was no notice."""
    end_ms: int = 0
    """The announced end of a usage limit, in milliseconds since 1970; 0 if there was none."""
    refusals: int = 0
    """The number of refusals since the announced end."""

    @classmethod
    def parse(cls, text: str) -> "LastNotice":
        """Return the notice that `str()` has encoded."""
        category, end_ms, refusals = (*text.split(" "), "", "", "")[:3]
        return cls(category, int(end_ms or 0), int(refusals or 0))

    def __str__(self) -> str:
        """Encode the notice for the session's state."""
        return f"{self.category} {self.end_ms} {self.refusals}"

    def has_new_end(self, end_ms: int, now_ms: int) -> bool:
        """Whether a limit ends later than the notice said, or the notice named no end."""
        if not self.end_ms:
            return end_ms > 0
        return end_ms > max(self.end_ms + SAME_END_MS, now_ms + NEAR_END_MS)


def next_try_ms(
    category: ErrorCategory | None,
    *,
    tries: int,
    retry_at_ms: int | None,
    now_ms: int,
    told: LastNotice,
    draw: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Return the time of a turn's next try, in milliseconds since 1970; None if it has failed.

    A usage limit is waited for as long as it lasts; after any other failure, the number of `tries`
    is limited. `retry_at_ms` is the time at which the provider accepts requests again, if known.
    """
    known = retry_at_ms if retry_at_ms is not None and retry_at_ms < now_ms + MAX_LIMIT_MS else 0
    if category is ErrorCategory.USAGE_LIMIT:
        last = told if told.category == category else LastNotice()
        refusals = last.refusals if known or last.end_ms else len(LIMIT_PAUSES_MS)
        limit_pause_ms = LIMIT_PAUSES_MS[min(refusals, len(LIMIT_PAUSES_MS) - 1)]
        soonest = now_ms + int(limit_pause_ms * draw(1, 1 + JITTER))
        return max(soonest, known + int(draw(*AFTER_END_MS))) if known > now_ms else soonest
    if category not in REASONS or tries > len(PAUSES_MS):
        return None
    pause_ms = PAUSES_MS[tries - 1] * draw(1 - JITTER, 1 + JITTER)
    return max(known, now_ms + int(pause_ms))


def postponement(
    result: AgentDeliveryResult,
    reply: TurnReply,
    *,
    tries: int,
    told: LastNotice,
    at_ms: int,
    now_ms: int,
    zone: str | None,
) -> Postponement:
    """Return the postponement of a turn until `at_ms`, with a notice if its content is new."""
    category = result.error_category
    assert category is not None, "nothing failed"
    end_ms = (result.retry_at_ms or 0) if category is ErrorCategory.USAGE_LIMIT else 0
    notice, is_new = LastNotice(category, end_ms), True
    if told.category == category and not told.has_new_end(end_ms, now_ms):
        notice = replace(told, refusals=told.refusals + 1)
        is_new = bool(told.end_ms) and notice.refusals == LATE_REFUSALS
    why = REASONS[category]
    if result.reason:
        why = f"{why.removesuffix('.')} ({as_code(result.reason)})."
    sentence = _NOTICE.format(why=why, at=f"{local_time(at_ms, zone):%a %d %b, %H:%M %Z}")
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    return Postponement(
        until_ms=at_ms,
        why=category,
        tries=tries,
        last_notice=str(notice),
        detail=f"until {moment}: {category}",
        notice=reply.notice_payload(sentence) if is_new else None,
    )
