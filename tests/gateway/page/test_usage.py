"""Usage and counters on the page."""

import re

from playwright.async_api import Browser, expect

from tests.support.browser import PHONE, logged_in, write
from tests.support.doors import opened
from tests.support.pages import OWN, login, paged
from tests.support.stack import Stack


async def test_usage_is_added_up_for_whoever_may_read(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    for each in (accepted, await stack.append("hi", channel_id="chat-2")):
        await stack.outcome(each)
    await stack.outcome(await stack.append("once more"))
    async with opened(stack) as door:
        cookie = await login(stack, door, scope="read")
        async with paged(door, cookie) as page:
            (agent,) = (await page.call("usage"))["rows"]
            sessions = (await page.call("usage", {"by": "session", "days": 1}))["rows"]
            (day,) = (await page.call("usage", {"by": "day"}))["rows"]
        metrics = await door.get("/page/metrics", Cookie=cookie, **OWN)
        foreign = await door.get("/page/metrics", Cookie=cookie)

    assert (agent["name"], agent["turns"], agent["costUsd"]) == ("main", 3, None)
    assert agent["durationMs"] > 0
    assert {row["name"]: row["turns"] for row in sessions}[str(accepted.session)] == 2
    assert (day["turns"], len(day["name"])) == (3, len("2026-01-01"))
    assert "remoteclaw_gateway_calls_total" in metrics.body.decode()
    assert foreign.status == 403


async def test_the_usage_of_a_turn_is_shown_by_day_agent_and_session(
    browser: Browser, stack: Stack
) -> None:
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door, viewport=PHONE) as page:
        await write(page, "hello")
        await expect(page.locator(".message.agent")).to_contain_text("demo agent")
        await page.goto(f"{door.url}/#/usage")
        days = page.locator(".bars tbody tr")
        await expect(days).to_have_count(7)
        bars = days.locator(".bar")
        widths = await bars.evaluate_all("all => all.map(one => one.style.width)")
        assert sorted(widths) == ["0%"] * 6 + ["100%"]
        await expect(page.get_by_role("row", name=re.compile("^main 1"))).to_be_visible()
        await expect(page.get_by_role("link", name="hello")).to_have_count(1)
        await page.get_by_role("button", name="30 days").click()
        await expect(days).to_have_count(30)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
