"""Repeats of one turn whose agent could not work, at once or later."""

import time
from dataclasses import replace
from datetime import UTC, datetime

from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.lease import Batch, Postponement
from remoteclaw.messages import AgentDeliveryResult
from remoteclaw.session import retries
from remoteclaw.session.notices import failure, in_words
from remoteclaw.session.reply import Answer

__all__ = ["Patience"]

#: What is said before a failure that stayed although it was asked several times.
ASKED = "I asked {tries} times. "


class Patience:
    """How often a turn was asked, and when it is asked again."""

    def __init__(
        self, answer: Answer, batch: Batch, *, zone: str | None, keeps_at_limit: bool
    ) -> None:
        """`zone` is the agent's; a message is kept until a limit ends only if `keeps_at_limit`."""
        self._answer = answer
        self._told = batch.told
        self._limited_until_ms = batch.limited_until_ms
        self._tries = batch.tries
        self._has_met_limit = batch.told.partition(" ")[0] == ErrorCategory.USAGE_LIMIT
        """Whether the try before met the plan's limit."""
        self._zone = answer.turn.entries[-1].message.timezone or zone
        self._keeps_at_limit = keeps_at_limit

    def known_limit(self) -> AgentDeliveryResult | None:
        """Return what the agent would answer, if its login is known to have used up its plan."""
        if self._limited_until_ms is None or not self._keeps_at_limit:
            return None
        index = self._answer.next_index
        limit = failure(self._answer.turn, ErrorCategory.USAGE_LIMIT, index=index)
        return replace(limit, retry_at_ms=self._limited_until_ms)

    def count(self) -> None:
        """Count a try: what was known of a limit is out of date then."""
        self._tries += 1
        self._limited_until_ms = None

    def again_at_ms(self, result: AgentDeliveryResult) -> int | None:
        """Return when the turn is asked again after this failure; None if it isn't."""
        category = result.error_category
        if category is None or category not in retries.AGAIN:
            return None
        if category is ErrorCategory.USAGE_LIMIT and not self._keeps_at_limit:
            return None
        if self._has_met_limit and category is not ErrorCategory.USAGE_LIMIT:
            self._tries = 1  # what comes behind a limit has all its own tries
        self._has_met_limit = category is ErrorCategory.USAGE_LIMIT
        if category is ErrorCategory.USAGE_LIMIT and self._limited_until_ms:
            return self._limited_until_ms  # nobody was asked
        return retries.again_at_ms(
            category, tries=self._tries, retry_at_ms=result.retry_at_ms, now_ms=_now_ms()
        )

    def postponement(self, result: AgentDeliveryResult, at_ms: int) -> Postponement:
        """Return what is written when the turn waits for that time, and said if it is new."""
        category, now_ms = result.error_category, _now_ms()
        assert category is not None, "nothing failed"
        moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
        waits = Postponement(
            until_ms=at_ms,
            why=category,
            tries=self._tries,
            told=self._told,
            detail=f"until {moment}: {category}",
            is_of_login=category is ErrorCategory.USAGE_LIMIT,
        )
        if retries.is_told(self._told, category, at_ms):
            return waits
        at = retries.time_in(self._zone, at_ms, now_ms=now_ms)
        is_known = result.retry_at_ms is not None and at_ms == result.retry_at_ms
        words = retries.notice(category, at_ms=at_ms, now_ms=now_ms, is_known=is_known, at=at)
        return replace(
            waits,
            told=f"{category} {at_ms}",
            notice=self._answer.aside(words),
            later=self._answer.aside(retries.later(at), after=1) if is_known else None,
        )

    def in_the_end(self, result: AgentDeliveryResult) -> AgentDeliveryResult:
        """Return a failure that is told after all, with what the person needs to know of it."""
        if result.error_category in retries.AGAIN and self._tries > 1:
            return in_words(result, ASKED.format(tries=self._tries) + result.payloads[-1].text)
        return result


def _now_ms() -> int:
    return int(time.time() * 1000)
