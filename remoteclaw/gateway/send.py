"""Sends the messages and files of calls, each exactly once, and records them with the turn."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from remoteclaw.bridge.attachments import refusal_of
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.outgoing import OutgoingFiles
from remoteclaw.bridge.untrusted import as_data
from remoteclaw.clock import now_ms
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.keys import OPERATOR
from remoteclaw.fleet.replies.receipts import PlatformReceipt
from remoteclaw.fleet.replies.replies import Readers
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.caller import call_name
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.chat_targets import check_has_reader, conversations_at
from remoteclaw.gateway.rights import is_same_chat, may_send
from remoteclaw.host.fetch import fetch
from remoteclaw.host.files import UnfitFile, mime_type_of
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import Attachment, ChatPlace, SessionKey, file_name, shows_nothing
from remoteclaw.protocols import FILES
from remoteclaw.tools.messages import MessageSent

#: The conversations of the chat receive at most this many characters of a sent message.
MAX_CONTEXT_CHARS = 1000
#: How long a call waits for the receipts of its messages, in seconds.
RECEIPT_S = 10.0

NOT_YET = "The adapter of {channel} has not delivered it yet."
NO_ADAPTER = "No adapter reads {channel} now: it is delivered once one does."


@dataclass(frozen=True, slots=True)
class Message:
    """The message that a call sends."""

    text: str
    source: str | None = None
    """The path or URL of a file to send with the message."""
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
    """Send one message to some chats, once per call id, and wait for the receipts.

    `noted_to` is the chat that the turn's record names; None for several chats. Raises
    `CallRefused`.
    """
    for place in places:
        _check_may_send(call, place)
    for place in places:
        await check_has_reader(call, readers, place)
    if message.source is None and shows_nothing(message.text):
        raise CallRefused("INVALID_REQUEST", "The message is empty: its text shows nothing.")
    parts = [
        _chunks(call.config.channel(place.provider), _attributed(call, place, message.text))
        or [""]  # a file needs no text
        for place in places
    ]
    note = _record_note(call, message, noted_to)
    earlier = await call.fleet.calls.result_of(call.caller, call.id)
    message_ids = earlier["names"] if earlier else None
    if message_ids is None:
        source = message.source
        files = [await store(call, places[0].provider, source)] if source is not None else []
        message_ids = await call.fleet.calls.send_messages(
            call.caller,
            call.id,
            _stream_messages(call, places, parts, message, files),
            effect=note,
            blobs=[file.blob for file in files],
            chat_note=_context_of(call, message),
            sessions=await _other_sessions_at(call, places),
        )
    if len(message_ids) != sum(map(len, parts)):
        raise CallRefused("INVALID_REQUEST", "Another call had this id before.")
    ids: list[list[str]] = []
    for texts in parts:
        ids.append(message_ids[: len(texts)])
        message_ids = message_ids[len(texts) :]
    has_adapter = [readers.is_read(place.provider, place.account) for place in places]
    receipts = await _receipts(call, itertools.compress(ids, has_adapter))
    results = [
        _result_of(place, part_ids, receipts, has_adapter=has_one)
        for place, part_ids, has_one in zip(places, ids, has_adapter, strict=True)
    ]
    if any(result.status != "failed" for result in results):
        call.note(note)
    elif call.caller:
        with contextlib.suppress(CallRefused):  # the turn is over
            await call.fleet.calls.note_failure(call.caller, call.id)
    return results


def _check_may_send(call: Call, place: ChatPlace) -> None:
    """Raise `CallRefused` if the agent's turn may not send to a chat."""
    if call.caller is None:
        return
    if not may_send(call.config, call.caller, place):
        raise CallRefused(
            "FORBIDDEN",
            f"This turn may send only to its own chat, and {place.provider}:{place.chat} is "
            "another one. Only an owner may have messages sent there, unless sends_to of "
            f"[agents.{call.caller.session.agent}] has it. Say so in your answer.",
        )


def _attributed(call: Call, place: ChatPlace, text: str) -> str:
    """Return a text, with a line in front that names its origin if it goes to another chat."""
    if call.caller is None:
        return text
    own = call.turn.place
    if is_same_chat(place, own):
        return text
    agent = call.caller.session.agent
    return f"(From {own.provider}:{own.chat}, by {agent}:)\n{text}".rstrip()


async def _receipts(call: Call, ids: Iterable[Sequence[str]]) -> dict[str, PlatformReceipt]:
    """Wait for the receipts of the messages `ids`. Return all receipts of the call's messages."""
    awaited = list(itertools.chain.from_iterable(ids))
    timeout_s = RECEIPT_S if awaited else 0.0
    name = call_name(call.caller, call.id)
    try:
        async with call.waiting():
            return await call.fleet.receipts.wait(name, awaited, timeout_s=timeout_s)
    except (RedisUnavailable, RedisRefused, CallRefused):
        return {}  # the messages are on their streams and will be delivered


def _stream_messages(
    call: Call,
    places: Sequence[ChatPlace],
    parts: Sequence[Sequence[str]],
    message: Message,
    files: Sequence[Attachment],
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the entries of the reply streams for a message. Files go with its last part."""
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
                code_file_lines=call.config.channel(place.provider).code_file_lines,
            )
            messages.append((place.provider, place.account, payload))
    return messages


def _result_of(
    place: ChatPlace,
    ids: Sequence[str],
    receipts: Mapping[str, PlatformReceipt],
    *,
    has_adapter: bool,
) -> MessageSent:
    """Return the result of a message, which may have several parts."""
    known = [receipts[each] for each in ids if each in receipts]
    failed = [receipt["error"] for receipt in known if not receipt["delivered"]]
    status: Literal["delivered", "accepted", "failed"]
    if failed:
        status, error = "failed", failed[0]
        if len(failed) < len(known):
            error = f"Only a part of it was delivered: {error}"
    elif len(known) < len(ids):
        status, error = "accepted", NOT_YET if has_adapter else NO_ADAPTER
        error = error.format(channel=place.provider)
    else:
        status, error = "delivered", " ".join(filter(None, (receipt["error"] for receipt in known)))
    return MessageSent(
        status=status,
        channel=place.provider,
        target=place.chat,
        id=ids[0].rpartition(" ")[2],
        message_id=next((r["messageId"] for r in known if r["messageId"] is not None), None),
        error=error or None,
    )


def _chunks(channel: ChannelConfig, text: str) -> list[str]:
    """Return a text in chunks of the channel's maximum size, as answers are split."""
    lines = channel.code_file_lines
    chunker = Chunker(channel.chunk_limit, channel.chunk_unit, code_file_lines=lines)
    return [*chunker.feed(text), *chunker.finish()]


async def _other_sessions_at(call: Call, places: Sequence[ChatPlace]) -> list[SessionKey]:
    """Return the sessions to which one of the chats may belong, except the caller's own."""
    own = call.caller.session if call.caller else None
    found = [key for place in places for key in await conversations_at(call, place)]
    return [key for key in dict.fromkeys(found) if key != own]


def _context_of(call: Call, message: Message) -> dict[str, Any]:
    """Return the description of a message for the conversations of the chats that receive it."""
    text = message.text
    if message.source is not None:
        name = as_data(file_name(message.source), max_chars=MAX_NAME_CHARS)
        text = f"{text}\n(with the file {name})".strip()
    return {
        "at": now_ms(),
        "from": str(call.caller.session) if call.caller else "an operator",
        "sent": shortened(text, MAX_CONTEXT_CHARS),
    }


def _record_note(call: Call, message: Message, place: ChatPlace | None) -> dict[str, Any]:
    """Return the note of a call for the turn's record."""
    target = (
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
        **target,
        "text": message.text,
        "mediaUrl": message.source,
        "ts": now_ms(),
    }


#: A sentence shows at most this many characters of a file's name.
MAX_NAME_CHARS = 60
_URL_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


async def store(call: Call, provider: str, source: str) -> Attachment:
    """Read or fetch a file and store it for a channel's adapter.

    The file is kept for an hour unless a message refers to it. Raises `CallRefused` if it can't be
    sent to the channel.
    """
    sid = call.caller.session.sid if call.caller else OPERATOR
    try:
        async with call.transfers.slot(call.principal):
            name, content = await _content(call, source)
            channel = call.config.channel(provider)
            if problem := refusal_of(channel, mime_type_of(name, content), len(content)):
                raise UnfitFile(problem)
            chat = call.caller.session if call.caller else None
            return await call.fleet.blobs.put(sid, name, content, chat=chat)
    except UnfitFile as problem:
        name = as_data(file_name(source), max_chars=MAX_NAME_CHARS)
        raise CallRefused("INVALID_REQUEST", f"The file {name} can't be sent: {problem}.") from None


async def _content(call: Call, source: str) -> tuple[str, bytes]:
    """Return a file's name and content. Raises `UnfitFile`."""
    outgoing = await _outgoing_rule(call, call.caller.session) if call.caller else None
    if outgoing:
        outgoing.check_permissions()
    if scheme := _URL_SCHEME.match(source):
        if scheme[1].lower() != "https":
            raise UnfitFile("its address does not begin with https://")
        return await fetch(source)
    if outgoing is None:
        raise UnfitFile("an operator names it by an address that begins with https://")
    path = outgoing.workspace / source
    return path.name, await asyncio.to_thread(outgoing.read, path)


async def _outgoing_rule(call: Call, session: SessionKey) -> OutgoingFiles:
    """Return the rules for files that a session's agent sends."""
    view = await call.fleet.sessions.view(session.sid)
    agent, settings = call.config.agent(session.agent, view.turn_project if view else None)
    workspace = call.home.workspace_path(agent, settings)
    files_dir = None
    if view and view.agent_path:
        run_dir = Path(view.agent_path).parent
        # The run directory of another host's agent does not exist on this host.
        if run_dir.parent == call.home.runs:
            files_dir = run_dir / FILES
    return OutgoingFiles(call.home, settings.permissions, workspace, files_dir)
