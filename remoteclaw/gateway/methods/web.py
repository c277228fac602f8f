"""Handlers of the page: its chats, and notifications by Web Push."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.channels.order import PostedReports
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.report import TOO_MANY, InboundContext
from remoteclaw.channels.web.profile import person_id
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, PlatformRefused, StateDirectoryError
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.push_subscriptions import PushSubscription
from remoteclaw.fleet.web import ChatEvent, chat_name
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.sessions import pause_of
from remoteclaw.gateway.page.chats import CHANNEL, event_payload, read_earlier, session_of
from remoteclaw.gateway.page.notifier import server_key
from remoteclaw.messages import DEFAULT_ACCOUNT, Attachment, SessionKey
from remoteclaw.protocols import Choice, Incoming, IncomingFile
from remoteclaw.tools import web as contract
from remoteclaw.tools.base import NoParams

#: Limits the messages of each person through this gateway.
_SEND_RATE = RateLimiter()
#: Limits in the same way the messages that are shown in a chat before they are accepted.
_SHOW_RATE = RateLimiter()
_REPORTS = PostedReports()


def _person_id(call: Call) -> str:
    """Return the id of the person on the page, which depends only on their token."""
    return person_id(call.operator.name, is_admin=call.operator.has("admin"))


async def _open(call: Call, params: contract.OpenPageParams) -> contract.OpenedPage:
    session = _session(call, params.conversation)
    await call.events.subscribe(session.sid, str(session))
    chat = chat_name(session.user, session.thread)
    opening = await call.parts.page_chats.open(call.events, chat, params.after or "")
    view = await call.fleet.sessions.view(session.sid)
    return contract.OpenedPage(
        session_key=str(session),
        sid=session.sid,
        agent=session.agent,
        person=session.user,
        state=view.shown_status if view else "idle",
        **(pause_of(view) if view else {}),
        is_afresh=opening.is_afresh,
        has_earlier=opening.has_earlier,
    )


async def _history(call: Call, params: contract.PageHistoryParams) -> contract.EarlierEvents:
    chat = chat_name(_person_id(call), params.conversation)
    events, has_earlier = await read_earlier(call.fleet.web, chat, params.before, params.limit)
    return contract.EarlierEvents(
        events=tuple(event_payload(chat, event) for event in events), has_earlier=has_earlier
    )


async def _waiting(call: Call, params: contract.WaitingParams) -> contract.WaitingMessages:
    sid = _session(call, params.conversation).sid
    view = await call.fleet.sessions.view(sid)
    # While the session is postponed, its turn answers nothing.
    answered = view.turn_entries if view and not view.is_postponed else ()
    entries = await call.fleet.inbound.unanswered(sid)
    waiting = (entry.message.id for entry in entries if entry.id not in answered)
    return contract.WaitingMessages(messages=tuple(waiting))


def _session(call: Call, conversation: str | None) -> SessionKey:
    return session_of(call.config, _person_id(call), conversation)


async def _send(call: Call, params: contract.PageSendParams) -> contract.WebSent:
    session = _session(call, params.conversation)
    message_id, chosen = params.message_id, params.answer
    if not (params.text.strip() or params.files or chosen or params.reaction is not None):
        raise CallRefused("INVALID_REQUEST", "The message is empty.")
    if chosen is None:
        person = session.user
        writing = Incoming(id=message_id, chat=person, sender=person, at_ms=now_ms())
        if _SHOW_RATE.count(writing) is not None:
            raise CallRefused("FORBIDDEN", TOO_MANY)
        message_id = await _show_in_chat(call, session, params)
    is_message = params.reaction is None and chosen is None
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
    )
    await _REPORTS.handle(context, _StoredFiles(call.fleet.blobs, stored), incoming)
    return contract.WebSent(id=message_id)


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


async def _show_in_chat(call: Call, session: SessionKey, params: contract.PageSendParams) -> str:
    """Add a message or reaction to the chat, for all clients that have it open; return its id."""
    is_reaction = params.reaction is not None
    fields = (
        _reaction_fields(session, params) if is_reaction else _message_fields(call, session, params)
    )
    try:
        return await call.fleet.web.add(
            chat_name(session.user, session.thread),
            "reaction" if is_reaction else "message",
            fields,
            once=f"{session.user} {params.message_id}",
            keep_ms=call.config.record.page_ms,
            is_persons=True,
        )
    except PlatformRefused as error:
        raise CallRefused("NOT_FOUND", str(error)) from None


def _message_fields(
    call: Call, session: SessionKey, params: contract.PageSendParams
) -> dict[str, Any]:
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


def _reaction_fields(session: SessionKey, params: contract.PageSendParams) -> dict[str, Any]:
    return {"message": params.reply_to, "emoji": params.reaction, "from": session.user}


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


def _person_and_token(call: Call) -> tuple[str, str]:
    """Return the id of the person on the page, and the id of their own token.

    Raises `CallRefused` for tokens that are not issued to a person.
    """
    operator = call.operator
    token, _, _ = operator.credential.rpartition("/")
    if not token or operator.claims is not None:
        raise CallRefused(
            "FORBIDDEN", "This needs a login of your own: `remoteclaw open` prints a link."
        )
    return person_id(operator.name, is_admin=operator.has("admin")), token


async def _push_public_key(call: Call) -> str | None:
    try:
        key = await asyncio.to_thread(server_key, call.home, create=True)
    except StateDirectoryError as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    return key.public if key else None


async def _get_push_key(call: Call, _params: NoParams) -> contract.PushKey:
    return contract.PushKey(key=await _push_public_key(call))


async def _subscribe(call: Call, params: contract.SubscribeParams) -> contract.PushDone:
    person, token = _person_and_token(call)
    key = await _push_public_key(call)
    if key is None:
        raise CallRefused(
            "UNAVAILABLE", "Notifications need another package: `pip install 'remoteclaw[push]'`."
        )
    from remoteclaw.gateway.page.webpush import are_valid_keys

    if not are_valid_keys(params.public_key, params.auth):
        raise CallRefused(
            "INVALID_REQUEST",
            "publicKey and auth are not the keys of a browser's push subscription.",
        )
    await call.fleet.push_subscriptions.add(
        person, PushSubscription(token=token, server_key=key, **params.model_dump())
    )
    return contract.PushDone()


async def _unsubscribe(call: Call, _params: NoParams) -> contract.PushDone:
    await call.fleet.push_subscriptions.remove(*_person_and_token(call))
    return contract.PushDone()


async def _visible(call: Call, params: contract.VisibleParams) -> contract.PushDone:
    _, token = _person_and_token(call)
    call.parts.page_chats.watch(call.events, token, is_visible=params.is_visible)
    return contract.PushDone()


HANDLERS: Mapping[str, Handler] = {
    "web.history": _history,
    "web.open": _open,
    "web.send": _send,
    "web.waiting": _waiting,
    "push.key": _get_push_key,
    "push.subscribe": _subscribe,
    "push.unsubscribe": _unsubscribe,
    "push.visible": _visible,
}
