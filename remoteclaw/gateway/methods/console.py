"""Handlers of the console: chats in terminals."""

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
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import Attachment, SessionKey
from remoteclaw.tools import console as contract


async def _open(call: Call, params: contract.OpenParams) -> contract.Opened:
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
    with contextlib.suppress(ConfigError):  # a project that is configured no more
        _, settings = call.config.agent(session.agent, view.project if view else None)
    return contract.Opened(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        model=(view and view.model) or settings.model,
        workspace=str(call.home.workspace(session.agent, settings)),
        is_console=is_console,
        state=view.status if view else "idle",
        waiting=view.waiting if view else 0,
        commands=tuple((spec.name, spec.help) for spec in commands.COMMANDS.values()),
    )


async def _session(call: Call, params: contract.OpenParams) -> SessionKey:
    if params.session_key:
        if params.agent_id or params.sender:
            raise CallRefused("INVALID_REQUEST", "chat.open: name an agent or a session, not both.")
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(params.session_key)
            if key.provider == CHANNEL:  # a chat, to which nobody needs to have written yet
                call.config.agent(key.agent)
                return key
        return await call.fleet.sessions.key_of(params.session_key)
    if sender := params.sender:
        name, _ = call.config.agent(params.agent_id)
        to = sender.from_ if sender.to is None else sender.to
        thread = sender.thread_id
        return SessionKey(name, sender.channel, sender.account, to, sender.from_, thread)
    return chat_of(call, params.agent_id)


def chat_of(call: Call, agent: str | None) -> SessionKey:
    """Return the chat of this host's user with an agent; None is the first one."""
    name, _ = call.config.agent(agent)
    account = account_of(call.home.host_id, call.current_config(), name)
    return SessionKey(name, CHANNEL, account, CHAT_ID, login_name())


async def _send(call: Call, params: contract.SendParams) -> contract.ConsoleSent:
    session = _key(params.session_key)
    check_sender(call, session)
    taken = await commands.take(
        params.message,
        functools.partial(_asked, call, session, params),
        has_files=bool(params.attachments),
    )
    told = taken.answer
    if told and not told.forward:
        moved = str(told.session) if told.session else None
        return contract.ConsoleSent(answer=told.text, session_key=moved)
    sent = await _accept(call, session, params, taken.text, is_command=taken.is_command)
    return sent.model_copy(update={"answer": told.text}) if told else sent


def _asked(
    call: Call, session: SessionKey, params: contract.SendParams, rest: str
) -> commands.Asked:
    return commands.Asked(
        id=params.message_id,
        rest=rest,
        session=session,
        sender=session.user,
        is_owner=call.operator.has("admin"),
        can_answer=call.operator.has("admin"),
        fleet=call.fleet,
        config=call.config,
        home=call.home,
        chat_with=functools.partial(chat_of, call) if session.provider == CHANNEL else None,
    )


def kind_of_chat(session: SessionKey) -> dict[str, Any]:
    """Return what is known of the kind of chat: everything in a console, else nothing."""
    if session.provider != CHANNEL:
        return {}
    return {"chat_kind": "thread" if session.thread else "direct", "is_addressed": True}


async def _accept(
    call: Call,
    session: SessionKey,
    params: contract.SendParams,
    text: str,
    *,
    is_command: bool | None,
) -> contract.ConsoleSent:
    """Put a message on the session's stream."""
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
            **kind_of_chat(session),
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
        call.parts.consoles.said(session, call.events, text)
    ahead = view.waiting if view and is_new else 0
    return contract.ConsoleSent(entry=accepted.entry_id, is_duplicate=not is_new, ahead=ahead)


async def _outcome(call: Call, params: contract.OutcomeParams) -> contract.ToldOutcome:
    sid, entry = _key(params.session_key).sid, params.entry
    found = await call.fleet.outcomes.read(sid, entry)
    if found is None:
        raise CallRefused("NOT_FOUND", f"There is no message {entry!r}, or its record has expired.")
    if not found.is_final and params.timeout:
        following = call.fleet.outcomes.follow(sid, entry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(params.timeout), contextlib.aclosing(following):
                async for found in following:
                    if found.is_final or (found.pause and not params.knows_pause):
                        break
    files = [file for part in found.reply for file in part.get("attachments", ())]
    return contract.ToldOutcome(
        status=found.status,
        turn=found.turn,
        reply=tuple(
            contract.SaidPart(text=part["text"], is_error=part["is_error"]) for part in found.reply
        ),
        files=tuple(
            contract.ToldFile(**{name: file[name] for name in contract.ToldFile.model_fields})
            for file in files
        ),
        error=found.error,
        usage=found.usage.plain() if found.usage else None,
        pause=found.pause,
    )


async def _shown(call: Call, params: contract.ShownParams) -> contract.ChatShown:
    call.parts.consoles.shown(call.events, params.key, frozenset(params.unsaved))
    return contract.ChatShown(key=params.key)


def _key(text: str) -> SessionKey:
    """Return a session's key, which need not be known yet. Raises `CallRefused`."""
    try:
        return SessionKey.parse(text)
    except ValueError:
        raise CallRefused(
            "INVALID_REQUEST",
            f"sessionKey: {text[:100]!r} is no session's key; chat.open returns it.",
        ) from None


HANDLERS: Mapping[str, Handler] = {
    "chat.open": _open,
    "chat.send": _send,
    "chat.outcome": _outcome,
    "chat.shown": _shown,
}
