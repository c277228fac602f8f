"""The picture at the beginning of the README: one chat in a terminal and on the page."""

import asyncio
import base64
import json
from pathlib import Path

from playwright.async_api import Browser, expect

from remoteclaw.config.home import Home
from tests.support.bridges import script
from tests.support.command import REMOTECLAW
from tests.support.day import at_rest
from tests.support.drawing import screen_picture
from tests.support.page_pictures import ANSWER
from tests.support.terminal import Terminal, env
from tests.support.up import remoteclaw

QUESTION, CONSENT = "Why is there no discount in the mail?", "Yes, please."
#: Earlier messages, each in a conversation of its own.
EARLIER = ("Which tests are flaky?", "Draft the notes for 2.1.")
PERSON = "ada"
DONE = "The mail calls `total()` now, the copy is gone, and all **31** tests pass."
#: An agent that searches and answers, and then changes what it has found.
_AGENT = """
def use(id, name, output, **input):
    say(type='tool_use', id=id, name=name, input=input)
    time.sleep(0.8)
    say(type='tool_result', id=id, output=output)
turn()
use('1', 'Grep', 'shop/basket.py:12', pattern='def total', path='shop')
use('2', 'Read', '…', file_path='shop/mail.py')
say(type='text', text=ANSWER)
say(type='done')
turn()
use('3', 'Edit', '…', file_path='shop/mail.py')
use('4', 'Bash', '31 passed', command='pytest -q')
say(type='text', text=DONE)
say(type='done')
turn()
"""
#: The picture: the two of one height, side by side.
_FRAME = """
<style>
  body { margin: 0; padding: 16px; display: inline-flex; gap: 16px; }
  img { height: 640px; border-radius: 10px; box-shadow: 0 1px 8px #0004; background: #1b1e24; }
  img:first-child { width: 560px; object-fit: none; object-position: top left; }
</style>
<img alt="" src="data:image/svg+xml;base64,TERMINAL"><img alt="" src="data:image/png;base64,PAGE">
"""
#: Replaces a directory in the page's text.
_STILL = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""


async def front_picture(browser: Browser, directory: Path) -> bytes:
    """Return the picture as a PNG."""
    (work := directory / "shop").mkdir(parents=True)
    home = Home(directory / "home").create()
    command = script(directory, _AGENT.replace("ANSWER", repr(ANSWER)).replace("DONE", repr(DONE)))
    home.config_file.write_text(
        f"[agents.main]\ncommand = {json.dumps(command)}\nworkspace = {json.dumps(str(work))}\n"
        f'[channels.web]\nperson = "{PERSON}"\n'
    )
    with Terminal.running(
        REMOTECLAW, "up", env=env(home), columns=64, rows=60, directory=work
    ) as screen:
        await asyncio.to_thread(at_rest, screen)
        for number, text in enumerate(EARLIER):
            remoteclaw(home, "send", text, "--from", PERSON, "--thread", str(number))
        link = remoteclaw(home, "open", "--as", PERSON).stdout.split()[-1]
        return await _taken(browser, screen, directory, link)


async def _taken(browser: Browser, screen: Terminal, directory: Path, link: str) -> bytes:
    context = await browser.new_context(
        viewport={"width": 900, "height": 640}, device_scale_factor=2, locale="en-US"
    )
    page = await context.new_page()
    await page.goto(link)
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    for text, end in ((QUESTION, "Shall I?"), (CONSENT, "The mail calls")):
        screen.type(f"{text}\r")
        await asyncio.to_thread(screen.see, end)
        await asyncio.to_thread(at_rest, screen)
        await expect(page.locator("p", has_text=end).locator("visible=true").first).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await page.evaluate(_STILL, [str(directory / "shop"), "/home/me/shop"])
    terminal = screen_picture(screen, f"› {QUESTION}", "›")
    shot = await page.screenshot()
    await page.set_viewport_size({"width": 1800, "height": 800})
    frame = await context.new_page()
    await frame.set_content(
        _FRAME.replace("TERMINAL", base64.b64encode(terminal.encode()).decode()).replace(
            "PAGE", base64.b64encode(shot).decode()
        )
    )
    picture = await frame.locator("body").screenshot(omit_background=True)
    await context.close()
    return picture
