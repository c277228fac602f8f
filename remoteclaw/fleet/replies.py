"""Reply streams: who reads them, and what of them is not delivered yet."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.reader import CLAIM_MS, ReplyReader

#: How many replies are looked at, or dropped, at once: each may have some MB.
PAGE = 64


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


@dataclass(frozen=True, slots=True)
class Said:
    """What a message belongs to that a platform has been sent."""

    sid: str
    turn: str
    """The turn that it answers; the one that asked for it where a tool has sent it."""
    entries: tuple[str, ...]
    """The entries that it answers, of a turn's last message."""
    call: str | None


class Replies:
    """Opens reply streams, and follows what is not complete yet."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def reader(
        self,
        provider: str,
        account: str,
        *,
        token: str | None = None,
        claim_ms: int = CLAIM_MS,
    ) -> ReplyReader:
        """Return a reader of an account's reply stream, which it has still to claim.

        Readers with the same `token` count as the same: for one that is certain to be alone.
        """
        return ReplyReader(self._scripts, provider, account, token, claim_ms=claim_ms)

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

    async def waiting(self, provider: str, account: str) -> int:
        """Return how many replies an account has still to deliver."""
        stream = keys.reply_stream(provider, account)
        return int(await self._scripts.call(self._scripts.client.xlen, stream))

    async def _streams(self) -> list[tuple[str, str, str]]:
        """Return all reply streams by name, each with its provider and account."""
        client = self._scripts.client

        async def look() -> list[str]:
            names = client.scan_iter(match=keys.reply_stream("*", "*"), count=1000)
            return sorted([name.decode() async for name in names])

        return [(name, *keys.account_of(name)) for name in await self._scripts.call(look)]

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

    async def said(self, provider: str, account: str, chat: str, message_id: str) -> Said | None:
        """Return what a message of a platform belongs to; None if it is not ours, or a week old."""
        found = await self._scripts.call(
            self._scripts.client.get, keys.said(provider, account, chat, message_id)
        )
        if not found:
            return None
        told = orjson.loads(found)
        return Said(told["sid"], told["turn"], tuple(told["entries"]), told["call"])

    async def shown(self, sid: str) -> dict[str, Any] | None:
        """Return what was shown last of a turn that runs."""
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
