"""Cron jobs on the page, in a real browser."""

import asyncio
import re

from playwright.async_api import Browser, expect

from tests.support.browser import PHONE, logged_in
from tests.support.cron import cron_of, keep_scheduling
from tests.support.doors import opened
from tests.support.jobs import job_of
from tests.support.stack import Stack


async def test_a_job_is_added_and_changed_by_a_form_run_paused_resumed_and_removed(
    browser: Browser, stack: Stack
) -> None:
    """The form says what its words mean. The page shows a run, its result and its history without
    a reload. Fields that are not changed are not sent: a schedule that is sent again would be
    counted from now.
    """
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    scheduler = asyncio.create_task(keep_scheduling(stack.fleet))
    jobs = cron_of(stack.fleet).jobs
    async with (
        opened(stack) as door,
        logged_in(browser, stack, door, viewport=PHONE, timezone_id="Europe/Berlin") as page,
    ):
        await page.goto(f"{door.url}/#/cron")
        await page.get_by_role("button", name="New job").click()
        form = page.get_by_role("form", name="New job")
        when, echo = form.get_by_label("When?"), form.get_by_role("status")
        await expect(when).to_be_focused()
        await form.get_by_role("button", name="every 20 minutes").click()
        await expect(echo).to_contain_text("every 20 minutes")
        await when.fill("every blue moon")
        await expect(echo).to_contain_text("“every blue moon” is no schedule.")
        await expect(form.get_by_role("button", name="tomorrow at noon")).to_be_visible()
        await form.get_by_label("What is the agent told?").fill("What is new?")
        await form.get_by_label("In which conversation?").select_option(str(accepted.session))
        await form.get_by_role("button", name="Add").click()
        await expect(form.get_by_role("alert")).to_contain_text("write for example")
        await when.fill("every weekday at 9")
        await expect(echo).to_contain_text("every weekday at 09:00 Europe/Berlin")
        times = form.get_by_role("list", name="The next times").get_by_role("listitem")
        await expect(times).to_have_text([re.compile("09:00 AM")] * 3)
        await form.get_by_role("button", name="Add").click()
        row = page.locator(".job")
        await expect(row.get_by_role("heading", name="What is new?")).to_be_visible()
        await expect(row).to_contain_text("09:00 AM Europe/Berlin · in")
        await expect(row).to_contain_text("every weekday at 09:00 · main answers in test chat-1")
        await expect(page.get_by_role("button", name="New job")).to_be_focused()
        await row.get_by_role("button", name="Change").click()
        change = page.get_by_role("form", name="Change the job")
        await expect(change.get_by_label("When?")).to_have_value("every weekday at 09:00")
        await change.get_by_label("When?").fill("0 */2 * * MON-FRI")
        await expect(change.get_by_role("list", name="The next times")).to_be_visible()
        await change.get_by_label("When?").fill("every 90 minutes")
        await change.get_by_label("Name").fill("standup")
        await change.get_by_role("button", name="Save").click()
        await expect(row.locator(".when")).to_contain_text("every 90 minutes")
        (added,) = await jobs()

        await row.get_by_role("button", name="Change").click()
        await change.get_by_label("What is the agent told?").fill("What is new, in short?")
        await change.get_by_role("button", name="Save").click()
        await expect(row.locator(".told")).to_contain_text("in short?")
        await expect(row.get_by_role("button", name="Change")).to_be_focused()
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        job = await job_of(stack.fleet, added.id)
        assert (job.name, job.session) == ("standup", accepted.session)
        assert job.message == "What is new, in short?"
        assert (job.schedule, job.next_ms) == (added.schedule, added.next_ms)

        await row.get_by_role("button", name="Run now").click()
        await expect(row.get_by_role("status")).to_have_text(
            re.compile(r"The run has ended: done in .*s\.")
        )
        await row.get_by_text("History").click()
        run = row.locator(".runs li")
        await expect(run).to_have_text(re.compile("done in .*started by a person"))

        await row.get_by_role("button", name="Pause").click()
        await expect(row.get_by_role("button", name="Resume")).to_be_visible()
        await expect(row.get_by_text("paused:")).to_be_attached()
        assert not (await job_of(stack.fleet, job.id)).enabled
        await row.get_by_role("button", name="Resume").click()
        await expect(row.get_by_role("button", name="Pause")).to_be_visible()
        assert (await job_of(stack.fleet, job.id)).next_ms

        await run.get_by_role("link").click()
        await expect(page.locator(".messages")).to_contain_text("What is new, in short?")
        await expect(page.locator(".message.agent")).to_have_count(2)
        await page.go_back()
        await row.get_by_role("button", name="Remove").click()
        await row.get_by_role("button", name="Keep").click()
        assert await jobs()
        await row.get_by_role("button", name="Remove").click()
        await row.get_by_role("button", name="Remove for good").click()
        await expect(page.get_by_text("A job writes a message to an agent")).to_be_visible()
        assert not await jobs()
    scheduler.cancel()
