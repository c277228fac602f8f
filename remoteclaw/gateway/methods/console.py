"""Handlers of the console: chats in terminals."""

import contextlib
import functools
from collections.abc import Mapping

from remoteclaw import commands
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, MessageRefused, PerhapsSent, RedisRefused
from remoteclaw.gateway.call import Call, Handler, Subscriber
from remoteclaw.gateway.consoles import CHANNEL, CHAT_ID
from remoteclaw.gateway.methods.operators import check_sender
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import Attachment, ChannelMessage, SessionKey
from remoteclaw.tools import console as contract

__all__ = ["HANDLERS"]


async def _open(call: Call, params: contract.OpenParams) -> contract.Opened:
    session = await _session(call, params)
    check_sender(call, session)
    subscriber = _subscriber(call)
    await subscriber.subscribe(session.sid, str(session))
    if is_console := session.provider == CHANNEL:
        subscriber.open_chat(session)
    view = await call.fleet.sessions.view(session.sid)
    _, settings = call.config.agent(session.agent)
    return contract.Opened(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        runtime=settings.runtime or "",
        model=(view and view.model) or settings.model,
        workspace=str(call.home.workspace(session.agent, settings)),
        permissions=settings.permissions,
        user=session.user,
        is_console=is_console,
        state=view.status if view else "idle",
        waiting=view.waiting if view else 0,
        commands=tuple((spec.name, spec.help) for spec in commands.COMMANDS.values()),
    )


async def _session(call: Call, params: contract.OpenParams) -> SessionKey:
    if params.session_key:
        if params.agent_id:
            raise CallRefused("INVALID_REQUEST", "chat.open: name an agent or a session, not both.")
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(params.session_key)
            if key.provider == CHANNEL:  # a chat, to which nobody needs to have written yet
                call.config.agent(key.agent)
                return key
        return await call.fleet.sessions.key_of(params.session_key)
    return _chat_of(call, params.agent_id)


def _chat_of(call: Call, agent: str | None) -> SessionKey:
    """Return the chat of this host's user with an agent; None is the first one."""
    name, _ = call.config.agent(agent)
    first, _ = call.config.agent(None)
    host = call.home.host_id
    account = host if name == first else f"{host}.{name}"
    return SessionKey(name, CHANNEL, account, CHAT_ID, login_name())


async def _send(call: Call, params: contract.SendParams) -> contract.Sent:
    session = SessionKey.parse(params.session_key)
    check_sender(call, session)
    text, told = params.message, None
    # The caption of a file is looked at by the queue, which knows /new there.
    is_command = None if params.attachments else False
    if not params.attachments and (command := commands.parse(text)):
        told = await commands.answer(command, _asked(call, session, params, command.rest))
    if told is None:
        text = commands.unescaped(text)
    elif told.forward:
        text, is_command = told.forward, told.is_for_cli
    else:
        moved = str(told.session) if told.session else None
        return contract.Sent(answer=told.text, session_key=moved)
    sent = await _accept(call, session, params, text, is_command=is_command)
    return sent.model_copy(update={"answer": told.text}) if told else sent


def _asked(
    call: Call, session: SessionKey, params: contract.SendParams, rest: str
) -> commands.Asked:
    return commands.Asked(
        id=params.message_id,
        rest=rest,
        session=session,
        is_owner=call.operator.has("admin"),
        fleet=call.fleet,
        config=call.config,
        home=call.home,
        chat_with=functools.partial(_chat_of, call) if session.provider == CHANNEL else None,
    )


async def _accept(
    call: Call,
    session: SessionKey,
    params: contract.SendParams,
    text: str,
    *,
    is_command: bool | None,
) -> contract.Sent:
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
    is_console = session.provider == CHANNEL
    try:
        message = ChannelMessage.checked(
            id=params.message_id,
            text=text,
            from_=session.user,
            channel_id=session.channel_id,
            provider=session.provider,
            account=session.account,
            thread_id=session.thread,
            timestamp=now_ms(),
            attachments=files,
        )
        view = await call.fleet.sessions.view(session.sid)
        accepted = await call.fleet.inbound.append(
            message,
            agent=session.agent,
            deliver="channel" if is_console else "caller",
            is_command=is_command,
        )
    except PerhapsSent as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    except (MessageRefused, RedisRefused) as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None
    if not accepted.is_duplicate:
        _subscriber(call).said_in_chat(session, text)
    ahead = view.waiting if view and not accepted.is_duplicate else 0
    return contract.Sent(entry=accepted.entry_id, ahead=ahead)


async def _shown(call: Call, params: contract.ShownParams) -> contract.Shown:
    _subscriber(call).shown_in_chat(params.key, frozenset(params.unsaved))
    return contract.Shown(key=params.key)


def _subscriber(call: Call) -> Subscriber:
    if call.subscriber is None:
        raise CallRefused("INVALID_REQUEST", "A chat is open over WebSocket alone.")
    return call.subscriber


HANDLERS: Mapping[str, Handler] = {
    "chat.open": _open,
    "chat.send": _send,
    "chat.shown": _shown,
}
