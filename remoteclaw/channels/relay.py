"""The relay: delivers an account's replies through its adapter, in order within a chat's topic.

Each topic has a row, which is served beside the others: a chat that has to wait holds up itself
alone. A row knows the ids of what waits, and reads a reply when it is its turn.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Delivery, Done, Preview, failure, settled
from remoteclaw.channels.live import LiveChats
from remoteclaw.channels.task_progress import ShowsWork
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import LeaseLost, RemoteClawError, Unsupported, first_of
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import (
    ChannelAdapter,
    LiveAdapter,
    OperatingAdapter,
    Operation,
    Place,
    Reply,
)

#: The time limit of one operation, in seconds: messages wait behind it, and its caller waits 15 s,
#: of which it may have waited 10 here.
OPERATE_S = 4.0
#: How many rows ask Redis at once, besides those that send: each takes a connection.
MAX_AT_ONCE = 32

LATE = "It came too late: the channel's adapter was busy, and has not done it."
SLOW = f"The platform took longer than {OPERATE_S:.0f} s: it may have been done, or not."
ONLY_SENDS = "This channel's adapter can do nothing but send messages."
PASSED = (
    "This is what passed through RemoteClaw in this chat, as far as it is kept: the platform tells "
    "nothing else."
)

log = logging.getLogger(__name__)


async def relay(
    reader: ReplyReader,
    adapter: ChannelAdapter,
    budget: Budget | None = None,
    *,
    history_ms: Callable[[], int] = lambda: 0,
    shows_work: ShowsWork | None = None,
) -> None:
    """Deliver until cancelled.

    While another adapter has the claim, nothing is sent. Each reply has its receipt once the
    platform has all of it, or refuses it for good. What was sent to a chat is kept for a while, as
    `history_ms` says of the moment. Where the platform can edit messages, chats show what works
    for them as far as `shows_work` says.
    """
    budget = budget or Budget(f"{reader.provider}/{reader.account}")
    while True:
        await reader.claimed()
        try:
            async with asyncio.TaskGroup() as tasks:
                live = None
                if isinstance(adapter, LiveAdapter):
                    every_s = profile_of(reader.provider).live_every_s
                    live = LiveChats(
                        reader, adapter, budget, tasks, every_s=every_s, shows_work=shows_work
                    )
                    await live.load()
                    tasks.create_task(live.run())
                await _Rows(reader, adapter, budget, tasks, live, history_ms).run()
        except* LeaseLost as lost:
            log.warning("nothing more is sent here: %s", first_of(lost))


class _Rows:
    """The topics that replies wait for, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: ChannelAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        live: LiveChats | None,
        history_ms: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks
        self._live = live
        self._history_ms = history_ms
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting: dict[Place, deque[str]] = {}
        """By topic, the ids of the replies that wait for it, in order."""

    async def run(self) -> None:
        """Have each reply delivered in its row."""
        async for reply in self._reader.replies():
            place = Place(reply.channel_id, reply.thread_id)
            waiting = self._waiting.get(place)
            if waiting is None:
                self._waiting[place] = deque((reply.id,))
                self._tasks.create_task(self._serve(place, reply))
            else:  # what comes again after a lost claim is gone by the time of its second turn
                waiting.append(reply.id)

    async def _serve(self, place: Place, reply: Reply | None) -> None:
        """Deliver to one topic until nothing waits for it."""
        waiting = self._waiting[place]
        with self._budget.replies(place.chat):
            while waiting:
                reply = reply or await self._read(waiting[0])
                if reply:
                    await self._deliver(reply)
                waiting.popleft()
                reply = None
        del self._waiting[place]

    async def _read(self, reply_id: str) -> Reply | None:
        async with self._at_once:
            return await self._reader.read(reply_id)

    async def _deliver(self, reply: Reply) -> None:
        if reply.operation:
            until = boottime() + await self._reader.left_s(reply.operation)
            await self._reader.check()  # last: it may have been frozen before
            done = Done(answer=await self._operate(reply.operation, until - boottime()))
            await settled(asyncio.create_task(self._receipt(reply, done)))
            return
        preview = await self._live.take(reply) if self._live else None
        if reply.card and self._live and not reply.card.choices:
            preview = await self._card(reply)
        elif reply.card and not getattr(self._adapter, "has_buttons", False):
            reply = _in_words(reply)
        delivery = Delivery(self._reader, self._adapter, self._budget, reply, preview)
        sent = await delivery.run()
        is_part = preview is not None and sent is not None and preview.message_id in sent.ids
        if sent:
            of = preview.message_id if preview and is_part else ""
            await settled(asyncio.create_task(self._receipt(reply, sent, preview=of)))
        if self._live and preview and not is_part and not reply.card:
            self._live.remove_later(preview)

    async def _card(self, reply: Reply) -> Preview | None:
        """Return the message that shows a request: what became of that takes its place."""
        assert reply.card is not None, "it is about one"
        message_id = await self._reader.shown_card(reply.card.id)
        if message_id is None:
            return None
        return Preview(
            Place(reply.channel_id, reply.thread_id), reply.sid, message_id, since_ms=now_ms()
        )

    async def _receipt(self, reply: Reply, done: Done, *, preview: str = "") -> None:
        async with self._at_once:
            await self._reader.receipt(
                reply,
                ids=done.ids,
                shown=done.shown,
                kept=done.kept,
                given_up=done.given_up,
                answer=done.answer,
                preview=preview,
                history_ms=self._history_ms(),
            )

    async def _operate(self, operation: Operation, left_s: float) -> bytes:
        """Do something in a chat, if there is time left for it; return what its caller is told."""
        if left_s <= 0:
            return failure(LATE)
        try:
            async with asyncio.timeout(OPERATE_S):
                return orjson.dumps(dict(await self._done(operation)))
        except TimeoutError:
            return failure(SLOW)
        except RemoteClawError as problem:
            return failure(str(problem))
        except Exception as error:  # noqa: BLE001 - an adapter of anybody's
            # It is not tried again, and must not hold up the messages behind it.
            log.error("the operation %s failed: %s", operation.name, frames_of(error))
            return failure(f"The channel's adapter failed ({type(error).__name__}).")

    async def _done(self, operation: Operation) -> Mapping[str, Any]:
        """Ask the adapter for an operation; messages that it can't read come from our history."""
        try:
            if isinstance(self._adapter, OperatingAdapter):
                return await self._adapter.operate(operation)
            raise Unsupported(ONLY_SENDS)
        except Unsupported:
            if operation.name != "read":
                raise
        messages = await self._reader.history.read(
            self._reader.provider,
            self._reader.account,
            operation.channel_id,
            thread=operation.thread_id,
            limit=operation.args["limit"],
        )
        return {"messages": messages, "note": PASSED}


def _in_words(reply: Reply) -> Reply:
    """Return a reply with the choices of its card as words: they are answered by number.

    Of a request that is answered it says only that: what it was about stands above.
    """
    card = reply.card
    if card is None:
        return reply
    if not card.choices:
        return replace(reply, text=reply.text.rpartition("\n\n")[2])
    numbered = " · ".join(f"{number} {label}" for number, (_, label) in enumerate(card.choices, 1))
    or_why = f", or `/deny {card.id} WHY`" if "once" in dict(card.choices) else ""
    words = f"{numbered}: answer with the number{or_why}."
    return replace(reply, text=f"{reply.text}\n\n{words}")
