"""Pictures of the page for docs/pictures, taken in a real browser during turns of a scripted agent.

Two versions of a browser draw a page differently, so each picture is stored with its text, and
tests compare only the text.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from remoteclaw.config.load import load_config
from remoteclaw.up.sweep import sweeping
from tests.support.bridges import claude_script
from tests.support.browser import DESK, PHONE, write
from tests.support.doors import opened
from tests.support.drawing import PICTURES
from tests.support.stack import Stack

ANSWER = """\
The total is computed in **one place**, and the mail has a copy of it from before the change:

```python
def total(basket: list[tuple[Decimal, int]]) -> Decimal:
    return sum(price * count for price, count in basket)
```

What I would do:

1. let the mail call `total()`
2. delete the copy: it is 14 lines, and nobody else uses it
3. add a test for an empty basket

Shall I?"""
#: The agent's program in a terminal: draws a dialog, and reports by claude's hooks that it waits.
_PROGRAM = r"""
if sys.stdin.isatty():
    import subprocess, tty
    with open(sys.argv[sys.argv.index('--settings') + 1]) as file:
        hooks = json.load(file)['hooks']
    def hook(name, **about):
        (one,) = hooks[name][0]['hooks']
        told = json.dumps(dict(hook_event_name=name, cwd=os.getcwd(), **about))
        subprocess.run(one['command'], shell=True, input=told, text=True)
    tty.setraw(0)
    hook('SessionStart', source='startup')
    draw = lambda *lines: [print(line, end='\r\n', flush=True) for line in lines]
    draw('\x1b]0;✳ Discount in the mail\x07\x1b[?25l\x1b[1m> Delete the copy, and run the tests.')
    draw('\x1b[0m', '● The mail calls \x1b[36mtotal()\x1b[0m now.', '')
    draw('● \x1b[1mUpdate\x1b[0m(shop/mail.py)', '  └  Removed \x1b[1m14\x1b[0m lines')
    draw('     12 \x1b[48;5;52m- amount = sum(price for price, _ in basket)\x1b[0m')
    draw('     12 \x1b[48;5;22m+ amount = total(basket)\x1b[0m', '')
    draw('\x1b[34m╭' + '─' * 70 + '╮')
    for line in ('Bash command', '', '  pytest -q shop', '', 'Do you want to proceed?',
                 '❯ 1. Yes', '  2. No, and say what to do instead'):
        draw('│ ' + line.ljust(69) + '│')
    draw('╰' + '─' * 70 + '╯\x1b[0m')
    hook('PermissionRequest', tool_name='Bash', tool_input=dict(command='pytest -q shop'))
    while os.read(0, 1000): pass
"""
#: An agent that answers with a tool's help, and then asks whether it may push.
_AGENT = """
def use(id, name, output, **input):
    call = dict(type='tool_use', id=id, name=name, input=input)
    say(type='assistant', message=dict(content=[call]))
    back = dict(type='tool_result', tool_use_id=id, content=output)
    say(type='user', message=dict(content=[back]))
while True:
    message = heard()
    echo(message)
    if 'push' not in json.dumps(message):
        use('1', 'Grep', 'shop/basket.py:12', pattern='def total', path='shop')
        use('2', 'Read', '…', file_path='shop/mail.py')
        delta(ANSWER)
        result(ANSWER)
        continue
    delta('The mail calls `total()` now, and all 31 tests pass.')
    asks('r', 'Bash', dict(command='git push origin discount'))
    heard('control_response')
    result('Pushed.')
"""
#: Replaces all shown times and directories by fixed ones, and returns the page's text. It is one
#: step, because a message that arrived in between would show its own time.
_STILL = """(work) => {
  const still = {
    "main time": "10:24 AM", ".who .unseen": ", 10:24 AM", "aside time": "1 minute ago",
    ".seconds": "0.2s", ".ended": "6s · 412 tokens", ".since": "6s",
  };
  for (const [where, words] of Object.entries(still)) {
    for (const each of document.querySelectorAll(where)) each.textContent = words;
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    texts.currentNode.data = texts.currentNode.data.replace(work, "/home/me/shop");
  }
  return document.querySelector("main").innerText;
}"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its text."""

    png: bytes
    text: str

    def keep(self, name: str) -> None:
        """Write picture and text to the documentation."""
        (PICTURES / f"{name}.png").write_bytes(self.png)
        (PICTURES / f"{name}.txt").write_text(self.text)


async def page_pictures(browser: Browser, stack: Stack, directory: Path) -> dict[str, Picture]:
    """Return the pictures by name."""
    (work := directory / "shop").mkdir()
    command = claude_script(directory, _PROGRAM + _AGENT.replace("ANSWER", repr(ANSWER)))
    stack.configure({"runtime": "claude", "workspace": str(work), "command": list(command)})
    for _ in range(2):
        await stack.start_worker()
    config = load_config(stack.home.config_file)
    sweeps = [asyncio.create_task(one) for one in sweeping(stack.fleet, stack.home, config)]
    async with opened(stack) as door:
        code = await stack.fleet.logins.create("ada", "admin", 3_600_000)
        wide = await browser.new_context(viewport=DESK, locale="en-US")
        page = await wide.new_page()
        await page.goto(f"{door.url}/#{code}")
        await write(page, "Why is there no discount in the mail?")
        await expect(page.locator(".message.agent .ended")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(page.locator(".sessions a time")).to_be_visible()
        pictures = {"page-chat": await _taken(page, work)}
        await page.get_by_role("button", name="Terminal", exact=True).click()
        await page.get_by_role("button", name="Open terminal").click()
        await expect(page.locator(".tty-state")).to_contain_text("Needs you: Bash: pytest -q shop")
        await expect(page.locator(".tty-lines")).to_contain_text("╰")
        asked = page.locator(".message", has_text="asks to use Bash")
        await expect(asked).to_have_count(1)
        pictures["page-terminal"] = await _taken(page, work)
        await page.get_by_role("button", name="More", exact=True).click()
        await page.get_by_role("button", name="End", exact=True).click()
        await page.get_by_role("button", name="End it, whatever it does").click()
        await expect(page.get_by_role("button", name="Take control")).to_be_hidden()
        await page.get_by_role("button", name="Terminal", exact=True).click()
        await write(page, "Yes, and push it.")
        phone = await browser.new_context(
            viewport=PHONE,
            color_scheme="dark",
            locale="en-US",
            has_touch=True,
            is_mobile=True,
            storage_state=await wide.storage_state(),
        )
        page = await phone.new_page()
        await page.goto(door.url)
        await expect(page.get_by_role("button", name="Deny")).to_be_visible()
        # Live text and the message may both be shown for a moment.
        await expect(page.get_by_text("all 31 tests pass")).to_have_count(1)
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()  # the turn goes on
        await expect(page.locator("li.live")).to_have_count(0)
        pictures["page-request"] = await _taken(page, work)
        await wide.close()
        await phone.close()
    for each in sweeps:
        each.cancel()
    await asyncio.wait(sweeps)
    return pictures


async def _taken(page: Page, work: Path) -> Picture:
    await page.locator("h1").first.hover()  # the mouse leaves the messages, whose buttons hide then
    await expect(page.locator(".tool-use.over")).to_have_count(2)
    text = await page.evaluate(_STILL, str(work))
    return Picture(await page.screenshot(), f"{text}\n")
