"""The adapter of webhooks: each part of a reply is a signed POST to the program's address.

What it answers, and what that means:

| answer | is raised as |
|---|---|
| 2xx | nothing; a `messageId` in its JSON is the message's |
| 401, 403 | `AccountRefused`: the token |
| 429 | `PlatformBusy` for as long as Retry-After says |
| 408, 425, 5xx; no connection | `PlatformAway` |
| no answer | `PlatformUnknown`: it is sent again with the same key |
| any other | `PlatformRefused`, with the first words of the answer |
"""

import asyncio
import base64
import time
from collections.abc import Sequence

import httpcore2
import orjson

from remoteclaw.channels.webhook.settings import WebhookAccount
from remoteclaw.channels.webhook.signing import signed_headers
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols import Batch, Identity, IncomingFile, Part, Reply, Sent

#: How long the program may take to answer, and to be connected to, in seconds.
ANSWER_S, CONNECT_S = 30.0, 10.0
#: How much of its answer is read, in bytes.
MAX_ANSWER = 64 * 1024
#: The pause after a busy answer that names none, in seconds.
BUSY_S = 5.0


class WebhookAdapter:
    """One program that gets replies; what it sends comes to the gateway."""

    has_keys = True

    def __init__(self, settings: WebhookAccount) -> None:
        self._url = settings.url
        self._token = settings.read_token()
        self._pool = httpcore2.AsyncConnectionPool(max_connections=32)

    async def connect(self) -> Identity:
        """Say where replies go; nothing is asked of the program."""
        problem = "" if self._url else "It has no url, so answers wait for one."
        return Identity(name=self._url or "webhook", problem=problem)

    async def poll(self, position: str | None) -> Batch:
        """Wait: the program sends messages to the gateway, and keeps its own position."""
        await asyncio.sleep(ANSWER_S)
        return Batch(position or "0")

    async def fetch(self, file: IncomingFile) -> bytes:
        """Refuse: files come with their messages."""
        raise PlatformRefused(f"{file.name} did not come with its message.")

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing: there is no menu."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the requests of a reply: its text, then its files."""
        text = [Part(0)] if reply.text else []
        files = [Part(len(text) + n, attachment=file) for n, file in enumerate(reply.attachments)]
        return [*text, *files]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Post one part; a repeated one has the same key."""
        key = f"{reply.key}:{part.index}"
        told: dict[str, object] = {
            "type": "message",
            "key": key,
            "chat": reply.channel_id,
            "thread": reply.thread_id,
            "replyTo": reply.reply_to_id,
            "text": "" if part.attachment else reply.text,
            "isError": reply.is_error,
            "isFinal": reply.is_final,
            "origin": reply.origin,
        }
        if (card := reply.card) and not part.attachment:
            told["card"] = {"id": card.id, "choices": card.choices}
        if file := part.attachment:
            encoded = base64.b64encode(content or b"").decode()
            told["file"] = {"name": file.name, "mimeType": file.mime_type, "content": encoded}
        answer = await self._post(orjson.dumps(told), key)
        try:
            found = orjson.loads(answer)["messageId"]
        except (ValueError, TypeError, KeyError):
            found = None
        return Sent(found if isinstance(found, str) and found else None)

    async def _post(self, body: bytes, key: str) -> bytes:
        """Send a request; return what is answered, or raise as the table above says."""
        if not self._url:
            raise AccountRefused("It has no url, so answers wait: set it in [channels.webhook].")
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            **signed_headers(self._token, body, at_s=int(time.time())),
        }
        timeout = {"connect": CONNECT_S, "read": ANSWER_S, "write": ANSWER_S, "pool": ANSWER_S}
        answer = bytearray()
        try:
            async with self._pool.stream(
                "POST",
                self._url,
                headers=list(headers.items()),
                content=body,
                extensions={"timeout": timeout},
            ) as response:
                async for piece in response.aiter_stream():
                    answer += piece
                    if len(answer) > MAX_ANSWER:
                        break
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout):
            raise PlatformAway(f"{self._url} can't be reached.") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
            raise PlatformUnknown(f"{self._url} did not answer: it may have the message.") from None
        if 200 <= response.status < 300:
            return bytes(answer)
        raise _failure(response, bytes(answer), self._url)


def _failure(response: httpcore2.Response, answer: bytes, url: str) -> RemoteClawError:
    said = one_line(answer[:1000].decode(errors="replace"), most=200)
    match response.status:
        case 401 | 403:
            return AccountRefused(
                f"{url} refuses the signature: both sides need the same token, and clocks that "
                "agree within five minutes."
            )
        case 429:
            headers = {name.lower(): value for name, value in response.headers}
            after = headers.get(b"retry-after", b"").decode(errors="replace")
            after_s = float(after) if after.isascii() and after.isdecimal() else BUSY_S
            return PlatformBusy(f"{url} is asked too often.", after_s=after_s)
        case 408 | 425:
            return PlatformAway(f"{url} is not ready (status {response.status}).")
        case status if status >= 500:
            return PlatformAway(f"{url} is out of order (status {status}).")
    return PlatformRefused(f"{url} refused it (status {response.status}): {said}")
