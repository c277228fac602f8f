"""The webhook adapter: sends each part of a reply as a signed POST to the program's URL.

Responses of the program and the exceptions that they become:

| response | exception |
|---|---|
| 2xx | none; a `messageId` in the JSON body is the id of the message |
| 401, 403 | `AccountRefused`: the token differs, or the clocks do by more than five minutes |
| 429 | `PlatformBusy` for the time in `Retry-After` |
| 408, 425, 5xx; no connection | `PlatformAway` |
| no response | `PlatformUnknown`: the part is sent again with the same key |
| any other | `PlatformRefused`, with the beginning of the body |
"""

import asyncio
import base64
import math
import time
from collections.abc import Mapping, Sequence

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
from remoteclaw.protocols import Identity, IncomingFile, Part, PollResult, Reply, Sent

#: Time limits for a response of the program, and for connecting to it, in seconds.
ANSWER_S, CONNECT_S = 30.0, 10.0
#: At most about this much of a response's body is read, in bytes.
MAX_ANSWER_BYTES = 64 * 1024
#: The pause after a 429 whose `Retry-After` isn't a number of seconds, in seconds.
BUSY_S = 5.0


class WebhookAdapter:
    """Sends replies to one program. The program posts its messages to the gateway."""

    key_window_s = math.inf

    def __init__(self, settings: WebhookAccount) -> None:
        self._url = settings.url
        self._token = settings.read_secret("token")
        self._pool = httpcore2.AsyncConnectionPool(max_connections=32)

    async def connect(self) -> Identity:
        """Return the program's URL as the account's name. The program is not contacted."""
        problem = "" if self._url else "It has no url, so only requests that wait get answers."
        return Identity(name=self._url or "webhook", problem=problem)

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait and return no messages: the program posts its messages to the gateway."""
        await asyncio.sleep(ANSWER_S)
        return PollResult()

    async def fetch(self, file: IncomingFile) -> bytes:
        """Refuse: the files of a webhook message are part of its request."""
        raise PlatformRefused(f"{file.name} was not part of its message.")

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing: a webhook has no menu."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the parts of a reply, one per request: its text, then its files."""
        text = [Part(0)] if reply.text else []
        files = [Part(len(text) + n, attachment=file) for n, file in enumerate(reply.attachments)]
        return [*text, *files]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Post one part. Sending it again uses the same idempotency key."""
        key = f"{reply.key}:{part.index}"
        body: dict[str, object] = {
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
            body["card"] = {"id": card.id, "choices": card.choices}
        if file := part.attachment:
            encoded = base64.b64encode(content or b"").decode()
            body["file"] = {"name": file.name, "mimeType": file.mime_type, "content": encoded}
        answer = await self._post(orjson.dumps(body), key)
        try:
            message_id = orjson.loads(answer)["messageId"]
        except (ValueError, TypeError, KeyError):
            message_id = None
        return Sent(message_id if isinstance(message_id, str) and message_id else None)

    async def _post(self, body: bytes, key: str) -> bytes:
        """Send a request and return the response's body. Raises as the table above says."""
        if not self._url:
            raise AccountRefused("It has no url, so answers wait: set url in [channels.webhook].")
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
                async for chunk in response.aiter_stream():
                    answer += chunk
                    if len(answer) > MAX_ANSWER_BYTES:
                        break
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout):
            raise PlatformAway(f"{self._url} can't be reached.") from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
            raise PlatformUnknown(f"{self._url} did not answer: it may have the message.") from None
        if 200 <= response.status < 300:
            return bytes(answer)
        raise _failure(response, bytes(answer), self._url)


def _failure(response: httpcore2.Response, answer: bytes, url: str) -> RemoteClawError:
    beginning = one_line(answer[:1000].decode(errors="replace"), max_chars=200)
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
    return PlatformRefused(f"{url} refused it (status {response.status}): {beginning}")
