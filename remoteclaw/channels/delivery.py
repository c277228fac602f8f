"""Delivers one reply to a platform, part by part, each part once as far as that can be known.

A platform that drops repetitions by an idempotency key is simply sent a part again, for as long as
it remembers keys. Unless that is forever, a mark in Redis records before each part that it is about
to be sent, and since when. A part that was begun, may have arrived and has outlived its key is
looked up, if the platform can be asked. Otherwise, and if it is not found, it is sent once more,
labelled "(perhaps a second time)". A reply that is given up keeps its mark, so that an operator's
retry continues after the parts that were sent.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any, Literal

import orjson

from remoteclaw.channels.budget import Budget
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
)
from remoteclaw.fleet.replies.reader import DeliveryFailure, Mark, ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import Attachment
from remoteclaw.protocols import (
    ChannelAdapter,
    LiveAdapter,
    LookingAdapter,
    Part,
    Place,
    Reply,
    Sent,
)

NO_EFFECT = "It was sent without the effect: this channel has none of that name."
FILE_GONE = "it is not kept any more"
STOPPED = "/stop dropped the answer from its message {number} on."
UNKNOWN = "It was perhaps sent: after {tries} tries it is unknown whether the platform has it."

#: Of a file with code that is refused, the chat gets so many characters as text.
MAX_CODE_CHARS = 20_000
#: An answer replaces a preview that is at most this old, in seconds. An edit notifies nobody, and a
#: person who waits longer no longer watches the chat.
FRESH_S = 30.0
#: After a cancellation, a coroutine in `shielded()` may run this much longer, in seconds.
SHIELD_S = 1.0
#: A part may be on the platform this many times at most: a repetition without a key is one more.
MAX_DOUBTS = 2
#: A part is sent at most this many times in a row with an unknown outcome, which takes half an hour
#: or longer.
MAX_TRIES = 60
#: A message that the platform dates this much earlier than its first attempt can be that attempt's,
#: in milliseconds: the platform's clock may be slow.
SKEW_MS = 60_000
#: This many messages of the same text, all of earlier replies, are passed over in one look-up.
MAX_PASSED = 10

_Step = Literal["sent", "look", "send", "repeat"]
"""What to do about a part: nothing, look it up, send it, or send it with a label."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of processing one entry of the reply stream."""

    ids: tuple[str, ...] = ()
    """The platform's ids of the messages that were sent."""
    shown: str = ""
    """The platform's id of the last message with text; empty if it has none."""
    kept: Collection[Attachment] = ()
    """The files that could not be delivered and must stay stored."""
    given_up: DeliveryFailure | None = None
    answer: bytes = b""
    """The JSON result for the caller, if a call sent the reply."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A message in a chat that shows the progress of a turn or of tasks."""

    place: Place
    sid: str
    message_id: str
    since_ms: int
    """When it was first shown, in milliseconds since 1970."""

    @property
    def is_fresh(self) -> bool:
        """Whether it is so new that the person probably still watches the chat."""
        return now_ms() - self.since_ms <= FRESH_S * 1000


class _ReplyGone(Exception):
    """Raised if the reply left the stream: it was dropped, or another adapter delivered it."""


class _ReplyStopped(Exception):
    """Raised if people stopped the session, so that the rest of the reply is not sent."""


class Delivery:
    """The delivery of one reply."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: ChannelAdapter,
        budget: Budget,
        reply: Reply,
        preview: Preview | None = None,
    ) -> None:
        """Deliver `reply`. If possible, `preview` is edited to become its first part."""
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._reply = reply
        self._preview = preview
        self._name = uuid.uuid4().hex
        """Distinguishes this delivery's marks from those of earlier ones, also in this process."""
        self._mark = Mark()
        """The progress of the delivery."""
        self._stored = b""
        """The mark that an earlier delivery of the reply left in Redis; empty if there was none."""
        self._kept: list[Attachment] = []
        self._has_effect = False
        self._tries = 0
        """The number of attempts in a row whose outcome is unknown."""
        self._is_looked_up = False
        """Whether the platform was asked for the part since the last attempt, and lacks it."""
        self._is_over = False
        """Whether the part must not be sent again; it may still be found."""

    async def run(self) -> DeliveryResult | None:
        """Send the parts that are not sent yet. Return None if the reply left the stream."""
        reply = self._reply
        try:
            await self._send_all()
        except _ReplyGone:
            return None
        except _ReplyStopped:
            letter = DeliveryFailure("stopped", STOPPED.format(number=reply.index + 1))
            return DeliveryResult(self._ids(), self._last_text_id(), given_up=letter)
        except PlatformRefused as refusal:
            return self._give_up("refused", _without_surrogates(str(refusal)))
        except PlatformUnknown as unknown:
            return self._give_up("unknown", str(unknown))
        answer = _success(reply, self._ids(), self._kept, has_effect=self._has_effect)
        kept = () if reply.call else self._kept
        return DeliveryResult(self._ids(), self._last_text_id(), kept, answer=answer)

    def _ids(self) -> tuple[str, ...]:
        """Return the platform's ids of the parts that were sent."""
        return tuple(id_ for id_ in self._mark.ids if id_ is not None)

    def _last_text_id(self) -> str:
        """Return the platform's id of the last text part that was sent; empty if it has none."""
        sent = zip(self._parts(self._reply), self._mark.ids, strict=False)
        return next((id_ for part, id_ in reversed([*sent]) if id_ and not part.file_name), "")

    def _give_up(self, category: str, why: str) -> DeliveryResult:
        reply = self._reply
        # A dead letter keeps the files. A call has none: its caller gets the failure.
        kept = () if reply.call else reply.attachments
        mark = replace(self._mark, is_begun=False)
        has_mark = mark != Mark() and self._needs_mark
        letter = DeliveryFailure(category, why, mark if has_mark else None)
        return DeliveryResult(self._ids(), kept=kept, given_up=letter, answer=failure(why))

    async def _send_all(self) -> None:
        parts = self._parts(self._reply)
        for part in parts:
            is_sent = await self._send(self._reply, part)
            if is_sent and part is not parts[-1] and self._needs_mark:
                # The next part may have to wait, and the process may be ended during the wait.
                await shielded(self._store(self._mark))
        kept = [
            part
            for part in parts
            if str(part.index) in self._mark.kept and (part.name or not self._reply.call)
        ]
        if kept:
            lines = [
                f"(The file {part.file_name} could not be sent: {self._mark.kept[str(part.index)]})"
                for part in kept
            ]
            # Indented code is no code block that becomes a file.
            code = [part.content.decode()[:MAX_CODE_CHARS] for part in kept if part.name]
            text = "\n\n".join(("\n".join(lines), *(indent(each, "    ") for each in code)))
            notice = replace(self._reply, text=text, attachments=(), effect=None)
            for part in self._parts(notice):
                await self._send(notice, replace(part, index=len(parts) + part.index))

    def _parts(self, reply: Reply) -> Sequence[Part]:
        try:
            return self._adapter.parts(reply)
        except Exception as error:  # noqa: BLE001 - one reply must not end the relay
            log.error("the adapter failed: %s", frames_of(error))
            why = f"The channel's adapter can't show it ({type(error).__name__})."
            raise PlatformRefused(why) from None

    async def _send(self, reply: Reply, part: Part) -> bool:
        """Send one part, or keep its file if the platform refuses it.

        Return False if an earlier delivery had sent the part.
        """
        file, content = part.attachment, part.content if part.name else None
        try:
            if file and part.index >= len(self._mark.ids):
                content = await self._reader.content(reply, file)
                if content is None:
                    raise PlatformRefused(FILE_GONE)
            sent = await self._replace(reply, part) or await self._attempts(reply, part, content)
        except PlatformRefused as refusal:
            if not part.file_name:
                raise
            log.warning("a file of reply %s is kept: %s", reply.id, refusal)
            sent, why = Sent(), _without_surrogates(str(refusal))
            self._mark = replace(self._mark, kept={**self._mark.kept, str(part.index): why})
        if str(part.index) in self._mark.kept and file:
            self._kept.append(file)
        if sent is None:
            return False
        self._kept += sent.kept
        self._has_effect = self._has_effect or sent.has_effect
        ids = (*self._mark.ids, sent.message_id)
        self._mark = replace(self._mark, ids=ids, is_begun=False, doubts=0, since_ms=0)
        self._tries, self._is_over, self._is_looked_up = 0, False, False
        return True

    async def _replace(self, reply: Reply, part: Part) -> Sent | None:
        """Edit the preview into this part. Return None if the part must be sent as a new message.

        An answer much later than its preview is a new message, because only that notifies. Editing
        twice has the same result as editing once.
        """
        adapter, preview = self._adapter, self._preview
        is_plain = part.index == 0 and not (part.file_name or reply.reply_to_id or reply.effect)
        is_quiet = not (reply.is_final or reply.is_error)
        if not preview or not isinstance(adapter, LiveAdapter) or not is_plain:
            return None
        if self._needs_mark and await self._reader.has_mark(reply):
            return None  # an earlier delivery has perhaps sent the part as a message
        chat = reply.channel_id
        while is_quiet or preview.is_fresh:
            if not self._budget.has_room(chat, "edit") and self._budget.has_room(chat, "send"):
                return None
            async with self._budget.attempt(chat, "edit"):
                await self._ensure_wanted()
                await self._reader.ensure_claim()
                try:
                    sent = await adapter.replace(reply, part, message_id=preview.message_id)
                except (PlatformAway, PlatformBusy, PlatformUnknown, AccountRefused) as problem:
                    self._budget.failed(chat, problem, "edit")
                except PlatformRefused:
                    return None
                except Exception as error:  # noqa: BLE001 - the part is sent as a message instead
                    log.error("the adapter failed: %s", frames_of(error))
                    return None
                else:
                    self._budget.worked(chat)
                    return sent
        return None

    async def _attempts(self, reply: Reply, part: Part, content: bytes | None) -> Sent | None:
        """Send one part, retrying until it succeeds. Return None if it had been sent before."""
        chat, is_looking = reply.channel_id, False
        while True:
            async with self._budget.attempt(chat, "read" if is_looking else "send"):
                step, sent = await self._begin(part), None
                if step == "sent":
                    return None
                if step != "look":
                    sent = await self._attempt(reply, part, content, is_again=step == "repeat")
                elif is_looking:
                    sent = await self._look_up(reply, part)
            if sent:
                return sent
            is_looking = step == "look" and not self._is_looked_up

    async def _attempt(
        self, reply: Reply, part: Part, content: bytes | None, *, is_again: bool
    ) -> Sent | None:
        """Send one part once. Return None if it must be tried again."""
        chat = reply.channel_id
        try:
            sent = _clean(await self._adapter.send(reply, part, content, is_again=is_again))
        except (PlatformAway, PlatformBusy, AccountRefused) as problem:
            self._budget.failed(chat, problem)
            await self._withdraw()
        except PlatformRefused:
            self._budget.worked(chat)
            raise
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            # A cancellation that nobody requested of this task is the adapter's own error.
            is_own = isinstance(error, Exception) or not (task and task.cancelling())
            if not is_own:
                raise
            if not isinstance(error, PlatformUnknown):
                log.error("the adapter failed: %s", frames_of(error))
            self._budget.failed(chat, error)
            self._doubt()
        else:
            self._budget.worked(chat)
            return sent
        return None

    async def _look_up(self, reply: Reply, part: Part) -> Sent | None:
        """Ask the platform for a part that may have arrived. Return None if it lacks it.

        Raises `PlatformUnknown` if the part is missing and must not be sent again.
        """
        adapter, chat = self._adapter, reply.channel_id
        assert isinstance(adapter, LookingAdapter), "only called if the platform can be asked"
        since_ms = max(0, self._mark.since_ms - SKEW_MS)
        # A preview can have the text of the answer, and is removed once that is delivered.
        previews = [preview["id"] for preview in await self._reader.previews()]
        known = {*self._ids(), *previews}
        try:
            for _ in range(MAX_PASSED):
                await self._reader.ensure_claim()
                sent = await adapter.find(reply, part, since_ms, known=known)
                sent = sent and _clean(sent)
                id_ = sent and sent.message_id
                if not id_ or not await self._reader.is_delivered(chat, id_):
                    break
                known.add(id_)
            else:
                sent = None
        except (PlatformAway, PlatformBusy, PlatformUnknown, AccountRefused) as problem:
            self._budget.failed(chat, problem, "read")
            return None
        except PlatformRefused as refusal:
            log.warning("a message that was perhaps sent can't be looked up: %s", refusal)
            sent = None
        except Exception as error:  # noqa: BLE001 - the part is then sent with the label
            log.error("the adapter failed: %s", frames_of(error))
            sent = None
        self._budget.worked(chat)
        self._is_looked_up = sent is None
        if sent is None and self._is_over:
            raise PlatformUnknown(UNKNOWN.format(tries=max(self._tries, self._mark.doubts)))
        return sent

    async def _begin(self, part: Part) -> _Step:
        """Return what to do about `part`, and mark it if it is to be sent.

        Raises `_ReplyGone` and `_ReplyStopped`.
        """
        await self._ensure_wanted()
        if not self._needs_mark:
            await self._reader.ensure_claim()
            return "send"
        while part.index >= len(self._mark.ids):
            is_first = not self._mark.doubts
            keyed_until = math.inf if is_first else await self._keyed_until()
            is_again = boottime() >= keyed_until
            if is_again and not self._is_looked_up and isinstance(self._adapter, LookingAdapter):
                # Not marked: if this process ends meanwhile, the next one looks it up, too.
                await self._reader.ensure_claim()
                return "look"
            since_ms = await self._since_ms() if is_first else self._mark.since_ms
            # A repetition with a key that the platform remembers adds no message.
            self._mark = replace(self._mark, is_begun=is_first or is_again, since_ms=since_ms)
            stored = await self._store(self._mark)
            if stored is None:
                raise _ReplyGone
            if stored is True:
                # Redis may have answered late, or this process may have been frozen.
                await self._reader.ensure_claim()
                if is_again or boottime() < keyed_until:
                    return "repeat" if is_again else "send"
                continue
            # An earlier delivery has marked the reply: continue where it stopped.
            self._stored, self._mark = stored, Mark.decode(stored)
            if self._mark.is_begun:
                self._doubt()
        return "sent"

    @property
    def _needs_mark(self) -> bool:
        """Whether a repetition can be a second message."""
        return self._adapter.key_window_s != math.inf

    async def _since_ms(self) -> int:
        """Return the time of a first attempt, on Redis' clock; 0 if nothing depends on it."""
        is_counted = self._adapter.key_window_s or isinstance(self._adapter, LookingAdapter)
        return await self._reader.now_ms() if is_counted else 0

    async def _keyed_until(self) -> float:
        """Return until when the platform knows the part's key, as a time of `boottime()`."""
        window_s = self._adapter.key_window_s
        if not window_s or self._is_over:
            return -math.inf
        asked_at = boottime()
        age_ms = await self._reader.now_ms() - self._mark.since_ms
        return asked_at + window_s - age_ms / 1000

    async def _ensure_wanted(self) -> None:
        """Raise `_ReplyStopped` if people have stopped the answer since it was written."""
        if await self._reader.is_stopped(self._reply):
            raise _ReplyStopped

    def _doubt(self) -> None:
        """Count an attempt with an unknown outcome. Raises `PlatformUnknown` at the limit."""
        mark = self._mark
        self._mark = replace(mark, doubts=mark.doubts + mark.is_begun, is_begun=False)
        self._tries += 1
        self._is_looked_up = False
        self._is_over = self._mark.doubts >= MAX_DOUBTS or self._tries >= MAX_TRIES
        # Without a mark, no step leads to a last look.
        may_look = self._needs_mark and isinstance(self._adapter, LookingAdapter)
        if self._is_over and not may_look:
            raise PlatformUnknown(UNKNOWN.format(tries=max(self._tries, self._mark.doubts)))

    async def _withdraw(self) -> None:
        """Mark that the part that was begun was certainly not sent."""
        self._tries = 0
        if not self._needs_mark:
            return
        self._mark = replace(self._mark, is_begun=False)
        if not self._mark.doubts:
            self._mark = replace(self._mark, since_ms=0)
        is_untouched = self._mark == Mark()
        await self._store(None if is_untouched else self._mark)

    async def _store(self, mark: Mark | None) -> bytes | Literal[True] | None:
        preview_id = self._preview.message_id if self._preview else ""
        return await self._reader.mark(
            self._reply,
            mark,
            by=self._name,
            instead_of=self._stored,
            preview=preview_id if preview_id in self._mark.ids else "",
        )


def _success(
    reply: Reply, ids: Sequence[str], kept: Collection[Attachment], *, has_effect: bool
) -> bytes:
    """Return the JSON result of a delivered message, for the caller that sent it."""
    problems = [NO_EFFECT] if reply.effect and not has_effect else []
    problems += [f"The file {file.name} could not be sent." for file in kept]
    is_sent = bool(reply.text or len(kept) < len(reply.attachments))
    message_id = _without_surrogates(ids[0]) if ids else None
    result = {"delivered": is_sent, "messageId": message_id, "error": " ".join(problems)}
    return orjson.dumps(result)


def failure(why: str) -> bytes:
    """Return the JSON result of a message or operation that failed, for its caller."""
    return orjson.dumps({"delivered": False, "messageId": None, "error": _without_surrogates(why)})


def _clean(sent: Sent) -> Sent:
    """Return an adapter's report with an id that can be stored in Redis and JSON."""
    name = sent.message_id
    return replace(sent, message_id=None if name is None else _without_surrogates(str(name)))


def _without_surrogates(text: str) -> str:
    """Return a platform's text without lone surrogates, which neither Redis nor JSON accepts."""
    return text.encode(errors="replace").decode()


async def shielded(recording: Coroutine[Any, Any, object]) -> None:
    """Await `recording`. If the caller is cancelled, allow `recording` another `SHIELD_S` seconds.

    It records what the platform already has, so losing it would send that a second time.
    """
    task = asyncio.create_task(recording)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=SHIELD_S)
        task.cancel()
        raise
