"""Dead letters: abandoned messages and replies, kept until an operator retries or drops them."""

import re
from dataclasses import dataclass

import orjson

from remoteclaw.errors import NotFound, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reply import NewerReply, decode_reply
from remoteclaw.fleet.turns.inbound import FULL, GRACE_MS, Accepted, NewerEntry, decode_entry
from remoteclaw.fleet.turns.outcomes import OUTCOME_MS
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import Attachment, Entry, SessionKey
from remoteclaw.protocols import Reply


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message or a reply that was abandoned."""

    id: str
    """The dead letter's id, "milliseconds-sequence": the time when it was abandoned, on Redis'
    clock."""
    session: SessionKey | None
    """None for a reply without a session, or of a session that no longer exists."""
    entry_id: str
    """The id of the message on its session's stream, or of the reply on its reply stream."""
    attempts: int
    """The number of attempts that were made."""
    category: str
    """The category of the failure."""
    detail: str
    """The reason of the failure; may be empty."""
    entry: Entry | None
    """The message; None for a reply, or if the message can't be read."""
    stream: str = ""
    """The key of the reply's stream; empty for a message."""
    reply: Reply | None = None
    """The reply; None for a message, or if the reply can't be read."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The files of the message or reply. A message's files are kept with the dead letter."""
        if self.reply:
            return self.reply.attachments
        return self.entry.message.attachments if self.entry else ()

    @property
    def text(self) -> str | None:
        """The text of the message or reply; None if it can't be read."""
        if self.reply:
            return self.reply.text
        return self.entry.message.text if self.entry else None

    @property
    def given_up_ms(self) -> int:
        """The time when it was abandoned, in milliseconds since 1970."""
        return int(self.id.partition("-")[0])

    @property
    def why(self) -> str:
        """The reason why it was abandoned, as a sentence."""
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        reason = self.detail.rstrip(".")
        match self.category:
            case "interrupted":
                return f"It was tried {times}, and cut off each time."
            case "unreadable":
                return f"It can't be read here ({reason})."
            case "refused":
                return f"{self.account} refused it: {reason}."
            case "unknown":
                return f"Whether {self.account} has it is unknown: {reason}."
            case kind:
                return f"It failed ({kind}): {reason}." if reason else f"It failed ({kind})."

    @property
    def account(self) -> str:
        """The account that a reply was for, such as `telegram/default`; empty for a message."""
        return "/".join(keys.account_of(self.stream)) if self.stream else ""


class DeadLetters:
    """Reads, retries and drops dead letters."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def list(self, *, limit: int = 1000) -> list[DeadLetter]:
        """Return up to `limit` dead letters, oldest first."""
        client = self._scripts.client
        rows = await self._scripts.call(client.xrange, keys.DEAD_LETTERS, count=limit)
        return [_letter(letter_id.decode(), fields) for letter_id, fields in rows]

    async def read(self, letter_id: str) -> DeadLetter:
        """Return a dead letter; raises `NotFound` if it doesn't exist."""
        if not re.fullmatch(r"\d+-\d+", letter_id):
            raise NotFound(_not_found(letter_id))
        client = self._scripts.client
        rows = await self._scripts.call(client.xrange, keys.DEAD_LETTERS, letter_id, letter_id)
        if not rows:
            new_entry = await self._scripts.call(client.get, keys.retried(letter_id))
            raise NotFound(_not_found(letter_id, new_entry))
        return _letter(letter_id, rows[0][1])

    async def try_again(self, letter_id: str) -> tuple[DeadLetter, Accepted | None]:
        """Retry a message, or send a reply again.

        Return the dead letter and, for a message, its new entry.
        """
        letter = await self.read(letter_id)
        if letter.stream:
            await self.send_again(letter)
            return letter, None
        return letter, await self.retry(letter_id)

    async def retry(self, letter_id: str) -> Accepted:
        """Put a message back on its session's stream, as a new entry at the end.

        Raises `NotFound` if the dead letter doesn't exist, and `RedisRefused` if Redis has no room
        for messages.
        """
        letter = await self.read(letter_id)
        assert letter.session, "it is a message"
        sid = letter.session.sid
        is_of_person = letter.entry is None or letter.entry.origin == "chat"
        retried = await self._scripts.run(
            "retry",
            sid=sid,
            letter=letter_id,
            grace_ms=GRACE_MS,
            session_key=str(letter.session),
            keep_ms=OUTCOME_MS,
            retried=keys.retried(letter_id),
            bell=keys.bell(sid) if is_of_person else None,
        )
        if retried.status == "unknown":
            raise NotFound(_not_found(letter_id))
        if retried.status == "full":
            raise RedisRefused(FULL)
        entry_id = retried.entry_id
        await self._waker.accepted(letter.session, entry_id, retried.queue, by="the dead letters")
        return Accepted(letter.session, entry_id, is_duplicate=False)

    async def send_again(self, letter: DeadLetter) -> None:
        """Put a reply back at the end of its reply stream; parts that were sent are not repeated.

        Raises `NotFound` if the dead letter no longer exists.
        """
        entries = letter.reply.entries or [letter.reply.turn] if letter.reply else []
        sid = letter.reply.sid if letter.reply else ""
        is_resent = await self._scripts.run(
            "resend",
            letter=letter.id,
            replies=letter.stream,
            delivery_marks=keys.delivery_marks(*keys.account_of(letter.stream)),
            outcomes=[keys.outcome(sid, entry) for entry in entries],
        )
        if not is_resent:
            raise NotFound(_not_found(letter.id))

    async def count(self) -> int:
        """Return the number of dead letters."""
        client = self._scripts.client
        return int(await self._scripts.call(client.xlen, keys.DEAD_LETTERS))

    async def drop(self, letter_id: str) -> None:
        """Remove a dead letter and its files; raises `NotFound` if it doesn't exist."""
        letter = await self.read(letter_id)
        sid = letter.reply.sid if letter.reply else letter.session.sid if letter.session else ""
        blobs = [keys.blob(sid, file.blob) for file in letter.attachments]
        is_dropped = await self._scripts.run("drop", letter=letter_id, blobs=blobs)
        if not is_dropped:
            raise NotFound(_not_found(letter_id))


def _not_found(letter_id: str, new_entry: bytes | None = None) -> str:
    if new_entry:
        return (
            f"Dead letter {letter_id!r} was tried again already: as message {new_entry.decode()}."
        )
    return f"There is no dead letter {letter_id!r}: `remoteclaw deadletters list` shows them."


def _letter(letter_id: str, fields: dict[bytes, bytes]) -> DeadLetter:
    if b"reply" in fields:
        return _reply_letter(letter_id, fields)
    error = orjson.loads(fields[b"error"] or b"{}")
    try:
        entry = decode_entry(fields[b"id"], fields)
    except (ValueError, NewerEntry):
        entry = None
    return DeadLetter(
        id=letter_id,
        session=SessionKey.parse(fields[b"key"].decode()),
        entry_id=fields[b"id"].decode(),
        attempts=int(fields[b"attempts"]) - 1,  # the last attempt only moved it here
        category=str(error.get("category", "")),
        detail=str(error.get("detail", "")),
        entry=entry,
    )


def _reply_letter(letter_id: str, fields: dict[bytes, bytes]) -> DeadLetter:
    key, reply_id = fields[b"key"].decode(), fields[b"id"].decode()
    try:
        reply = decode_reply(reply_id, fields)
    except (KeyError, TypeError, ValueError, NewerReply):
        reply = None
    return DeadLetter(
        id=letter_id,
        session=SessionKey.parse(key) if key else None,
        entry_id=reply_id,
        attempts=1,
        category=fields[b"category"].decode(),
        detail=fields[b"why"].decode(),
        entry=None,
        stream=fields[b"stream"].decode(),
        reply=reply,
    )
