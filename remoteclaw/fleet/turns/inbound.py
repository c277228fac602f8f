"""The inbound streams: every adapter and every API accepts messages here."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import orjson
from pydantic import ValidationError

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import MessageRefused, PerhapsSent, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.turns.commands import immediate_effect, title_of
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import (
    Attachment,
    ChannelMessage,
    Deliver,
    Entry,
    MovedFrom,
    Origin,
    Provenance,
    SessionKey,
    TerminalWish,
)

#: The id of a message is kept for this time to recognize repetitions, in milliseconds: platforms
#: redeliver messages for days.
DEDUPE_MS = 7 * 24 * 3600 * 1000
#: A hint has this long to reach a worker before the sweeper checks the session, in milliseconds.
GRACE_MS = 2000
#: The time limit for accepting a message while Redis is unavailable, in seconds. The sender reads
#: within ten seconds that it was not accepted.
APPEND_S = 8.0
#: An operator waits this long for the end of a conversation, in seconds: an agent that is stopped
#: has five seconds to end, and is killed a second later.
RESET_S = 15.0
FULL = (
    "Redis has filled four fifths of its memory, so nothing new is accepted. Raise its maxmemory, "
    "or wait: memory is freed when messages are answered and delivered. `remoteclaw replies drop`, "
    "`sessions forget` and `deadletters drop` free more."
)
CROWDED = (
    "The message was refused: too many messages of this conversation wait for an answer. Send it "
    "again when some are answered, or /stop."
)
INCOMPLETE = (
    "The message was refused: one of its attachments is not stored any more; store them again "
    "and send it within an hour."
)
#: The caller handles such a message again, without the parts that were accepted.
JOINED = "Another process has just accepted a part of the message."
#: The version of the format of entries. A worker leaves entries of a higher version to newer
#: workers.
ENTRY_VERSION = 7
#: An entry as read from Redis: its id, and its fields as a list (from scripts) or a mapping.
RawEntry = tuple[bytes, list[bytes] | dict[bytes, bytes]]
PERHAPS_SENT = (
    "Perhaps not sent: Redis stopped answering while the message was on its way, and may still "
    "accept it. Look with `remoteclaw sessions show {sid}` before you send it again."
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was accepted and stored. It will have exactly one outcome."""

    session: SessionKey
    entry_id: str
    is_duplicate: bool
    """Whether the message had been accepted before; `entry_id` is that of the first time."""


class Known(NamedTuple):
    """A message's identity: what is known under its name decides whether it is new."""

    name: str
    """A name that is unique in the session, such as the platform's id of the message."""
    digest: str = "-"
    """The digest of its content (`edits.content_digest`); `-` if it is never edited."""


class NewerEntry(Exception):
    """Raised for an entry of a newer version, which only workers of a newer RemoteClaw can read."""


class Inbound:
    """Accepts messages onto the inbound streams of sessions."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def append(
        self,
        message: ChannelMessage,
        *,
        agent: str,
        deliver: Literal["channel", "caller"] = "channel",
        waits: bool = False,
        lane: Lane = "agents",
        is_command: bool | None = None,
        is_shared: bool = False,
        of_thread: bool = True,
        once: Sequence[Known] = (),
    ) -> Accepted:
        """Accept a message. When this returns, the message is stored, and a worker has a hint.

        Repeating the call is harmless: the message's id is remembered for 7 days, or what `once`
        has in its place. A message that was joined from several has one element for each; none of
        them is accepted again.
        The message goes to its sender's conversation in the chat or, if `is_shared`, to the
        conversation that all people in the chat share; without `of_thread`, also from a thread.
        In the `background` lane it waits until the messages of people are handled. The attachments
        must have been stored with `Blobs.put()`; they are kept until the turn is over. `/stop`
        takes effect in this call.
        `is_command` is None unless the commands of the chat were handled before. It is then whether
        the message is a command for the agent's CLI, and the text is not parsed for commands again.
        Raises `RedisUnavailable`, `RedisRefused` or `MessageRefused` if the message was not
        accepted, and `PerhapsSent` if that is unknown.
        """
        session = SessionKey.of(message, agent=agent, is_shared=is_shared, of_thread=of_thread)
        entry = encode_entry(message, deliver, is_command=is_command, waits=waits)
        try:
            effect = immediate_effect(message) if is_command is None else ""
            title, is_new = title_of(message, has_commands=is_command is None)
            return await self._append(
                session,
                entry,
                lane,
                effect,
                title,
                is_new=is_new,
                files=message.attachments,
                once=once or (Known(message.id),),
            )
        except RedisUnavailable as error:
            if error.may_have_run:
                raise PerhapsSent(PERHAPS_SENT.format(sid=session.sid[:8])) from None
            raise

    async def _append(
        self,
        session: SessionKey,
        entry: bytes,
        lane: Lane,
        effect: Literal["stop", "wake", ""],
        title: str | None,
        *,
        is_new: bool,
        once: Sequence[Known],
        files: Sequence[Attachment] = (),
    ) -> Accepted:
        sid = session.sid
        appended = await self._scripts.run(
            "append",
            dedupe_ms=DEDUPE_MS,
            lane=lane,
            effect=effect,
            title=title,
            is_new=is_new,
            digests=[each.digest for each in once],
            known=[keys.known(session, each.name) for each in once],
            blobs=[keys.blob(sid, file.blob) for file in files],
            **entry_args(session, entry),
            deadline=boottime() + APPEND_S,
        )
        match appended.status:
            case "full":
                raise RedisRefused(FULL)
            case "crowded":
                raise MessageRefused(CROWDED)
            case "incomplete":
                raise MessageRefused(INCOMPLETE)
            case "joined":
                raise RedisRefused(JOINED)
        is_duplicate, place = (
            appended.status == "duplicate",
            f"{session.provider}/{session.account}",
        )
        by = f"{place} (again)" if is_duplicate else place
        await self._waker.accepted(session, appended.entry_id, appended.queue, by=by)
        return Accepted(session, appended.entry_id, is_duplicate)

    async def unanswered(self, sid: str) -> list[Entry]:
        """Return the readable entries of a session that have no outcome yet, oldest first."""
        client, entries = self._scripts.client, []
        for entry_id, fields in await self._scripts.call(client.xrange, keys.inbound(sid)):
            with contextlib.suppress(NewerEntry, ValueError):
                entries.append(decode_entry(entry_id, fields))
        return entries

    async def end_conversation(
        self,
        session: SessionKey,
        reason: Literal["new", "reset", "resume"],
        *,
        call: str,
        copy_of: tuple[str, str] | None = None,
        notes: str | None = None,
    ) -> str:
        """End a session's conversation on behalf of an operator, before later messages are handled.

        Everything that the session has accepted so far is stopped. Return the id of an entry; the
        conversation has ended when that entry has an outcome. That is immediate if the session is
        idle and a worker is free. A repeated `call` has no further effect. The next conversation is
        a copy of `copy_of`, or begins with `notes` (see `Entry.copy_of` and `Entry.notes`).
        """
        message = session.message(
            id=f"reset-{call}", text=f"operator: {reason}", from_="operator", timestamp=now_ms()
        )
        entry = encode_entry(message, "caller", "operator", copy_of=copy_of, notes=notes)
        accepted = await self._append(
            session, entry, "agents", "stop", None, is_new=True, once=(Known(message.id),)
        )
        return accepted.entry_id


def entry_args(session: SessionKey, entry: bytes) -> Values:
    """Return what a script needs to put an entry on a session's stream, except the lane."""
    return {
        "sid": session.sid,
        "entry": entry,
        "grace_ms": GRACE_MS,
        "session_key": str(session),
    }


def encode_entry(
    message: ChannelMessage,
    deliver: Deliver,
    origin: Origin = "chat",
    provenance: Provenance | None = None,
    people: Sequence[str] = (),
    *,
    is_command: bool | None = None,
    waits: bool = False,
    copy_of: tuple[str, str] | None = None,
    notes: str | None = None,
    moved: MovedFrom | None = None,
    terminal: TerminalWish | None = None,
) -> bytes:
    """Return an entry as JSON.

    `people` are the persons on whose behalf a message is that no person wrote (`Entry.people`).
    """
    fields = message.model_dump(by_alias=True, exclude_none=True)
    for name in ("attachments", "reactions"):
        if not fields[name]:
            del fields[name]
    data: dict[str, Any] = {
        "v": ENTRY_VERSION,
        "deliver": deliver,
        "origin": origin,
        "message": fields,
    }
    if provenance:
        data["provenance"] = provenance.model_dump(exclude_none=True)
    if people:
        data["people"] = people
    if is_command is not None:
        data["is_command"] = is_command
    if waits:
        data["waits"] = True
    if copy_of:
        data["copy_of"] = copy_of
    if notes is not None:
        data["notes"] = notes
    if moved:
        data["moved"] = moved.model_dump(exclude_none=True)
    if terminal:
        data["terminal"] = terminal.model_dump(exclude_none=True)
    return orjson.dumps(data)


def decode_entry(entry_id: bytes, fields: list[bytes] | dict[bytes, bytes]) -> Entry:
    """Return the entry in a stream's fields.

    Raises `NewerEntry` if only a newer RemoteClaw can read the entry, and ValueError, with the
    reason, if the entry is damaged.
    """
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    try:
        data: dict[str, Any] = orjson.loads(flat[b"entry"])
        if data["v"] > ENTRY_VERSION:
            raise NewerEntry(f"entry version {data['v']} is newer than {ENTRY_VERSION}")
        message = ChannelMessage.model_validate(data["message"])
        deliver = cast(Deliver, data["deliver"])
        origin = cast(Origin, data.get("origin", "chat"))
        origin_data = data.get("provenance")
        provenance = Provenance.model_validate(origin_data) if origin_data is not None else None
        people = tuple(map(str, data.get("people", ())))
        is_command = cast(bool | None, data.get("is_command"))
        copy_of, notes = data.get("copy_of"), cast(str | None, data.get("notes"))
        moved = MovedFrom.model_validate(data["moved"]) if "moved" in data else None
        terminal_data = data.get("terminal")
        terminal = TerminalWish.model_validate(terminal_data) if terminal_data is not None else None
    except (KeyError, TypeError, ValidationError) as error:
        raise ValueError(f"it is damaged ({type(error).__name__})") from None
    stopped = int(flat.get(b"stopped", 0))
    return Entry(
        entry_id.decode(),
        message,
        deliver,
        origin,
        provenance,
        stopped,
        people,
        is_command=is_command,
        waits=bool(data.get("waits")),
        copy_of=(str(copy_of[0]), str(copy_of[1])) if copy_of else None,
        notes=notes,
        moved=moved,
        terminal=terminal,
    )


def decode(raw: RawEntry, session: SessionKey) -> Entry:
    """Return a decoded entry; for a damaged entry, a stand-in with the reason in `unreadable`."""
    entry_id, fields = raw
    try:
        return decode_entry(entry_id, fields)
    except ValueError as error:
        return _stand_in(entry_id.decode(), session, str(error))


def _stand_in(entry_id: str, session: SessionKey, why: str) -> Entry:
    # Unchecked: the session's channel name may no longer be valid.
    message = ChannelMessage.model_construct(
        id=entry_id,
        text="(unreadable)",
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(entry_id.partition("-")[0]),
    )
    deliver: Deliver = "parent" if session.task else "channel"
    return Entry(entry_id, message, deliver=deliver, unreadable=why)
