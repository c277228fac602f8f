"""Notifications by Web Push, as a browser's push service gets them."""

import asyncio
import base64
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import orjson
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec
from playwright.async_api import Browser, Page, expect

from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.page import notifier
from remoteclaw.gateway.page.webpush import encrypt_message
from remoteclaw.host.fetch import post
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty.handover import needs_person_notice
from tests.support.bridges import claude_script
from tests.support.browser import PHONE, log_out, logged_in
from tests.support.doors import Door, Refused, RpcClient, opened
from tests.support.pages import Login, chat_key, login, paged
from tests.support.pushes import PushService, opened_by, push_service
from tests.support.requests import QUESTIONS
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import eventually

#: The example of RFC 8291, section 5 and appendix A.
PLAIN = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
BROWSER = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
BROWSER_POINT = (
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)
AUTH, SALT = "BTBZMqHH6r4Tts7J_aSIgg", "DGv6ra1nlYgDCS1FRnbzlw"
SEALED = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6T"
    "lzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4"
    "a-fN"
)
CHAT = "admin.ada"


def data_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_of(number: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(data_of(number)), ec.SECP256R1())


@pytest_asyncio.fixture(loop_scope="session")
async def service(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PushService]:
    async with push_service(directory, monkeypatch) as service:
        yield service


async def subscribed(stack: Stack, door: Door, service: PushService, name: str = "secret") -> Login:
    """Log in with a browser, and subscribe it to notifications; return its login."""
    ada = await login(stack, door)
    async with paged(door, ada) as page:
        await page.call("push.subscribe", service.subscription(name))
    return ada


async def say(stack: Stack, text: str, *, chat: str = CHAT) -> None:
    """Deliver the last message of a turn."""
    number = await stack.fleet.scripts.client.incr("test:turns")
    await stack.put_reply("web", "default", text, chat=chat, index=number, entries=["1-0"])


async def delivered(page: RpcClient, text: str) -> None:
    while (await page.event("chat.event"))["text"] != text:
        pass


def test_a_message_is_encrypted_as_the_rfc_shows() -> None:
    made = encrypt_message(PLAIN, BROWSER_POINT, AUTH, own=key_of(SENDER), salt=data_of(SALT))

    assert made == data_of(SEALED)
    assert opened_by(key_of(BROWSER), data_of(AUTH), made) == PLAIN


async def test_an_answer_is_pushed_to_a_closed_browser(stack: Stack, service: PushService) -> None:
    await stack.start_worker()
    stack.configure(gateway={"hosts": ["claw.example.org"]})
    async with opened(stack) as door:
        ada = await subscribed(stack, door, service)
        async with paged(door, ada) as page:
            key = (await page.call("push.key"))["key"]
            await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "hello"}
            )
        first = await service.next()
        claims = service.check_signature(key)
        await say(stack, "**Done**: see `a.py` & [that](https://example.org)\n\n- one\n- two")
        second = await service.next()
        await say(stack, "x " * 500)
        long = await service.next()

    assert first == {"name": "secret", "title": "hello", "body": ANY, "place": "#/"}
    assert "RemoteClaw's demo agent" in first["body"]
    assert claims["sub"] == "https://claw.example.org"
    assert time.time() < claims["exp"] <= time.time() + 24 * 3600
    assert {name: service.heads[0][name] for name in ("TTL", "Urgency", "Content-Encoding")} == {
        "TTL": "86400",
        "Urgency": "high",
        "Content-Encoding": "aes128gcm",
    }
    assert 1 <= len(service.heads[0]["Topic"]) <= 32
    assert second["body"] == "Done: see a.py & that one two"
    assert len(long["body"]) == 200


async def test_a_browser_is_notified_of_the_agents_of_its_token_only(
    stack: Stack, service: PushService
) -> None:
    stack.configure(agents={"other": {"runtime": "demo"}})
    token, _ = await stack.fleet.tokens.create("ada", "admin", None, agents=("other",))
    async with opened(stack) as door:
        await subscribed(stack, door, service, "wide")
        async with door.connected(token) as client:
            await client.call("push.subscribe", service.subscription("narrow"))
        for chat, text in ((CHAT, "of main"), (f"{CHAT}\nother", "of other")):
            said = {"from": "agent", "text": text, "sid": "0" * 32, "files": [], "notifies": True}
            await stack.fleet.web.add(chat, "message", said, once="", keep_ms=60_000)
        notified = [await service.next() for _ in range(3)]

    assert sorted((each["name"], each["body"]) for each in notified) == [
        ("narrow", "of other"),
        ("wide", "of main"),
        ("wide", "of other"),
    ]


async def test_requests_are_pushed_but_messages_before_the_end_of_a_turn_are_not(
    stack: Stack, service: PushService, directory: Path
) -> None:
    command = list(claude_script(directory, QUESTIONS))
    stack.configure({"runtime": "claude", "command": command})
    await stack.start_worker()
    async with opened(stack) as door:
        ada = await subscribed(stack, door, service)
        await stack.put_reply("web", "default", "I look.", chat=CHAT)
        async with paged(door, ada) as page:
            await page.call(
                "chat.send",
                {"sessionKey": chat_key(conversation="beef"), "messageId": "1", "text": "go"},
            )
        notification = await service.next()

    assert notification["place"] == "#/c/beef"
    assert notification["title"] == "go"
    assert notification["body"].startswith("main asks: ")
    assert "Which DB?" in notification["body"]


async def test_a_browser_that_shows_the_chat_is_not_notified(
    stack: Stack, service: PushService
) -> None:
    """The person's phone is still notified, because they may be looking at either device."""
    async with opened(stack) as door:
        desk = await subscribed(stack, door, service, "desk")
        await subscribed(stack, door, service, "phone")
        async with paged(door, desk) as page:
            await page.call("chat.open")
            await page.call("push.visible", {"isVisible": True})
            await say(stack, "one")
            assert (await service.next())["name"] == "phone"
            await page.call("push.visible", {"isVisible": False})
            await say(stack, "two")
            both = [await service.next() for _ in range(2)]
            await page.call("chat.open", {"conversation": "beef"})
            await page.call("push.visible", {"isVisible": True})
            await say(stack, "three")
            other = [await service.next() for _ in range(2)]
        await say(stack, "four")
        away = [await service.next() for _ in range(2)]

    for text, notifications in (("two", both), ("three", other), ("four", away)):
        assert sorted((one["name"], one["body"]) for one in notifications) == [
            ("desk", text),
            ("phone", text),
        ]


async def test_a_browser_without_a_valid_token_is_not_notified(
    stack: Stack, service: PushService
) -> None:
    tokens = stack.fleet.tokens
    async with opened(stack) as door:
        ada = await subscribed(stack, door, service, "logged-out")
        answer = await door.post("/page/logout", None, b"{}", Origin=door.url, **ada.headers)
        assert answer.status == 200
        assert await stack.fleet.scripts.client.hlen(keys.pushes(CHAT)) == 0
        await subscribed(stack, door, service, "revoked")
        (revoked,) = await tokens.list()
        await tokens.revoke(revoked.id)
        _, expired = await tokens.create("ada", "admin", 1)
        client = stack.fleet.scripts.client
        subscription: Any = await client.hget(keys.pushes(CHAT), revoked.id)
        await client.hset(
            keys.pushes(CHAT), expired.id, subscription.replace(b"revoked", b"expired")
        )
        await subscribed(stack, door, service, "phone")
        await say(stack, "one")
        await say(stack, "two")
        notifications = [await service.next() for _ in range(2)]

    assert [(one["name"], one["body"]) for one in notifications] == [
        ("phone", "one"),
        ("phone", "two"),
    ]
    assert len(service.heads) == 2
    assert await client.hlen(keys.pushes(CHAT)) == 1


async def test_a_subscription_that_the_push_service_does_not_know_is_removed(
    stack: Stack, service: PushService
) -> None:
    async def is_empty() -> bool:
        return not await stack.fleet.scripts.client.hlen(keys.pushes(CHAT))

    async with opened(stack) as door:
        for status in (404, 410):
            await subscribed(stack, door, service)
            assert not await is_empty()
            service.status = status
            await say(stack, "one")
            await eventually(is_empty)


async def test_a_failed_push_is_logged_without_secrets(
    stack: Stack, service: PushService, caplog: pytest.LogCaptureFixture
) -> None:
    """The push address is a secret: anyone who has it can send. Redirects are not followed."""
    async with opened(stack) as door:
        ada = await subscribed(stack, door, service)
        service.status = 307
        async with paged(door, ada) as page:
            await page.call("chat.open")
            await say(stack, "the plan")
            await delivered(page, "the plan")
        await eventually(lambda: "it answers with status 307" in caplog.text)
        service.status = 201
        await say(stack, "two")
        assert (await service.next())["body"] == "two"

    assert "through 127.0.0.1: it answers with status 307" in caplog.text
    assert "secret" not in caplog.text
    assert "the plan" not in caplog.text


async def test_a_push_subscription_cannot_name_a_private_or_invalid_address(
    stack: Stack,
    service: PushService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(notifier, "post", post)
    async with opened(stack) as door:
        await subscribed(stack, door, service)
        await say(stack, "one")
        await eventually(lambda: "was not sent through 127.0.0.1: its address is" in caplog.text)
        async with paged(door, await login(stack, door)) as page:
            for wrong in (
                {"endpoint": service.url.replace("https", "http")},
                {"endpoint": "https://a b"},
                {"endpoint": "https://["},
                {"endpoint": "https://ada:word@push.example/"},
                {"publicKey": "AAAA"},
                {"auth": "AAAA"},
            ):
                with pytest.raises(Refused):
                    await page.call("push.subscribe", {**service.subscription(), **wrong})

    assert service.heads == []


async def test_a_push_service_that_hangs_delays_nothing(stack: Stack, service: PushService) -> None:
    async with opened(stack) as door:
        ada = await subscribed(stack, door, service)
        service.answers.clear()
        async with paged(door, ada) as page:
            await page.call("chat.open")
            for text in ("one", "two"):
                await say(stack, text)
                await delivered(page, text)
        assert service.told.empty()


async def test_replies_from_while_the_gateway_was_down_are_notified(
    stack: Stack, service: PushService
) -> None:
    async with opened(stack) as door:
        await subscribed(stack, door, service)
    await say(stack, "done")
    config = load_config(stack.home.config_file)
    started = Gateway(stack.fleet, stack.home, lambda: config, HANDLERS)
    async with asyncio.TaskGroup() as tasks:
        delivering = tasks.create_task(started.chats.run())
        for _ in range(300):  # enough time to deliver it before the feeds listen
            await stack.fleet.scripts.client.ping()
        listening = tasks.create_task(started.feeds.run())
        notification = await service.next()
        delivering.cancel()
        listening.cancel()

    assert notification["body"] == "done"


async def test_only_the_ten_newest_browsers_of_a_person_are_notified(
    stack: Stack, service: PushService
) -> None:
    async with opened(stack) as door:
        for number in range(11):
            await subscribed(stack, door, service, f"{number}")
        await say(stack, "one")
        notified = {(await service.next())["name"] for _ in range(10)}

    assert notified == {f"{number}" for number in range(1, 11)}


async def test_the_push_key_is_kept_and_only_its_owner_can_read_it(stack: Stack) -> None:
    public_keys = []
    for _ in range(2):
        async with opened(stack) as door, paged(door, await login(stack, door)) as page:
            public_keys.append((await page.call("push.key"))["key"])
    (file,) = stack.home.path.glob("push-*")

    assert public_keys[0] == public_keys[1]
    assert len(data_of(public_keys[0])) == 65
    assert file.stat().st_mode & 0o777 == 0o600


# -- in a real browser ----------------------------------------------------------------------------

#: Replaces the browser's push service, which is remote, and the permission dialog.
DEVICE = """
window.permission = "denied";
let subscription = null;
Notification.requestPermission = async () => window.permission;
PushManager.prototype.getSubscription = async () => subscription;
PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
  const { endpoint, publicKey, auth } = SUBSCRIPTION;
  if (!userVisibleOnly || applicationServerKey.length !== 65) throw new Error("no key");
  subscription = {
    options: { applicationServerKey: applicationServerKey.buffer },
    toJSON: () => ({ endpoint, keys: { p256dh: publicKey, auth } }),
    unsubscribe: async () => { subscription = null; },
  };
  return subscription;
};
"""
#: Fails as Chromium does at an address with an untrusted certificate.
UNTRUSTED = """() => {
  window.permission = "granted";
  navigator.serviceWorker.register = async () => {
    throw new DOMException("Failed to register: an SSL certificate error", "SecurityError");
  };
}"""
#: Replaces notifications in browsers that have none, such as Chromium's headless shell.
SHOWN = """() => {
  if (Notification.permission === "granted") return;
  let shown = [];
  registration.getNotifications = async () => shown;
  registration.showNotification = async (title, options) => {
    const close = () => { shown = []; };
    shown.push({ title, ...options, close });
  };
}"""
READ = "registration.getNotifications().then((all) => all.map((one) => [one.title, one.body]))"
CLICK = """async () => {
  const [notification] = await registration.getNotifications();
  dispatchEvent(Object.assign(new ExtendableEvent("notificationclick"), { notification }));
}"""


async def deliver(page: Page, origin: str, message: dict[str, Any]) -> None:
    """Deliver a push message to the page's service worker."""
    devtools = await page.context.new_cdp_session(page)
    found: list[str] = []
    devtools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: found.extend(one["registrationId"] for one in event["registrations"]),
    )
    await devtools.send("ServiceWorker.enable")
    await eventually(lambda: found)
    about = {"origin": origin, "registrationId": found[0], "data": orjson.dumps(message).decode()}
    await devtools.send("ServiceWorker.deliverPushMessage", about)


async def test_a_notification_on_a_phone_opens_the_chat(
    browser: Browser, stack: Stack, service: PushService
) -> None:
    device = DEVICE.replace("SUBSCRIPTION", orjson.dumps(service.subscription()).decode())
    client = stack.fleet.scripts.client
    async with opened(stack) as door, logged_in(browser, stack, door, viewport=PHONE) as page:
        assert door.gateway is not None
        chats = door.gateway.chats
        await page.context.grant_permissions(["notifications"])
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.add_init_script(device)
        await page.reload()
        await page.get_by_role("button", name="Menu").click()
        await page.locator(".person").click()
        button = page.get_by_role("button", name="Notify me on this device")
        await button.click()
        await expect(page.locator(".notify")).to_contain_text("This browser doesn't allow it")
        await page.evaluate(UNTRUSTED)
        await button.click()
        await expect(page.locator(".notify")).to_contain_text("doesn't trust the certificate")
        await page.evaluate("delete navigator.serviceWorker.register")
        await button.click()
        off = page.get_by_role("button", name="Notify me here no more")
        await expect(off).to_be_visible()
        assert await client.hlen(keys.pushes(CHAT)) == 1

        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="Fleet").click()
        await eventually(lambda: not chats._visible)
        await say(stack, "All is **done**.")
        message = await service.next()
        (worker,) = page.context.service_workers
        await worker.evaluate(SHOWN)
        guests = await page.context.new_page()  # opened or focused last: the first of the windows
        await guests.goto(f"{door.url}/watch")
        await guests.bring_to_front()
        await deliver(page, door.url, message)

        async def is_shown() -> Any:
            return await worker.evaluate(READ)

        assert await eventually(is_shown) == [["RemoteClaw", "All is done."]]
        await worker.evaluate(CLICK)
        await expect(page.locator(".message.agent .text")).to_have_text("All is done.")
        await guests.close()
        assert page.url == f"{door.url}/#/"
        assert await is_shown() == []
        await eventually(lambda: chats._visible)

        await page.get_by_role("button", name="Menu").click()
        await log_out(page)
        await expect(page.locator("main")).to_contain_text("You are logged out.")
        assert await client.hlen(keys.pushes(CHAT)) == 0
        field = page.get_by_label("Link")
        await field.fill("https://example.org/")
        await field.press("Enter")
        await expect(page.locator("main")).to_contain_text("You are logged out.")
        code = await stack.fleet.logins.create("ada", "admin", 3_600_000)
        await field.fill(f"{door.url}/#{code}")
        await field.press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def test_without_the_push_extra_no_notifications_are_offered(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "remoteclaw.gateway.page.webpush", None)
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        assert await page.call("push.key") == {"key": None}
        with pytest.raises(Refused, match="cryptography>"):
            await page.call("push.subscribe", PushService(url="https://a.org").subscription())


async def test_a_terminal_that_waits_is_pushed_once_and_not_to_who_watches_it(
    stack: Stack, service: PushService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice in the chat is not pushed as well; a tap opens the terminal."""
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    async with held_terminal(stack) as held, opened(stack) as door:
        gateway = door.gateway
        assert gateway is not None
        await eventually(
            lambda: (one := gateway.terminals.held_record(held.sid)) and one.activity == "idle"
        )
        await subscribed(stack, door, service, "phone")
        desk = await subscribed(stack, door, service, "desk")
        asking = {"sid": held.sid, "keys": ["t:ask", "k:enter"]}

        async def answered(activity: str) -> bool:
            return bool(
                (await page.call("terminals.get", {"sid": held.sid}))["activity"] == activity
            )

        async with paged(door, desk) as page:
            await page.call("chat.open", {"sessionKey": str(held.session)})
            await page.call("terminals.watch", {"sid": held.sid})
            await page.call("push.visible", {"isVisible": True})
            await page.call("terminals.type", asking)
            first = await service.next()
            await delivered(page, f"{needs_person_notice('permission to run the tool')}")
            await page.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
            await eventually(lambda: answered("idle"))
            await page.call("push.visible", {"isVisible": False})
            await page.call("terminals.type", asking)
            both = [await service.next() for _ in range(2)]
            await eventually(lambda: answered("waiting"))

        said = {"title": ANY, "body": needs_person_notice("permission to run the tool")}
        said |= {"place": f"#/s/{held.sid}/terminal"}
        assert first == {"name": "phone", **said}
        assert sorted(each["name"] for each in both) == ["desk", "phone"]
        assert [{**each, "name": ""} for each in both] == [{**said, "name": ""}] * 2
        assert service.told.empty()
