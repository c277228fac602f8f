"""Sends messages of calls, and their files, each once, and notes them with the turn."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from remoteclaw.bridge.attachments import unwanted
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.outgoing import Outgoing
from remoteclaw.bridge.untrusted import as_data
from remoteclaw.clock import now_ms
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.caller import call_name
from remoteclaw.fleet.keys import OPERATOR
from remoteclaw.fleet.receipts import PlatformReceipt
from remoteclaw.fleet.replies import Readers
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.chat_targets import conversations_at
from remoteclaw.gateway.rights import is_for_owner, may_send
from remoteclaw.host.fetch import fetch
from remoteclaw.host.files import UnfitFile, mime_type_of
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import Attachment, ChatPlace, SessionKey, file_name
from remoteclaw.protocols import FILES
from remoteclaw.tools.chats import MessageSent

#: The part of a message that the conversation of its chat is told, in characters.
MAX_TOLD = 1000
#: How long a call waits for the receipts of its messages, in seconds.
RECEIPT_S = 10.0

NOT_YET = "The adapter of {channel} has not delivered it yet."
NOBODY_THERE = "No adapter reads {channel} now: it is delivered once one does."


@dataclass(frozen=True, slots=True)
class Message:
    """What a call sends."""

    text: str
    source: str | None = None
    """A file to send with it, as the call names it."""
    reply_to_id: str | None = None
    effect: str | None = None


async def send(
    call: Call,
    readers: Readers,
    places: Sequence[ChatPlace],
    message: Message,
    *,
    noted_to: ChatPlace | None,
) -> list[MessageSent]:
    """Have one message delivered to some chats, once per call id.

    `noted_to` is the chat that the turn's record names; None for many. Raises `CallRefused`.
    """
    for place in places:
        _check_may_send(call, place)
    if message.source is None and not message.text.strip():
        raise CallRefused("INVALID_REQUEST", "There is nothing in the message.")
    parts = [
        _cut(call.config.channel(place.provider), _attributed(call, place, message.text))
        or [""]  # a file needs no words
        for place in places
    ]
    note = _note(call, message, noted_to)
    made = await call.fleet.calls.made(call.caller, call.id)
    if made is None:
        source = message.source
        files = [await store(call, places[0].provider, source)] if source is not None else []
        made = await call.fleet.calls.messages(
            call.caller,
            call.id,
            _on_streams(call, places, parts, message, files),
            note=note,
            blobs=[file.blob for file in files],
            said=_said(call, message),
            sessions=_others_at(call, places),
        )
    if len(made) != sum(map(len, parts)):
        raise CallRefused("INVALID_REQUEST", "Another call had this id before.")
    ids: list[list[str]] = []
    for texts in parts:
        ids.append(made[: len(texts)])
        made = made[len(texts) :]
    is_there = [readers.is_there(place.provider, place.account) for place in places]
    answers = await _answers(call, itertools.compress(ids, is_there))
    sent = [
        _sent(place, each, answers, is_there=there)
        for place, each, there in zip(places, ids, is_there, strict=True)
    ]
    if any(one.status != "failed" for one in sent):
        call.note(note)
    elif call.caller:
        with contextlib.suppress(CallRefused):  # the turn is over
            await call.fleet.calls.failed(call.caller, call.id)
    return sent


def _check_may_send(call: Call, place: ChatPlace) -> None:
    """Refuse what an agent would send to a chat that is not for the people of its turn."""
    if call.caller is None:
        return
    own, at = call.caller.session, (place.provider, place.chat)
    is_owner = is_for_owner(call.config, call.caller)
    if not may_send(call.config, own, *at, account=place.account, is_owner=is_owner):
        raise CallRefused(
            "FORBIDDEN",
            f"This turn may send to its own chat alone, and {':'.join(at)} is another one. Only an "
            f"owner may have messages sent there, unless sends_to of [agents.{own.agent}] has it. "
            "Say so in your answer.",
        )


def _attributed(call: Call, place: ChatPlace, text: str) -> str:
    """Return a text that says from which chat it comes, if it goes to another one."""
    if call.caller is None:
        return text
    own = call.caller.session
    if (place.provider, place.account, place.chat) == (own.provider, own.account, own.channel_id):
        return text
    return f"(From {own.provider}:{own.channel_id}, by {own.agent}:)\n{text}".rstrip()


async def _answers(call: Call, ids: Iterable[Sequence[str]]) -> dict[str, PlatformReceipt]:
    """Wait for the receipts of these messages; return those of others, too."""
    awaited = list(itertools.chain.from_iterable(ids))
    timeout_s = RECEIPT_S if awaited else 0.0
    name = call_name(call.caller, call.id)
    try:
        return await call.fleet.receipts.wait(name, awaited, timeout_s=timeout_s)
    except (RedisUnavailable, RedisRefused):
        return {}  # they are stored


def _on_streams(
    call: Call,
    places: Sequence[ChatPlace],
    parts: Sequence[Sequence[str]],
    message: Message,
    files: Sequence[Attachment],
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return a message as it stands on reply streams; files go with its last part."""
    name = call_name(call.caller, call.id)
    messages: list[tuple[str, str, dict[str, Any]]] = []
    for place, texts in zip(places, parts, strict=True):
        for number, text in enumerate(texts):
            is_last = number == len(texts) - 1
            payload = reply_payload(
                place,
                text,
                sid=call.caller.session.sid if call.caller else OPERATOR,
                turn=call.turn.id if call.caller else "",
                attempt=call.turn.attempt if call.caller else 0,
                index=len(messages),
                reply_to_id=message.reply_to_id,
                attachments=files if is_last else (),
                call=name,
                effect=message.effect if number == 0 else None,
            )
            messages.append((place.provider, place.account, payload))
    return messages


def _sent(
    place: ChatPlace, ids: Sequence[str], answers: Mapping[str, PlatformReceipt], *, is_there: bool
) -> MessageSent:
    """Return what came of a message, which may have several parts."""
    told = [answers[each] for each in ids if each in answers]
    failed = [answer["error"] for answer in told if not answer["delivered"]]
    status: Literal["delivered", "accepted", "failed"]
    if failed:
        status, error = "failed", failed[0]
        if len(failed) < len(told):
            error = f"Only a part of it was delivered: {error}"
    elif len(told) < len(ids):
        status, error = "accepted", NOT_YET if is_there else NOBODY_THERE
        error = error.format(channel=place.provider)
    else:
        status, error = "delivered", " ".join(filter(None, (each["error"] for each in told)))
    return MessageSent(
        status=status,
        channel=place.provider,
        target=place.chat,
        id=ids[0].rpartition(" ")[2],
        message_id=next((a["messageId"] for a in told if a["messageId"] is not None), None),
        error=error or None,
    )


def _cut(channel: ChannelConfig, text: str) -> list[str]:
    """Return a text in the pieces that a channel takes, as answers are cut."""
    chunker = Chunker(channel.chunk_limit, channel.chunk_unit)
    return [chunk for chunk in (*chunker.feed(text), chunker.finish()) if chunk]


def _others_at(call: Call, places: Sequence[ChatPlace]) -> list[SessionKey]:
    """Return the sessions that may have one of these chats, besides the caller's own."""
    own = call.caller.session if call.caller else None
    found = dict.fromkeys(key for place in places for key in conversations_at(call, place))
    return [key for key in found if key != own]


def _said(call: Call, message: Message) -> dict[str, Any]:
    """Return what the conversation of a chat is told of a message that others have sent there."""
    text = message.text
    if message.source is not None:
        text = f"{text}\n(with the file {as_data(file_name(message.source), longest=NAME)})".strip()
    return {
        "at": now_ms(),
        "from": str(call.caller.session) if call.caller else "an operator",
        "sent": shortened(text, MAX_TOLD),
    }


def _note(call: Call, message: Message, place: ChatPlace | None) -> dict[str, Any]:
    """Return what the turn's record says of a call."""
    where = (
        {
            "provider": place.provider,
            "accountId": place.account,
            "to": place.chat,
            **({"threadId": place.thread} if place.thread else {}),
        }
        if place
        else {}
    )
    return {
        "type": "message_sent",
        "tool": call.method.tool,
        **where,
        "text": message.text,
        "mediaUrl": message.source,
        "ts": now_ms(),
    }


#: How much of a file's name is said, in characters.
NAME = 60
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


async def store(call: Call, provider: str, source: str) -> Attachment:
    """Read or fetch a file and keep it for a channel's adapter; an hour, until a message names it.

    Raises `CallRefused` with the reason if it can't be sent there.
    """
    sid = call.caller.session.sid if call.caller else OPERATOR
    try:
        async with call.transfers.one(call.principal):
            name, content = await _content(call, source)
            channel = call.config.channel(provider)
            if problem := unwanted(channel, mime_type_of(name, content), len(content)):
                raise UnfitFile(problem)
            chat = call.caller.session if call.caller else None
            return await call.fleet.blobs.put(sid, name, content, chat=chat)
    except UnfitFile as problem:
        told = as_data(file_name(source), longest=NAME)
        raise CallRefused("INVALID_REQUEST", f"The file {told} can't be sent: {problem}.") from None


async def _content(call: Call, source: str) -> tuple[str, bytes]:
    """Return a file's name and content; raises `UnfitFile`."""
    outgoing = await _outgoing(call, call.caller.session) if call.caller else None
    if outgoing:
        outgoing.check_permissions()
    if address := _ADDRESS.match(source):
        if address[1].lower() != "https":
            raise UnfitFile("its address does not begin with https://")
        return await fetch(source)
    if outgoing is None:
        raise UnfitFile("an operator names it by an address that begins with https://")
    path = outgoing.workspace / source
    return path.name, await asyncio.to_thread(outgoing.read, path)


async def _outgoing(call: Call, session: SessionKey) -> Outgoing:
    """Return the rule for the files that a session's agent sends."""
    view = await call.fleet.sessions.view(session.sid)
    agent, settings = call.config.agent(session.agent, view.turn_project if view else None)
    workspace = call.home.workspace_path(agent, settings)
    files_dir = None
    if view and view.agent_path:
        run_dir = Path(view.agent_path).parent
        # Of another host's agent, nothing is here.
        if run_dir.parent == call.home.runs:
            files_dir = run_dir / FILES
    return Outgoing(call.home, settings.permissions, workspace, files_dir)
