"""Inbound messages: the one way in, for every adapter and every door."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson
from pydantic import ValidationError

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import MessageRefused, PerhapsSent, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.commands import at_once, title_of
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import (
    ChannelMessage,
    Deliver,
    Entry,
    Moved,
    Origin,
    Provenance,
    SessionKey,
    TerminalWish,
)

#: How long a message's id is remembered, in milliseconds: platforms repeat themselves for days.
DEDUPE_MS = 7 * 24 * 3600 * 1000
#: How long a hint may take to reach a worker before the sweeper looks, in milliseconds.
GRACE_MS = 2000
#: Time limit for accepting a message while Redis is away, in seconds; then the adapter is told.
APPEND_S = 10.0
#: How long an operator waits for the end of a conversation, in seconds: an agent that is stopped
#: has five, and then a second until it is killed.
RESET_S = 15.0
FULL = (
    "Redis has filled four fifths of its memory, so nothing new is accepted. Raise its maxmemory, "
    "or wait: what is answered and delivered makes room. `remoteclaw replies drop`, "
    "`sessions forget` and `deadletters drop` make more."
)
CROWDED = (
    "The message was refused: too many messages of this conversation wait for an answer. Send it "
    "again when some are answered, or /stop."
)
INCOMPLETE = (
    "The message was refused: one of its attachments is not stored any more; store them again "
    "and send it within an hour."
)
#: The form in which entries are written. Readers leave a higher number to newer workers.
ENTRY_VERSION = 7
#: An entry as Redis has it: its id, and its fields as a list (from scripts) or a map.
RawEntry = tuple[bytes, list[bytes] | dict[bytes, bytes]]
PERHAPS_SENT = (
    "Perhaps not sent: Redis stopped answering while the message was on its way, and may still "
    "accept it. Look with `remoteclaw sessions show {sid}` before you send it again."
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that is stored: it will have exactly one outcome."""

    session: SessionKey
    entry_id: str
    is_duplicate: bool
    """True when it had been accepted before; `entry_id` is the first one's."""


class NewerEntry(Exception):
    """Raised for an entry in the form of a newer RemoteClaw, whose workers can read it."""


class Inbound:
    """The inbound streams, from the adapters' side."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def append(
        self,
        message: ChannelMessage,
        *,
        agent: str,
        deliver: Literal["channel", "caller"] = "channel",
        lane: Lane = "agents",
        is_command: bool | None = None,
        is_shared: bool = False,
        once: str = "",
    ) -> Accepted:
        """Accept a message: when this returns, it is stored, and a worker is told if one must be.

        Repeating it is harmless: the message's id, or the name that it has `once`, is remembered
        for 7 days. It goes to its sender's conversation in the chat, or to the one that all people
        there share. In the lane `background` it waits behind what people send. A command to stop
        takes effect here, in the same step. `is_command` says of a message that was looked at
        before whether it is a command for the agent's CLI; whatever its text is, it is no command
        of the chat then.
        Its attachments were stored before (`Blobs.put`), and are kept until its turn is over.
        Raises `RedisUnavailable`, `RedisRefused` or `MessageRefused` when it was not accepted, and
        `PerhapsSent` when that isn't known.
        """
        session = SessionKey.of(message, agent=agent, is_shared=is_shared)
        entry = encode_entry(message, deliver, is_command=is_command)
        try:
            does = at_once(message) if is_command is None else ""
            title, is_new = title_of(message, has_commands=is_command is None)
            return await self._append(
                session, message, entry, lane, does, title, is_new=is_new, once=once
            )
        except RedisUnavailable as error:
            if error.may_have_run:
                raise PerhapsSent(PERHAPS_SENT.format(sid=session.sid[:8])) from None
            raise

    async def _append(
        self,
        session: SessionKey,
        message: ChannelMessage,
        entry: bytes,
        lane: Lane,
        at_once: Literal["stop", "wake", ""],
        title: str | None,
        *,
        is_new: bool,
        once: str = "",
    ) -> Accepted:
        sid = session.sid
        status, entry_id, queue = await self._scripts.run(
            "append",
            keys={
                **entry_keys(session),
                "seen": keys.dedupe(session, once or message.id),
                "blobs": [keys.blob(sid, attachment.blob) for attachment in message.attachments],
            },
            args={
                **entry_args(session, entry),
                "dedupe_ms": DEDUPE_MS,
                "lane": lane,
                "bell": keys.bell(sid),
                "at_once": at_once,
                "title": title,
                "is_new": is_new,
            },
            deadline=boottime() + APPEND_S,
        )
        if status == b"full":
            raise RedisRefused(FULL)
        if status == b"crowded":
            raise MessageRefused(CROWDED)
        if status == b"incomplete":
            raise MessageRefused(INCOMPLETE)
        await self._waker.try_hint(session, queue.decode())
        return Accepted(session, entry_id.decode(), status == b"duplicate")

    async def end_conversation(
        self,
        session: SessionKey,
        reason: Literal["new", "reset", "resume"],
        *,
        call: str,
        copy_of: tuple[str, str] | None = None,
        notes: str | None = None,
    ) -> str:
        """End a session's conversation, for an operator, before anything that comes later.

        All that it has accepted so far is stopped. Return the id of the entry whose outcome says
        when it is done: at once if the session is idle and a worker is there. With the same `call`
        again, nothing more is done. The next conversation is a copy of `copy_of`, or begins with
        `notes` (`Entry.copy_of`, `Entry.notes`).
        """
        message = session.message(
            id=f"reset-{call}", text=f"operator: {reason}", from_="operator", timestamp=now_ms()
        )
        entry = encode_entry(message, "caller", "operator", copy_of=copy_of, notes=notes)
        accepted = await self._append(session, message, entry, "agents", "stop", None, is_new=True)
        return accepted.entry_id


def entry_keys(session: SessionKey) -> dict[str, str]:
    """Return the keys of a script that puts an entry on a session's stream."""
    sid = session.sid
    return {
        "inbound": keys.inbound(sid),
        "state": keys.state(sid),
        "active": keys.ACTIVE,
        "sessions": keys.SESSIONS,
    }


def entry_args(session: SessionKey, entry: bytes) -> dict[str, str | bytes | int]:
    """Return the arguments of such a script, but for the lane."""
    return {
        "sid": session.sid,
        "entry": entry,
        "grace_ms": GRACE_MS,
        "outcomes": keys.outcome_prefix(session.sid),
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
    copy_of: tuple[str, str] | None = None,
    notes: str | None = None,
    moved: Moved | None = None,
    terminal: TerminalWish | None = None,
) -> bytes:
    """Return the JSON of a message on its session's stream.

    `people` are those on whose behalf it is, of what no person has written (`Entry.people`).
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
    """Return an entry as it was appended.

    Raises `NewerEntry` if only a newer RemoteClaw can read it, and ValueError, with the reason, if
    it is damaged.
    """
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    try:
        data: dict[str, Any] = orjson.loads(flat[b"entry"])
        if data["v"] > ENTRY_VERSION:
            raise NewerEntry(f"entry version {data['v']} is newer than {ENTRY_VERSION}")
        message = ChannelMessage.model_validate(data["message"])
        deliver = cast(Deliver, data["deliver"])
        origin = cast(Origin, data.get("origin", "chat"))
        told = data.get("provenance")
        provenance = Provenance.model_validate(told) if told is not None else None
        people = tuple(map(str, data.get("people", ())))
        is_command = cast(bool | None, data.get("is_command"))
        copied, notes = data.get("copy_of"), cast(str | None, data.get("notes"))
        moved = Moved.model_validate(data["moved"]) if "moved" in data else None
        wish = data.get("terminal")
        terminal = TerminalWish.model_validate(wish) if wish is not None else None
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
        copy_of=(str(copied[0]), str(copied[1])) if copied else None,
        notes=notes,
        moved=moved,
        terminal=terminal,
    )
