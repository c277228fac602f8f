"""Beside a turn: messages that come while it runs, each put to the agent at once, and its verdict.

What is not clearly an answer waits for the next turn, as without asides: so an aside can't lose a
message, nor have it answered twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson

from remoteclaw.bridge.asides import Aside, Running
from remoteclaw.clock import now_ms
from remoteclaw.config.model import Config, QueueConfig
from remoteclaw.config.tool_policy import is_owned_by
from remoteclaw.errors import AsideFailed, RedisRefused, RemoteClawError
from remoteclaw.fleet.asides import AsideEnd, Asides
from remoteclaw.fleet.inbound import NewerEntry
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import (
    AsideVerdict,
    Entry,
    ReplyPayload,
    Turn,
    people_of,
    person,
    stream_order,
)
from remoteclaw.protocols import Place
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.inbox import decode_all
from remoteclaw.session.permission import Permissions
from remoteclaw.session.queue import Newcomer, asks_beside, newcomer
from remoteclaw.session.record import added, lines_of_aside
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.steering import Steering
from remoteclaw.tasks.branches import move_to_branch
from remoteclaw.tasks.entries import in_outcome

#: How many messages are answered beside one turn: then the others wait, as agents that are asked
#: beside their work without end come to nothing.
MAX_ASIDES = 20
#: How long the end of a turn waits for the asides that are open then, in seconds.
SETTLE_S = 10.0
#: The words about what is said beside a turn.
ORIGIN = "beside"
#: What the person reads whose message is answered by a branch, unless the agent has said it.
ON_IT = "On it, beside the other work."

log = logging.getLogger(__name__)


class Beside:
    """The messages of people that come while one turn runs."""

    def __init__(
        self,
        lease: Lease,
        bridge: SessionBridge,
        config: Config,
        queue: QueueConfig,
        turn: Turn,
        reply: TurnReply,
        *,
        asked: asyncio.Event,
        steering: Steering | None,
        permissions: Permissions | None,
        history: Callable[[], Awaitable[Sequence[dict[str, str]]]],
    ) -> None:
        """`asked` is set once the agent has the turn's question.

        `steering` takes what joins the turn, and `permissions` has what people are asked for it.
        """
        self._lease = lease
        self._bridge = bridge
        self._config = config
        self._queue = queue
        self._turn = turn
        self._reply = reply
        self._asked = asked
        self._steering = steering
        self._permissions = permissions
        self._history = history
        self._asides = Asides(lease)
        self._newest = max((e.id for e in (*turn.left_out, *turn.entries)), key=stream_order)
        """The last entry that was looked at."""
        self._room = asyncio.Semaphore(queue.asides)
        self._has_news = asyncio.Event()
        self._has_news.set()  # what came before the turn began
        self._asking: dict[str, asyncio.Task[None]] = {}
        """What is asked, by entry."""
        self._ended = 0
        """How many entries were answered, and wait no more."""
        self._taking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to take what comes."""
        self._taking = asyncio.create_task(self._take())

    def announce(self) -> None:
        """Take notice that there may be more."""
        self._has_news.set()

    async def settle(self) -> int:
        """Take nothing more, and end what is open; return how many entries were answered meanwhile.

        What has no answer within `SETTLE_S` waits. Raises `LeaseLost`.
        """
        before = self._ended
        if self._taking:
            self._taking.cancel()
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=SETTLE_S)
        tasks = [task for task in (self._taking, *self._asking.values()) if task]
        self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error
        return self._ended - before

    def stop(self, mark: str) -> None:
        """End the questions about entries up to this one, which are stopped."""
        for entry_id, task in self._asking.items():
            if stream_order(entry_id) <= stream_order(mark):
                task.cancel()

    def abandon(self) -> None:
        """Drop what is open: the session has another owner, or the turn is asked again later."""
        for task in (self._taking, *self._asking.values()):
            if task:
                task.cancel()
                task.add_done_callback(_end)

    # -- taking --------------------------------------------------------------------------------

    async def _take(self) -> None:
        """Ask about one message after another, in their order, a few at the same time."""
        await self._asked.wait()
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            entries, is_last = await self._newcomers()
            for entry in entries:
                await self._room.acquire()
                self._asking[entry.id] = asyncio.create_task(self._answer(entry))
            if is_last or len(self._asking) >= MAX_ASIDES:
                return

    async def _newcomers(self) -> tuple[list[Entry], bool]:
        """Return the messages that have come, and whether all behind them have to wait."""
        raw = await self._lease.entries_after(self._newest)
        try:
            arrived = decode_all(raw, self._lease.session)
        except NewerEntry:
            return [], True
        found: list[Entry] = []
        for entry in arrived:
            self._newest = entry.id
            match newcomer(entry):
                case Newcomer.JOINS if asks_beside(entry):
                    found.append(entry)
                case Newcomer.STOPS_JOINING:
                    return found, True
        if arrived:
            self._has_news.set()  # there may be more than are read at once
        return found[: MAX_ASIDES - len(self._asking)], False

    async def _answer(self, entry: Entry) -> None:
        try:
            if await self._asides.ask(self._turn.id, entry.id):
                await self._obey(entry, await self._ask(entry))
        except RedisRefused as refused:  # Redis is full: it waits, as the turn's own answer does
            log.warning("session %s: no aside: %s", self._lease.sid[:8], refused)
        finally:
            self._room.release()

    async def _ask(self, entry: Entry) -> Aside:
        """Put a message to the agent; what is no answer is a word to wait."""
        assert self._bridge.channel is not None, "an agent that answers is there"
        history: Sequence[dict[str, str]] = ()
        if self._bridge.channel.asides == "notes":
            history = await self._history()
        try:
            async with asyncio.timeout(self._queue.aside_s):
                return await self._bridge.channel.aside(entry, await self._running(entry), history)
        except TimeoutError:
            why = f"no answer within {self._queue.aside_s} s"
        except AsideFailed as failed:
            why = str(failed)
        except RemoteClawError:
            raise  # a lost lease, or no Redis
        except Exception as error:  # noqa: BLE001 - an agent's output is another program's
            why = frames_of(error)
        log.info("session %s: entry %s waits: %s", self._lease.sid[:8], entry.id, why)
        return Aside("later")

    async def _running(self, entry: Entry) -> Running:
        waiting = await self._lease.entries_after(self._turn.entries[-1].id)
        others: list[str] = []
        with contextlib.suppress(NewerEntry):
            others = [
                one.message.text
                for one in decode_all(waiting, self._lease.session)
                if one.id != entry.id and one.origin == "chat"
            ]
        return Running(
            about=[one.message.text for one in self._turn.entries],
            since_ms=self._reply.since_ms,
            doing=self._reply.now_doing,
            said=self._reply.now_said,
            waiting=others,
            requests=self._permissions.open_requests if self._permissions else (),
            tasks=await self._lease.work.below(),
            beside=[orjson.loads(line) for line in await self._asides.beside()],
        )

    # -- obeying -------------------------------------------------------------------------------

    async def _obey(self, entry: Entry, aside: Aside) -> None:
        """Record the verdict and do what it says, in one step."""
        verdict = self._allowed(entry, aside)
        if verdict == "branch":
            if await self._move(entry, aside):
                return
            verdict = "later"
        if verdict == "later":
            aside = Aside("later")
        is_whole = verdict == "answered"
        said = aside.payloads
        lines = partial(lines_of_aside, entry, said, at_ms=now_ms())
        what = AsideEnd(
            payloads=self._on_stream(entry, aside, is_whole=is_whole) if verdict != "later" else (),
            reply=[in_outcome(payload) for payload in said] if is_whole else None,
            note=_note(entry, aside) if is_whole or said else None,
            record=added(self._config.record, lines) if is_whole else None,
        )
        obeyed = await self._asides.end(self._turn.id, entry.id, verdict, what)
        if obeyed == "work" and self._steering:
            self._steering.give(entry)
        self._ended += obeyed == "answered"

    async def _move(self, entry: Entry, aside: Aside) -> bool:
        """Move a message to a branch, which answers it; False if there is no room for one."""
        words = "\n\n".join(payload.text for payload in aside.payloads if payload.text)
        told = Aside("branch", (ReplyPayload(words or ON_IT, is_ours=not words),))
        (said,) = self._on_stream(entry, told, is_whole=False)
        status = await move_to_branch(
            self._lease,
            self._config,
            entry,
            running=self._turn.entries,
            acknowledgement=said if entry.deliver == "channel" else None,
        )
        self._ended += status == "moved"
        return status != "full"

    def _allowed(self, entry: Entry, aside: Aside) -> AsideVerdict:
        """Return the verdict, or that the message waits where it may not be obeyed.

        Without words there is no answer, nor to a file: the agent gets it only with a turn.
        Without tools an aside has no rights, but to stop or change the work of others is one: only
        those for whom the turn works may have that done, and owners.
        """
        verdict = aside.verdict
        if verdict == "answered":
            return verdict if aside.payloads and not entry.message.attachments else "later"
        if verdict not in ("work", "stop"):
            return verdict
        who = person(entry.message.provider, entry.message.from_)
        owns = is_owned_by(self._config, entry.message.provider, entry.message.from_)
        is_theirs = owns or who in people_of(self._turn.entries)
        if not is_theirs or (verdict == "work" and self._steering is None):
            return "later"
        return verdict

    def _on_stream(self, entry: Entry, aside: Aside, *, is_whole: bool) -> list[dict[str, Any]]:
        """Return the answer for the reply stream; the first of its messages quotes the question."""
        message = entry.message
        payloads = [
            reply_payload(
                Place(message.channel_id, message.thread_id),
                payload.text,
                sid=self._lease.sid,
                turn=entry.id,
                index=number,
                reply_to_id=message.id if number == 0 else payload.reply_to_id,
                origin=ORIGIN,
                is_beside=True,
            )
            for number, payload in enumerate(aside.payloads)
        ]
        if is_whole and payloads:
            payloads[-1] |= {"entries": [entry.id], "status": "done"}
        return payloads


def _end(task: "asyncio.Task[None]") -> None:
    """Take notice of a task's error, which the turn itself has met as well."""
    if not task.cancelled():
        task.exception()


def _note(entry: Entry, aside: Aside) -> dict[str, Any]:
    return {
        "at": now_ms(),
        "from": entry.message.user_name or entry.message.from_,
        "said": entry.message.text,
        "you": "\n\n".join(payload.text for payload in aside.payloads),
    }
