"""The page on a phone, without a mouse, and with a screen reader."""

import re
from typing import Any

from playwright.async_api import Browser, Locator, Page, expect

from tests.support.browser import PHONE, log_out, logged_in
from tests.support.doors import opened
from tests.support.requests import put_request
from tests.support.stack import Stack

TOUCH: dict[str, Any] = {"viewport": PHONE, "has_touch": True, "is_mobile": True}


async def focused(page: Page) -> str:
    """Return the accessible name of the focused element."""
    about = "document.activeElement.ariaLabel || document.activeElement.textContent"
    return str(await page.evaluate(about))


async def test_the_page_works_without_a_mouse_and_keeps_drafts_per_conversation(
    browser: Browser, stack: Stack
) -> None:
    """The files of a view are fetched when it is opened. A draft stays in its conversation through
    another view, another conversation and a reload, until it is sent. The next person who logs in
    does not see it.
    """
    names = "performance.getEntriesByType('resource').map((one) => one.name.split('/').pop())"
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        message = page.get_by_label("Message", exact=True)
        await expect(message).to_be_focused()
        fetched = set(await page.evaluate(names))
        await page.get_by_role("link", name="Fleet").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Fleet", exact=True)).to_be_focused()
        assert await page.title() == "Fleet · RemoteClaw"
        await expect(page.get_by_text("No session has work.")).to_be_visible()
        later = set(await page.evaluate(names)) - fetched
        await page.get_by_role("heading", name="Fleet", exact=True).focus()
        await page.keyboard.press("Shift+Tab")
        while await focused(page) != "Skip to the content":
            await page.keyboard.press("Shift+Tab")
        await expect(page.locator(".skip")).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()
        assert page.url.endswith("#/fleet")
        await page.go_back()
        await expect(message).to_be_focused()
        assert "chat.js" in fetched
        assert "session_panel.js" not in fetched
        assert later >= {"fleet.js", "dead_letters.js", "doctor.js", "data.css"}

        await message.fill("half of a thought")
        await page.get_by_role("link", name="Requests").click()
        await page.get_by_role("link", name="RemoteClaw").click()
        await expect(message).to_have_value("half of a thought")
        await page.get_by_role("link", name="New conversation").click()
        await expect(message).to_have_value("")
        await page.get_by_role("link", name="RemoteClaw").click()
        await page.reload()
        await expect(message).to_have_value("half of a thought")
        await message.press("Enter")
        await expect(page.locator(".message.own")).to_contain_text("half of a thought")
        await expect(message).to_have_value("")
        await page.reload()
        await expect(page.locator(".message.own")).to_contain_text("half of a thought")
        await expect(message).to_have_value("")

        await message.fill("for my eyes")
        code = await stack.fleet.logins.create("bob", "write", 3_600_000)
        await page.goto(f"{door.url}/#{code}")
        await expect(page.locator(".welcome")).to_be_visible()
        await expect(message).to_have_value("")
        assert await page.evaluate("sessionStorage.getItem('remoteclaw.person')") == "user.bob"
        await message.fill("for my eyes")
        await log_out(page)
        await expect(page.get_by_role("main")).to_contain_text("You are logged out.")
        assert await page.evaluate("sessionStorage.length") == 0


async def test_keys_reach_every_view_conversation_command_and_request(
    browser: Browser, stack: Stack
) -> None:
    """Neither a field nor a terminal loses a key to the page, and Escape returns the focus."""
    asked = await stack.append("publish it")
    await put_request(stack, asked, tool="Bash", what="npm publish")
    refused = await stack.append("publish it again", channel_id="2")
    await put_request(stack, refused, tool="Bash", what="npm publish --force")
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        message, palette = page.get_by_label("Message", exact=True), page.get_by_role("dialog")
        await message.press_sequentially("?gf")
        await expect(message).to_have_value("?gf")
        await message.fill("")
        await page.keyboard.press("Control+k")
        await expect(
            palette.get_by_role("option", name="New conversation with main")
        ).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(message).to_be_focused()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("/stat")
        await expect(palette.get_by_role("option", selected=True)).to_contain_text("/status")
        await page.keyboard.press("Enter")
        await expect(message).to_have_value("/status ")
        await message.fill("")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("publish it")
        await expect(palette.get_by_role("option")).to_have_count(2)
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        heading = page.get_by_role("heading", level=1)
        await expect(heading).to_have_text("publish it")
        await expect(palette).to_be_hidden()

        for key, name in (("c", "Cron"), ("u", "Usage"), ("f", "Fleet"), ("r", "Requests")):
            await heading.focus()
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await expect(heading).to_have_text(name)
        await expect(heading).to_be_focused()
        await page.keyboard.press("?")
        await expect(palette).to_contain_text("Allow, deny the focused request")
        await page.keyboard.press("Escape")
        for key, outcome in (("a", "ada allowed it once"), ("d", "ada denied it")):
            await page.keyboard.press("j")
            await page.keyboard.press(key)
            await expect(page.locator(".request:focus .done")).to_contain_text(outcome)
        await page.keyboard.press("k")
        await expect(page.locator(".request").first).to_be_focused()


async def test_a_phone_has_a_drawer_and_opens_the_keyboard_only_on_a_tap(
    browser: Browser, stack: Stack
) -> None:
    """Enter on the phone's keyboard begins a new line. Dates and numbers have the browser's format,
    and each text has its own direction.
    """
    options = {**TOUCH, "locale": "de-DE"}
    async with opened(stack) as door, logged_in(browser, stack, door, **options) as page:
        message = page.get_by_label("Message", exact=True)
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        await expect(message).not_to_be_focused()
        async with page.expect_file_chooser() as camera:
            await page.get_by_role("button", name="Take a picture").tap()
        await (await camera.value).set_files(
            {"name": "wall.png", "mimeType": "image/png", "buffer": b"\x89PNG".ljust(1_500)}
        )
        await expect(page.locator(".attached")).to_contain_text("wall.png")
        await expect(page.locator(".attached")).to_contain_text("1,5 KB")
        await message.tap()
        await page.keyboard.insert_text("مرحبا بالعالم")
        assert await direction(message) == "rtl"
        await page.keyboard.press("Enter")
        await page.keyboard.type("two")
        await expect(message).to_have_value("مرحبا بالعالم\ntwo")
        await page.get_by_role("button", name="Send").tap()
        own = page.locator(".message.own")
        await expect(own).to_contain_text("wall.png")
        await expect(message).not_to_be_focused()
        await expect(own.locator("time")).to_have_text(re.compile(r"^\d\d:\d\d$"))
        assert await direction(own.locator(".text p")) == "rtl"
        await expect(own.locator("time")).to_have_css("opacity", "0")
        await own.locator(".text").tap()
        await expect(own.locator("time")).to_have_css("opacity", "1")
        assert await direction(own) == "ltr"

        drawer, button = page.get_by_role("complementary"), page.locator(".menu")
        await expect(drawer).to_be_hidden()
        await button.click()
        await expect(button).to_have_attribute("aria-expanded", "true")
        await expect(drawer.get_by_role("link", name="New conversation")).to_be_focused()
        row = drawer.get_by_role("listitem")
        await expect(row.locator("time")).to_have_text(re.compile("Minute"))
        assert await direction(row.locator(".title")) == "rtl"
        await page.keyboard.press("Escape")
        await expect(drawer).to_be_hidden()
        await expect(button).to_be_focused()
        await button.click()
        await page.locator(".person").click()
        await expect(drawer.get_by_role("button", name="Log out")).to_be_visible()
        await page.touchscreen.tap(PHONE["width"] - 10, 400)
        await expect(drawer).to_be_hidden()
        await button.click()
        await drawer.get_by_role("link", name="New conversation").click()
        await expect(drawer).to_be_hidden()
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_a_person_replies_and_reacts_and_each_answer_is_announced_once(
    browser: Browser, stack: Stack
) -> None:
    """A screen reader announces neither live text nor earlier messages."""
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await expect(page.locator(".welcome")).to_be_visible()
        message, announced = page.get_by_label("Message", exact=True), page.locator("p.unseen")
        await message.fill("hello")
        await message.press("Enter")
        answer = page.locator(".message.agent").first
        await expect(announced).to_contain_text("main: This is RemoteClaw's demo agent")
        await expect(page.locator(".welcome")).to_be_hidden()
        await expect(page.get_by_label("Conversation", exact=True)).not_to_have_attribute(
            "role", "log"
        )
        await answer.hover()
        await answer.get_by_role("button", name="Reply").click()
        await expect(page.locator(".quoted")).to_contain_text("RemoteClaw's demo agent")
        await message.fill("echo and this?")
        await message.press("Enter")
        reply = page.locator(".message.own").last
        await expect(reply.locator(".quote")).to_contain_text("RemoteClaw's demo agent")
        await expect(page.locator(".quoted")).to_be_hidden()
        await expect(announced).to_contain_text("message 2 of our conversation")
        for emoji, shown in (("👍", "👍"), ("🎉", "🎉"), ("🎉", "")):
            await answer.get_by_role("button", name="React").click()
            await answer.get_by_role("button", name=emoji).click()
            await expect(answer.locator(".reactions")).to_have_text(shown)
        await answer.get_by_role("button", name="React").click()
        await answer.get_by_role("button", name="👀").click()
        await expect(answer.locator(".reactions")).to_have_text("👀")
        await page.reload()
        await expect(answer.locator(".reactions")).to_have_text("👀")
        await expect(reply.locator(".quote")).to_be_visible()
        await expect(announced).to_be_empty()


async def direction(shown: Locator) -> str:
    return str(await shown.evaluate("(element) => getComputedStyle(element).direction"))
