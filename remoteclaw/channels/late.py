"""Messages that were too old to be answered when they arrived, and the notice about them.

An adapter that reads a history finds the messages of a whole outage. Old ones are kept as the
chat's history; people have given up waiting for their answers.
"""

import asyncio
import logging
from collections.abc import Collection

from remoteclaw.channels.report import InboundContext
from remoteclaw.clock import local_time, now_ms
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.inbox import LateMessages
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.messages import ChatPlace
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Incoming

#: A chat is told once no more late messages have arrived for this long, in seconds.
QUIET_S = 2.0
#: The pause after a notice that Redis has not taken, in seconds.
AGAIN_S = 30.0
LATE = (
    "I was away, so {count} messages from {first} to {last} were not answered: send again what "
    "still matters."
)
LATE_ONE = (
    "I was away, so a message of {first} was not answered: send it again if it still matters."
)

log = logging.getLogger(__name__)


class LateNotices:
    """Tells each chat with late messages of them, in one silent line."""

    def __init__(self, context: InboundContext, reader: ReplyReader, answered_until: int) -> None:
        """Messages from before `answered_until` (ms) count as too old, too."""
        self._answered_until = answered_until
        self._context = context
        self._reader = reader
        self._reads_history = profile_of(context.provider).reads_history
        self._has_some = asyncio.Event()
        self._has_some.set()  # an earlier process may have left some

    def is_late(self, incoming: Incoming) -> bool:
        """Whether a report is a message, or the edit of one, that is too old to be answered."""
        settings = self._context.config().account(self._context.provider, self._context.account)
        is_act = incoming.is_message or incoming.replaces is not None
        if settings is None or not self._reads_history or not is_act:
            return False
        oldest_ms = int(now_ms() - settings.catch_up_h * 3600 * 1000)
        return incoming.at_ms < max(oldest_ms, self._answered_until)

    def wake(self) -> None:
        """Tell of the late messages that were added."""
        self._has_some.set()

    async def run(self) -> None:
        """Send notices until cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            before: Collection[LateMessages] = ()
            while late := await self._context.fleet.inbox.late_messages(self._reader):
                for each in late:
                    if each in before:
                        await self._tell(each)
                before = late
                await asyncio.sleep(QUIET_S)

    async def _tell(self, late: LateMessages) -> None:
        context, zone = self._context, self._context.config().fleet.timezone
        first, last = (
            f"{local_time(at, zone):%a %d %b, %H:%M}" for at in (late.first_ms, late.last_ms)
        )
        form = LATE if late.count > 1 else LATE_ONE
        place = ChatPlace(context.provider, context.account, late.place.chat, late.place.thread)
        try:
            await context.fleet.calls.send_notice(
                place,
                form.format(count=late.count, first=first, last=last),
                name=f"{place} {late.summary}",
                is_silent=True,
            )
        except (CallRefused, RedisRefused, RedisUnavailable) as refusal:
            log.warning("a notice about late messages waits: %s", refusal)
            await asyncio.sleep(AGAIN_S)
            return
        await context.fleet.inbox.late_told(self._reader, late)
