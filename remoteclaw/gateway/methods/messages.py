"""Handlers of chats: messages, and operations of platforms.

Both go through the reply stream of the chat's account, in order with answers. The adapter's receipt
has the result.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.errors import CallRefused
from remoteclaw.fleet.replies.receipts import PlatformReceipt
from remoteclaw.fleet.replies.replies import Readers
from remoteclaw.fleet.replies.reply import operation_payload
from remoteclaw.fleet.turns.caller import call_name
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.chat_targets import current_place, target_place
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.gateway.send import Message, send
from remoteclaw.messages import ChatPlace
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Operation
from remoteclaw.tools import messages as contract

#: How long an adapter may take to begin an operation, and how long the call waits for the result,
#: in seconds. The relay limits the operation itself to 4 s.
BEGIN_S, OPERATION_S = 10.0, 15.0


# -- messages -------------------------------------------------------------------------------------


async def _send(call: Call, params: contract.SendMessageParams) -> contract.MessageSent:
    message = Message(params.message, source=params.media)
    return await _send_to(call, params.target, message, thread=params.thread_id)


async def _send_attachment(
    call: Call, params: contract.SendAttachmentParams
) -> contract.MessageSent:
    return await _send_to(call, params.target, Message(params.caption, source=params.file))


async def _send_with_effect(
    call: Call, params: contract.SendWithEffectParams
) -> contract.MessageSent:
    return await _send_to(call, params.target, Message(params.message, effect=params.effect_id))


async def _send_to(
    call: Call, target: str, message: Message, *, thread: str | None = None
) -> contract.MessageSent:
    readers = await call.fleet.replies.readers()
    place = _in_thread(target_place(call, readers, target), thread)
    (sent,) = await send(call, readers, [place], message, noted_to=place)
    return sent


async def _reply(call: Call, params: contract.ReplyParams) -> contract.MessageSent:
    place, quoted = current_place(call), params.reply_to_id or _answered_message_id(call)
    if call.caller is None and quoted is None:
        raise CallRefused("INVALID_REQUEST", "Name the message that it answers by replyToId.")
    return await _send_to_place(call, place, Message(params.message, reply_to_id=quoted))


async def _thread_reply(call: Call, params: contract.ThreadReplyParams) -> contract.MessageSent:
    place = _in_thread(current_place(call), params.thread_id)
    return await _send_to_place(call, place, Message(params.message))


def _in_thread(place: ChatPlace, thread: str | None) -> ChatPlace:
    """Return a chat's thread; the chat itself if `thread` is None.

    Raises `CallRefused` if the platform has no threads.
    """
    if thread is None:
        return place
    if not profile_of(place.provider).has_threads:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{place.provider} has no threads: nothing was sent. Send it without threadId.",
        )
    return replace(place, thread=thread)


async def _send_to_place(call: Call, place: ChatPlace, message: Message) -> contract.MessageSent:
    readers = await call.fleet.replies.readers()
    (sent,) = await send(call, readers, [place], message, noted_to=place)
    return sent


async def _broadcast(call: Call, params: contract.BroadcastParams) -> contract.BroadcastResult:
    readers = await call.fleet.replies.readers()
    # All targets are checked before anything is sent. A chat that is named twice gets one message.
    places = [_named_place(call, readers, target) for target in params.targets]
    unique = list(dict.fromkeys(places))
    sent = await send(call, readers, unique, Message(params.message), noted_to=None)
    by_place = dict(zip(unique, sent, strict=True))
    return contract.BroadcastResult(results=tuple(by_place[place] for place in places))


def _named_place(call: Call, readers: Readers, target: str) -> ChatPlace:
    """Return the chat of one of several targets. Raises `CallRefused`, which names the target."""
    try:
        return target_place(call, readers, target)
    except CallRefused as refusal:
        why = f"The target {target[:80]!r}: {refusal} Nothing was sent."
        raise CallRefused(refusal.code, why) from None


def _answered_message_id(call: Call) -> str | None:
    """Return the platform's id of the message that the running turn answers, if it has one."""
    entries = call.turn.entries if call.caller else ()
    # Messages from other sessions, cron jobs and the command line are in no chat.
    ids = [e.message.id for e in entries if e.origin == "chat" and e.deliver == "channel"]
    return ids[-1] if ids else None


# -- operations -----------------------------------------------------------------------------------


async def _react(call: Call, params: contract.ReactParams) -> contract.OperationDone:
    await _operate(call, "react", {"messageId": params.message_id, "emoji": params.emoji})
    return contract.OperationDone(status="done")


async def _delete(call: Call, params: contract.MessageParams) -> contract.OperationDone:
    await _operate(call, "delete", {"messageId": params.message_id})
    return contract.OperationDone(status="done")


async def _pin(call: Call, params: contract.MessageParams) -> contract.OperationDone:
    await _operate(call, "pin", {"messageId": params.message_id})
    return contract.OperationDone(status="done")


async def _read(call: Call, params: contract.ReadParams) -> contract.ReadResult:
    _check_may_read(call, params.channel_id)
    receipt = await _operate(call, "read", {"limit": params.limit}, chat=params.channel_id)
    return contract.ReadResult(
        messages=tuple(map(_read_message, receipt["messages"][-params.limit :])),
        note=receipt.get("note"),
    )


def _read_message(fields: Mapping[str, Any]) -> contract.ReadMessage:
    """Return a message that an adapter, or the relay, has read."""
    return contract.ReadMessage(
        id=fields["id"],
        more_ids=tuple(fields.get("moreIds", ())),
        from_=fields["from"],
        name=fields.get("name"),
        text=fields["text"],
        at=fields["at"],
        thread=fields.get("thread"),
        files=tuple(fields.get("files", ())),
        replaces=fields.get("replaces"),
        reactions=tuple(
            contract.ReadReaction(from_=each["from"], name=each["name"], emoji=each["emoji"])
            for each in fields.get("reactions", ())
        ),
    )


def _check_may_read(call: Call, chat: str | None) -> None:
    """Raise `CallRefused` if an agent would read another chat in a turn that is not an owner's."""
    if call.caller is None or chat in (None, call.turn.place.chat):
        return
    if not is_for_owner(call.config, call.caller):
        raise CallRefused(
            "FORBIDDEN",
            "This turn may read the current chat only; other chats are for an owner's turn.",
        )


async def _operate(
    call: Call,
    name: Literal["react", "delete", "pin", "read"],
    args: Mapping[str, Any],
    *,
    chat: str | None = None,
) -> PlatformReceipt:
    """Have the adapter perform an operation in a chat, and return its receipt.

    `chat` is another chat of the session's channel; None for the session's own. Raises
    `CallRefused`.
    """
    readers = await call.fleet.replies.readers()
    place = _operation_place(call, readers, chat)
    caller_name = call_name(call.caller, call.id)
    async with call.waiting():  # a call that may not wait is refused before it has an effect
        earlier = await call.fleet.calls.result_of(call.caller, call.id)
        message_ids = earlier["names"] if earlier else None
        if message_ids is None:
            payload, note = _operation(call, readers, place, name, args)
            message_ids = await call.fleet.calls.send_messages(
                call.caller, call.id, [(place.provider, place.account, payload)], effect=note
            )
        receipts = await call.fleet.receipts.wait(caller_name, message_ids, timeout_s=OPERATION_S)
    if (receipt := receipts.get(message_ids[0])) is None:
        raise CallRefused(
            "TIMEOUT",
            f"The adapter of {place.provider} did not begin it within {BEGIN_S:.0f} s, and will "
            "not do it any more.",
        )
    if error := receipt.get("error"):
        raise CallRefused("UNAVAILABLE", error)
    return receipt


def _operation(
    call: Call,
    readers: Readers,
    place: ChatPlace,
    name: Literal["react", "delete", "pin", "read"],
    args: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the entry of the reply stream for an operation, and the note of its side effect."""
    if not readers.is_read(place.provider, place.account):
        raise CallRefused(
            "UNAVAILABLE",
            f"No adapter reads {place.provider} now, so nothing can be done there.",
        )
    expires_ms = readers.now_ms + int(BEGIN_S * 1000)
    operation = Operation(name, place.chat, place.thread, args, expires_ms)
    effect = {"type": "operation", "tool": call.method.tool, "to": place.chat, **args}
    payload = operation_payload(call_name(call.caller, call.id), operation)
    return payload, None if name == "read" else effect


def _operation_place(call: Call, readers: Readers, chat: str | None) -> ChatPlace:
    """Return the session's chat, or another chat of the same channel. Raises `CallRefused`."""
    if chat is None:
        return current_place(call)
    place = target_place(call, readers, chat)
    here = call.place
    if here and (place.provider, place.account) != (here.provider, here.account):
        raise CallRefused(
            "INVALID_REQUEST", f"{call.method.name} is for chats of {here.provider} here."
        )
    return place


HANDLERS: dict[str, Handler] = {
    "message.send": _send,
    "message.reply": _reply,
    "message.threadReply": _thread_reply,
    "message.broadcast": _broadcast,
    "message.sendAttachment": _send_attachment,
    "message.sendWithEffect": _send_with_effect,
    "message.react": _react,
    "message.delete": _delete,
    "message.pin": _pin,
    "message.read": _read,
}
