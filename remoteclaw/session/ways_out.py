"""Ways out of a refusal that the model repeats if the message is only asked again.

A conversation that is too long, or that the model's API refuses for its content, would otherwise
fail with each further message (docs/decisions/0050-ways-out-of-a-refusal.md).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from remoteclaw.bridge import ChannelBridge
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import Compacted, CompactionEvent, ErrorEvent
from remoteclaw.messages import AgentDeliveryResult, Turn
from remoteclaw.session.notices import SUMMARIZED, failed_result
from remoteclaw.session.retry import REASONS

#: After this many refused turns in a row, no further message is also asked in a new conversation:
#: the cause is none that a new conversation removes, such as a schema of a tool.
MAX_REFUSALS = 2


class WaysOut:
    """The ways out that one turn has left. Each is taken at most once, in their order."""

    def __init__(
        self,
        channel: ChannelBridge | None,
        abort: asyncio.Event,
        *,
        compact: Callable[[], Awaitable[Compacted]],
        count_refusals: Callable[[], Awaitable[int]],
        notice_of_loss: Callable[[], Awaitable[str]],
    ) -> None:
        """`compact` has the agent summarize the conversation.

        `count_refusals` returns the number of the session's refused turns in a row, and
        `notice_of_loss` the notice about a lost conversation, which may be empty.
        """
        self._channel = channel
        self._abort = abort
        self._compact = compact
        self._count_refusals = count_refusals
        self._notice_of_loss = notice_of_loss
        self._left = ["repeat", "compact"]
        """The ways within the conversation, for one that is too long."""
        self.begins_anew = False
        """Whether the turn is asked in a new conversation, with notes of the earlier one."""
        self.opening = ""
        """The notice before the agent's first words."""
        self._compaction: CompactionEvent | None = None

    async def prepare(
        self, result: AgentDeliveryResult, turn: Turn, *, index: int
    ) -> AgentDeliveryResult | None:
        """Prepare another ask after a failure, or a mere summary, and return None.

        If none may follow now, return the turn's result, whose message has `index`: the failure, or
        the model's temporary one that prevents a summary.
        """
        self._compaction = result.compaction or self._compaction
        if result.compaction and result.error_category is None and "repeat" in self._left:
            # opencode makes up for a summary that was stopped, and answers nothing in that turn
            self._left.remove("repeat")
            return None
        if self._channel is None or not result.is_stuck:
            return result
        if result.error_category is ErrorCategory.CONTEXT_OVERFLOW:
            match await self._make_room(result):
                case CompactionEvent():
                    self.opening = SUMMARIZED
                    return None
                case ErrorEvent(category, detail, retry_at_ms=at_ms) if category in REASONS:
                    self._left = ["compact"]
                    busy = failed_result(turn, category, detail, index)
                    return replace(busy, retry_at_ms=at_ms)
        elif await self._count_refusals() >= MAX_REFUSALS:
            return result
        self.begins_anew, self.opening = not self._abort.is_set(), await self._notice_of_loss()
        return None

    async def _make_room(self, result: AgentDeliveryResult) -> CompactionEvent | ErrorEvent | None:
        """Return the compaction of the conversation: the CLI's own during the turn, or one now.

        Returns the failure of a compaction; None if no way is left.
        """
        while self._left:
            match self._left.pop(0):
                case "repeat" if result.compaction:
                    return result.compaction
                case "compact":
                    made = await self._compact()
                    self._compaction = made.done or self._compaction
                    return made.done or made.failure
        return None

    async def settle(self, result: AgentDeliveryResult, *, is_silent: bool) -> AgentDeliveryResult:
        """Make room for the next turn if this one broke off because it became too long.

        Returns the result with the turn's last compaction.
        """
        self._compaction = result.compaction or self._compaction
        is_too_long = result.error_category is ErrorCategory.CONTEXT_OVERFLOW
        if self._channel and is_too_long and not is_silent and not result.compaction:
            made = await self._compact()
            self._compaction = made.done or self._compaction
            is_temporary = made.failure is not None and made.failure.category in REASONS
            if not made.done and not self._abort.is_set() and not is_temporary:
                await self._channel.give_up_conversation()
        return replace(result, compaction=self._compaction)
