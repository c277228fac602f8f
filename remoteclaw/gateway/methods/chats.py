"""Handlers of chats: messages, and the operations of platforms.

All of them go through the reply stream of the chat's account, in order with answers; the adapter's
receipt has the result.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.errors import CallRefused
from remoteclaw.fleet.caller import call_name
from remoteclaw.fleet.receipts import PlatformReceipt
from remoteclaw.fleet.replies import Readers
from remoteclaw.fleet.reply import operation_payload
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.chat_targets import current_place, place_of
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.gateway.send import Message, send
from remoteclaw.messages import ChatPlace
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Operation
from remoteclaw.tools import chats as contract

#: How long an adapter may take to begin an operation, and how long the call waits for its result,
#: in seconds: the relay gives the operation itself 4 s.
BEGIN_S, OPERATION_S = 10.0, 15.0


# -- messages -------------------------------------------------------------------------------------


async def _send(call: Call, params: contract.SendParams) -> contract.MessageSent:
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
    place = _in_thread(place_of(call, readers, target), thread)
    (sent,) = await send(call, readers, [place], message, noted_to=place)
    return sent


async def _reply(call: Call, params: contract.ReplyParams) -> contract.MessageSent:
    place, quoted = current_place(call), params.reply_to_id or _answered(call)
    if call.caller is None and quoted is None:
        raise CallRefused("INVALID_REQUEST", "Say by replyToId which message it answers.")
    return await _send_here(call, place, Message(params.message, reply_to_id=quoted))


async def _thread_reply(call: Call, params: contract.ThreadReplyParams) -> contract.MessageSent:
    place = _in_thread(current_place(call), params.thread_id)
    return await _send_here(call, place, Message(params.message))


def _in_thread(place: ChatPlace, thread: str | None) -> ChatPlace:
    """Return a thread of a chat, if one is named; raises `CallRefused` where there are none."""
    if thread is None:
        return place
    if not profile_of(place.provider).has_threads:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{place.provider} has no threads: nothing was sent. Send it without threadId.",
        )
    return replace(place, thread=thread)


async def _send_here(call: Call, place: ChatPlace, message: Message) -> contract.MessageSent:
    readers = await call.fleet.replies.readers()
    (sent,) = await send(call, readers, [place], message, noted_to=place)
    return sent


async def _broadcast(call: Call, params: contract.BroadcastParams) -> contract.BroadcastResult:
    readers = await call.fleet.replies.readers()
    # All are checked before anything is sent; a chat that is named twice gets it once.
    places = [place_of(call, readers, target) for target in params.targets]
    unique = list(dict.fromkeys(places))
    sent = await send(call, readers, unique, Message(params.message), noted_to=None)
    by_place = dict(zip(unique, sent, strict=True))
    return contract.BroadcastResult(results=tuple(by_place[place] for place in places))


def _answered(call: Call) -> str | None:
    """Return the platform's name for the message that the running turn answers."""
    entries = call.turn.entries if call.caller else ()
    # Messages of other sessions, of the clock and of the command line are in no chat.
    asked = [e.message.id for e in entries if e.origin == "chat" and e.deliver == "channel"]
    return asked[-1] if asked else None


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
    answer = await _operate(call, "read", {"limit": params.limit}, chat=params.channel_id)
    return contract.ReadResult(
        messages=tuple(map(_message, answer["messages"][-params.limit :])), note=answer.get("note")
    )


def _message(told: Mapping[str, Any]) -> contract.ReadMessage:
    """Return a message as an adapter has told it, or the relay."""
    return contract.ReadMessage(
        id=told["id"],
        more_ids=tuple(told.get("moreIds", ())),
        from_=told["from"],
        name=told.get("name"),
        text=told["text"],
        at=told["at"],
        thread=told.get("thread"),
        files=tuple(told.get("files", ())),
        replaces=told.get("replaces"),
        reactions=tuple(
            contract.ReadReaction(from_=one["from"], name=one["name"], emoji=one["emoji"])
            for one in told.get("reactions", ())
        ),
    )


def _check_may_read(call: Call, chat: str | None) -> None:
    """Refuse an agent's turn to read another chat than its own, except for an owner."""
    if call.caller is None or chat in (None, call.caller.session.channel_id):
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
    """Have the adapter perform an operation in the current chat, or another one of the channel."""
    readers = await call.fleet.replies.readers()
    place = _place_of(call, readers, chat)
    call_as = call_name(call.caller, call.id)
    made = await call.fleet.calls.made(call.caller, call.id)
    if made is None:
        if not readers.is_there(place.provider, place.account):
            raise CallRefused(
                "UNAVAILABLE",
                f"No adapter reads {place.provider} now, so nothing can be done there.",
            )
        expires_ms = readers.now_ms + int(BEGIN_S * 1000)
        operation = Operation(name, place.chat, place.thread, args, expires_ms)
        payload = operation_payload(call_as, operation)
        about = {"type": "operation", "tool": call.method.tool, "to": place.chat, **args}
        note = None if name == "read" else about
        made = await call.fleet.calls.messages(
            call.caller, call.id, [(place.provider, place.account, payload)], note=note
        )
    answers = await call.fleet.receipts.wait(call_as, made, timeout_s=OPERATION_S)
    if (answer := answers.get(made[0])) is None:
        raise CallRefused(
            "TIMEOUT",
            f"The adapter of {place.provider} did not begin it within {BEGIN_S:.0f} s, and will "
            "not do it any more.",
        )
    if error := answer.get("error"):
        raise CallRefused("UNAVAILABLE", error)
    return answer


def _place_of(call: Call, readers: Readers, chat: str | None) -> ChatPlace:
    """Return the current chat, or another one of the same channel."""
    if chat is None:
        return current_place(call)
    place = place_of(call, readers, chat)
    session = call.session
    if session and (place.provider, place.account) != (session.provider, session.account):
        raise CallRefused(
            "INVALID_REQUEST", f"{call.method.name} is for chats of {session.provider} here."
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
