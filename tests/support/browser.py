"""A real browser: an installed Chromium, or the one that a variable names."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from remoteclaw.tools.base import Scope
from tests.support.doors import Door
from tests.support.memory import HAS_ROOM
from tests.support.stack import Stack
from tests.support.waiting import HANG_S

#: The variable with the path of a Chromium, and the names of an installed one.
VARIABLE, NAMES = "REMOTECLAW_TEST_CHROMIUM", ("chromium", "chromium-browser", "google-chrome")
#: The value of `VARIABLE`, read at import: tests with their own state directory clear it.
NAMED = os.environ.get(VARIABLE)
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 800}
#: Chromium runs without its sandbox: tests run as root in containers, and it loads only our page.
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu"),
    *(() if HAS_ROOM else ("--disable-dev-shm-usage",)),
)

expect.set_options(timeout=HANG_S * 1000)


def installed() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    return NAMED or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Run a browser; skip the test if none is installed."""
    path = installed()
    if path is None:
        pytest.skip(f"no Chromium is installed, and {VARIABLE} names none")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=[*ARGUMENTS], timeout=HANG_S * 1000
        )
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def logged_in(
    browser: Browser,
    stack: Stack,
    door: Door,
    *,
    name: str = "ada",
    scope: Scope = "admin",
    **options: Any,
) -> AsyncIterator[Page]:
    """Open the page with a login link, and fail if the page reports an error."""
    context = await browser.new_context(**{"viewport": DESK, **options})
    context.set_default_timeout(HANG_S * 1000)
    problems: list[str] = []
    page = await context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    code = await stack.fleet.logins.create(name, scope, 3_600_000)
    await page.goto(f"{door.url}/#{code}")
    yield page
    assert [one for one in problems if "WebSocket" not in one and "net::ERR" not in one] == []
    await context.close()


async def write(page: Page, text: str) -> None:
    """Send a message in the chat."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def log_out(page: Page) -> None:
    """Log out by the person's menu."""
    await page.locator(".person").click()
    await page.get_by_role("button", name="Log out").click()


async def _try() -> None:
    async with launched():
        pass


if __name__ == "__main__":
    asyncio.run(_try())
