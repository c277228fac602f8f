"""The page is pushed what it shows: it calls nothing while nothing happens."""

import re
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.async_api import Browser, Page, WebSocket, expect

from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.follows import CHANNELS
from remoteclaw.tools.catalog import METHODS
from tests.support.browser import logged_in
from tests.support.doors import Refused, gateway_process, opened
from tests.support.pages import login, paged
from tests.support.requests import answered, put_in
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The page's clock moves by less than the time without a frame after which it reconnects.
STEP_S, STEPS = 50, 72


class Frames:
    """The frames of a page's connections."""

    def __init__(self, page: Page) -> None:
        self.sent: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda frame: self.sent.append(orjson.loads(frame)))
        socket.on("framereceived", lambda frame: self.received.append(orjson.loads(frame)))


async def asking(stack: Stack) -> tuple[TurnRequests, Accepted]:
    """Begin a turn without a worker; return its requests and its entry."""
    accepted = await stack.append("hello")
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="asks", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    return TurnRequests(lease, accepted.entry_id), accepted


async def settled(frames: Frames) -> None:
    """Wait until the page has an answer to each of its calls, and calls nothing more."""

    def is_answered() -> bool:
        asked = {frame["id"] for frame in frames.sent if frame["type"] == "req"}
        return asked <= {frame.get("id") for frame in frames.received}

    count = -1
    while count != len(frames.sent):
        count = len(frames.sent)
        await eventually(is_answered)


@pytest.mark.thorough("usage", "cron.status", "requests.list")
@pytest.mark.parametrize(
    ("view", "last_call"),
    {
        "": "chat.open",
        "requests": "requests.list",
        "cron": "cron.status",
        "usage": "usage",
        "fleet": "deadletters.list",
        "s": "terminals.get",
    }.items(),
)
async def test_a_page_that_is_open_for_an_hour_calls_nothing(
    browser: Browser, stack: Stack, view: str, last_call: str
) -> None:
    turn = await asking(stack)
    await put_in(*turn, tool="Bash", what="touch x")
    sid = turn[1].session.sid
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await expect(page).to_have_title(re.compile(r"^\(1\) "))
        frames = Frames(page)
        await page.clock.install()
        await page.goto(f"{door.url}/#/{f's/{sid}' if view == 's' else view}")
        await page.reload()
        await expect(page).to_have_title(re.compile(r"^\(1\) "))
        if view == "s":
            await page.get_by_role("button", name="Terminal").click()
        calls = {last_call, "sessions.search"}
        await eventually(lambda: calls <= {frame.get("method") for frame in frames.sent})
        await settled(frames)
        sent, received = len(frames.sent), len(frames.received)
        assert door.gateway
        for _ in range(STEPS):
            ticks = len(frames.received)
            for client in list(door.gateway.clients):
                client.send_event("tick", {})
            await eventually(lambda: len(frames.received) > ticks)  # noqa: B023
            await page.clock.run_for(1000 * STEP_S)

        assert [frame["method"] for frame in frames.sent[sent:]] == []
        pushed = [frame for frame in frames.received[received:] if frame.get("event") != "tick"]
        assert len(pushed) <= 2, "the gateway has just started to deliver replies"
        await answered(stack, await put_in(*turn, tool="Bash", what="touch y"), "once", by="alice")
        await expect(page).to_have_title(re.compile(r"^\(1\) "))


async def test_a_burst_of_changes_is_sent_as_a_few_results(stack: Stack) -> None:
    """And the last one is the newest."""
    accepted = await stack.append("hello")
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        followed = await page.begin("sessions.search", follow=True)
        assert (await page.answer(followed))["ok"]
        for number in range(1000):
            await stack.fleet.sessions.label(view, f"label {number}")
        labels: list[str] = []
        while not labels or labels[-1] != "label 999":
            answer = await page.answer(followed)
            labels.append(answer["payload"]["sessions"][0]["label"])
        assert len(labels) <= 50

        await page.socket.send(orjson.dumps({"type": "unfollow", "id": followed}).decode())
        await stack.fleet.sessions.label(view, "unseen")
        assert (await page.call("sessions.show", {"sessionKey": view.sid}))["label"] == "unseen"
        assert not [event for event in page.events if event.get("id") == followed]


async def test_only_methods_whose_changes_are_announced_can_be_followed(stack: Stack) -> None:
    assert CHANNELS.keys() <= METHODS.keys()
    docs = Path("docs/gateway.md").read_text()
    (listed,) = re.findall(r"^These methods can be followed: (.*)\.$", docs, re.MULTILINE)
    assert set(re.findall(r"[a-z.]+[a-z]", listed)) - {"and"} == CHANNELS.keys()
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        with pytest.raises(Refused, match=r"requests\.answer can't be followed"):
            await page.call("requests.answer", {"id": "x"}, follow=True)


async def test_two_tabs_show_the_right_number_after_a_frozen_and_a_killed_gateway(
    browser: Browser, stack: Stack
) -> None:
    turn = await asking(stack)
    requests = [await put_in(*turn, tool="Bash", what="touch 0")]

    async def change(*, opened: int) -> None:
        """Answer all open requests, and open others."""
        for request in requests:
            await answered(stack, request, "once", by="alice")
        texts = [f"touch {number}" for number in range(opened)]
        requests[:] = [await put_in(*turn, tool="Bash", what=text) for text in texts]

    async def has_title(tabs: list[Page], title: str) -> None:
        for tab in tabs:
            await expect(tab).to_have_title(f"{title} · RemoteClaw")

    async with gateway_process(stack) as (door, gateway), logged_in(browser, stack, door) as page:
        tabs = [page, await page.context.new_page()]
        await tabs[1].goto(door.url)
        await has_title(tabs, "(1) New conversation")
        gateway.send_signal(signal.SIGSTOP)
        await change(opened=2)
        gateway.send_signal(signal.SIGCONT)
        await has_title(tabs, "(2) New conversation")
        gateway.kill()
        gateway.wait()
        await change(opened=3)
        stack.configure(gateway={"port": door.port})
        async with gateway_process(stack):
            await has_title(tabs, "(3) New conversation")
            await change(opened=1)
            await has_title(tabs, "(1) New conversation")
            await stack.fleet.sessions.stop(turn[1].session.sid)
            await has_title(tabs, "New conversation")
