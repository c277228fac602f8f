"""The asides of a turn: messages that arrive while it runs, each put to its agent at once.

Unless the agent's reply is clearly a verdict, the message waits for the next turn, as it would
without asides. So an aside can neither lose a message nor have it answered twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from remoteclaw.bridge.asides import Aside, RunningTurn
from remoteclaw.clock import now_ms
from remoteclaw.config.budgets import person_names
from remoteclaw.config.model import Config
from remoteclaw.config.tool_policy import is_owned_by
from remoteclaw.errors import AsideFailed, RedisRefused, RemoteClawError
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.inbound import NewerEntry, decode
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import (
    AsideVerdict,
    Entry,
    ReplyPayload,
    payers_of,
    people_of,
    person,
    reference,
    stream_order,
)
from remoteclaw.session.bridge import SessionBridge
from remoteclaw.session.budgets import TurnBudgets
from remoteclaw.session.permission import Permissions
from remoteclaw.session.queue import Fate, OpenTurn
from remoteclaw.session.record import added, lines_of_aside
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.steering import Steering
from remoteclaw.session.waiting import decode_all
from remoteclaw.tasks.branches import move_to_branch
from remoteclaw.tasks.entries import in_outcome
from remoteclaw.telemetry import ASIDE

#: At most this many messages are put to the agent during one turn; later ones wait for the next
#: turn, so that asides don't keep the agent from its work.
MAX_ASIDES = 20
#: How long the end of a turn waits for its open asides, in seconds.
SETTLE_S = 10.0
#: The `origin` of an aside's messages on the reply stream.
ORIGIN = "beside"
#: The notices to a person whose message waits although the agent has decided something else.
WAITS = "(Your message waits until I have finished the running work.)"
NOT_YOURS = (
    "(Only the person who asked for the running work, or an owner, can add to it or stop it: your "
    "message waits until it is done.)"
)
#: The acknowledgement of a message that moves to a branch, unless the agent has written one.
ON_IT = "On it, alongside the other work."

log = logging.getLogger(__name__)


class TurnAsides:
    """Puts the messages that people send during one turn to its agent."""

    def __init__(
        self,
        lease: Lease,
        bridge: SessionBridge,
        config: Config,
        running: OpenTurn,
        reply: TurnReply,
        *,
        turn_asked: asyncio.Event,
        steering: Steering | None,
        permissions: Permissions | None,
        budgets: TurnBudgets | None,
        history: Callable[[], Awaitable[Sequence[dict[str, str]]]],
    ) -> None:
        """`turn_asked` is set once the agent has received the turn's prompt.

        `steering` takes the messages that join the turn, and `permissions` knows the turn's open
        requests; `budgets` limit the turn. `history` returns the record, for an agent that is asked
        in another conversation.
        """
        self._lease = lease
        self._bridge = bridge
        self._config = config
        self._open = running
        self._queue = running.queue
        self._turn = turn = running.turn
        self._reply = reply
        self._turn_asked = turn_asked
        self._steering = steering
        self._permissions = permissions
        self._budgets = budgets
        self._history = history
        self._asides = Asides(lease)
        self._newest = max((e.id for e in (*turn.left_out, *turn.entries)), key=stream_order)
        """The last entry that was read."""
        self._slots = asyncio.Semaphore(running.queue.asides)
        self._may_have_entries = asyncio.Event()
        self._may_have_entries.set()  # entries may have arrived before the turn began
        self._questions: dict[str, asyncio.Task[None]] = {}
        """The tasks that ask the agent, by entry id."""
        self._ended_count = 0
        """How many entries no longer wait: they were answered, or moved to a branch."""
        self._reader: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to put new messages to the agent."""
        self._reader = asyncio.create_task(self._ask_about_newcomers())

    def announce(self) -> None:
        """Note that new entries may have arrived."""
        self._may_have_entries.set()

    async def settle(self) -> int:
        """Stop reading new messages and wait for the open asides, for `SETTLE_S` at most.

        Return how many entries ended in that time. A message without an answer by then waits for
        the next turn. Raises `LeaseLost`.
        """
        before = self._ended_count
        if self._reader:
            self._reader.cancel()
        if self._questions:
            await asyncio.wait(self._questions.values(), timeout=SETTLE_S)
        tasks = [task for task in (self._reader, *self._questions.values()) if task]
        self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                raise error
        return self._ended_count - before

    def stop(self, mark: str) -> None:
        """Cancel the asides of stopped entries: all up to the id `mark`."""
        for entry_id, task in self._questions.items():
            if stream_order(entry_id) <= stream_order(mark):
                task.cancel()

    def abandon(self) -> None:
        """Cancel what is still open, however the turn ends."""
        for task in (self._reader, *self._questions.values()):
            if task:
                task.cancel()
                task.add_done_callback(_retrieve_exception)

    # -- asking --------------------------------------------------------------------------------

    async def _ask_about_newcomers(self) -> None:
        """Ask about the messages in their order, `queue.asides` of them at the same time."""
        await self._turn_asked.wait()
        while True:
            await self._may_have_entries.wait()
            self._may_have_entries.clear()
            entries, is_last = await self._newcomers()
            for entry in entries:
                await self._slots.acquire()
                self._questions[entry.id] = asyncio.create_task(self._answer(entry))
            if is_last or len(self._questions) >= MAX_ASIDES:
                return

    async def _newcomers(self) -> tuple[list[Entry], bool]:
        """Return the messages that have arrived, and whether all entries after them must wait."""
        raw = await self._lease.entries_after(self._newest)
        try:
            arrived = decode_all(raw, self._lease.session)
        except NewerEntry:
            return [], True
        newcomers: list[Entry] = []
        for entry in arrived:
            self._newest = entry.id
            match self._open.fate(entry):
                case Fate.ASIDE:
                    newcomers.append(entry)
                case Fate.CLOSES:
                    return newcomers, True
        if arrived:
            self._may_have_entries.set()  # one read returns a limited number of entries
        return newcomers[: MAX_ASIDES - len(self._questions)], False

    async def _answer(self, entry: Entry) -> None:
        try:
            if self._budgets and await self._budgets.is_at_limit(entry):
                return  # it waits for a turn, and with it for the budget
            if raw := await self._asides.ask(self._turn.id, entry.id):
                entry = decode(raw, self._lease.session)  # its sender may just have edited it
                await self._apply(entry, await self._ask(entry))
        except RedisRefused as refused:  # Redis is full: the message waits, as a turn's reply does
            log.warning("%s: no aside: %s", reference(self._lease.sid, entry.id), refused)
        finally:
            self._slots.release()

    async def _ask(self, entry: Entry) -> Aside:
        """Put a message to the agent and return its answer.

        A failure of the agent is the verdict "later"; a lost lease or Redis is raised.
        """
        channel = self._bridge.working
        assert channel is not None, "an agent that answers asides has a bridge"
        history: Sequence[dict[str, str]] = ()
        if channel.asides == "notes":
            history = await self._history()
        try:
            async with asyncio.timeout(self._queue.aside_s):
                return await channel.aside(entry, await self._running(entry), history)
        except TimeoutError:
            why = f"no answer within {self._queue.aside_s} s"
        except AsideFailed as failed:
            why = str(failed)
        except RemoteClawError:
            raise  # a lost lease, or no Redis
        except Exception as error:  # noqa: BLE001 - an agent's output is another program's
            why = frames_of(error)
        log.info("%s: waits: %s", reference(self._lease.sid, entry.id), why)
        return Aside("later")

    async def _running(self, entry: Entry) -> RunningTurn:
        waiting = await self._lease.entries_after(self._turn.entries[-1].id)
        others: list[str] = []
        with contextlib.suppress(NewerEntry):
            others = [
                other.message.text
                for other in decode_all(waiting, self._lease.session)
                if other.id != entry.id and other.origin == "chat"
            ]
        return RunningTurn(
            about=[answered.message.text for answered in self._turn.entries],
            since_ms=self._reply.since_ms,
            current_tool=self._reply.current_tool,
            current_text=self._reply.current_text,
            waiting=others,
            requests=self._permissions.open_requests if self._permissions else (),
            tasks=await self._lease.progress.unfinished_tasks(),
            aside_notes=[orjson.loads(note) for note in await self._asides.notes()],
        )

    # -- applying the verdict ------------------------------------------------------------------

    async def _apply(self, entry: Entry, aside: Aside) -> None:
        """Record the verdict and carry it out, in one step."""
        verdict = self._allowed_verdict(entry, aside)
        if verdict == "branch":
            if await self._move(entry, aside):
                return
            verdict = "later"
        if verdict == "later":
            aside = replace(aside, verdict="later", payloads=self._waiting_notice(entry, aside))
        is_whole = verdict == "answered"
        payloads = aside.payloads
        by = self._lease.fallback_agent
        lines = partial(lines_of_aside, entry, payloads, at_ms=now_ms(), by=by)
        end = AsideEnd(
            place=entry.message.place,
            payloads=self._stream_payloads(entry, aside, is_whole=is_whole),
            reply=[in_outcome(payload) for payload in payloads] if is_whole else None,
            note=_note(entry, aside) if is_whole or (payloads and verdict != "later") else None,
            record=added(self._config.record, lines) if is_whole else None,
            usage=self._usage_of(aside),
            payers=tuple(person_names(self._config, payers_of([entry]))),
        )
        applied = await self._asides.end(self._turn.id, entry.id, verdict, end)
        self._log(entry, applied)
        if applied == "work" and self._steering:
            self._steering.give(entry)
        self._ended_count += applied == "answered"

    async def _move(self, entry: Entry, aside: Aside) -> bool:
        """Move a message to a branch, which answers it; False if no further branch may start."""
        text = "\n\n".join(payload.text for payload in aside.payloads if payload.text)
        notice = Aside("branch", (ReplyPayload(text or ON_IT, is_ours=not text),))
        (acknowledgement,) = self._stream_payloads(entry, notice, is_whole=False)
        status = await move_to_branch(
            self._lease,
            self._config,
            entry,
            running=self._turn.entries,
            acknowledgement=acknowledgement if entry.deliver == "channel" else None,
            usage=self._usage_of(aside),
        )
        self._ended_count += status == "moved"
        self._log(entry, status)
        return status != "full"

    def _usage_of(self, aside: Aside) -> Usage | None:
        price = self._bridge.price
        return Usage.of_aside(aside.answer, price) if aside.answer else None

    def _log(self, entry: Entry, result: str) -> None:
        ASIDE.log(
            log,
            reference=reference(self._lease.sid, entry.id),
            session=self._lease.sid,
            turn=self._turn.reference,
            verdict=result,
        )

    def _allowed_verdict(self, entry: Entry, aside: Aside) -> AsideVerdict:
        """Return the verdict, or "later" if it must not be carried out.

        "answered" needs a text, and a message without files: the agent gets files only with a turn.
        Only an owner, or a person whose message the turn answers, may add work to it; such a person
        may have it stopped if it answers nobody else.
        """
        verdict = aside.verdict
        if verdict == "answered":
            return verdict if aside.payloads and not entry.message.attachments else "later"
        if verdict not in ("work", "stop"):
            return verdict
        if not self._may_change(entry, verdict) or (verdict == "work" and self._steering is None):
            return "later"
        return verdict

    def _may_change(self, entry: Entry, verdict: AsideVerdict) -> bool:
        """Whether the sender may have the turn stopped ("stop") or add work to it."""
        sender, people = (
            person(entry.message.provider, entry.message.from_),
            people_of(self._turn.entries),
        )
        is_owner = is_owned_by(self._config, entry.message.provider, entry.message.from_)
        return is_owner or (people == (sender,) if verdict == "stop" else sender in people)

    def _waiting_notice(self, entry: Entry, aside: Aside) -> tuple[ReplyPayload, ...]:
        """Return the notice about a verdict that is not carried out; none if the agent waits, too.

        An answer without a text is no verdict.
        """
        is_decided = aside.verdict != "later" and (aside.verdict != "answered" or aside.payloads)
        if not is_decided or entry.deliver != "channel":
            return ()
        is_refused = aside.verdict in ("work", "stop") and not self._may_change(
            entry, aside.verdict
        )
        return (ReplyPayload(NOT_YOURS if is_refused else WAITS, is_ours=True),)

    def _stream_payloads(
        self, entry: Entry, aside: Aside, *, is_whole: bool
    ) -> list[dict[str, Any]]:
        """Return the agent's messages for the reply stream; the first quotes the person's message.

        If the answer `is_whole`, its last message also ends the entry.
        """
        message = entry.message
        payloads = [
            reply_payload(
                message.place,
                payload.text,
                sid=self._lease.sid,
                turn=entry.id,
                index=number,
                reply_to_id=message.id if number == 0 else payload.reply_to_id,
                origin=ORIGIN,
                is_aside=True,
                asked_by=message.from_,
                code_file_lines=payload.code_file_lines,
            )
            for number, payload in enumerate(aside.payloads)
        ]
        if is_whole and payloads:
            payloads[-1] |= {"entries": [entry.id], "status": "done"}
        return payloads


def _retrieve_exception(task: "asyncio.Task[None]") -> None:
    """Retrieve a task's exception, so that asyncio does not log it: the turn reports it, too."""
    if not task.cancelled():
        task.exception()


def _note(entry: Entry, aside: Aside) -> dict[str, Any]:
    """Return the note of an aside for the agent's next turn."""
    return {
        "at": now_ms(),
        "from": entry.message.user_name or entry.message.from_,
        "said": entry.message.text,
        "you": "\n\n".join(payload.text for payload in aside.payloads),
    }
