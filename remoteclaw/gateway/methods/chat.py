"""Handlers of people's chats: conversations on the page and in terminals, and other sessions."""

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw import commands
from remoteclaw.channels.order import PostedReports
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.report import TOO_MANY, Awaited, InboundContext
from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import now_ms
from remoteclaw.errors import (
    CallRefused,
    ConfigError,
    MessageRefused,
    PerhapsSent,
    PlatformRefused,
    RedisRefused,
)
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.web import ChatEvent, chat_name
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.chat_targets import agent_at
from remoteclaw.gateway.chats import event_payload, read_earlier
from remoteclaw.gateway.methods.sessions import pause_of
from remoteclaw.gateway.rights import check_sender
from remoteclaw.host.terminal import shortened
from remoteclaw.host.workspace_files import paths_like
from remoteclaw.messages import DEFAULT_ACCOUNT, Attachment, ChatPlace, SessionKey
from remoteclaw.protocols import Choice, Incoming, IncomingFile
from remoteclaw.runtimes import detect_runtime
from remoteclaw.tools import chat as contract

#: A session that is opened shows at most this many unanswered messages, `MAX_CHARS` of each.
MAX_UNANSWERED, MAX_CHARS = 20, 2000
#: The commands by which a client opens another conversation. Their replies are no messages of the
#: chat: they are about the agents of the caller's token.
MOVES = ("agent", "switch")
#: The commands that are about the sessions and the people of all agents.
OF_ALL_AGENTS = ("sessions", "pair", "cron")
#: Limits the messages of each person through this gateway.
_SEND_RATE = RateLimiter()
#: Limits in the same way the messages that are shown in a chat before they are accepted.
_SHOW_RATE = RateLimiter()
_REPORTS = PostedReports()


async def _open(call: Call, params: contract.OpenChatParams) -> contract.OpenedChat:
    session = await _session(call, params)
    is_own = await call.conversations.has(session)
    if not is_own:
        check_sender(call.config, call.operator, session)
    if params.follow != "nothing":
        await call.events.subscribe(session.sid, str(session))
    opening = None
    if is_own and params.follow == "chat":
        chat = chat_name(session.user, session.thread)
        opening = await call.parts.chats.open(call.events, chat, params.after or "")
    view = await call.fleet.sessions.view(session.sid)
    _, settings = call.config.agent(session.agent)
    with contextlib.suppress(ConfigError):  # the project is not configured any more
        _, settings = call.config.agent(session.agent, view.project if view else None)
    is_shown = params.follow != "nothing" and not is_own
    return contract.OpenedChat(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        person=session.user if is_own else None,
        conversation=session.thread if is_own else None,
        name=view.name or None if view else None,
        runtime=settings.runtime or detect_runtime()[0],
        model=view.model_in(call.config) if view else settings.model,
        permissions=settings.permissions,
        workspace=str(call.home.workspace(session.agent, settings)),
        state=view.shown_status if view else "idle",
        waiting=view.waiting if view else 0,
        unanswered=await _unanswered(call, session) if is_shown else (),
        commands=tuple((spec.name, spec.help) for spec in commands.COMMANDS.values()),
        **(pause_of(view) if view else {}),
        is_afresh=opening is not None and opening.is_afresh,
        has_earlier=opening is not None and opening.has_earlier,
    )


async def _session(call: Call, params: contract.OpenChatParams) -> SessionKey:
    """Return the session to open: the one that is named, or a conversation of the caller."""
    named = (params.session_key, params.conversation, params.sender or params.agent_id)
    if sum(each is not None for each in named) > 1:
        raise CallRefused("INVALID_REQUEST", "chat.open: name an agent or a session, not both.")
    if params.session_key is not None:
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(params.session_key)
            if await call.conversations.has(key):  # whose session need not exist yet
                return key
        return await call.fleet.sessions.key_of(params.session_key)
    if sender := params.sender:
        from_ = sender.from_ or call.conversations.person
        to = from_ if sender.to is None else sender.to
        place = ChatPlace(sender.channel, sender.account, to)
        name = await agent_at(call, params.agent_id, place, is_group=to != from_)
        return SessionKey(name, sender.channel, sender.account, to, from_, sender.thread_id)
    if params.conversation is not None:
        return await call.conversations.named(params.conversation)
    return await call.conversations.with_agent(params.agent_id)


async def _unanswered(call: Call, session: SessionKey) -> tuple[str, ...]:
    """Return the texts of the newest messages of people that have no outcome yet, oldest first."""
    entries = await call.fleet.inbound.unanswered(session.sid)
    texts = [shortened(e.message.text, MAX_CHARS) for e in entries if e.origin == "chat"]
    return tuple(texts[-MAX_UNANSWERED:])


async def _history(call: Call, params: contract.ChatHistoryParams) -> contract.EarlierEvents:
    session = await _conversation(call, params.session_key)
    chat = chat_name(session.user, session.thread)
    events, has_earlier = await read_earlier(call.fleet.web, chat, params.before, params.limit)
    return contract.EarlierEvents(
        events=tuple(event_payload(chat, event) for event in events), has_earlier=has_earlier
    )


async def _waiting(call: Call, params: contract.WaitingParams) -> contract.WaitingMessages:
    sid = (await _conversation(call, params.session_key)).sid
    view = await call.fleet.sessions.view(sid)
    # While the session is postponed, its turn answers nothing.
    answered = view.turn_entries if view and not view.is_postponed else ()
    entries = await call.fleet.inbound.unanswered(sid)
    waiting = (entry.message.id for entry in entries if entry.id not in answered)
    return contract.WaitingMessages(messages=tuple(waiting))


async def _files(call: Call, params: contract.FilesParams) -> contract.WorkspaceFiles:
    session = await _conversation(call, params.session_key)
    view = await call.fleet.sessions.view(session.sid)
    agent = call.config.agent(session.agent, view.project if view else None)
    workspace = call.home.workspace_path(*agent)
    async with call.parts.chats.searches:
        paths = await asyncio.to_thread(paths_like, workspace, params.like, params.limit)
    return contract.WorkspaceFiles(paths=tuple(paths))


async def _conversation(call: Call, named: str) -> SessionKey:
    session = _session_key_of(named)
    if not await call.conversations.has(session):
        raise CallRefused("NOT_FOUND", f"{named[:200]!r} is no conversation of yours.")
    return session


async def _send(call: Call, params: contract.SendChatParams) -> contract.ChatSent:
    session = _session_key_of(params.session_key)
    if not (params.text.strip() or params.files or params.answer or params.reaction is not None):
        raise CallRefused("INVALID_REQUEST", "The message is empty.")
    command = commands.parse(params.text)
    if command and command.name in OF_ALL_AGENTS and call.operator.agents is not None:
        raise CallRefused(
            "FORBIDDEN", f"This token is only for some agents, and /{command.name} is about all."
        )
    if not await call.conversations.has(session):
        check_sender(call.config, call.operator, session)
        return await _send_to_session(call, session, params)
    if command and command.name in MOVES:
        command_call = _command_call(call, session, params, command.arguments)
        reply = await commands.run_command(command.name, command_call)
        assert reply is not None, "it is a command"
        return contract.ChatSent(reply=reply.text, opens=reply.session and str(reply.session))
    return await _send_in_chat(call, session, params)


# -- in a conversation ----------------------------------------------------------------------------


async def _send_in_chat(
    call: Call, session: SessionKey, params: contract.SendChatParams
) -> contract.ChatSent:
    """Show a message in its conversation and handle it, as a channel does."""
    message_id, chosen = params.message_id, params.answer
    is_message = params.reaction is None and chosen is None
    if chosen is None:
        person = session.user
        writing = Incoming(id=message_id, chat=person, sender=person, at_ms=now_ms())
        if _SHOW_RATE.count(writing) is not None:
            raise CallRefused("FORBIDDEN", TOO_MANY)
        message_id = await _show_in_chat(call, session, params)
    known, view = await _became(call, session, message_id), None
    if is_message and known is None:
        view = await call.fleet.sessions.view(session.sid)
    quoted = await _quoted(call, session, params.reply_to) if is_message else None
    quoted_files = quoted.about["files"] if quoted else []
    stored = {file.blob: (session.sid, file.model_dump()) for file in params.files}
    stored |= {file["blob"]: (quoted.about["sid"], file) for file in quoted_files if quoted}
    incoming = Incoming(
        id=message_id,
        chat=session.user,
        thread=session.thread,
        sender=session.user,
        sender_name=call.operator.name,
        at_ms=now_ms(),
        text=params.text,
        files=tuple(_incoming_file(file.model_dump()) for file in params.files),
        reply_to=params.reply_to,
        quoted=quoted.about["text"] if quoted else "",
        quoted_files=tuple(map(_incoming_file, quoted_files)),
        reaction=params.reaction,
        choice=Choice(chosen.request, chosen.verdict, chosen.words) if chosen else None,
    )
    context = InboundContext(
        fleet=call.fleet,
        home=call.home,
        config=call.current_config,
        provider=CHANNEL,
        account=DEFAULT_ACCOUNT,
        rate=_SEND_RATE,
        agent=session.agent,
    )
    awaited = Awaited("background" if params.is_background else "agents") if params.waits else None
    files = _StoredFiles(call.fleet.blobs, stored)
    await _REPORTS.handle(context, files, incoming, awaited)
    became = (known or await _became(call, session, message_id)) if is_message else None
    return contract.ChatSent(
        id=message_id,
        entry=became if became and became[0].isdigit() else None,
        is_duplicate=known is not None,
        ahead=view.waiting if view else 0,
        reply=awaited.answer if awaited else None,
        notices=tuple(awaited.notices) if awaited else (),
    )


async def _became(call: Call, session: SessionKey, message_id: str) -> str | None:
    """Return what a message became: the id of an entry, or a mark; None if it is not handled."""
    (known,) = await call.fleet.edits.known(session, [message_id])
    return known and known.became


async def _quoted(call: Call, session: SessionKey, reply_to: str | None) -> ChatEvent | None:
    """Return the message that is quoted; None without one, or if it is no longer stored."""
    if reply_to is None:
        return None
    event = await call.fleet.web.find(chat_name(session.user, session.thread), reply_to)
    return event if event and event.kind == "message" else None


def _incoming_file(file: Mapping[str, Any]) -> IncomingFile:
    """Return a stored file in the form that adapters return."""
    return IncomingFile(
        id=file["blob"], name=file["name"], mime_type=file["mime_type"], size=file["size"]
    )


async def _show_in_chat(call: Call, session: SessionKey, params: contract.SendChatParams) -> str:
    """Add a message or reaction to the chat, for all clients that have it open; return its id."""
    is_reaction = params.reaction is not None
    fields = (
        {"message": params.reply_to, "emoji": params.reaction, "from": session.user}
        if is_reaction
        else _message_fields(call, session, params)
    )
    try:
        return await call.fleet.web.add(
            chat_name(session.user, session.thread),
            "reaction" if is_reaction else "message",
            fields,
            once=f"{session.user} {params.message_id}",
            keep_ms=call.config.record.page_ms,
            by_person_to=session.agent,
        )
    except PlatformRefused as error:
        raise CallRefused("NOT_FOUND", str(error)) from None


def _message_fields(
    call: Call, session: SessionKey, params: contract.SendChatParams
) -> dict[str, Any]:
    return {
        "from": session.user,
        "name": call.operator.name,
        "messageId": params.message_id,
        "text": params.text,
        "sid": session.sid,
        "files": [file.model_dump() for file in params.files],
        "replyTo": params.reply_to,
    }


@dataclass(frozen=True, slots=True)
class _StoredFiles:
    """The files of a message and of the one that it quotes, which are stored already."""

    blobs: Blobs
    files: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Each file's session and attachment, by the name of its blob."""

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file."""
        sid, about = self.files[file.id]
        try:
            stored = Attachment.model_validate(about)
        except ValueError:
            raise PlatformRefused("its name or size is not valid.") from None
        content = await self.blobs.get(sid, stored)
        if content is None:
            raise PlatformRefused("it is not kept any more: send it again.")
        return content


# -- to another session ---------------------------------------------------------------------------


async def _send_to_session(
    call: Call, session: SessionKey, params: contract.SendChatParams
) -> contract.ChatSent:
    """Send a message to a session that is no conversation of the caller."""
    handled = await commands.handle_message(
        params.text,
        functools.partial(_command_call, call, session, params),
        has_files=bool(params.files),
    )
    reply = handled.reply
    if reply and not reply.forward:
        return contract.ChatSent(reply=reply.text)
    sent = await _append(call, session, params, handled.text, is_command=handled.is_command)
    return sent.model_copy(update={"reply": reply.text}) if reply else sent


def _command_call(
    call: Call, session: SessionKey, params: contract.SendChatParams, arguments: str
) -> commands.CommandCall:
    return commands.CommandCall(
        id=params.message_id,
        arguments=arguments,
        session=session,
        sender=session.user,
        is_owner=call.operator.has("admin"),
        can_answer=call.operator.has("admin"),
        fleet=call.fleet,
        config=call.config,
        home=call.home,
        chat_with=call.conversations.with_agent,
    )


async def _append(
    call: Call,
    session: SessionKey,
    params: contract.SendChatParams,
    text: str,
    *,
    is_command: bool | None,
) -> contract.ChatSent:
    """Append a message to the session's stream."""
    if session.task is not None:
        raise CallRefused(
            "INVALID_REQUEST",
            "This session works on a task and takes no messages: write to the session that gave it "
            "the task.",
        )
    files = tuple(
        Attachment(name=file.name, mime_type=file.mime_type, size=file.size, blob=file.blob)
        for file in params.files
    )
    try:
        message = session.message(
            id=params.message_id,
            text=text,
            timestamp=now_ms(),
            attachments=files,
        )
        view = await call.fleet.sessions.view(session.sid)
        accepted = await call.fleet.inbound.append(
            message,
            agent=session.agent,
            deliver="caller",
            lane="background" if params.is_background else "agents",
            is_command=is_command,
        )
    except PerhapsSent as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    except (MessageRefused, RedisRefused) as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None
    is_new = not accepted.is_duplicate
    ahead = view.waiting if view and is_new else 0
    return contract.ChatSent(entry=accepted.entry_id, is_duplicate=not is_new, ahead=ahead)


def _session_key_of(text: str) -> SessionKey:
    """Return the session key in a text; the session need not exist. Raises `CallRefused`."""
    try:
        return SessionKey.parse(text)
    except ValueError:
        raise CallRefused(
            "INVALID_REQUEST",
            f"sessionKey: {text[:100]!r} is not the key of a session; chat.open returns it.",
        ) from None


HANDLERS: Mapping[str, Handler] = {
    "chat.open": _open,
    "chat.history": _history,
    "chat.waiting": _waiting,
    "chat.files": _files,
    "chat.send": _send,
}
