"""One chat: what a person writes in a terminal, or with `send`, is on the page, and vice versa."""

import asyncio
import json
import os
import re
import signal

from playwright.async_api import Browser, Page, expect

from remoteclaw.config.home import Home
from tests.support.browser import logged_in, write
from tests.support.command import REMOTECLAW
from tests.support.doors import opened
from tests.support.stack import Stack
from tests.support.terminal import Terminal, env
from tests.support.up import gateway_of, parts_of, remoteclaw, running
from tests.support.waiting import HANG_S

ANSWER = "what happens when an agent dies."


async def has(page: Page, *texts: str) -> None:
    """Wait until the last messages of the page contain these texts, in order, and each once."""
    shown = page.locator(".message .text")
    for text in texts:
        await expect(shown.filter(has_text=text).last).to_be_visible()
    found = await shown.all_inner_texts()
    places = [[at for at, each in enumerate(found) if text in each] for text in texts]
    assert [len(each) for each in places] == [1] * len(texts), found
    assert places == sorted(places), found


async def test_the_terminal_the_page_and_send_are_one_conversation_across_restarts(
    browser: Browser, home: Home
) -> None:
    """The README says that the page has the same chat."""
    with running(home) as up:
        with Terminal.running(REMOTECLAW, "chat", env=env(home)) as screen:
            screen.see("›")
            screen.type("my colour is green\r")
            await asyncio.to_thread(screen.see_words, ANSWER)

            context = await browser.new_context()
            context.set_default_timeout(HANG_S * 1000)
            page = await context.new_page()
            await page.goto(remoteclaw(home, "open").stdout.strip())
            await has(page, "my colour is green", ANSWER)
            await write(page, "my size is 12")
            await asyncio.to_thread(screen.see, "› my size is 12")
            await asyncio.to_thread(screen.see, "message 2 of our conversation")
            await has(page, "my size is 12", "message 2 of our conversation")

            os.kill(gateway_of(up.pid), signal.SIGKILL)
            for worker in parts_of(up.pid, "worker"):
                os.kill(worker, signal.SIGKILL)
            screen.type("my name is Ada\r")
            await asyncio.to_thread(screen.see, "message 3 of our conversation")
            await has(page, "my name is Ada", "message 3 of our conversation")
            screen.type("exit\r")
            assert screen.leave() == 0

        with Terminal.running(REMOTECLAW, "send", "memory", env=env(home)) as sending:
            await asyncio.to_thread(sending.see, "my name is Ada")
            assert sending.leave() == 0
        await has(page, "You said before:")
        with Terminal.running(REMOTECLAW, "chat", env=env(home)) as screen:
            shown = await asyncio.to_thread(screen.see, "• my name is Ada")
            assert shown.count("› memory") == 1
            assert re.search(r"• my colour is green\n• my size is 12\n• my name is Ada", shown)
        sessions = json.loads(remoteclaw(home, "sessions", "list", "--json").stdout)["sessions"]
        await context.close()

    assert len(sessions) == 1


async def test_commands_open_the_conversations_of_agents_on_the_page(
    browser: Browser, stack: Stack
) -> None:
    stack.configure(agents={"other": {"runtime": "demo"}})
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        heading = page.get_by_role("heading", level=1)
        await expect(heading).to_have_text("New conversation")
        await write(page, "to main")
        await has(page, "to main", ANSWER)
        await write(page, "/agent other")
        await expect(page).to_have_url(f"{door.url}/#/c/other")
        await expect(page.locator(".welcome")).to_contain_text("other answers here")
        await write(page, "to other")
        await has(page, "to other", ANSWER)
        await write(page, "/agent")
        await expect(page.get_by_text("`other`, who answers here")).to_be_visible()
        await write(page, "/switch to main")
        await expect(page).to_have_url(f"{door.url}/#/")
        await has(page, "to main", ANSWER)
        await page.get_by_role("link", name="to other").click()
        await expect(heading).to_have_text("to other")
        await expect(page).to_have_title("to other · RemoteClaw")
        await write(page, "/switch new")
        await expect(page).to_have_url(re.compile(r"/#/c/other\.[0-9a-f]{12}$"))
        await expect(page.locator(".titles .about")).to_contain_text("other")
        await expect(heading).to_have_text("New conversation")
        await expect(page.locator(".message")).to_have_count(0)
