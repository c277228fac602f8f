"""The page, the gateway, a holder and a program in a real pseudo-terminal, together."""

import contextlib
import re

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from remoteclaw.runtimes import RUNTIMES
from tests.support.browser import logged_in
from tests.support.doors import opened
from tests.support.panes import session_shown
from tests.support.shown import ShownRuntime, held_terminal
from tests.support.stack import Stack


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ShownRuntime)


#: One of the lines that the program floods with.
LINE = re.compile(r"^line \d+$")


def button(page: Page, name: str) -> Locator:
    return page.locator(".terminal").get_by_role("button", name=name, exact=True)


def screen(page: Page) -> Locator:
    return page.locator(".tty-lines")


async def test_two_pages_watch_one_types_and_a_gateway_is_restarted_in_between(
    browser: Browser, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody presses anything for it: the pages come back, and the keyboard with them."""
    async with held_terminal(stack) as held, contextlib.AsyncExitStack() as pages:
        async with opened(stack) as door:
            monkeypatch.setenv("REMOTECLAW__GATEWAY__PORT", str(door.port))
            page = await pages.enter_async_context(logged_in(browser, stack, door))
            other = await pages.enter_async_context(logged_in(browser, stack, door, name="bob"))
            for each in (page, other):
                await session_shown(each, door, held.session)
            await button(page, "Take control").click()
            await expect(page.locator(".tty-people")).to_have_text("You type · 2 watch")
            await expect(other.locator(".tty-people")).to_have_text("ada types · 2 watch")
            await page.keyboard.type("hello")
            await page.keyboard.press("Enter")
            for each in (page, other):
                await expect(screen(each)).to_contain_text("You said hello.")
            await page.keyboard.type("half a")
            await expect(screen(other)).to_contain_text("> half a")
        await expect(other.locator(".tty-state")).to_contain_text("Connection lost")
        await expect(screen(other)).to_contain_text("> half a")

        async with opened(stack):
            await expect(page.locator(".tty-people")).to_contain_text("You type")
            await page.locator(".tty-screen").click()
            await page.keyboard.type(" line")
            await page.keyboard.press("Enter")
            for each in (page, other):
                await expect(screen(each)).to_contain_text("You said half a line.")
            await button(other, "Take control from ada").click()
            await expect(page.locator(".tty-people")).to_contain_text("bob types")
            await other.locator(".tty-screen").click()
            await other.keyboard.type("flood")
            await other.keyboard.press("Enter")
            await expect(screen(page)).to_contain_text("You said flood.")
            wanted = await screen(other).inner_text()
            await expect(screen(page)).to_have_text(wanted, use_inner_text=True)
            await other.locator(".tty-scroller").hover()
            await other.mouse.wheel(0, -100)
            await expect(other.locator(".tty-past .tty-row").last).to_have_text(LINE)
            await button(other, "Back to now ↓").click()
            await button(other, "Give back").click()
            await expect(page.locator(".tty-people")).to_have_text("Nobody types · 2 watch")
