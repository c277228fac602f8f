"""The reply streams of a fleet: their readers, and the replies that are not delivered yet."""

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import CLAIM_MS, ReplyReader
from remoteclaw.fleet.replies.reply import NewerReply, decode_reply
from remoteclaw.messages import ChatPlace, SessionKey

#: The number of replies that are read or dropped at once: each may have some MB.
PAGE = 64


@dataclass(frozen=True, slots=True)
class Readers:
    """The accounts whose reply streams adapters read now, or did within the last 7 days."""

    now_ms: int
    """The time at which this was read, in milliseconds on Redis' clock."""
    until_ms: Mapping[tuple[str, str], int]
    """The end of the last claim, past or future, by provider and account."""

    def is_read(self, provider: str, account: str) -> bool:
        """Whether an adapter reads the reply stream of an account now."""
        return self.until_ms.get((provider, account), 0) > self.now_ms

    def accounts(self, provider: str) -> list[str]:
        """Return a provider's accounts that are read now; if none is, those read recently."""
        known = sorted(account for name, account in self.until_ms if name == provider)
        return [account for account in known if self.is_read(provider, account)] or known


@dataclass(frozen=True, slots=True)
class UnreadStream:
    """A reply stream that no adapter reads."""

    provider: str
    account: str
    count: int
    """The number of replies on the stream."""
    age_s: float
    """The age of the oldest reply, in seconds."""


@dataclass(frozen=True, slots=True)
class UndeliveredReply:
    """A reply that is still on its stream."""

    id: str
    provider: str
    account: str
    sid: str
    """The id of the session that sent the reply; "operator" for an operator, empty if unknown."""
    size: int
    """The size of the reply and its files, in bytes."""

    @property
    def at_ms(self) -> int:
        """The time at which the reply was added, in milliseconds on Redis' clock."""
        return int(self.id.partition("-")[0])


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """The origin of a message that was sent to a platform."""

    sid: str
    turn: str
    """The turn that produced the message, or whose tool call sent it."""
    entries: tuple[str, ...]
    """The entries that the message answers, if it is the last message of a turn."""
    call: str | None
    """The call that sent the message; None for a turn's reply."""


class Replies:
    """Opens reply streams, and lists the replies on them."""

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
        """Return a reader of an account's reply stream, without a claim yet.

        Readers with the same `token` share one claim; use it only where another reader can't exist.
        """
        return ReplyReader(self._scripts, provider, account, token, claim_ms=claim_ms)

    async def unread(self) -> Sequence[UnreadStream]:
        """Return the reply streams with replies that no adapter reads, sorted by name."""
        client, readers, unread = self._scripts.client, await self.readers(), []
        for name, provider, account in await self._streams():
            oldest = await self._scripts.call(client.xrange, name, count=1)
            if oldest and not readers.is_read(provider, account):
                age_ms = readers.now_ms - int(oldest[0][0].partition(b"-")[0])
                count = await self._scripts.call(client.xlen, name)
                unread.append(UnreadStream(provider, account, count, age_ms / 1000))
        return unread

    async def waiting(self, provider: str, account: str) -> int:
        """Return the number of an account's undelivered replies."""
        stream = keys.replies(provider, account)
        return int(await self._scripts.call(self._scripts.client.xlen, stream))

    async def unsent(self, session: SessionKey) -> int:
        """Return the number of a session's undelivered replies that `/stop` drops.

        Only the newest `PAGE` replies of the account are counted.
        """
        stream = keys.replies(session.provider, session.account)
        client = self._scripts.client
        entries = await self._scripts.call(client.xrevrange, stream, count=PAGE)
        count = 0
        for entry_id, fields in entries:
            with contextlib.suppress(KeyError, TypeError, ValueError, NewerReply):
                reply = decode_reply(entry_id.decode(), fields)
                count += reply.sid == session.sid and reply.is_stoppable
        return count

    async def _streams(self) -> list[tuple[str, str, str]]:
        """Return the name, provider and account of all reply streams, sorted by name."""
        client = self._scripts.client

        async def stream_names() -> list[str]:
            names = client.scan_iter(match=keys.replies("*", "*"), count=1000)
            return sorted([name.decode() async for name in names])

        return [(name, *keys.account_of(name)) for name in await self._scripts.call(stream_names)]

    async def undelivered(self) -> AsyncGenerator[UndeliveredReply, None]:
        """Yield all replies on reply streams, stream by stream, oldest first."""
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
                    sid, size = _sender_and_size(fields)
                    yield UndeliveredReply(entry_id.decode(), provider, account, sid, size)
                last = b"(" + page[-1][0]

    async def drop(self, replies: Sequence[UndeliveredReply]) -> int:
        """Remove replies and their files, and record this in the outcomes of their entries.

        Returns the number of replies that were still on their streams. An adapter that is
        delivering one of them goes on, and the outcome then records the delivery.
        """
        streams: dict[str, list[str]] = {}
        for reply in replies:
            stream = keys.replies(reply.provider, reply.account)
            streams.setdefault(stream, []).append(reply.id)
        count = 0
        for stream, ids in streams.items():
            for start in range(0, len(ids), PAGE):
                count += await self._scripts.run(
                    "discard", ids=ids[start : start + PAGE], replies=stream
                )
        return count

    async def readers(self) -> Readers:
        """Return the accounts whose reply streams adapters read, or did recently."""
        client = self._scripts.client
        claims = await self._scripts.call(client.zrange, keys.READERS, 0, -1, withscores=True)
        until_ms = {}
        for name, score in claims:
            provider, _, account = name.decode().partition("\0")
            until_ms[provider, account] = int(score)
        return Readers(await self._scripts.now_ms(), until_ms)

    async def message_origin(
        self, provider: str, account: str, chat: str, message_id: str
    ) -> MessageOrigin | None:
        """Return the origin of a message; None if RemoteClaw did not send it within 7 days."""
        origin = await self._scripts.call(
            self._scripts.client.get, keys.message_origin(provider, account, chat, message_id)
        )
        if not origin:
            return None
        values = orjson.loads(origin)
        return MessageOrigin(**values | {"entries": tuple(values["entries"])})

    async def card_at(self, place: ChatPlace, message_id: str) -> str | None:
        """Return the id of the request that a message shows; None for any other message.

        The reverse of `ReplyReader.shown_card()`, and also of the message with the request's file.
        """
        account = place.provider, place.account
        origin = await self.message_origin(*account, place.chat, message_id)
        kind, _, name = ((origin.call if origin else None) or "").partition(":")
        return name if kind == "request" and ":" not in name else None

    async def live_text(self, sid: str) -> dict[str, Any] | None:
        """Return the current live text of a session; None if no turn is running."""
        text = await self._scripts.call(self._scripts.client.get, keys.live(sid))
        return orjson.loads(text) if text else None


def _sender_and_size(fields: Mapping[bytes, bytes]) -> tuple[str, int]:
    """Return the id of the session that sent a reply, and the reply's size in bytes.

    The id is empty if the reply is damaged.
    """
    payload = fields.get(b"reply", b"")
    try:
        reply = orjson.loads(payload)
        by_call = re.match(r"\{(\w+)\}:", reply.get("call") or "")
        sid = reply.get("sid") or (by_call[1] if by_call else "")
        file_bytes = sum(file["size"] for file in reply.get("attachments", ()))
        return str(sid), len(payload) + int(file_bytes)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "", len(payload)
