"""From nothing to the first answer in a browser, as a newcomer gets there."""

import re
from pathlib import Path

from playwright.async_api import Browser, expect

from remoteclaw.config.home import Home
from tests.support.browser import write
from tests.support.command import REMOTECLAW
from tests.support.terminal import Terminal, env

LINK = r"^  page     (http://127\.0\.0\.1:\d+/#([\w-]{32}))$"


async def test_the_link_of_up_logs_in_and_the_first_message_is_answered(
    browser: Browser, home: Home, directory: Path
) -> None:
    """The code of the link is in the terminal alone."""
    up = (REMOTECLAW, "up", "--no-console")
    with Terminal.running(*up, env=env(home), directory=directory) as terminal:
        found = re.search(LINK, terminal.see("use the page"), re.MULTILINE)
        assert found is not None, terminal.shown()
        page = await browser.new_page()
        await page.goto(found[1])
        await write(page, "hello")
        await expect(page.locator(".message.agent")).to_contain_text("RemoteClaw's demo agent")
        assert page.url == found[1].partition("#")[0]
        kept = [path for path in home.logs.iterdir() if found[2] in path.read_text()]
        assert kept == []
        terminal.type("\x03")
        assert terminal.leave() == 0
