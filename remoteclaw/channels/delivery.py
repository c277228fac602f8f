"""The delivery of one reply, part by part.

The platform gets each part once, as far as that can be known. Where it drops repetitions by itself,
a part is simply sent again. Elsewhere a mark in Redis says before each part what is about to be
sent: a part that was begun and may have arrived is sent again once, as "(perhaps a second time)".
What is given up keeps how far it has come, for when it is sent again.
"""

import asyncio
import logging
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from remoteclaw.channels.budget import Budget
from remoteclaw.clock import now_ms
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
)
from remoteclaw.fleet.reader import GivenUp, Mark, ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import Attachment
from remoteclaw.protocols import ChannelAdapter, LiveAdapter, Part, Place, Reply, Sent

NO_EFFECT = "It was sent without the effect: this channel has none of that name."
GONE = "it is not kept any more"
PERHAPS = "It was perhaps sent: after {tries} tries it is unknown whether the platform has it."

#: How old a preview may be that an answer takes the place of, in seconds: nobody is notified of
#: that, and a person who waits longer looks elsewhere.
FRESH_S = 30.0
#: How long a relay that is cancelled waits for the receipt of what was delivered, in seconds.
PARTING_S = 1.0
#: How often a part is begun whose outcome is not known; and in a row where the platform drops
#: repetitions: for half an hour or longer.
MAX_DOUBTS, MAX_WITH_KEYS = 2, 60

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of one entry of the reply stream."""

    ids: tuple[str, ...] = ()
    """The platform's ids of what was sent."""
    shown: str = ""
    """That of the last words."""
    kept: Collection[Attachment] = ()
    """The files that could not be delivered, and are not thrown away."""
    given_up: GivenUp | None = None
    answer: bytes = b""
    """The answer for the caller."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A message that shows how far a turn has come."""

    place: Place
    sid: str
    message_id: str
    since_ms: int
    """When it was first shown."""

    @property
    def is_fresh(self) -> bool:
        """Whether the person who has seen it come is still there."""
        return now_ms() - self.since_ms <= FRESH_S * 1000


class _Gone(Exception):
    """Raised for a reply that was dropped, or that another adapter has delivered."""


class Delivery:
    """One reply on its way."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: ChannelAdapter,
        budget: Budget,
        reply: Reply,
        preview: Preview | None = None,
    ) -> None:
        """Deliver a reply; a `preview` of it may become its first part."""
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._reply = reply
        self._preview = preview
        self._name = uuid.uuid4().hex
        """Tells its marks from those of earlier attempts, also in this process."""
        self._mark = Mark()
        """How far it is."""
        self._stored = b""
        """The mark of another delivery that has begun before."""
        self._kept: list[Attachment] = []
        self._has_effect = False

    async def run(self) -> Done | None:
        """Send what is not sent yet; None if it is not on the stream any more."""
        reply = self._reply
        try:
            await self._send_all()
        except _Gone:
            return None
        except PlatformRefused as refusal:
            return self._given_up("refused", _plain(str(refusal)))
        except PlatformUnknown as unknown:
            return self._given_up("unknown", str(unknown))
        ids = tuple(id_ for id_ in self._mark.ids if id_ is not None)
        answer = _told(reply, ids, self._kept, has_effect=self._has_effect)
        kept = () if reply.call else self._kept
        return Done(ids, self._shown(), kept, answer=answer)

    def _shown(self) -> str:
        """Return the platform's id of the last words that were sent; empty if it has none."""
        sent = zip(self._parts(self._reply), self._mark.ids, strict=False)
        return next((id_ for part, id_ in reversed([*sent]) if id_ and not part.attachment), "")

    def _given_up(self, category: str, why: str) -> Done:
        # Repeated, it would hold up all that waits behind it.
        reply = self._reply
        log.warning("reply %s to chat %s is given up: %s", reply.id, reply.channel_id, why)
        ids = tuple(id_ for id_ in self._mark.ids if id_ is not None)
        # A dead letter keeps its files; who called is told.
        kept = () if self._reply.call else self._reply.attachments
        mark = replace(self._mark, is_begun=False)
        letter = GivenUp(category, why, None if mark == Mark() or self._adapter.has_keys else mark)
        return Done(ids, kept=kept, given_up=letter, answer=failure(why))

    async def _send_all(self) -> None:
        parts = self._parts(self._reply)
        for part in parts:
            is_sent = await self._send(self._reply, part)
            if is_sent and part is not parts[-1] and not self._adapter.has_keys:
                # The next one may have to wait, and this process may be ended meanwhile.
                await settled(asyncio.create_task(self._note(self._mark)))
        if self._mark.kept and not self._reply.call:
            names = {str(part.index): part.attachment.name for part in parts if part.attachment}
            lines = [
                f"(The file {names[i]} could not be sent: {w})" for i, w in self._mark.kept.items()
            ]
            notice = replace(self._reply, text="\n".join(lines), attachments=(), effect=None)
            for part in self._parts(notice):
                await self._send(notice, replace(part, index=len(parts) + part.index))

    def _parts(self, reply: Reply) -> Sequence[Part]:
        try:
            return self._adapter.parts(reply)
        except Exception as error:  # noqa: BLE001 - one message must not end the relay
            log.error("the adapter failed: %s", frames_of(error))
            why = f"The channel's adapter can't show it ({type(error).__name__})."
            raise PlatformRefused(why) from None

    async def _send(self, reply: Reply, part: Part) -> bool:
        """Send one part; a file that can't be is kept. Return whether it was not sent before."""
        file, content = part.attachment, None
        try:
            if file and part.index >= len(self._mark.ids):
                content = await self._reader.content(reply, file)
                if content is None:
                    raise PlatformRefused(GONE)
            sent = await self._replace(reply, part) or await self._attempts(reply, part, content)
        except PlatformRefused as refusal:
            if file is None:
                raise
            log.warning("a file of reply %s is kept: %s", reply.id, refusal)
            sent, kept = Sent(), {**self._mark.kept, str(part.index): _plain(str(refusal))}
            self._mark = replace(self._mark, kept=kept)
        if str(part.index) in self._mark.kept and file:
            self._kept.append(file)
        if sent is None:  # an adapter before this one has sent it
            return False
        self._kept += sent.kept
        self._has_effect = self._has_effect or sent.has_effect
        ids = (*self._mark.ids, sent.message_id)
        self._mark = replace(self._mark, ids=ids, is_begun=False, doubts=0)
        return True

    async def _replace(self, reply: Reply, part: Part) -> Sent | None:
        """Make the preview this part, if it can be; done twice, it is the same message.

        An answer that comes long after it notifies, so it is a message of its own.
        """
        adapter, preview = self._adapter, self._preview
        is_plain = part.index == 0 and not (part.attachment or reply.reply_to_id or reply.effect)
        is_quiet = not (reply.is_final or reply.is_error)
        if not preview or not isinstance(adapter, LiveAdapter) or not is_plain:
            return None
        while is_quiet or preview.is_fresh:
            async with self._budget.attempt(reply.channel_id):
                await self._reader.check()
                try:
                    sent = await adapter.replace(reply, part, message_id=preview.message_id)
                except (PlatformAway, PlatformBusy, PlatformUnknown, AccountRefused) as problem:
                    self._budget.failed(reply.channel_id, problem)
                except PlatformRefused:
                    return None
                except Exception as error:  # noqa: BLE001 - it is sent instead
                    log.error("the adapter failed: %s", frames_of(error))
                    return None
                else:
                    self._budget.worked(reply.channel_id)
                    return sent
        return None

    async def _attempts(self, reply: Reply, part: Part, content: bytes | None) -> Sent | None:
        """Try until the platform has one part; None if it has it already."""
        chat = reply.channel_id
        while True:
            async with self._budget.attempt(chat):
                if not await self._begin(part):
                    return None
                is_again = self._mark.doubts > 0 and not self._adapter.has_keys
                try:
                    sent = await self._adapter.send(reply, part, content, is_again=is_again)
                    name = sent.message_id
                    # Neither Redis nor JSON holds what some platforms call a message.
                    sent = replace(sent, message_id=None if name is None else _plain(str(name)))
                except (PlatformAway, PlatformBusy, AccountRefused) as problem:
                    self._budget.failed(chat, problem)
                    await self._withdraw()
                except PlatformRefused:
                    self._budget.worked(chat)
                    raise
                except (Exception, asyncio.CancelledError) as error:
                    task = asyncio.current_task()
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

    async def _begin(self, part: Part) -> bool:
        """Mark that a part is about to be sent; whether it is still to be."""
        if self._adapter.has_keys:
            await self._reader.check()
            return True
        while True:
            if part.index < len(self._mark.ids):
                return False
            self._mark = replace(self._mark, is_begun=True)
            told = await self._note(self._mark)
            if told is None:
                raise _Gone
            if told is True:
                # Redis may have been silent, or this process frozen, since it has agreed.
                await self._reader.check()
                return True
            self._stored, self._mark = told, Mark.decode(told)
            if self._mark.is_begun:
                self._doubt()

    def _doubt(self) -> None:
        """Note that a part may have been sent; raises `PlatformUnknown` once that is enough."""
        self._mark = replace(self._mark, doubts=self._mark.doubts + 1)
        if self._mark.doubts >= (MAX_WITH_KEYS if self._adapter.has_keys else MAX_DOUBTS):
            raise PlatformUnknown(PERHAPS.format(tries=self._mark.doubts))

    async def _withdraw(self) -> None:
        """Mark that what was begun was certainly not done."""
        if self._adapter.has_keys:
            self._mark = replace(self._mark, doubts=0)
            return
        self._mark = replace(self._mark, is_begun=False)
        is_untouched = self._mark == Mark()
        await self._note(None if is_untouched else self._mark)

    async def _note(self, mark: Mark | None) -> bytes | Literal[True] | None:
        of = self._preview.message_id if self._preview else ""
        return await self._reader.mark(
            self._reply,
            mark,
            by=self._name,
            instead_of=self._stored,
            preview=of if of in self._mark.ids else "",
        )


def _told(
    reply: Reply, ids: Sequence[str], kept: Collection[Attachment], *, has_effect: bool
) -> bytes:
    """Return what the caller is told of a message that was delivered."""
    problems = [NO_EFFECT] if reply.effect and not has_effect else []
    problems += [f"The file {file.name} could not be sent." for file in kept]
    is_sent = bool(reply.text or len(kept) < len(reply.attachments))
    message_id = _plain(ids[0]) if ids else None
    told = {"delivered": is_sent, "messageId": message_id, "error": " ".join(problems)}
    return orjson.dumps(told)


def failure(why: str) -> bytes:
    """Return what the caller is told of what was not done."""
    return orjson.dumps({"delivered": False, "messageId": None, "error": _plain(why)})


def _plain(text: str) -> str:
    """Return a platform's words without lone surrogates, which JSON can't hold."""
    return text.encode(errors="replace").decode()


async def settled(receipt: "asyncio.Task[object]") -> None:
    """Wait for a receipt, for a moment also when the relay is cancelled: the platform has it."""
    try:
        await asyncio.shield(receipt)
    except asyncio.CancelledError:
        await asyncio.wait((receipt,), timeout=PARTING_S)
        receipt.cancel()
        raise
