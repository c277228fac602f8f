"""Relays an account's replies to its adapter, in order within each topic of a chat.

Each topic has its own queue and the queues are served concurrently, so a chat that has to wait
delays no other. A queue holds only the ids of replies. A reply is read when its turn comes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

import orjson

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Delivery, DeliveryResult, Preview, failure, shielded
from remoteclaw.channels.live import LiveChats
from remoteclaw.channels.signs import StateSigns
from remoteclaw.channels.task_progress import ToolDetailOf
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import LeaseLost, RemoteClawError, Unsupported, first_of
from remoteclaw.fleet.replies.reader import DeliveryFailure, ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import ChatPlace
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import (
    ChannelAdapter,
    LiveAdapter,
    MeteredAdapter,
    OperatingAdapter,
    Operation,
    Place,
    Reply,
)

#: Time limit of one operation, in seconds. Later messages of the topic wait for it, and its caller
#: waits 15 s, of which 10 may have passed before the operation begins.
OPERATE_S = 4.0
#: At most this many queues access Redis at once, besides those that send: each takes a connection.
MAX_AT_ONCE = 32

LATE = "The operation was not done: the channel's adapter was busy until it was too late."
SLOW = f"The platform took longer than {OPERATE_S:.0f} s: the operation may have been done, or not."
ONLY_SENDS = "This channel's adapter can do nothing but send messages."
OWN_HISTORY = (
    "These are the messages that passed through RemoteClaw in this chat and are still kept: the "
    "platform provides no history."
)

#: Returns the place and the payload of the notice about a reply that is given up; None for none.
NoticeOf = Callable[[Reply, DeliveryFailure], Awaitable[tuple[ChatPlace, Mapping[str, Any]] | None]]

log = logging.getLogger(__name__)


async def relay(
    reader: ReplyReader,
    adapter: ChannelAdapter,
    budget: Budget | None = None,
    *,
    history_ms: Callable[[], int] = lambda: 0,
    shows_work: ToolDetailOf | None = None,
    notice_of: NoticeOf | None = None,
    signs: StateSigns | None = None,
) -> None:
    """Deliver replies until cancelled.

    While another adapter has the claim, nothing is sent. A reply gets its receipt once the platform
    has all its parts, or has refused it for good. `history_ms` returns for how long sent messages
    are kept in the chat's history. If the platform can edit messages, chats also show the progress
    of their tasks and branches, with the tool details that `shows_work` returns. `notice_of`
    returns the place and the payload of the notice about a reply that is given up, if it has one.
    `signs` show the states of people's messages meanwhile.
    """
    profile = profile_of(reader.provider)
    budget = budget or Budget(f"{reader.provider}/{reader.account}", profile)
    if isinstance(adapter, MeteredAdapter):
        adapter.report_to(budget.allow)
    while True:
        await reader.wait_for_claim()
        try:
            async with asyncio.TaskGroup() as tasks:
                live = None
                if isinstance(adapter, LiveAdapter):
                    live = LiveChats(
                        reader,
                        adapter,
                        budget,
                        tasks,
                        every_s=profile.live_every_s,
                        shows_work=shows_work,
                    )
                    await live.load()
                    tasks.create_task(live.run())
                queues = _TopicQueues(
                    reader, adapter, budget, tasks, live, history_ms, notice_of or _no_notice, signs
                )
                if signs:
                    tasks.create_task(signs.run())
                await queues.run()
        except* LeaseLost as lost:
            name = f"{reader.provider}/{reader.account}"
            log.warning("%s stops sending replies: %s", name, first_of(lost))


class _TopicQueues:
    """The queues of replies by topic, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: ChannelAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        live: LiveChats | None,
        history_ms: Callable[[], int],
        notice_of: NoticeOf,
        signs: StateSigns | None,
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks
        self._live = live
        self._history_ms = history_ms
        self._notice_of = notice_of
        self._signs = signs
        self._at_once = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting: dict[Place, deque[str]] = {}
        """By topic, the ids of its undelivered replies, in order."""

    async def run(self) -> None:
        """Put each reply in the queue of its topic, and serve the queues."""
        async for reply in self._reader.replies():
            place = Place(reply.channel_id, reply.thread_id)
            waiting = self._waiting.get(place)
            if waiting is None:
                self._waiting[place] = deque((reply.id,))
                self._tasks.create_task(self._serve(place, reply))
            else:
                # A reply that is yielded again after a lost claim is delivered once: by its second
                # turn it is off the stream, and `_read` returns None.
                waiting.append(reply.id)

    async def _serve(self, place: Place, reply: Reply | None) -> None:
        """Deliver the replies of one topic until its queue is empty. `reply` is the first one."""
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
            until = boottime() + await self._reader.seconds_left(reply.operation)
            await self._reader.ensure_claim()  # again: the process may have been frozen
            answer = await self._operate(reply.operation, until - boottime())
            await shielded(self._receipt(reply, DeliveryResult(answer=answer)))
            return
        preview = await self._live.take_preview(reply) if self._live else None
        if reply.card and self._live and not reply.card.choices:
            preview = await self._card_message(reply)
        elif reply.card and (buttons := getattr(self._adapter, "has_buttons", False)) is not True:
            by_reaction = buttons == "reactions"
            text = reply.card.with_choices(reply.text, by_reaction=by_reaction)
            reply = replace(reply, text=text)
        delivery = Delivery(self._reader, self._adapter, self._budget, reply, preview)
        result = await delivery.run()
        is_part = preview is not None and result is not None and preview.message_id in result.ids
        if result:
            preview_id = preview.message_id if preview and is_part else ""
            await shielded(self._receipt(reply, result, preview=preview_id))
        if self._live and preview and not is_part and not reply.card:
            self._live.remove_later(preview)

    async def _card_message(self, reply: Reply) -> Preview | None:
        """Return the message that shows the reply's request, which its outcome replaces."""
        assert reply.card is not None, "only called for replies with a card"
        message_id = await self._reader.shown_card(reply.card.id)
        if message_id is None:
            return None
        return Preview(
            Place(reply.channel_id, reply.thread_id), reply.sid, message_id, since_ms=now_ms()
        )

    async def _receipt(self, reply: Reply, result: DeliveryResult, *, preview: str = "") -> None:
        async with self._at_once:
            await self._reader.receipt(
                reply,
                ids=result.ids,
                shown=result.shown,
                kept=result.kept,
                failure=result.given_up,
                answer=result.answer,
                preview=preview,
                history_ms=self._history_ms(),
                notice=await self._notice_of(reply, result.given_up) if result.given_up else None,
            )

    async def _operate(self, operation: Operation, left_s: float) -> bytes:
        """Perform an operation if `left_s` allows; return the JSON result for its caller."""
        if left_s <= 0:
            return failure(LATE)
        try:
            # It is counted and waits for nothing: its caller would rather hear of the limit.
            with self._budget.call(operation.channel_id, operation.name):
                async with asyncio.timeout(OPERATE_S):
                    return orjson.dumps(dict(await self._perform(operation)))
        except TimeoutError:
            return failure(SLOW)
        except RemoteClawError as problem:
            return failure(str(problem))
        except Exception as error:  # noqa: BLE001 - an adapter's bug must not end the relay
            # Not retried: later messages of the topic would wait for it.
            log.error("the operation %s failed: %s", operation.name, frames_of(error))
            return failure(f"The channel's adapter failed ({type(error).__name__}).")

    def _without_sign(self, operation: Operation) -> AbstractAsyncContextManager[None]:
        """Return the context of an operation, which ends the sign of a message with a reaction."""
        if self._signs is None or operation.name != "react":
            return nullcontext()
        return self._signs.giving_way(operation.channel_id, operation.args["messageId"])

    async def _perform(self, operation: Operation) -> Mapping[str, Any]:
        """Have the adapter perform an operation. If it can't `read`, use RemoteClaw's history."""
        try:
            if isinstance(self._adapter, OperatingAdapter):
                async with self._without_sign(operation):
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
        return {"messages": messages, "note": OWN_HISTORY}


async def _no_notice(_reply: Reply, _failure: DeliveryFailure) -> None:
    return None
