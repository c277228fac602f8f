"""The reader of a reply stream: an adapter claims the stream, reads replies and records delivery.

Consumer groups are not used: two readers of a group would get consecutive messages in parallel, and
a conversation would lose its order.
"""

import asyncio
import contextlib
import logging
import math
import socket
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.fleet.metrics import BUCKETS
from remoteclaw.fleet.replies.history import MAX_ENTRIES, History, shortened
from remoteclaw.fleet.replies.reply import NewerReply, decode_reply
from remoteclaw.fleet.sessions.task_tree import TaskTree, TaskTrees
from remoteclaw.host.process import identity, is_alive
from remoteclaw.messages import Attachment, ChatPlace, reference
from remoteclaw.protocols import Operation, Reply
from remoteclaw.telemetry import DELIVERED, UNDELIVERED

#: A claim expires after this time without renewal, in milliseconds.
CLAIM_MS = 10_000
#: After this fraction of a claim's time, no request to the platform is begun: a request that was
#: begun before has arrived when another adapter takes over.
CLAIM_FRACTION = 0.8
#: The maximum time that one read waits for the next reply, in milliseconds. The claim is renewed
#: before each read.
BLOCK_MS = 3000
#: A claim older than this is renewed before the next reply is delivered, in seconds.
CLAIM_EVERY_S = 3.0
#: How often a reader that stands by looks whether the claim is free, in seconds.
STANDBY_S = 2.0
#: An account is listed for this long after the last claim of its adapter, in milliseconds.
KNOWN_MS = 7 * 24 * 3600 * 1000
#: The receipts of a call's messages and operations are kept for this long, in milliseconds: as long
#: as the call's result.
ANSWER_MS = 24 * 3600 * 1000
#: The origin of a message on a platform is kept for this long, in milliseconds.
ORIGIN_MS = 7 * 24 * 3600 * 1000
#: The list of requests that a chat shows for other conversations is kept for this long, in
#: milliseconds: an hour longer than requests can be answered.
SHOWN_MS = 25 * 3600 * 1000
#: A person gets another notice about a chat that refuses replies after this time, in milliseconds.
NOTIFIED_MS = 24 * 3600 * 1000
#: The pause before the stream is read again after a reply of a newer version, in seconds. It is
#: longer than `CLAIM_MS`, so that a newer adapter, which can deliver the reply, claims the stream.
NEWER_S = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """The progress of a reply's delivery, stored in Redis until the receipt."""

    ids: tuple[str | None, ...] = ()
    """The platform's ids of the parts that were sent, in order; None for a part without an id."""
    is_begun: bool = False
    """Whether sending the next part was begun, so that it may have been sent."""
    doubts: int = 0
    """The number of earlier attempts at that part whose result is unknown."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """The files that the platform refused: the reason by the index of the part."""
    since_ms: int = 0
    """The time before the first of these attempts, on Redis' clock; 0 if nothing depends on it."""

    @classmethod
    def decode(cls, stored: bytes) -> Self:
        """Return a mark from its stored form: the delivery's name, a space and JSON."""
        values = orjson.loads(stored.partition(b" ")[2])
        return cls(**{**values, "ids": tuple(values["ids"])})

    def encode(self, by: str) -> bytes:
        """Return the stored form of the mark, for the delivery named `by`."""
        values = asdict(self)
        if not self.since_ms:  # adapters of versions without this field can read the mark
            del values["since_ms"]
        return by.encode() + b" " + orjson.dumps(values)


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """The reason why a reply will not be delivered."""

    category: str
    """`refused`; `unknown` if the reply may have been delivered; `stopped` if people want it no
    more."""
    why: str
    """The reason, as a sentence."""
    mark: Mark | None = None
    """The progress of the delivery, from which it continues if an operator sends the reply again;
    None to begin again."""


class ReplyReader:
    """The reader of an account's reply stream. Its methods wait while Redis is unavailable."""

    def __init__(
        self,
        scripts: Scripts,
        provider: str,
        account: str,
        token: str | None = None,
        *,
        claim_ms: int = CLAIM_MS,
    ) -> None:
        self.provider, self.account = provider, account
        self._scripts = scripts
        self._stream = keys.replies(provider, account)
        self._previews = keys.previews(provider, account)
        self.name = f"{provider}\0{account}"
        """The account's name in the set of readers."""
        self.token = token or f"{identity()}#{uuid.uuid4().hex}@{socket.gethostname()}"
        """The fencing token: scripts write only while the claim's key has this value.

        It contains the process, so that others need not wait for the claim of a killed process to
        expire, and the host's name for people.
        """
        self._blobs = Blobs(scripts)
        self.history = History(scripts)
        self._claim_ms = claim_ms
        self._block_ms = min(BLOCK_MS, claim_ms * 3 // 10)
        self._claimed_at = -math.inf

    # -- the claim -----------------------------------------------------------------------------

    async def claim(self) -> bool:
        """Claim the stream, or renew the claim; return False if another adapter has the claim."""
        sent_at = boottime()
        other = await self._claim()
        if other and _has_ended(other):
            other = await self._claim(ended=other)
        self._claimed_at = -math.inf if other else sent_at
        return not other

    async def _claim(self, *, ended: str | None = None) -> str | None:
        """Claim the stream; return the token of another reader that has the claim, else None.

        A claim with the token `ended` is replaced: its process no longer runs.
        """
        other: str | None = await self._scripts.run(
            "read",
            provider=self.provider,
            account=self.account,
            token=self.token,
            claim_ms=self._claim_ms,
            name=self.name,
            known_ms=KNOWN_MS,
            ended=ended,
            deadline=math.inf,
        )
        return other

    async def wait_for_claim(self) -> None:
        """Wait until this reader has the claim."""
        while not await self.claim():  # noqa: ASYNC110 - the end of a claim is not announced
            await asyncio.sleep(STANDBY_S)

    @property
    def has_claim(self) -> bool:
        """Whether a request to the platform may begin: no other adapter can have the claim yet."""
        return boottime() < self._claimed_at + CLAIM_FRACTION * self._claim_ms / 1000

    async def ensure_claim(self) -> None:
        """Renew the claim if it is too old for a request to the platform.

        This happens after the process was frozen. Raises `LeaseLost` if another adapter has taken
        over.
        """
        while not self.has_claim:
            if not await self.claim():
                raise LeaseLost(f"another adapter reads {self._stream}")

    # -- replies -------------------------------------------------------------------------------

    async def replies(self) -> AsyncGenerator[Reply, None]:
        """Yield replies in order, forever; after a restart, those without a receipt come again.

        Waits while another adapter has the claim, and before a reply that only a newer version can
        read. A damaged reply is skipped, and stays on the stream until an operator drops it.
        """
        last = b"0"
        while True:
            if not await self.claim():
                await asyncio.sleep(STANDBY_S)
                last = b"0"
                continue
            moves = self._scripts.moves
            for entry_id, fields in await self._read(last):
                # Delivery is slow, so another adapter may have claimed the stream since the read.
                if boottime() > self._claimed_at + CLAIM_EVERY_S and not await self.claim():
                    break
                if not await self._is_certain(moves):
                    last = b"0"
                    break
                where = f"{entry_id.decode()} of {self._stream}"
                try:
                    reply = decode_reply(entry_id.decode(), fields)
                except NewerReply as newer:
                    log.warning("reply %s waits for a newer adapter: %s", where, newer)
                    await asyncio.sleep(NEWER_S)
                    last = b"0"
                    break
                except (KeyError, TypeError, ValueError) as error:
                    log.error("reply %s is damaged and skipped: %s", where, type(error).__name__)
                    last = entry_id
                    continue
                last = entry_id
                yield reply

    async def _is_certain(self, moves: int) -> bool:
        """Whether a failover can't lose what was read; False if it must be read again.

        The claim is a write, so a replica that has it has everything before it. `moves` are those
        before the read.
        """
        if not self._scripts.is_replicated:
            return True
        return await self.claim() and self._scripts.moves == moves

    async def _read(self, last: bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Return the entries after the entry `last`; empty if none arrives in time."""
        after: dict[Any, Any] = {self._stream: last}
        streams = await self._scripts.call(
            self._scripts.client.xread, after, count=64, block=self._block_ms, deadline=math.inf
        )
        return streams[0][1] if streams else []

    async def read(self, reply_id: str) -> Reply | None:
        """Return a reply that `replies()` has yielded; None if it was removed since."""
        client = self._scripts.client
        entries = await self._scripts.call(
            client.xrange, self._stream, reply_id, reply_id, deadline=math.inf
        )
        return decode_reply(reply_id, entries[0][1]) if entries else None

    async def content(self, reply: Reply, file: Attachment) -> bytes | None:
        """Return the content of a reply's file; None if it is no longer stored."""
        return await self._blobs.get(reply.sid, file, deadline=lambda: math.inf)

    async def is_stopped(self, reply: Reply) -> bool:
        """Whether a reply of a turn must not be sent any more: its session was stopped later."""
        if not reply.is_stoppable:
            return False
        client, state = self._scripts.client, keys.state(reply.sid)
        stopped_ms = await self._scripts.call(
            client.hget, state, "replies_stopped_ms", deadline=math.inf
        )
        return stopped_ms is not None and reply.at_ms <= int(stopped_ms)

    async def seconds_left(self, operation: Operation) -> float:
        """Return the time that is left to begin an operation, in seconds."""
        return (operation.expires_ms - await self.now_ms()) / 1000

    async def now_ms(self) -> int:
        """Return the time on Redis' clock, in milliseconds since 1970."""
        return await self._scripts.now_ms(deadline=math.inf)

    async def is_delivered(self, chat: str, message_id: str) -> bool:
        """Whether a message of the chat belongs to a reply with a receipt of the last 7 days."""
        origin = keys.message_origin(self.provider, self.account, chat, message_id)
        client = self._scripts.client
        return bool(await self._scripts.call(client.exists, origin, deadline=math.inf))

    # -- live text and previews ----------------------------------------------------------------

    async def live(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the live text of the account's turns as it is published, forever."""
        channel = keys.live_of(self.provider, self.account)
        async with contextlib.aclosing(announcements(self._scripts.client, channel)) as messages:
            async for text in messages:
                if live_text := _object(text):
                    yield live_text

    async def live_text(self, sid: str) -> dict[str, Any] | None:
        """Return the current live text of a session; None if no turn is running."""
        client = self._scripts.client
        return _object(await self._scripts.call(client.get, keys.live(sid), deadline=math.inf))

    async def task_tree(self, sid: str) -> TaskTree:
        """Return the unfinished tasks of a session."""
        return await TaskTrees(self._scripts).read(sid, recent_ms=0, deadline=math.inf)

    async def previews(self) -> list[dict[str, Any]]:
        """Return the previews that chats show, as `note_preview()` stored them."""
        client = self._scripts.client
        previews = await self._scripts.call(client.hvals, self._previews, deadline=math.inf)
        return [orjson.loads(preview) for preview in previews]

    async def note_preview(self, sid: str, message_id: str, preview: dict[str, Any] | None) -> None:
        """Store a preview that a chat shows; None removes it. Raises `LeaseLost`."""
        await self._scripts.run(
            "preview",
            token=self.token,
            name=f"{sid} {message_id}",
            preview=orjson.dumps(preview) if preview else None,
            provider=self.provider,
            account=self.account,
            deadline=math.inf,
        )

    async def shown_card(self, request_id: str) -> str | None:
        """Return the platform's id of the message that shows a request; None without one."""
        message_id = await self._scripts.call(
            self._scripts.client.hget, keys.request(request_id), "shown", deadline=math.inf
        )
        return message_id.decode() if message_id else None

    # -- delivery ------------------------------------------------------------------------------

    async def has_mark(self, reply: Reply) -> bool:
        """Whether a delivery of the reply has left a mark."""
        client, marks = self._scripts.client, keys.delivery_marks(self.provider, self.account)
        return bool(await self._scripts.call(client.hexists, marks, reply.id, deadline=math.inf))

    async def mark(
        self,
        reply: Reply,
        mark: Mark | None,
        *,
        by: str,
        instead_of: bytes = b"",
        preview: str = "",
    ) -> bytes | Literal[True] | None:
        """Store a reply's mark, and renew the claim; None removes the mark.

        `by` names the delivery, and `preview` is the id of a preview that became a part. Returns
        True if the mark was stored, and None if the reply is no longer on the stream. If the stored
        mark differs from `instead_of`, because another delivery wrote it, it is returned and not
        replaced. Raises `LeaseLost`.
        """
        sent_at = boottime()
        result = await self._scripts.run(
            "mark_sent",
            token=self.token,
            claim_ms=self._claim_ms,
            reply=reply.id,
            by=by,
            instead_of=instead_of or None,
            mark=mark.encode(by) if mark else None,
            preview=f"{reply.sid} {preview}" if preview else None,
            provider=self.provider,
            account=self.account,
            deadline=math.inf,
        )
        self._claimed_at = sent_at
        if isinstance(result, str):
            return result.encode()
        return True if result else None

    async def receipt(
        self,
        reply: Reply,
        *,
        ids: Sequence[str] = (),
        shown: str = "",
        kept: Collection[Attachment] = (),
        failure: DeliveryFailure | None = None,
        answer: bytes = b"",
        preview: str = "",
        history_ms: int = 0,
        notice: tuple[ChatPlace, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record that a reply was delivered, or can't be, and remove it from the stream.

        `ids` are the platform's ids of its parts; the origin of each is stored. `shown` is the id
        of the part with the end of the text, and `preview` the id of a preview that became a part.
        The files are deleted, except for `kept`. If a call sent the reply, `answer` (JSON) is
        stored for the caller; otherwise a reply with a `failure` becomes a dead letter, unless it
        was stopped. A delivered reply to all people is added to the chat's history, kept for
        `history_ms`. The `notice` about a failure, a place and a payload, is sent unless the same
        person had one about this chat since its last delivered reply. Raises `LeaseLost` if another
        adapter took over.
        """
        if reply.card:  # the request still needs its file
            kept = reply.attachments
        blobs = [keys.blob(reply.sid, file.blob) for file in reply.attachments if file not in kept]
        entries = list(reply.entries)
        if failure and not entries and reply.call is None:
            entries = [reply.turn]  # this is not the turn's last message, which has the entries
        origin = {"sid": reply.sid, "turn": reply.turn, "entries": entries, "call": reply.call}
        is_dead_letter = failure and failure.category != "stopped" and reply.call is None
        is_seen = not failure and (reply.text or reply.attachments)
        place = ChatPlace(self.provider, self.account, reply.channel_id, reply.thread_id)
        history = keys.history(self.provider, self.account, reply.channel_id)
        line = {
            "ids": ids,
            "sid": reply.sid,
            "thread": reply.thread_id,
            "text": shortened(reply.text),
            "files": [file.name for file in reply.attachments],
        }
        streams = [keys.replies(to.provider, to.account) for to, _ in filter(None, [notice])]
        await self._scripts.run(
            "receipt",
            sid=reply.sid,
            token=self.token,
            reply=reply.id,
            ids=", ".join(ids) or None,
            shown=shown or None,
            answer=answer if reply.call else None,
            answer_ms=ANSWER_MS,
            origin=orjson.dumps(origin),
            origin_ms=ORIGIN_MS,
            category=failure.category if failure else None,
            why=failure.why if failure else None,
            mark=failure.mark.encode("letter") if failure and failure.mark else None,
            preview=f"{reply.sid} {preview}" if preview else None,
            line=orjson.dumps(line),
            max_entries=MAX_ENTRIES,
            keep_ms=history_ms,
            is_agents=reply.card is None and reply.sid != keys.OPERATOR,
            shown_ms=SHOWN_MS,
            is_seen=bool(is_seen),
            person=reply.asked_by or "-",
            is_next=reply.refusal is not None,
            notice=orjson.dumps(notice[1]) if notice else None,
            notified_ms=NOTIFIED_MS,
            buckets=BUCKETS,
            provider=self.provider,
            account=self.account,
            dead_letters=keys.DEAD_LETTERS if is_dead_letter else None,
            receipts=keys.receipts(reply.call) if reply.call else None,
            request_id=reply.card.id if reply.card and reply.card.choices else None,
            shown_requests=keys.shown_requests(place),
            history=history if history_ms and is_seen and not reply.to_person else None,
            notified=keys.notified(place),
            notice_replies=streams[0] if streams else None,
            outcomes=[keys.outcome(reply.sid, entry) for entry in entries],
            blobs=blobs,
            message_origins=[
                keys.message_origin(self.provider, self.account, reply.channel_id, id_)
                for id_ in ids
            ],
            deadline=math.inf,
        )
        about = ", ".join(reference(reply.sid, entry) for entry in entries or [reply.turn])
        where = f"{self.provider}/{self.account}"
        if failure:
            UNDELIVERED.log(
                log, reference=about, session=reply.sid, account=where, reason=failure.why
            )
        elif entries:
            DELIVERED.log(log, reference=about, session=reply.sid, account=where)


def _has_ended(token: str) -> bool:
    """Whether the process in a reader's token ran on this host and has ended."""
    process, _, _ = token.rpartition("#")
    return bool(process) and not is_alive(process)


def _object(text: bytes | None) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None for any other text."""
    with contextlib.suppress(ValueError):
        value = orjson.loads(text) if text else None
        return value if isinstance(value, dict) else None
    return None
