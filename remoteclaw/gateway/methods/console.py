"""Handlers of consoles: chats in terminals."""

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from remoteclaw import commands
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, ConfigError, MessageRefused, PerhapsSent, RedisRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.consoles import CHANNEL, CHAT_ID, account_of
from remoteclaw.gateway.methods.operators import check_sender
from remoteclaw.host.terminal import login_name, shortened
from remoteclaw.messages import Attachment, SessionKey
from remoteclaw.tools import console as contract

#: A chat that is opened shows at most this many unanswered messages, `MAX_CHARS` of each.
MAX_UNANSWERED, MAX_CHARS = 20, 2000


async def _open(call: Call, params: contract.OpenChatParams) -> contract.OpenedChat:
    session = await _session(call, params)
    check_sender(call, session)
    is_console = session.provider == CHANNEL
    if params.follow != "nothing":
        subscriber = call.events
        await subscriber.subscribe(session.sid, str(session))
        if is_console and params.follow == "chat":
            call.parts.consoles.open(subscriber, session)
    view = await call.fleet.sessions.view(session.sid)
    _, settings = call.config.agent(session.agent)
    with contextlib.suppress(ConfigError):  # the project is not configured any more
        _, settings = call.config.agent(session.agent, view.project if view else None)
    return contract.OpenedChat(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        model=(view and view.model) or settings.model,
        workspace=str(call.home.workspace(session.agent, settings)),
        is_console=is_console,
        state=view.status if view else "idle",
        waiting=view.waiting if view else 0,
        unanswered=await _unanswered(call, session) if params.follow != "nothing" else (),
        commands=tuple((spec.name, spec.help) for spec in commands.COMMANDS.values()),
    )


async def _unanswered(call: Call, session: SessionKey) -> tuple[str, ...]:
    """Return the texts of the newest messages of people that have no outcome yet, oldest first."""
    entries = await call.fleet.inbound.unanswered(session.sid)
    texts = [shortened(e.message.text, MAX_CHARS) for e in entries if e.origin == "chat"]
    return tuple(texts[-MAX_UNANSWERED:])


async def _session(call: Call, params: contract.OpenChatParams) -> SessionKey:
    """Return the session to open: the one that is named, the sender's, or the console's."""
    if params.session_key:
        if params.agent_id or params.sender:
            raise CallRefused("INVALID_REQUEST", "chat.open: name an agent or a session, not both.")
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(params.session_key)
            if key.provider == CHANNEL:  # a console, whose session need not exist yet
                call.config.agent(key.agent)
                return key
        return await call.fleet.sessions.key_of(params.session_key)
    if sender := params.sender:
        name, _ = call.config.agent(params.agent_id)
        to = sender.from_ if sender.to is None else sender.to
        thread = sender.thread_id
        return SessionKey(name, sender.channel, sender.account, to, sender.from_, thread)
    return console_chat(call, params.agent_id)


def console_chat(call: Call, agent: str | None) -> SessionKey:
    """Return the console of this host's user with an agent; None means the first agent."""
    name, _ = call.config.agent(agent)
    account = account_of(call.home.host_id, call.current_config(), name)
    return SessionKey(name, CHANNEL, account, CHAT_ID, login_name())


async def _send(call: Call, params: contract.SendChatParams) -> contract.ConsoleSent:
    session = _session_key_of(params.session_key)
    check_sender(call, session)
    handled = await commands.handle_message(
        params.message,
        functools.partial(_command_call, call, session, params),
        has_files=bool(params.attachments),
    )
    reply = handled.reply
    if reply and not reply.forward:
        moved = str(reply.session) if reply.session else None
        return contract.ConsoleSent(answer=reply.text, session_key=moved)
    sent = await _append(call, session, params, handled.text, is_command=handled.is_command)
    return sent.model_copy(update={"answer": reply.text}) if reply else sent


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
        chat_with=functools.partial(console_chat, call) if session.provider == CHANNEL else None,
    )


def chat_fields(session: SessionKey) -> dict[str, Any]:
    """Return the message fields for the kind of chat, which is known only for consoles."""
    if session.provider != CHANNEL:
        return {}
    return {"chat_kind": "thread" if session.thread else "direct", "is_addressed": True}


async def _append(
    call: Call,
    session: SessionKey,
    params: contract.SendChatParams,
    text: str,
    *,
    is_command: bool | None,
) -> contract.ConsoleSent:
    """Append a message to the session's stream."""
    if session.task is not None:
        raise CallRefused(
            "INVALID_REQUEST",
            "This session works on a task and takes no messages: write to the session that gave it "
            "the task.",
        )
    files = tuple(
        Attachment(name=file.name, mime_type=file.mime_type, size=file.size, blob=file.blob)
        for file in params.attachments
    )
    in_chat = session.provider == CHANNEL and not params.to_caller
    try:
        message = session.message(
            id=params.message_id,
            text=text,
            timestamp=now_ms(),
            attachments=files,
            **chat_fields(session),
        )
        view = await call.fleet.sessions.view(session.sid)
        accepted = await call.fleet.inbound.append(
            message,
            agent=session.agent,
            deliver="channel" if in_chat else "caller",
            lane="background" if params.is_background else "agents",
            is_command=is_command,
        )
    except PerhapsSent as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    except (MessageRefused, RedisRefused) as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None
    is_new = not accepted.is_duplicate
    if is_new and in_chat:
        call.parts.consoles.show_user_message(session, call.events, text)
    ahead = view.waiting if view and is_new else 0
    return contract.ConsoleSent(entry=accepted.entry_id, is_duplicate=not is_new, ahead=ahead)


async def _outcome(call: Call, params: contract.OutcomeParams) -> contract.ChatOutcome:
    sid, entry = _session_key_of(params.session_key).sid, params.entry
    outcome = await call.fleet.outcomes.read(sid, entry)
    if outcome is None:
        raise CallRefused("NOT_FOUND", f"There is no message {entry!r}, or its record has expired.")
    if not outcome.is_final and params.timeout:
        updates = call.fleet.outcomes.follow(sid, entry)
        with contextlib.suppress(TimeoutError):
            async with (
                call.waiting(),
                asyncio.timeout(params.timeout),
                contextlib.aclosing(updates),
            ):
                async for outcome in updates:
                    if outcome.is_final or (outcome.pause and not params.knows_pause):
                        break
    files = [file for part in outcome.reply for file in part.get("attachments", ())]
    return contract.ChatOutcome(
        status=outcome.status,
        turn=outcome.turn,
        reply=tuple(
            contract.ReplyPart(text=part["text"], is_error=part["is_error"])
            for part in outcome.reply
        ),
        files=tuple(
            contract.ReplyFile(**{name: file[name] for name in contract.ReplyFile.model_fields})
            for file in files
        ),
        error=outcome.error,
        usage=outcome.usage.plain() if outcome.usage else None,
        pause=outcome.pause,
    )


async def _acknowledge(call: Call, params: contract.ShownParams) -> contract.ChatShown:
    call.parts.consoles.acknowledge(call.events, params.key, frozenset(params.unsaved))
    return contract.ChatShown(key=params.key)


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
    "chat.send": _send,
    "chat.outcome": _outcome,
    "chat.shown": _acknowledge,
}
