"""Handlers of the page: its chats, and notifications by Web Push."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.channels.arrival import TOO_MANY, Arrival, Door
from remoteclaw.channels.rate import Rate
from remoteclaw.channels.web.profile import person_id
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, PlatformRefused, StateDirectoryError
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.push_subscriptions import Browser
from remoteclaw.fleet.web import chat_of
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.page.chats import CHANNEL, earlier, session_of, told
from remoteclaw.gateway.page.notifier import server_key
from remoteclaw.messages import DEFAULT_ACCOUNT, Attachment, SessionKey
from remoteclaw.protocols import Choice, Incoming, IncomingFile
from remoteclaw.tools import web as contract
from remoteclaw.tools.base import NoParams
from remoteclaw.tools.console import SentFile

#: What each person may write in a minute, through this gateway.
_RATE = Rate()
#: The same, of what is shown in a chat before it is taken in.
_NOTED = Rate()


def _person(call: Call) -> str:
    """Return a person's id on the page, which their token alone decides."""
    return person_id(call.operator.name, is_admin=call.operator.has("admin"))


async def _open(call: Call, params: contract.OpenParams) -> contract.Opened:
    session = _session(call, params.conversation)
    await call.events.subscribe(session.sid, str(session))
    chat = chat_of(session.user, session.thread)
    opening = await call.parts.page_chats.open(call.events, chat, params.after or "")
    view = await call.fleet.sessions.view(session.sid)
    return contract.Opened(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        person=session.user,
        state=view.shown_status if view else "idle",
        is_afresh=opening.is_afresh,
        has_earlier=opening.has_earlier,
    )


async def _history(call: Call, params: contract.HistoryParams) -> contract.Earlier:
    chat = chat_of(_person(call), params.conversation)
    events, has_earlier = await earlier(call.fleet.web, chat, params.before, params.limit)
    return contract.Earlier(
        events=tuple(told(chat, event) for event in events), has_earlier=has_earlier
    )


def _session(call: Call, conversation: str | None) -> SessionKey:
    return session_of(call.config, _person(call), conversation)


async def _send(call: Call, params: contract.SendParams) -> contract.WebSent:
    session = _session(call, params.conversation)
    message_id, chosen = params.message_id, params.answer
    if chosen is None:
        person = session.user
        writing = Incoming(id=message_id, chat=person, sender=person, at_ms=now_ms())
        if _NOTED.exceeded(writing) is not None:
            raise CallRefused("FORBIDDEN", TOO_MANY)
        message_id = await _noted(call, session, params)
    blobs = _Stored(call.fleet.blobs, session.sid, {file.blob: file for file in params.files})
    incoming = Incoming(
        id=message_id,
        chat=session.user,
        thread=session.thread,
        sender=session.user,
        sender_name=call.operator.name,
        at_ms=now_ms(),
        text=params.text,
        files=tuple(
            IncomingFile(id=file.blob, name=file.name, mime_type=file.mime_type, size=file.size)
            for file in params.files
        ),
        reply_to=params.reply_to,
        reaction=params.reaction,
        choice=Choice(chosen.request, chosen.verdict, chosen.words) if chosen else None,
    )
    door = Door(
        fleet=call.fleet,
        home=call.home,
        config=call.current_config,
        provider=CHANNEL,
        account=DEFAULT_ACCOUNT,
        rate=_RATE,
    )
    await Arrival(door, blobs, incoming).take()
    return contract.WebSent(id=message_id)


async def _noted(call: Call, session: SessionKey, params: contract.SendParams) -> str:
    """Show what is sent in its chat, also to who else has it open; return its id there."""
    is_reaction = params.reaction is not None
    about = _reaction(session, params) if is_reaction else _message(call, session, params)
    try:
        return await call.fleet.web.add(
            chat_of(session.user, session.thread),
            "reaction" if is_reaction else "message",
            about,
            once=f"{session.user} {params.message_id}",
            keep_ms=call.config.record.page_ms,
            is_persons=True,
        )
    except PlatformRefused as error:
        raise CallRefused("NOT_FOUND", str(error)) from None


def _message(call: Call, session: SessionKey, params: contract.SendParams) -> dict[str, Any]:
    files = [
        {"name": file.name, "mime_type": file.mime_type, "size": file.size, "blob": file.blob}
        for file in params.files
    ]
    return {
        "from": session.user,
        "name": call.operator.name,
        "text": params.text,
        "sid": session.sid,
        "files": files,
        "replyTo": params.reply_to,
    }


def _reaction(session: SessionKey, params: contract.SendParams) -> dict[str, Any]:
    return {"message": params.reply_to, "emoji": params.reaction, "from": session.user}


@dataclass(frozen=True, slots=True)
class _Stored:
    """The files of a message, which were stored before it was sent."""

    blobs: Blobs
    sid: str
    files: Mapping[str, SentFile]

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file."""
        sent = self.files[file.id]
        try:
            stored = Attachment(
                name=sent.name, mime_type=sent.mime_type, size=sent.size, blob=sent.blob
            )
        except ValueError:
            raise PlatformRefused("its name or size makes no sense.") from None
        content = await self.blobs.get(self.sid, stored)
        if content is None:
            raise PlatformRefused("it is not kept any more: send it again.")
        return content


def _who(call: Call) -> tuple[str, str]:
    """Return a person's id on the page, and the id of the token that they are logged in with."""
    operator = call.operator
    token, _, _ = operator.credential.rpartition("/")
    if not token or operator.claims is not None:
        raise CallRefused(
            "FORBIDDEN", "This needs a login of one's own: `remoteclaw open` prints a link."
        )
    return person_id(operator.name, is_admin=operator.has("admin")), token


async def _public_key(call: Call) -> str | None:
    try:
        key = await asyncio.to_thread(server_key, call.home, is_made=True)
    except StateDirectoryError as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    return key.public if key else None


async def _key(call: Call, _params: NoParams) -> contract.PushKey:
    return contract.PushKey(key=await _public_key(call))


async def _subscribe(call: Call, params: contract.SubscribeParams) -> contract.PushDone:
    person, token = _who(call)
    key = await _public_key(call)
    if key is None:
        raise CallRefused(
            "UNAVAILABLE", "Notifications need more: `pip install 'remoteclaw[push]'`."
        )
    from remoteclaw.gateway.page.webpush import are_keys

    if not are_keys(params.public_key, params.auth):
        raise CallRefused("INVALID_REQUEST", "publicKey and auth are not the keys of a browser.")
    await call.fleet.pushes.add(person, Browser(token=token, server_key=key, **params.model_dump()))
    return contract.PushDone()


async def _unsubscribe(call: Call, _params: NoParams) -> contract.PushDone:
    await call.fleet.pushes.remove(*_who(call))
    return contract.PushDone()


async def _visible(call: Call, params: contract.VisibleParams) -> contract.PushDone:
    _, token = _who(call)
    call.parts.page_chats.watch(call.events, token, is_visible=params.is_visible)
    return contract.PushDone()


HANDLERS: Mapping[str, Handler] = {
    "web.history": _history,
    "web.open": _open,
    "web.send": _send,
    "push.key": _key,
    "push.subscribe": _subscribe,
    "push.unsubscribe": _unsubscribe,
    "push.visible": _visible,
}
