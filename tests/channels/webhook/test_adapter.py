"""Replies as signed requests to a program."""

import base64
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.channels.webhook.adapter import WebhookAdapter
from remoteclaw.channels.webhook.settings import WebhookAccount
from remoteclaw.channels.webhook.signing import WINDOW_S, is_signed, signed_headers
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)
from remoteclaw.messages import Attachment
from remoteclaw.protocols import Part, Reply, Sent
from tests.support.receiver import Receiver

TOKEN = "0123456789abcdef"
FILE = Attachment(name="a.png", mime_type="image/png", size=3, blob="0" * 32)
REPLY = Reply(
    id="1-0",
    sid="5" * 32,
    turn="1-0",
    attempt=1,
    index=0,
    channel_id="room",
    thread_id=None,
    text="**hello**",
    is_error=False,
    reply_to_id="m0",
    attachments=(FILE,),
    is_final=True,
    entries=(),
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver.running(TOKEN) as running:
        yield running


@pytest.fixture
async def adapter(receiver: Receiver) -> AsyncIterator[WebhookAdapter]:
    one = WebhookAdapter(WebhookAccount(token=TOKEN, url=receiver.url))
    yield one
    await one.aclose()


async def send(adapter: WebhookAdapter, reply: Reply = REPLY) -> Sent:
    return await adapter.send(reply, Part(0))


async def test_a_reply_is_posted_part_by_part(adapter: WebhookAdapter, receiver: Receiver) -> None:
    text, file = adapter.parts(REPLY)

    assert (await adapter.send(REPLY, text)).message_id == "m1"
    assert (await adapter.send(REPLY, file, b"png")).message_id == "m2"

    first, second = receiver.messages
    assert (first["chat"], first["text"], first["replyTo"]) == ("room", "**hello**", "m0")
    assert first["isFinal"] is True
    assert second["text"] == ""
    assert base64.b64decode(second["file"]["content"]) == b"png"
    assert first["key"] != second["key"]


async def test_a_repeated_webhook_post_has_the_same_key(
    adapter: WebhookAdapter, receiver: Receiver
) -> None:
    receiver.answers.append((0, {}, b""))
    with pytest.raises(PlatformUnknown):
        await send(adapter)
    await adapter.send(REPLY, Part(0), is_again=True)

    assert len(receiver.keys) == 2
    assert len(set(receiver.keys)) == 1
    assert receiver.messages[0]["text"] == "**hello**"  # no note of a repetition: the key shows it


@pytest.mark.parametrize(
    ("status", "headers", "raised"),
    [
        (401, {}, AccountRefused),
        (403, {}, AccountRefused),
        (429, {"Retry-After": "7"}, PlatformBusy),
        (408, {}, PlatformAway),
        (503, {}, PlatformAway),
        (302, {"Location": "http://127.0.0.1:1/"}, PlatformRefused),
        (422, {}, PlatformRefused),
    ],
)
async def test_http_status_codes_map_to_platform_errors(
    adapter: WebhookAdapter,
    receiver: Receiver,
    status: int,
    headers: dict[str, str],
    raised: type[RemoteClawError],
) -> None:
    receiver.answers.append((status, headers, b"no\x1b[31m such room"))
    with pytest.raises(raised) as caught:
        await send(adapter)

    if isinstance(caught.value, PlatformBusy):
        assert caught.value.after_s == 7.0
    if status == 422:
        assert "no" in str(caught.value)
        assert "\x1b" not in str(caught.value)


async def test_an_unreachable_webhook_program_is_reported_as_away(receiver: Receiver) -> None:
    adapter = WebhookAdapter(WebhookAccount(token=TOKEN, url="http://127.0.0.1:1/x"))
    with pytest.raises(PlatformAway, match="can't be reached"):
        await send(adapter)
    await adapter.aclose()


async def test_without_a_url_webhook_replies_wait() -> None:
    adapter = WebhookAdapter(WebhookAccount(token=TOKEN))
    assert "wait" in (await adapter.connect()).problem
    with pytest.raises(AccountRefused, match="set url in"):
        await send(adapter)
    await adapter.aclose()


def test_a_turn_that_ends_without_text_posts_nothing(receiver: Receiver) -> None:
    adapter = WebhookAdapter(WebhookAccount(token=TOKEN, url=receiver.url))
    assert adapter.parts(replace(REPLY, text="", attachments=())) == []


def test_a_signature_covers_the_body_the_token_and_the_time() -> None:
    headers = signed_headers(TOKEN, b"{}", at_s=1000)

    def signed(headers: Any = headers, token: str = TOKEN, body: bytes = b"{}") -> bool:
        return is_signed(headers, token, body, now_s=1000.0)

    assert signed()
    assert not signed(body=b"{} ")
    assert not signed(token="another")
    assert not signed({**headers, "X-RemoteClaw-Timestamp": "1001"})
    assert not signed({})
    assert not is_signed(headers, TOKEN, b"{}", now_s=1000.0 + WINDOW_S + 1)
    assert not is_signed(headers, TOKEN, b"{}", now_s=1000.0 - WINDOW_S - 1)


@pytest.mark.parametrize("url", ["ftp://a.b", "nothing", "https://", "https://me:pw@a.b/"])
def test_an_invalid_webhook_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        WebhookAccount(token=TOKEN, url=url)
