"""The page after lost connections: no message is missing, and none is shown twice."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from remoteclaw.fleet import keys
from remoteclaw.gateway import chats
from remoteclaw.gateway import gateway as gateway_module
from remoteclaw.gateway.doors import ws
from remoteclaw.messages import SessionKey
from tests.support.browser import logged_in, write
from tests.support.cron import cron_of, keep_scheduling
from tests.support.doors import Door, opened
from tests.support.manual_turn import ManualTurn
from tests.support.pages import login, paged
from tests.support.stack import Stack
from tests.support.waiting import eventually

CHAT = "admin.ada"


class Network:
    """A proxy between a browser and a gateway. It can drop all data, as while a laptop sleeps."""

    def __init__(self, door: Door) -> None:
        self._port = door.port
        self._http = door.http
        self._swallows = ""
        self._tasks = set[asyncio.Task[None]]()

    @contextlib.asynccontextmanager
    async def between(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.door = Door(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", self._http)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def swallow(self, directions: str = "up down") -> None:
        """Drop the data of all connections in these directions, and close none."""
        self._swallows = directions

    def pass_on(self) -> None:
        """Forward the data of new connections again; those that have lost data stay dead."""
        self._swallows = ""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        gateway_reader, gateway_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, gateway_writer, "up"))
                tasks.create_task(self._pump(gateway_reader, writer, "down"))
        finally:
            gateway_writer.close()
            writer.close()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, direction: str
    ) -> None:
        is_dead = False
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                is_dead = is_dead or direction in self._swallows
                if not is_dead:
                    target.write(data)
            if not is_dead:
                target.close()


#: Scrolls to the top, and again whenever something is added above.
TO_THE_TOP = """it => {
  new MutationObserver(() => { it.scrollTop = 0; }).observe(it, { childList: true, subtree: true });
  it.scrollTop = 0;
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def network(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    """A proxy in front of a gateway that sends a tick each second."""
    for module in (gateway_module, ws):
        monkeypatch.setattr(module, "TICK_S", 1.0)
    async with opened(stack) as door, Network(door).between() as network:
        yield network


async def say(stack: Stack, text: str) -> None:
    """Deliver a message of an agent, a tool or a cron job."""
    await stack.put_reply("web", "default", text, chat=CHAT, call=text)


async def shown(page: Page, *texts: str) -> None:
    """Wait until exactly these messages are shown."""
    await expect(page.locator(".message .text")).to_have_text(list(texts))


async def accepted(stack: Stack) -> int:
    """Return how many messages the page's session has accepted."""
    sid = SessionKey("main", "web", "default", CHAT, CHAT).sid
    return int(await stack.fleet.scripts.client.xlen(keys.inbound(sid)))


async def has_accepted(stack: Stack, count: int) -> bool:
    return await accepted(stack) == count


async def test_after_sleep_a_laptop_shows_missed_messages_and_sends_written_ones(
    browser: Browser, stack: Stack, network: Network
) -> None:
    """The page detects a half-open connection by the missing tick. An accepted message is shown
    once. After a long sleep, the page shows the newest messages and can load the others. A job
    whose answer was lost is added once and run once, even if the button is pressed again.
    """
    async with logged_in(browser, stack, network.door) as page:
        away, message = page.locator(".status"), page.get_by_label("Message", exact=True)
        await write(page, "before")
        await shown(page, "before")
        network.swallow()
        await write(page, "written meanwhile")
        await say(stack, "said meanwhile")
        await expect(away).to_contain_text("RemoteClaw is away")
        await expect(page.get_by_role("alert")).to_contain_text("Perhaps not sent")
        assert await accepted(stack) == 1
        await write(page, "and this")
        network.pass_on()
        texts = ["before", "said meanwhile", "written meanwhile", "and this"]
        await shown(page, *texts)
        await expect(away).to_be_hidden()
        await expect(message).to_have_value("")
        assert await accepted(stack) == 3

        network.swallow("down")
        await write(page, "once")
        await eventually(lambda: has_accepted(stack, 4))
        await expect(page.get_by_role("alert")).to_contain_text("Perhaps not sent")
        network.swallow()
        await expect(away).to_contain_text("RemoteClaw is away")
        more = [f"number {number}" for number in range(chats.MAX_EVENTS)]
        for text in more:
            about = {"from": "agent", "text": text, "files": []}
            await stack.fleet.web.add(CHAT, "message", about, once="", keep_ms=600_000)
        network.pass_on()
        await shown(page, *more[-chats.NEWEST_EVENTS :])
        await expect(message).to_have_value("")
        await page.locator(".scroller").evaluate(TO_THE_TOP)
        await shown(page, *texts, "once", *more)
        assert await accepted(stack) == 4

        own = SessionKey("main", "web", "default", CHAT, CHAT)
        scheduler = asyncio.create_task(keep_scheduling(stack.fleet))
        await page.goto(f"{network.door.url}/#/cron")
        await page.get_by_role("button", name="New job").click()
        form = page.get_by_role("form", name="New job")
        await form.get_by_label("Name").fill("standup")
        await form.get_by_label("What is the agent told?").fill("What is new?")
        await form.get_by_label("When?").fill("0 9 1 1 *")
        await form.get_by_label("In which conversation?").select_option(str(own))
        network.swallow("down")
        await form.get_by_role("button", name="Add").click()
        await eventually(cron_of(stack.fleet).jobs)
        await expect(form.get_by_role("alert")).to_contain_text("connection was lost")
        network.pass_on()
        await expect(page.locator(".status")).to_be_hidden()
        await form.get_by_role("button", name="Add").click()
        run = page.get_by_role("button", name="Run now")
        await expect(run).to_have_count(1)
        assert len(await cron_of(stack.fleet).jobs()) == 1

        network.swallow("down")
        await run.click()
        await eventually(lambda: has_accepted(stack, 5))
        await expect(page.locator(".job").get_by_role("alert")).to_contain_text("was lost")
        await stack.start_worker()
        network.pass_on()
        await expect(page.locator(".status")).to_be_hidden()
        await run.click()
        await expect(page.get_by_text("The run has ended")).to_be_visible()
        await page.get_by_text("History").click()
        await expect(page.locator(".runs li")).to_have_count(1)
    scheduler.cancel()


async def test_tabs_report_that_redis_is_away_and_recover_automatically(
    browser: Browser, stack: Stack
) -> None:
    """Redis is killed and restarted with its data. Messages written in between are sent, and two
    tabs show the same before and after.
    """
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "one")
        await shown(page, "one")
        other = await page.context.new_page()
        await other.goto(door.url)
        await shown(other, "one")
        await write(other, "two")
        await shown(other, "one", "two")  # Redis has it, so the next message follows it
        await say(stack, "three")
        for tab in (page, other):
            await shown(tab, "one", "two", "three")
            await expect(tab.locator(".message.own")).to_have_count(2)
        assert await accepted(stack) == 2
        await asyncio.to_thread(stack.redis.kill)
        await write(page, "meanwhile")
        for tab in (page, other):
            await expect(tab.locator(".status")).to_contain_text("Redis can't be reached")
        await expect(page.get_by_role("alert")).to_contain_text("Perhaps not sent")
        await asyncio.to_thread(stack.redis.start)
        for tab in (page, other):
            await shown(tab, "one", "two", "three", "meanwhile")
            await expect(tab.locator(".status")).to_be_hidden()
        await say(stack, "after")
        for tab in (page, other):
            await shown(tab, "one", "two", "three", "meanwhile", "after")
        assert await accepted(stack) == 3


async def test_scrolling_up_loads_earlier_messages_without_moving_the_text(
    browser: Browser, stack: Stack
) -> None:
    """Also after a login link that was opened while the gateway was away: it logs in later."""
    is_away = True

    async def answer(route: Route) -> None:
        await (route.abort("connectionrefused") if is_away else route.continue_())

    count = 2 * chats.NEWEST_EVENTS + 20
    chat: Any = {"keep_ms": 600_000}
    ids = [
        await stack.fleet.web.add(
            CHAT,
            "message",
            {"from": "agent", "text": f"number {number}", "files": []},
            once="",
            **chat,
        )
        for number in range(count)
    ]
    about = {"message": ids[0], "emoji": "👍", "from": "agent"}
    await stack.fleet.web.add(CHAT, "reaction", about, once="", **chat)
    texts = [f"number {number}" for number in range(count)]
    async with opened(stack) as door:
        context = await browser.new_context()
        page = await context.new_page()
        await page.route("**/page/login", answer)
        code = await stack.fleet.logins.create("ada", "admin", 3_600_000)
        await page.goto(f"{door.url}/#{code}")
        await expect(page.get_by_role("status")).to_contain_text("RemoteClaw is away")
        is_away = False
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await shown(page, *texts[1 - chats.NEWEST_EVENTS :])
        first = page.locator(".message .text").first
        await first.scroll_into_view_if_needed()
        reading = page.locator(".message", has_text=texts[1 - chats.NEWEST_EVENTS])
        await expect(page.locator(".message")).to_have_count(2 * chats.NEWEST_EVENTS - 1)
        await expect(reading).to_be_in_viewport()
        earlier = page.get_by_role("button", name="Earlier messages")
        await expect(earlier).to_be_enabled()
        await earlier.dispatch_event("click")  # a real click would scroll there first
        await shown(page, *texts)
        await expect(earlier).to_be_hidden()
        await expect(page.locator(".message").first).to_contain_text("👍")
        await context.close()


def unread(door: Door) -> dict[str, Any]:
    """Return the options of a connection that reads almost nothing unless the test does."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", door.port))
    return {"sock": slow, "max_queue": 1}


async def test_a_client_that_reads_slowly_blocks_no_other_and_misses_only_live_text(
    stack: Stack,
) -> None:
    """Of 20 MB of live text, the gateway buffers little for a client that reads none of it."""
    async with opened(stack) as door:
        assert door.gateway is not None
        ada = await login(stack, door)
        turn = await ManualTurn.begin(stack.fleet, provider="web", chat=CHAT)
        follow = {"sessionKey": turn.lease.sid}
        async with paged(door, ada, **unread(door)) as slow, paged(door, ada) as quick:
            for page in (slow, quick):
                await page.call("sessions.subscribe", follow)
            max_buffered = 0
            for number in range(400):
                await turn.show(f"{number} ".ljust(50_000, "."))
                while not (await quick.event("session.live"))["text"].startswith(f"{number} "):
                    pass
                clients: list[Any] = list(door.gateway.clients)
                max_buffered = max(max_buffered, *(client._buffered for client in clients))
            assert max_buffered < 4 * ws.LIVE_BUFFERED_BYTES
            await turn.end("done")
            outcomes = [await page.event("session.outcome") for page in (quick, slow)]

    assert [one["reply"] for one in outcomes] == [outcomes[0]["reply"]] * 2


async def test_a_client_that_reads_nothing_is_disconnected_and_catches_up_later(
    stack: Stack,
) -> None:
    """At most 8 MB are buffered. After a reconnect it gets the newest and can read the rest."""
    about = {"from": "agent", "text": "<&> " * 100_000, "files": []}
    async with opened(stack) as door:
        assert door.gateway is not None
        ada = await login(stack, door)
        async with paged(door, ada, **unread(door)) as slow, paged(door, ada) as quick:
            for page in (slow, quick):
                await page.call("chat.open")
            ids: list[str] = []
            for _ in range(50):
                added = stack.fleet.web.add(CHAT, "message", about, once="", keep_ms=600_000)
                ids.append(await added)
                assert (await quick.event("chat.event"))["id"] == ids[-1]
            gateway = door.gateway
            await eventually(lambda: len(gateway.clients) == 1)
        async with paged(door, ada) as slow:
            here = await slow.call("chat.open", {"after": ids[0]})
            assert here["isAfresh"]
            assert here["hasEarlier"]
            while (await slow.event("chat.event"))["id"] != ids[-1]:
                pass
