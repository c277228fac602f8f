"""The relay: delivers an account's replies through its adapter, in order, each with a receipt."""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import orjson

from remoteclaw.errors import LeaseLost, PlatformRefused
from remoteclaw.fleet.replies import ReplyReader
from remoteclaw.messages import Attachment
from remoteclaw.protocols import ChannelAdapter, OperatingAdapter, Operation, Reply

__all__ = ["relay"]

#: The time limit of one operation, in seconds: messages wait behind it, and its caller waits 15 s,
#: of which it may have waited 10 here.
OPERATE_S = 4.0

#: How long a relay that is cancelled waits for the receipt of what was delivered, in seconds.
PARTING_S = 1.0

LATE = "It came too late: the channel's adapter was busy, and has not done it."
SLOW = f"The platform took longer than {OPERATE_S:.0f} s: it may have been done, or not."
ONLY_SENDS = "This channel's adapter can do nothing but send messages."
NO_EFFECT = "It was sent without the effect: this channel has none of that name."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Done:
    """The outcome of one entry of the stream."""

    is_delivered: bool = True
    kept: Collection[Attachment] = ()
    """The files that could not be delivered."""
    answer: bytes = b""
    """The answer for the caller."""


async def relay(reader: ReplyReader, adapter: ChannelAdapter) -> None:
    """Deliver until cancelled.

    The receipt follows the delivery: a crash between the two delivers that one message again.
    A message that the platform refuses for good has its receipt like any other. Any other failure
    of a message ends the relay; a failed operation is told to its caller.
    """
    async for reply in reader.replies():
        async with reader.held():  # a platform may take longer than a claim lasts
            if reply.operation:
                left_s = await reader.left_s(reply.operation)
                done = await _operate(reply.operation, left_s, adapter)
            else:
                done = await _deliver(reader, reply, adapter)
            await _settled(asyncio.create_task(_receipt(reader, reply, done)))


async def _receipt(reader: ReplyReader, reply: Reply, done: _Done) -> None:
    with contextlib.suppress(LeaseLost):  # another adapter has taken over, and delivers it
        await reader.receipt(
            reply, kept=done.kept, is_delivered=done.is_delivered, answer=done.answer
        )


async def _settled(receipt: "asyncio.Task[None]") -> None:
    """Wait for a receipt, for a moment also when the relay is cancelled: the platform has it."""
    try:
        await asyncio.shield(receipt)
    except asyncio.CancelledError:
        await asyncio.wait((receipt,), timeout=PARTING_S)
        receipt.cancel()
        raise


async def _deliver(reader: ReplyReader, reply: Reply, adapter: ChannelAdapter) -> _Done:
    """Send a reply part by part; one without parts says that the turn is over."""
    ids, kept, has_effect = list[str](), list[Attachment](), False
    try:
        for part in adapter.parts(reply):
            content = None
            if (
                part.attachment
                and (content := await reader.content(reply, part.attachment)) is None
            ):
                kept.append(part.attachment)
                continue
            try:
                sent = await adapter.send(reply, part, content)
            except PlatformRefused as refusal:
                if part.attachment is None:
                    raise
                log.warning("a file was refused by the platform and is kept: %s", refusal)
                kept.append(part.attachment)
                continue
            ids += [sent.message_id] if sent.message_id is not None else []
            kept += sent.kept
            has_effect = has_effect or sent.has_effect
    except PlatformRefused as refusal:
        # Repeated, it would hold up all that waits behind it.
        log.warning("a message was refused by the platform and is given up: %s", refusal)
        # For the files of an answer, people can ask at a command line; a caller is told.
        kept = [] if reply.call else list(reply.attachments)
        return _Done(False, kept, _failure(str(refusal)))
    told = _told(reply, ids, kept, has_effect=has_effect)
    return _Done(True, () if reply.call else kept, told)


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


async def _operate(operation: Operation, left_s: float, adapter: ChannelAdapter) -> _Done:
    """Do something in a chat, if there is time left for it."""
    if not isinstance(adapter, OperatingAdapter):
        return _Done(answer=_failure(ONLY_SENDS))
    if left_s <= 0:
        return _Done(answer=_failure(LATE))
    try:
        async with asyncio.timeout(OPERATE_S):
            answer = orjson.dumps(dict(await adapter.operate(operation)))
    except TimeoutError:
        answer = _failure(SLOW)
    except PlatformRefused as refusal:
        answer = _failure(str(refusal))
    except Exception as error:
        # It is not tried again, and must not hold up the messages behind it.
        log.exception("the operation %s failed", operation.name)
        answer = _failure(f"The channel's adapter failed ({type(error).__name__}).")
    return _Done(answer=answer)


def _failure(why: str) -> bytes:
    return orjson.dumps({"delivered": False, "messageId": None, "error": _plain(why)})


def _plain(text: str) -> str:
    """Return a platform's words without lone surrogates, which JSON can't hold."""
    return text.encode(errors="replace").decode()
