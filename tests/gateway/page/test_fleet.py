"""The fleet and its usage on the page, in a real browser."""

import asyncio
import json
import re

from playwright.async_api import Browser, Locator, Page, expect

from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.host.version import VERSION
from remoteclaw.up.sweep import sweeping
from tests.support.browser import PHONE, logged_in
from tests.support.cli import give_up, run
from tests.support.doors import opened
from tests.support.stack import Stack


def table(page: Page, name: str) -> Locator:
    return page.get_by_role("table", name=name, exact=True)


def figure(page: Page, name: str) -> Locator:
    return page.locator(".figures > div").filter(has_text=name).locator(".figure")


async def test_the_fleet_view_shows_work_and_retries_dead_letters(
    browser: Browser, stack: Stack
) -> None:
    """Numbers, problems with their buttons, a busy worker, dead letters, accounts, the doctor."""
    stack.configure({"runtime": "demo"}, channels={"webhook": {"token": "secret"}})
    letters = [await stack.append(text, channel_id=text) for text in ("remember", "forget")]
    await give_up(stack, *letters)
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    async with (
        opened(stack) as door,
        opened(stack),
        logged_in(browser, stack, door, permissions=["clipboard-write", "clipboard-read"]) as page,
    ):
        await page.goto(f"{door.url}/#/fleet")
        attention = page.get_by_role("region", name="Needs attention")
        await expect(attention).to_contain_text("2 messages or answers were given up")
        await expect(attention).to_contain_text("Webhook/default No process runs it")
        failures = page.get_by_role("region", name="Failed turns")
        await expect(failures).to_contain_text("main: the last 2 turns failed.")
        newest = table(page, "Failed turns").get_by_role("row").nth(1)
        await expect(newest).to_contain_text("2 interrupted")
        await expect(newest.get_by_role("link")).to_have_text(re.compile("^(remember|forget)$"))
        sweeper = attention.get_by_role("listitem").filter(has_text="Sweeper")
        await sweeper.get_by_role("button", name="Copy command").click()
        await expect(page.get_by_text("Copied.")).to_be_attached()
        assert await page.evaluate("navigator.clipboard.readText()") == "remoteclaw sweep"
        await expect(page.locator(".facts")).to_have_text(
            re.compile("people2 workers, nothing waits.*work1 worker, nothing waits")
        )
        accounts = table(page, "Accounts").get_by_role("row")
        here = accounts.filter(has_text="this page").get_by_role("cell").nth(1)
        await expect(here).to_have_text("this computer, 1 more stands by")
        await expect(accounts.filter(has_text="webhook/default")).to_contain_text("nobody")
        await expect(page.get_by_text(f"{stack.workers[0].pid}")).to_be_hidden()
        await page.get_by_text("Processes", exact=True).click()
        await expect(page.get_by_text(f"{stack.workers[0].pid}")).to_be_visible()
        hosts = table(page, "Computers").get_by_role("row")
        await expect(hosts.filter(has_text="2 workers")).to_contain_text(VERSION)

        slow = await stack.append("slow", channel_id="slow")
        busy = table(page, "Workers").get_by_role("row").filter(has=page.get_by_text("works:"))
        link = busy.get_by_role("link", name="slow")
        await expect(link).to_be_visible()
        await expect(figure(page, "Turns running")).to_have_text("1")
        await expect(figure(page, "Workers free")).to_have_text("1")
        await link.focus()
        await expect(busy.locator("time")).to_have_text(re.compile(r"[1-9]"))
        await expect(link).to_be_focused()  # the view was updated, and the row may be drawn again
        await stack.fleet.sessions.stop(slow.session.sid)
        await expect(busy).to_have_count(0)
        await expect(page.get_by_text("No session has work.")).to_be_visible()

        await attention.get_by_role("button", name="Show").click()
        given_up = page.locator(".letters > li")
        first = given_up.filter(has_text="remember")
        await expect(first).to_contain_text("It was tried 3 times, and cut off each time.")
        await first.get_by_role("button", name="Try again").click()
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
        await expect(attention).not_to_contain_text("given up:")

        await page.get_by_role("button", name="Run the doctor").click()
        await expect(attention.get_by_role("status").last).to_contain_text("are not right")
        await expect(attention.get_by_role("listitem").filter(has_text="Sweeper")).to_have_count(1)
        await expect(page.get_by_text("What is right")).to_be_visible()
        await page.set_viewport_size(PHONE)
        await page.reload()
        await expect(table(page, "Workers").get_by_role("cell")).not_to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_the_page_and_the_command_line_show_the_same_numbers(
    browser: Browser, stack: Stack
) -> None:
    """With nothing yet, and with costs by hour, day and agent; and what can't be loaded says so."""
    client = stack.fleet.scripts.client
    config = load_config(stack.home.config_file)
    sweeps = [asyncio.create_task(one) for one in sweeping(stack.fleet, stack.home, config)]
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await page.goto(f"{door.url}/#/usage")
        await expect(page.get_by_text("No agent has taken a turn in these days.")).to_be_visible()
        await expect(page.get_by_role("link", name="Write a message")).to_be_visible()
        for text in ("one", "two", "three"):
            accepted = await stack.append(text)
            await stack.outcome(accepted)
        day, hour = await stack.fleet.usage.by_day(1), await stack.fleet.usage.by_hour(1)
        used = day[-1].total + Usage(output_tokens=1_500_000, cost_micro_usd=2_500_000)
        field = f"main {accepted.session.sid}"
        await client.hset(keys.usage_day(day[-1].name), field, used.encode())
        await client.hset(keys.usage_hour(hour[-1].name[:13]), "agent main", used.encode())
        await client.hset(keys.spent(day[-1].name), "all", used.encode())
        await client.publish(keys.SESSION_UPDATES, "")

        await expect(figure(page, "Tokens")).to_have_text("1.5M")
        await expect(figure(page, "Cost")).to_have_text("$2.50")
        tokens = page.get_by_role("img", name=re.compile("Tokens by day: 1.5M. Most: 1.5M"))
        await expect(tokens).to_be_visible()
        rows = table(page, "By agent").get_by_role("row")
        await expect(rows).to_have_count(2)
        turns = json.loads(run(stack, "usage", "--json").stdout)["rows"][0]["turns"]
        await expect(rows.nth(1).get_by_role("cell").nth(1)).to_have_text(str(turns))

        await page.goto(f"{door.url}/#/fleet")
        await expect(page.get_by_text("All well")).to_be_visible()
        await expect(page.get_by_role("heading", name="Needs attention")).not_to_be_in_viewport()
        status = run(stack, "status").stdout
        assert f"today     {turns} turns, $2.50\n" in status
        await expect(figure(page, "Turns today")).to_have_text(str(turns))
        await expect(figure(page, "Cost today")).to_have_text("$2.50")
        for period in ("24 hours", "7 days"):
            await page.get_by_role("button", name=period).click()
            drawn = page.get_by_role("img", name=re.compile(f"^Turns: {turns}. Most: {turns},"))
            await expect(drawn).to_be_visible()
            listed = page.locator(".chart", has=drawn).locator("tbody tr")
            await expect(listed).to_have_text(re.compile(f"{turns}$"))
        await page.route("**/page/cron.js", lambda route: route.abort())
        await page.goto(f"{door.url}/#/cron")
        await expect(page.get_by_role("alert")).to_be_in_viewport()
    for each in sweeps:
        each.cancel()
    await asyncio.wait(sweeps)
