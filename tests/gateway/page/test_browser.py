"""The page in a real browser."""

import re
from pathlib import Path

import orjson
from playwright.async_api import Browser, Locator, Page, expect

from remoteclaw.fleet import keys
from tests.support.bridges import claude_script
from tests.support.browser import PHONE, log_out, logged_in, write
from tests.support.doors import opened
from tests.support.requests import QUESTIONS
from tests.support.stack import Stack

#: claude during a long tool call, with an aside.
WORKS_ON = r"""
echo(heard())
block = dict(type='tool_use', id='1', name='Bash', input=dict(command='make'))
say(type='assistant', message=dict(content=[block]))
asked = heard('control_request')
import re
key = re.search(r'answered:([0-9a-f]+)', asked['request']['question'])[1]
say(type='control_response', response=dict(subtype='success', request_id=asked['request_id'],
    response=dict(response=f'Half of it.\n[[answered:{key}]]')))
while not os.path.exists('GO_ON'): time.sleep(0.01)
result('made')
"""

#: Records when the page removes the live text or the stop button.
WATCH = """
window.gone = [];
const stop = document.querySelector(".stop"), messages = document.querySelector(".messages");
const field = document.querySelector("textarea");  // while something is written, it can be sent
new MutationObserver(() => stop.hidden && !field.value && gone.push("stop"))
  .observe(stop, {attributes: true});
new MutationObserver((changes) => {
  for (const { removedNodes } of changes)
    for (const node of removedNodes) if (node.className === "live") gone.push("live");
}).observe(messages, {childList: true});
"""


def answers(page: Page) -> Locator:
    return page.locator(".message.agent")


async def test_a_new_user_writes_and_reads_the_answers(browser: Browser, stack: Stack) -> None:
    """On a desktop and on a phone. A turn is stopped, files are sent both ways, and conversations
    stay separate. After a revocation and after a logout, the page explains how to log in; a new
    link logs in where the page is open. Events of the same millisecond are all shown.
    """
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        own, conversations = page.locator(".message.own"), page.get_by_role("complementary")
        await write(page, "hello **you**")
        await expect(own.locator("strong")).to_have_text("you")
        await expect(answers(page)).to_contain_text("RemoteClaw's demo agent")
        assert page.url == f"{door.url}/"
        await expect(conversations.get_by_role("listitem")).to_have_count(1)
        async with logged_in(browser, stack, door, viewport=PHONE, color_scheme="dark") as phone:
            await expect(answers(phone)).to_contain_text("RemoteClaw's demo agent")
            await write(phone, "from the phone")
            await expect(own).to_have_text([re.compile("hello you"), re.compile("from the phone")])
            await expect(answers(page)).to_have_count(2)
            width = await phone.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"]

        await write(page, "slow")
        await expect(page.locator(".live .text")).to_contain_text("1 2 3")
        await write(page, "and then")
        waits = page.locator(".origin", has_text="waits")
        await expect(own.filter(has=waits)).to_contain_text("and then")
        await page.reload()
        await expect(own.filter(has=waits)).to_contain_text("and then")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".live")).to_be_hidden()
        await expect(waits).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()

        await page.get_by_role("link", name="New conversation").click()
        await expect(page.locator(".message")).to_have_count(0)
        await page.locator("input[type=file]").set_input_files(
            {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"1, 2, 3"}
        )
        await expect(page.locator(".attached")).to_contain_text("plan.txt")
        await write(page, "file")
        await expect(own.locator(".file")).to_contain_text("plan.txt")
        file = page.locator(".message.agent .file")
        async with page.expect_download() as download:
            await file.click()
        saved = await download.value
        assert await saved.failure() is None
        assert saved.suggested_filename in (await file.text_content() or "")

        first = [re.compile(text) for text in ("hello you", "from the phone", "slow", "and then")]
        await conversations.get_by_role("link", name="hello").click()
        await expect(own).to_have_text(first)
        await conversations.get_by_role("link", name="file").click()
        await expect(own).to_have_text([re.compile("file")])
        await write(page, "three")
        await expect(own).to_have_text([re.compile("file"), re.compile("three")])

        client = stack.fleet.scripts.client
        for number, text in enumerate(("one", "two", "three")):
            about = orjson.dumps({"from": "agent", "text": text, "files": []})
            event_id = f"1795395600000-{number}"
            await client.xadd(
                keys.web("admin.bob"), {"kind": "message", "about": about}, id=event_id
            )
        for token in await stack.fleet.tokens.list():
            await stack.fleet.tokens.revoke(token.id)
        await expect(page.locator("main")).to_contain_text("remoteclaw open")
        code = await stack.fleet.logins.create("bob", "admin", 3_600_000)
        await page.goto(f"{door.url}/#{code}")
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        assert page.url == f"{door.url}/"
        await expect(page.locator(".message.agent .text")).to_have_text(["one", "two", "three"])
        await log_out(page)
        await expect(page.locator("main")).to_contain_text("remoteclaw open")
        assert await stack.fleet.tokens.list() == []


async def test_an_aside_leaves_the_turn_on_the_page_and_questions_can_be_answered(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """A question is answered with a choice in the list of requests, or with text in the chat."""
    body = WORKS_ON.replace("GO_ON", str(directory / "go on"))
    command = list(claude_script(directory, body + QUESTIONS))
    stack.configure({"runtime": "claude", "command": command}, queue={"mode": "aside"})
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "make it")
        await expect(page.locator(".tool-use")).to_contain_text("Bash")
        await expect(page.locator(".live")).to_be_visible()
        await page.evaluate(WATCH)
        await write(page, "how far are you?")
        await expect(answers(page)).to_contain_text("Half of it.")
        await expect(answers(page).locator(".quote")).to_have_text("how far are you?")
        await write(page, "/status")  # the outcome of the aside arrives before this answer
        await expect(answers(page)).to_have_count(2)
        assert await page.evaluate("window.gone") == []
        (directory / "go on").touch()
        await expect(answers(page)).to_have_count(3)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(page.locator(".live")).to_be_hidden()

        await write(page, "go")
        async with logged_in(browser, stack, door) as other:
            await other.goto(f"{door.url}/#/requests")
            await other.get_by_role("button", name="SQLite").click()
            await expect(answers(page).last).to_contain_text("Which colours?")
        # The card is complete only once the list of requests has arrived as well.
        await expect(answers(page).last).to_have_attribute("data-kind", "question")
        own = page.get_by_label("Your words")
        await own.fill("like the sea")
        await own.press("Enter")
        await expect(answers(page).last).to_contain_text('"Which colours?": "like the sea"')
        await expect(answers(page).last).to_contain_text('"Which DB?": "SQLite"')
