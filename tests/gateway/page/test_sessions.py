"""Sessions on the page, in a real browser: found, read, managed, and written in."""

import re
from typing import Any

import orjson
from playwright.async_api import Browser, Page, expect

from remoteclaw.cron.schedule import Schedule
from remoteclaw.events import ContextSize
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.state import ConversationSize
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.browser import DESK, PHONE, logged_in, write
from tests.support.cli import give_up
from tests.support.doors import opened
from tests.support.jobs import add
from tests.support.requests import put_request
from tests.support.stack import Stack, message


async def put(stack: Stack, text: str, **fields: Any) -> Accepted:
    return await stack.fleet.inbound.append(message(text, **fields), agent="main")


def row(page: Page, name: str) -> Any:
    return page.get_by_role("complementary").get_by_role("link", name=re.compile(name))


async def fill_context(stack: Stack, accepted: Accepted) -> None:
    """Note the size of a conversation, which the demo agent does not report."""
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view
    (conversation,) = view.session_ids.values()
    size = ConversationSize(ContextSize(122_000, 200_000), conversation)
    client: Any = stack.fleet.scripts.client
    await client.hset(keys.state(view.sid), "context", str(size))


async def test_a_session_is_found_read_managed_and_written_in(
    browser: Browser, stack: Stack
) -> None:
    """A person's own session has a message field wherever it is opened from, even if no chat was
    opened since the page was loaded. The usage is shown by day, agent and session, with budgets.
    """
    stack.configure(budgets=[{"of": "all", "tokens": 1000, "per": "day"}])
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "mine")
        await expect(page.locator(".message.agent")).to_have_count(1)
        main = page.get_by_role("main")
        for link in (row(page, "mine"), main.get_by_role("link", name="mine")):
            await page.goto(f"{door.url}/#/usage")
            await page.reload()
            await link.click()
            await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        await page.set_viewport_size(PHONE)
        await page.goto(f"{door.url}/#/usage")
        days = page.locator(".chart").first.locator(".plot g")
        await expect(days).to_have_count(7)
        await expect(days.locator("title").last).to_have_text(re.compile(": [1-9]"))
        await expect(days.locator("title").filter(has_text=re.compile(": 0$"))).to_have_count(6)
        left = page.get_by_text("1,000 of 1,000 tokens left today")
        await expect(left).to_be_visible()
        await expect(page.get_by_role("row", name=re.compile("^main Turns 1"))).to_be_visible()
        await expect(main.get_by_role("link", name="mine")).to_have_count(1)
        await page.get_by_role("button", name="30 days").click()
        await expect(days).to_have_count(30)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

        accepted = await put(
            stack, "find the leak", provider="telegram", channel_id="77", from_="77"
        )
        await stack.outcome(accepted)
        await stack.outcome(await put(stack, "something else", channel_id="2"))
        await page.set_viewport_size(DESK)
        await page.get_by_role("button", name="Filter").click()
        await page.get_by_label("Channel").select_option("telegram")
        await expect(row(page, "something else")).to_be_hidden()
        await page.get_by_label("Channel").select_option("any channel")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("THE LEAK")
        await expect(page.get_by_role("option", name="something else")).to_be_hidden()
        await expect(page.get_by_role("option").locator("mark")).to_have_text("the leak")
        unread = row(page, "find the leak").locator(".state.unread")
        await expect(unread).to_have_attribute("title", "unread")
        await page.keyboard.press("Enter")
        await expect(unread).to_have_count(0)
        await expect(page.locator(".messages")).to_contain_text("demo agent")

        await fill_context(stack, accepted)
        await page.get_by_label("About").click()
        await expect(page.get_by_text("61 % · 122,000 of 200,000 tokens")).to_be_visible()
        await page.get_by_label("Label").fill("Plumbing")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("It is called Plumbing.")).to_be_visible()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Plumbing")
        await page.get_by_label("While it is busy").select_option("steer")
        await expect(page.get_by_text("From the next turn on: steer")).to_be_visible()
        await page.get_by_text("Trace").click()
        await expect(page.locator(".turns li")).to_have_count(1)
        await expect(page.locator(".steps")).to_contain_text("spawned")

        await page.get_by_label("Message to this session").fill("slow")
        await page.keyboard.press("Enter")
        written = page.locator(".message").filter(has_text="ada on the page")
        await expect(written).to_contain_text("slow")
        await expect(page.locator(".live .text")).to_contain_text("1 2 3")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".live")).to_be_hidden()
        await expect(written).to_have_count(1)
        await page.get_by_text("Ended conversations").click()
        await expect(page.get_by_text("There are none.")).to_be_visible()
        await page.get_by_role("button", name="End the conversation").click()
        await page.get_by_role("button", name="End it").click()
        await expect(page.get_by_text("The conversation has ended")).to_be_visible()
        await expect(page.locator(".scroller .message")).to_have_count(0)
        await page.get_by_text("operator: reset").click()
        await expect(page.locator(".archive .message").first).to_contain_text("find the leak")

        await page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
        await page.get_by_text("Trace").scroll_into_view_if_needed()
        for name in ("html", ".conversation", ".inside"):
            width = await page.locator(name).evaluate("(element) => element.scrollWidth")
            assert width <= PHONE["width"], name
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view
    assert view.queue_settings
    assert (view.label, view.queue_settings.mode) == ("Plumbing", "steer")
    stream: Any = await stack.fleet.scripts.client.xrange(keys.replies("telegram", "default"))
    replies = [orjson.loads(fields[b"reply"]) for _, fields in stream]
    assert {reply["origin"] for reply in replies} == {"", "ada on the page: “slow”"}


async def test_waiting_sessions_are_listed_first_and_long_lists_show_more_on_request(
    browser: Browser, stack: Stack
) -> None:
    """A request can also be answered in its session. Updates of the list keep the elements of the
    sessions that are still listed, and with them the focus.
    """
    waiting = await put(stack, "publish it")
    await put_request(stack, waiting, tool="Bash", what="npm publish")
    newer = await put(stack, "something newer", channel_id="2")
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        rows = page.locator(".sessions li")
        await expect(rows).to_have_text([re.compile("publish it.*needs you"), re.compile("newer")])
        await rows.first.get_by_role("link").click()
        request = page.locator(".conversation .request")
        await expect(request).to_contain_text("npm publish")
        await request.get_by_role("button", name="Deny").click()
        await expect(request.get_by_role("status")).to_contain_text("ada denied it")
        await row(page, "something newer").click()
        await expect(page.get_by_role("heading", name="something newer")).to_be_visible()
        await expect(request).to_have_count(0)

        await page.goto(f"{door.url}/#/requests")
        await expect(page.get_by_role("heading", name="Requests", exact=True)).to_be_focused()
        await put_request(stack, newer, tool="Bash", what="touch x")
        card = page.locator(".request", has_text="touch x")
        await card.get_by_role("button", name="Allow once").press("Enter")
        await expect(card.locator(".done")).to_contain_text("ada allowed it once")
        await expect(card).to_be_focused()  # keyboard users continue from there

        for number in range(58):
            await put(stack, f"number {number}.", channel_id=f"c{number}")
        await page.get_by_role("link", name="RemoteClaw").click()
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Show more").click()
        await expect(rows).to_have_count(60)
        await expect(page.get_by_role("button", name="Show more")).to_be_hidden()
        listed = row(page, "number 40\\.")
        await listed.focus()
        await put(stack, "number 60.", channel_id="60")
        await expect(rows.first).to_contain_text("number 60.")
        await expect(listed).to_be_focused()


async def test_names_and_messages_are_shown_as_text_everywhere(
    browser: Browser, stack: Stack
) -> None:
    """A violation of the page's policy would be an error in the console, and fail the test."""
    evil = "<img src=x onerror=alert(1)>"
    await stack.start_worker()
    accepted = await put(stack, evil, user_name=evil, provider="telegram", channel_id=evil)
    await stack.outcome(accepted)
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view
    await stack.fleet.sessions.label(view, evil)
    await stack.fleet.inbound.end_conversation(accepted.session, "reset", call="1")
    await stack.outcome(await put(stack, evil, provider="telegram", channel_id=evil))
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await page.get_by_role("button", name="Search or run").click()
        await page.keyboard.insert_text(evil)
        await expect(page.get_by_role("option").locator("mark")).to_have_text(evil)
        await page.get_by_role("option").first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(evil)
        await page.get_by_label("About").click()
        await page.get_by_text("Trace").click()
        await expect(page.locator(".steps").last).to_contain_text("accepted")
        await page.get_by_text("Ended conversations").click()
        await page.locator(".archive").get_by_text("operator: reset").click()
        await expect(page.locator(".archive .message").first).to_contain_text(evil)
        await expect(page.locator("img")).to_have_count(0)


async def test_a_login_with_the_scope_read_is_offered_no_actions(
    browser: Browser, stack: Stack
) -> None:
    """In the chat, in a session, in the fleet view and in the list of cron jobs."""
    accepted = await put(stack, "hello")
    await give_up(stack, await put(stack, "remember", channel_id="2"))
    await add(stack.fleet, Schedule(every_s=3600), session=accepted.session)
    async with (
        opened(stack) as door,
        logged_in(browser, stack, door, scope="read") as page,
    ):
        await expect(page.get_by_role("alert")).to_contain_text("This login has the scope read")
        await expect(page.locator(".welcome")).to_be_hidden()
        await expect(page.get_by_role("link", name="New conversation")).to_be_hidden()
        await expect(page.get_by_label("Message", exact=True)).to_be_hidden()
        await expect(page.get_by_role("link", name="RemoteClaw")).to_have_attribute(
            "aria-current", "page"
        )
        await row(page, "hello").click()
        await page.get_by_label("About").click()
        await expect(page.get_by_text(str(accepted.session), exact=True)).to_be_visible()
        for name in ("Save", "End the conversation", "Stop", "Send"):
            await expect(page.get_by_role("button", name=name)).to_have_count(0)
        await expect(page.get_by_text("Writing here needs the scope admin.")).to_be_visible()
        await page.get_by_role("link", name="Fleet").click()
        await expect(page.locator(".letters > li")).to_contain_text("remember")
        await expect(page.get_by_role("button", name="Retry")).to_have_count(0)
        await page.get_by_role("link", name="Cron").click()
        job = page.get_by_role("main").get_by_role("listitem").filter(has_text="standup")
        await expect(job).to_contain_text("every hour")
        await expect(job.get_by_role("button", name="Run now")).to_be_hidden()
        await expect(page.get_by_role("button", name="New job")).to_be_hidden()
        await expect(page.get_by_role("alert").filter(visible=True)).to_contain_text(
            "No scheduler runs"
        )
