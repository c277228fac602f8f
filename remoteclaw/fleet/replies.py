"""Reply streams as adapters see them: read in order, delivered, receipted.

There are no consumer groups: two readers of a group would be given consecutive messages in
parallel, and a conversation would lose its order.
"""

import asyncio
import contextlib
import logging
import math
import re
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.fleet.reply import NewerReply, decode_reply
from remoteclaw.messages import Attachment
from remoteclaw.protocols import Operation, Reply

__all__ = [
    "Readers",
    "Replies",
    "ReplyReader",
    "Undelivered",
    "Unread",
]

#: How long an adapter holds its reply stream without a sign of life, in milliseconds.
CLAIM_MS = 10_000
#: How long a read waits for the next reply, in milliseconds; each one renews the adapter's claim.
BLOCK_MS = 2000
#: How long a claim is not renewed at most while there is something to deliver, in seconds.
CLAIM_EVERY_S = 2.0
#: How long an account is known after its adapter was last there, in milliseconds.
KNOWN_MS = 7 * 24 * 3600 * 1000
#: How long is kept what adapters tell of a call's messages and operations, in milliseconds: as long
#: as the call is remembered.
ANSWER_MS = 24 * 3600 * 1000
#: How long a reply of a newer version is left alone, in seconds: longer than a claim lasts, so that
#: a newer adapter, which can deliver it, becomes the stream's reader meanwhile.
NEWER_S = 15.0
#: How many replies are looked at, or dropped, at once: each may have some MB.
PAGE = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readers:
    """The accounts of chat platforms that adapters read for, or did within 7 days."""

    now_ms: int
    """Redis' time when they were looked at."""
    until_ms: Mapping[tuple[str, str], int]
    """By provider and account, when the last claim to read for it ends, or ended."""

    def is_there(self, provider: str, account: str) -> bool:
        """Whether an adapter reads for an account now."""
        return self.until_ms.get((provider, account), 0) > self.now_ms

    def accounts(self, provider: str) -> list[str]:
        """Return a provider's accounts: those that are there, else those that were."""
        known = sorted(account for name, account in self.until_ms if name == provider)
        return [account for account in known if self.is_there(provider, account)] or known


@dataclass(frozen=True, slots=True)
class Unread:
    """A reply stream that no adapter reads."""

    provider: str
    account: str
    count: int
    """How many replies are on it."""
    age_s: float
    """How long the oldest one has been there, in seconds."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A reply that is on its stream."""

    id: str
    provider: str
    account: str
    sid: str
    """The session whose agent says it; "operator" if none does, empty if that can't be told."""
    size: int
    """How many bytes it has, with its files."""

    @property
    def at_ms(self) -> int:
        """When it was put there."""
        return int(self.id.partition("-")[0])


class ReplyReader:
    """The one reader of an account's reply stream. While Redis is away, it waits."""

    def __init__(
        self, scripts: Scripts, provider: str, account: str, token: str | None = None
    ) -> None:
        self._scripts = scripts
        self._reader = keys.reader(provider, account)
        self._stream = keys.reply_stream(provider, account)
        self._name = f"{provider}\0{account}"
        self._token = token or uuid.uuid4().hex
        self._blobs = Blobs(scripts)
        self._claimed_at = 0.0

    async def claim(self) -> bool:
        """Become, or stay, the stream's reader; False if another adapter is."""
        sent_at = boottime()
        mine = await self._scripts.run(
            "read",
            keys={"reader": self._reader, "readers": keys.READERS, "replies": self._stream},
            args={
                "token": self._token,
                "claim_ms": CLAIM_MS,
                "account": self._name,
                "known_ms": KNOWN_MS,
            },
            deadline=math.inf,
        )
        self._claimed_at = sent_at
        return bool(mine)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """Stay the stream's reader while something takes its time."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(CLAIM_EVERY_S)
                await self.claim()

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))

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
            self._scripts.client.xread, after, count=64, block=BLOCK_MS, deadline=math.inf
        )
        return found[0][1] if found else []

    async def content(self, reply: Reply, file: Attachment) -> bytes | None:
        """Return the content of a reply's file; None if it is not kept any more."""
        return await self._blobs.get(reply.sid, file, deadline=lambda: math.inf)

    async def left_s(self, operation: Operation) -> float:
        """Return how much time there is to begin an operation, in seconds, on Redis' clock."""
        return (operation.expires_ms - await self._scripts.now_ms(deadline=math.inf)) / 1000

    async def receipt(
        self,
        reply: Reply,
        *,
        kept: Collection[Attachment] = (),
        is_delivered: bool = True,
        answer: bytes = b"",
    ) -> None:
        """Record that a reply was delivered, or never can be, and remove it.

        Its files are not kept any longer, but for `kept`. If a call sent it, `answer` (JSON) is for
        the caller. Raises `LeaseLost` if another adapter took over.
        """
        blobs = [keys.blob(reply.sid, file.blob) for file in reply.attachments if file not in kept]
        entries = reply.entries if is_delivered else ()
        outcomes = [keys.outcome_prefix(reply.sid) + entry for entry in entries]
        await self._scripts.run(
            "receipt",
            keys={
                "reader": self._reader,
                "replies": self._stream,
                "receipts": keys.receipts(reply.call) if reply.call else None,
                "outcomes": outcomes,
                "blobs": blobs,
            },
            args={
                "token": self._token,
                "reply": reply.id,
                "answer": answer if reply.call else None,
                "answer_ms": ANSWER_MS,
            },
            deadline=math.inf,
        )


class Replies:
    """Opens reply streams, and follows what is not complete yet."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def reader(self, provider: str, account: str, *, token: str | None = None) -> ReplyReader:
        """Return a reader of an account's reply stream, which it has still to claim.

        Readers with the same `token` count as the same: for one that is certain to be alone.
        """
        return ReplyReader(self._scripts, provider, account, token)

    async def unread(self) -> Sequence[Unread]:
        """Return the reply streams that no adapter reads, by their names."""
        client, readers, found = self._scripts.client, await self.readers(), []
        for name, provider, account in await self._streams():
            oldest = await self._scripts.call(client.xrange, name, count=1)
            if oldest and not readers.is_there(provider, account):
                age_ms = readers.now_ms - int(oldest[0][0].partition(b"-")[0])
                count = await self._scripts.call(client.xlen, name)
                found.append(Unread(provider, account, count, age_ms / 1000))
        return found

    async def _streams(self) -> list[tuple[str, str, str]]:
        """Return all reply streams by name, each with its provider and account."""
        client = self._scripts.client

        async def look() -> list[str]:
            names = client.scan_iter(match=keys.reply_stream("*", "*"), count=1000)
            return sorted([name.decode() async for name in names])

        found = []
        for name in await self._scripts.call(look):
            provider, _, account = name.removeprefix("rc:out:").partition(":")
            found.append((name, provider, account))
        return found

    async def undelivered(self) -> AsyncGenerator[Undelivered, None]:
        """Yield all that is on reply streams, stream by stream, oldest first."""
        client = self._scripts.client
        for stream, provider, account in await self._streams():
            last = b"-"
            while page := await self._scripts.call(
                client.xrange,
                stream,
                min=last,
                count=PAGE,
            ):
                for entry_id, fields in page:
                    sid, size = _about(fields)
                    yield Undelivered(entry_id.decode(), provider, account, sid, size)
                last = b"(" + page[-1][0]

    async def drop(self, replies: Sequence[Undelivered]) -> int:
        """Remove replies with their files; the outcomes of what they answer say so.

        Return how many were still there. An adapter that delivers one in that moment is not
        disturbed, and then the outcome says that it was delivered.
        """
        streams: dict[str, list[str]] = {}
        for reply in replies:
            stream = keys.reply_stream(reply.provider, reply.account)
            streams.setdefault(stream, []).append(reply.id)
        count = 0
        for stream, ids in streams.items():
            for start in range(0, len(ids), PAGE):
                count += await self._scripts.run(
                    "discard",
                    keys={"replies": stream},
                    args={"ids": ids[start : start + PAGE]},
                )
        return count

    async def readers(self) -> Readers:
        """Return for which accounts adapters read."""
        client = self._scripts.client
        found = await self._scripts.call(client.zrange, keys.READERS, 0, -1, withscores=True)
        until_ms = {}
        for name, score in found:
            provider, _, account = name.decode().partition("\0")
            until_ms[provider, account] = int(score)
        return Readers(await self._scripts.now_ms(), until_ms)

    async def live(self, sid: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a session's answers as far as they have come, for ever; some may be missed."""
        async with contextlib.aclosing(announcements(self._scripts.client, keys.live(sid))) as news:
            async for text in news:
                if text is not None:
                    yield orjson.loads(text)

    async def shown(self, sid: str) -> dict[str, Any] | None:
        """Return what was yielded last of a turn that runs."""
        text = await self._scripts.call(self._scripts.client.get, keys.live(sid))
        return orjson.loads(text) if text else None


def _about(fields: Mapping[bytes, bytes]) -> tuple[str, int]:
    """Return which session has made a reply, and how large it is; readable or not."""
    payload = fields.get(b"reply", b"")
    try:
        told = orjson.loads(payload)
        by_call = re.match(r"\{(\w+)\}:", told.get("call") or "")
        sid = told.get("sid") or (by_call[1] if by_call else "")
        files = sum(file["size"] for file in told.get("attachments", ()))
        return str(sid), len(payload) + int(files)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "", len(payload)
