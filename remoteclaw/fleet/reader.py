"""The reader of a reply stream, as adapters see it: claimed, read in order, marked, receipted.

There are no consumer groups: two readers of a group would be given consecutive messages in
parallel, and a conversation would lose its order.
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
from remoteclaw.fleet.history import MOST, History, shortened
from remoteclaw.fleet.reply import NewerReply, decode_reply
from remoteclaw.fleet.task_tree import WorkBelow, WorkTrees
from remoteclaw.host.process import identity, is_alive
from remoteclaw.messages import Attachment, ChatPlace
from remoteclaw.protocols import Operation, Reply

#: How long an adapter holds its reply stream without a sign of life, in milliseconds.
CLAIM_MS = 10_000
#: The part of that time after which nothing is asked of a platform any more: what has begun by then
#: has reached it before another adapter takes over.
GUARD = 0.8
#: How long a read waits for the next reply, in milliseconds; each one renews the adapter's claim.
BLOCK_MS = 2000
#: How old a claim may be that another reply is taken under, in seconds.
CLAIM_EVERY_S = 2.0
#: How long an account is known after its adapter was last there, in milliseconds.
KNOWN_MS = 7 * 24 * 3600 * 1000
#: How long is kept what adapters tell of a call's messages and operations, in milliseconds: as long
#: as the call is remembered.
ANSWER_MS = 24 * 3600 * 1000
#: How long is kept what a platform's message belongs to, in milliseconds.
SAID_MS = 7 * 24 * 3600 * 1000
#: How long is known which requests of other conversations a chat shows, in milliseconds: a little
#: longer than they can be answered.
SHOWN_MS = 25 * 3600 * 1000
#: How long a reply of a newer version is left alone, in seconds: longer than a claim lasts, so that
#: a newer adapter, which can deliver it, becomes the stream's reader meanwhile.
NEWER_S = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a reply has been sent, as it stands in Redis while it is."""

    ids: tuple[str | None, ...] = ()
    """The platform's ids of the parts that it has, in order; None where it gave none."""
    is_begun: bool = False
    """Whether the next part may be there, too."""
    doubts: int = 0
    """How often that part was begun before, with an unknown result."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """The parts that the platform refused, files all, by index; and why."""

    @classmethod
    def decode(cls, stored: bytes) -> Self:
        """Return a mark that an adapter has written; behind its name, it is JSON."""
        told = orjson.loads(stored.partition(b" ")[2])
        return cls(**{**told, "ids": tuple(told["ids"])})

    def encode(self, by: str) -> bytes:
        """Return it for Redis."""
        return by.encode() + b" " + orjson.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why a reply will never be delivered."""

    category: str
    """`refused`, or `unknown` if it is perhaps delivered after all."""
    why: str
    """A sentence."""
    mark: Mark | None = None
    """How far it was sent: from there it goes on if it is sent again."""


class ReplyReader:
    """The one reader of an account's reply stream. While Redis is away, it waits."""

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
        self._reader = keys.reader(provider, account)
        self._stream = keys.reply_stream(provider, account)
        self._marks = keys.sending(provider, account)
        self._previews = keys.previews(provider, account)
        self.name = f"{provider}\0{account}"
        """The account's name in the set of readers."""
        self.token = token or f"{identity()}#{uuid.uuid4().hex}@{socket.gethostname()}"
        """What fences its writes: scripts obey while it is the value of the key of the claim.

        It names the process, so that nobody waits for the claim of one that was killed, and its
        host, for people.
        """
        self._blobs = Blobs(scripts)
        self.history = History(scripts)
        self._claim_ms = claim_ms
        self._block_ms = min(BLOCK_MS, claim_ms // 5)
        self._claimed_at = -math.inf

    # -- the claim -----------------------------------------------------------------------------

    async def claim(self) -> bool:
        """Become, or stay, the stream's reader; False if another adapter is."""
        sent_at = boottime()
        other = await self._claim()
        if other and _has_ended(other.decode()):
            other = await self._claim(ended=other)
        self._claimed_at = -math.inf if other else sent_at
        return not other

    async def _claim(self, *, ended: bytes | None = None) -> bytes | None:
        """Claim the stream, perhaps in place of a reader that has ended; return who else has it."""
        other: bytes | None = await self._scripts.run(
            "read",
            keys={
                "reader": self._reader,
                "readers": keys.READERS,
                "standbys": keys.standbys(self.provider, self.account),
                "replies": self._stream,
            },
            args={
                "token": self.token,
                "claim_ms": self._claim_ms,
                "account": self.name,
                "known_ms": KNOWN_MS,
                "ended": ended,
            },
            deadline=math.inf,
        )
        return other

    async def claimed(self) -> None:
        """Wait until it is the stream's reader."""
        while not await self.claim():  # noqa: ASYNC110 - nothing tells when another one ends
            await asyncio.sleep(BLOCK_MS / 1000)

    @property
    def is_mine(self) -> bool:
        """Whether something may be asked of the platform: no other adapter does meanwhile."""
        return boottime() < self._claimed_at + GUARD * self._claim_ms / 1000

    async def check(self) -> None:
        """Return once something may be asked of the platform.

        A process that was frozen finds its claim too old, and renews it first. Raises `LeaseLost`
        if another adapter has taken over.
        """
        while not self.is_mine:
            if not await self.claim():
                raise LeaseLost(f"another adapter reads {self._stream}")

    # -- replies -------------------------------------------------------------------------------

    async def replies(self) -> AsyncGenerator[Reply, None]:
        """Yield replies in order, for ever; one that got no receipt comes again after a restart.

        While another adapter reads the stream, this one waits; so it does before a reply that only
        a newer one can read. A damaged one is passed over, and stays until an operator drops it.
        """
        last = b"0"
        while True:
            if not await self.claim():
                await asyncio.sleep(BLOCK_MS / 1000)
                last = b"0"
                continue
            for entry_id, fields in await self._read(last):
                # Delivery is slow: another adapter may have the stream by now.
                if boottime() > self._claimed_at + CLAIM_EVERY_S and not await self.claim():
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
                    log.error("reply %s is damaged and left there: %s", where, type(error).__name__)
                    last = entry_id
                    continue
                last = entry_id
                yield reply

    async def _read(self, last: bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Return what follows an entry; nothing if that takes long."""
        after: dict[Any, Any] = {self._stream: last}
        found = await self._scripts.call(
            self._scripts.client.xread, after, count=64, block=self._block_ms, deadline=math.inf
        )
        return found[0][1] if found else []

    async def read(self, reply_id: str) -> Reply | None:
        """Return a reply that `replies()` has yielded; None if it is not there any more."""
        client = self._scripts.client
        found = await self._scripts.call(
            client.xrange, self._stream, reply_id, reply_id, deadline=math.inf
        )
        return decode_reply(reply_id, found[0][1]) if found else None

    async def content(self, reply: Reply, file: Attachment) -> bytes | None:
        """Return the content of a reply's file; None if it is not kept any more."""
        return await self._blobs.get(reply.sid, file, deadline=lambda: math.inf)

    async def left_s(self, operation: Operation) -> float:
        """Return how much time there is to begin an operation, in seconds, on Redis' clock."""
        return (operation.expires_ms - await self._scripts.now_ms(deadline=math.inf)) / 1000

    # -- what is shown -------------------------------------------------------------------------

    async def live(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield live text of the account's turns, for ever; some may be missed."""
        channel = keys.live_of(self.provider, self.account)
        async with contextlib.aclosing(announcements(self._scripts.client, channel)) as news:
            async for text in news:
                if told := _object(text):
                    yield told

    async def shown(self, sid: str) -> dict[str, Any] | None:
        """Return what is shown of a session's turn; None if none runs."""
        client = self._scripts.client
        return _object(await self._scripts.call(client.get, keys.live(sid), deadline=math.inf))

    async def working(self, sid: str) -> WorkBelow:
        """Return what works for a session now."""
        return await WorkTrees(self._scripts).below(sid, recent_ms=0, deadline=math.inf)

    async def previews(self) -> list[dict[str, Any]]:
        """Return the previews in chats, as they were noted."""
        client = self._scripts.client
        found = await self._scripts.call(client.hvals, self._previews, deadline=math.inf)
        return [orjson.loads(each) for each in found]

    async def note_preview(self, sid: str, message_id: str, preview: dict[str, Any] | None) -> None:
        """Note a preview in a chat; with None, that it is gone. Raises `LeaseLost`."""
        await self._scripts.run(
            "preview",
            keys={"reader": self._reader, "previews": self._previews},
            args={
                "token": self.token,
                "name": f"{sid} {message_id}",
                "preview": orjson.dumps(preview) if preview else None,
            },
            deadline=math.inf,
        )

    async def shown_card(self, ask_id: str) -> str | None:
        """Return the platform's id of the message that shows a request; None if none does."""
        found = await self._scripts.call(
            self._scripts.client.hget, keys.ask(ask_id), "shown", deadline=math.inf
        )
        return found.decode() if found else None

    # -- delivery ------------------------------------------------------------------------------

    async def mark(
        self,
        reply: Reply,
        mark: Mark | None,
        *,
        by: str,
        instead_of: bytes = b"",
        preview: str = "",
    ) -> bytes | Literal[True] | None:
        """Note how far a reply has been sent, or that nothing was begun; the claim is renewed so.

        `by` names the delivery; a `preview` has become a part. Return True if that is noted; None
        if the reply is not on the stream any more; and if another delivery has noted something else
        than what this replaces, that. Raises `LeaseLost`.
        """
        sent_at = boottime()
        told = await self._scripts.run(
            "mark_sent",
            keys={
                "reader": self._reader,
                "replies": self._stream,
                "marks": self._marks,
                "previews": self._previews,
            },
            args={
                "token": self.token,
                "claim_ms": self._claim_ms,
                "reply": reply.id,
                "by": by,
                "instead_of": instead_of or None,
                "mark": mark.encode(by) if mark else None,
                "preview": f"{reply.sid} {preview}" if preview else None,
            },
            deadline=math.inf,
        )
        self._claimed_at = sent_at
        if isinstance(told, bytes):
            return told
        return True if told else None

    async def receipt(
        self,
        reply: Reply,
        *,
        ids: Sequence[str] = (),
        shown: str = "",
        kept: Collection[Attachment] = (),
        given_up: GivenUp | None = None,
        answer: bytes = b"",
        preview: str = "",
        history_ms: int = 0,
    ) -> None:
        """Record that a reply was delivered, or never can be, and remove it.

        The platform's `ids` of its parts lead back to it; `shown` is that of its last words, and a
        `preview` has become one. Its files are not kept any longer, but for `kept`. If a call sent
        it, `answer` (JSON) is for the caller; else a reply that is given up becomes a dead letter.
        What people see of it is kept in the chat's history for `history_ms`. Raises `LeaseLost` if
        another adapter took over.
        """
        if reply.card:  # its request keeps them
            kept = reply.attachments
        blobs = [keys.blob(reply.sid, file.blob) for file in reply.attachments if file not in kept]
        entries = list(reply.entries)
        if given_up and not entries and reply.call is None:
            entries = [reply.turn]  # the turn's last message has still to come
        said = {"sid": reply.sid, "turn": reply.turn, "entries": entries, "call": reply.call}
        is_letter = given_up and reply.call is None
        is_seen = not given_up and (reply.text or reply.attachments)
        place = ChatPlace(self.provider, self.account, reply.channel_id, reply.thread_id)
        history = keys.history(self.provider, self.account, reply.channel_id)
        line = {
            "ids": ids,
            "sid": reply.sid,
            "thread": reply.thread_id,
            "text": shortened(reply.text),
            "files": [file.name for file in reply.attachments],
        }
        await self._scripts.run(
            "receipt",
            keys={
                "reader": self._reader,
                "replies": self._stream,
                "marks": self._marks,
                "previews": self._previews,
                "dead_letters": keys.DEAD_LETTERS if is_letter else None,
                "state": keys.state(reply.sid),
                "receipts": keys.receipts(reply.call) if reply.call else None,
                "ask": keys.ask(reply.card.id) if reply.card and reply.card.choices else None,
                "asked_in": keys.asked_in(place),
                "history": history if history_ms and is_seen else None,
                "outcomes": [keys.outcome_prefix(reply.sid) + entry for entry in entries],
                "blobs": blobs,
                "said": [
                    keys.said(self.provider, self.account, reply.channel_id, id_) for id_ in ids
                ],
            },
            args={
                "token": self.token,
                "reply": reply.id,
                "ids": ", ".join(ids) or None,
                "shown": shown or None,
                "answer": answer if reply.call else None,
                "answer_ms": ANSWER_MS,
                "about": orjson.dumps(said),
                "said_ms": SAID_MS,
                "category": given_up.category if given_up else None,
                "why": given_up.why if given_up else None,
                "mark": given_up.mark.encode("letter") if given_up and given_up.mark else None,
                "preview": f"{reply.sid} {preview}" if preview else None,
                "line": orjson.dumps(line),
                "most": MOST,
                "keep_ms": history_ms,
                "request": reply.card.id if reply.card else None,
                "is_agents": reply.card is None and reply.sid != keys.OPERATOR,
                "shown_ms": SHOWN_MS,
            },
            deadline=math.inf,
        )


def _has_ended(token: str) -> bool:
    """Whether a reader's process is known to be gone: one that ran on this host."""
    process, _, _ = token.rpartition("#")
    return bool(process) and not is_alive(process)


def _object(text: bytes | None) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    with contextlib.suppress(ValueError):
        told = orjson.loads(text) if text else None
        return told if isinstance(told, dict) else None
    return None
