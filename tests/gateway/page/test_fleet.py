"""The fleet on the page, in a real browser."""

import re

from playwright.async_api import Browser, Locator, Page, expect

from tests.support.browser import PHONE, logged_in
from tests.support.cli import give_up
from tests.support.doors import opened
from tests.support.stack import Stack


def table(page: Page, name: str) -> Locator:
    return page.get_by_role("table", name=name, exact=True)


async def test_the_fleet_view_shows_work_and_retries_dead_letters(
    browser: Browser, stack: Stack
) -> None:
    """Lanes, a busy worker, dead letters, adapters and the doctor."""
    stack.configure({"runtime": "demo"}, channels={"webhook": {"token": "secret"}})
    letters = [await stack.append(text, channel_id=text) for text in ("remember", "forget")]
    await give_up(stack, *letters)
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    async with opened(stack) as door, opened(stack), logged_in(browser, stack, door) as page:
        await page.get_by_role("link", name="Fleet").click()
        attention = page.get_by_role("region", name="Needs attention")
        await expect(attention).to_contain_text("2 messages or replies were given up")
        await expect(attention).to_contain_text("channel webhook/default")
        await expect(attention.locator("code").first).to_have_text("remoteclaw sweep")
        lanes = table(page, "Lanes").get_by_role("row")
        await expect(lanes).to_have_text([re.compile("Lane"), "agents20", "background10"])
        delivers = table(page, "Adapters").get_by_role("row").filter(has_text="web/default")
        await expect(delivers.get_by_role("cell").nth(2)).to_have_text(re.compile(r"process \d"))

        slow = await stack.append("slow", channel_id="slow")
        busy = table(page, "Workers").get_by_role("row").filter(has_text="busy")
        link = busy.get_by_role("link", name="slow")
        await expect(link).to_be_visible()
        await link.focus()
        await expect(busy.locator("time")).to_have_text(re.compile(r"[1-9]"))
        await expect(link).to_be_focused()  # the view was updated, and the row is the same element
        await stack.fleet.sessions.stop(slow.session.sid)
        await expect(busy).to_have_count(0)
        await expect(page.get_by_text("No session has work.")).to_be_visible()

        given_up = page.locator(".letters > li")
        first = given_up.filter(has_text="remember")
        await expect(first).to_contain_text("It was tried 3 times, and cut off each time.")
        await first.get_by_role("button", name="Retry").click()
        await expect(given_up).to_have_count(1)
        status = page.get_by_role("region", name="Dead letters").get_by_role("status")
        await expect(status).to_contain_text("It is tried again in")
        assert "retried" in [step.name for step in (await stack.outcome_so_far(letters[0])).steps]
        await expect(table(page, "Warm agents")).to_contain_text("MB")

        await given_up.get_by_role("button", name="Drop").click()
        await expect(given_up.get_by_role("button", name="Keep")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing was given up.")).to_be_visible()
        assert await stack.fleet.dead_letters.count() == 0

        await page.get_by_role("button", name="Run the doctor").click()
        await expect(page.locator(".findings .bad")).to_contain_text("sweeper")
        await expect(page.locator(".findings .bad")).to_contain_text("remoteclaw sweep")
        await page.set_viewport_size(PHONE)
        await page.reload()
        await expect(table(page, "Workers").get_by_role("cell")).not_to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
