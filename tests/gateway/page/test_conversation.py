"""A conversation on the page, as people of chats expect it: one walk through all of it."""

import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FilePayload, Page, expect

from tests.support.bridges import claude_script
from tests.support.browser import PHONE, logged_in, write
from tests.support.doors import opened
from tests.support.stack import Stack
from tests.support.views import faults_of

#: claude with tools, files, a failure, and a request.
AGENT = r"""
def use(id, name, output, is_error=False, **input):
    block = dict(type='tool_use', id=id, name=name, input=input)
    say(type='assistant', message=dict(content=[block]))
    block = dict(type='tool_result', tool_use_id=id, content=output, is_error=is_error)
    say(type='user', message=dict(content=[block]))
while True:
    message = heard()
    echo(message)
    text = json.dumps(message)
    if 'push' in text:
        asks('r', 'Bash', dict(command='git push origin discount'))
        heard('control_response')
        result('Pushed.')
    elif 'fail' in text:
        result('API Error: 500', is_error=True, subtype='error_during_execution')
    elif 'file' in text:
        delta('Here. ' + ' '.join(f'[[attach:{name}]]' for name in ('p.png', 'evil.png', 'n.txt')))
        result('')
    elif 'wait' in text:
        delta('I begin.')
        while not os.path.exists('GO_ON'): time.sleep(0.01)
        result('')
    else:
        use('1', 'Read', '…', file_path='shop/mail.py')
        use('2', 'Read', '…', file_path='shop/basket.py')
        use('3', 'mcp__remoteclaw__message_send', 'sent', text='hello')
        change = dict(old_string='a\nb\nc', new_string='a\nB\nc')
        use('4', 'Edit', 'done', file_path='shop/mail.py', **change)
        use('5', 'Bash', '2 failed', True, command='pytest -q shop')
        result('So:\n\n```python\ndef total(x):\n    return sum(x)  # all\n```')
"""
SVG = (
    b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><rect width='9' height='9'/></svg>"
)


def png() -> bytes:
    """Return a picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        end = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + end

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b"")
    )


@pytest.fixture
def work(directory: Path) -> Path:
    """A workspace with files."""
    (work := directory / "work").mkdir()
    for name in ("shop/mail.py", "shop/basket.py", "docs/email.md", ".env"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).touch()
    (work / "p.png").write_bytes(png())
    (work / "evil.png").write_bytes(SVG)
    (work / "n.txt").write_text("1, 2, 3")
    return work


async def test_a_conversation_reads_like_a_chat_and_hides_its_work_until_it_is_opened(
    browser: Browser, stack: Stack, directory: Path, work: Path
) -> None:
    """The empty chat, tools, code, pictures, a failure, an answered request, and Stop."""
    agent = AGENT.replace("GO_ON", str(directory / "go"))
    command = list(claude_script(directory, agent))
    stack.configure({"runtime": "claude", "workspace": str(work), "command": command})
    await stack.start_worker()
    options: Any = {"locale": "en-US", "permissions": ["clipboard-read", "clipboard-write"]}
    async with (
        opened(stack) as door,
        logged_in(browser, stack, door, bypass_csp=True, **options) as page,
    ):
        await begins_with_examples(page, work)
        await completes_commands_and_files(page)
        await folds_tools(page)
        await shows_code(page)
        await shows_pictures_by_their_content(page)
        await says_a_failure_in_a_sentence(page)
        await folds_an_answered_request(page)
        await stops_in_place_of_sending(page, directory / "go")
        faults = [fault async for fault in faults_of(page)]
        for width in (320, PHONE["width"]):
            await page.set_viewport_size({"width": width, "height": 640})
            for where in ("html", ".scroller", ".composer"):
                shown = await page.locator(where).evaluate("it => it.scrollWidth")
                assert shown <= width, where
    assert not faults, "\n".join(faults)


async def begins_with_examples(page: Page, work: Path) -> None:
    welcome, message = page.locator(".welcome"), page.get_by_label("Message", exact=True)
    await expect(welcome).to_contain_text(f"main answers hereclaude in {work}")
    await expect(welcome).to_contain_text("asks you before it changes anything")
    await welcome.get_by_role("button").first.click()
    await expect(message).to_have_value(re.compile("Explain what this project does"))
    await expect(message).to_be_focused()


async def completes_commands_and_files(page: Page) -> None:
    message, listed = page.get_by_label("Message", exact=True), page.locator(".completion li")
    await message.fill("")
    await message.press_sequentially("/stat")
    await expect(listed).to_have_text([re.compile("/status")])
    active = await message.get_attribute("aria-activedescendant")
    assert active == await listed.first.get_attribute("id")
    await message.press("Escape")
    await expect(listed.first).to_be_hidden()
    await message.fill("")
    await message.press_sequentially("see @mai")
    await expect(listed).to_have_text(["@shop/mail.py", "@docs/email.md"])
    await message.press("ArrowDown")
    await message.press("Tab")
    await expect(message).to_have_value("see @docs/email.md ")
    await message.fill("")
    await message.press_sequentially("see @mai")
    await listed.first.click()
    await expect(message).to_have_value("see @shop/mail.py ")
    await expect(message).to_be_focused()
    await message.press_sequentially("and me@env")
    await expect(listed.first).to_be_hidden()
    await message.press("Enter")
    await expect(page.locator(".message.own")).to_contain_text("see @shop/mail.py and me@env")


async def folds_tools(page: Page) -> None:
    run, rows = page.locator(".tool-run"), page.locator(".tool-use")
    words = run.locator(".words")
    told = "Read 2 files, used message_send, changed shop/mail.py, ran pytest -q shop"
    await expect(words).to_have_text(told)
    await expect(run.locator("summary").first).to_contain_text("1 failed")
    await expect(rows.first).to_be_hidden()
    await words.click()
    await expect(rows).to_have_count(5)
    await rows.nth(3).locator("summary").click()
    diff = rows.nth(3).locator(".diff")
    await expect(diff.locator(".removed")).to_have_text("-b")
    await expect(diff.locator(".added")).to_have_text("+B")
    assert await diff.inner_text() == " a\n-b\n+B\n c"
    await expect(page.locator("body")).not_to_contain_text("mcp__")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("see @shop/mail.py")
    await expect(page).to_have_title(re.compile(r"^see @shop/mail.py .* · RemoteClaw$"))


async def shows_code(page: Page) -> None:
    block = page.locator(".code")
    await expect(block.locator(".k").first).to_have_text("def")
    await expect(block.locator(".c")).to_have_text("# all")
    await block.get_by_role("button", name="Copy the code").click()
    await expect(page.locator("p.unseen")).to_have_text("Copied.")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.rstrip() == "def total(x):\n    return sum(x)  # all"


async def shows_pictures_by_their_content(page: Page) -> None:
    picked: list[FilePayload] = [
        {"name": "own.png", "mimeType": "image/png", "buffer": png()},
        {"name": "svg.png", "mimeType": "image/png", "buffer": SVG},
    ]
    await page.locator("input[type=file]").first.set_input_files(picked)
    await expect(page.locator(".attached li")).to_have_count(2)
    await expect(page.locator(".attached img")).to_have_count(1)
    await write(page, "your file")
    files = page.locator(".message.agent .files")
    await expect(files.get_by_role("button", name="Picture p.png")).to_be_visible()
    await expect(files.get_by_role("link")).to_have_text([re.compile("evil"), re.compile("n.txt")])
    await expect(page.locator(".message.own .thumbnail img")).to_have_count(1)
    assert await files.locator("img").evaluate("it => it.decode().then(() => it.naturalWidth)") == 1
    await files.get_by_role("button", name="Picture p.png").press("Enter")
    dialog = page.get_by_role("dialog", name="p.png")
    async with page.expect_download() as download:
        await dialog.get_by_role("button", name="Download").click()
    assert (await download.value).suggested_filename == "p.png"
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def says_a_failure_in_a_sentence(page: Page) -> None:
    await write(page, "now fail")
    box = page.locator(".message.error .failure")
    await expect(box.locator("strong")).to_have_text(
        "main failed and couldn't finish your message."
    )
    await expect(box.get_by_text("API Error: 500")).to_be_hidden()
    await box.get_by_text("Details").click()
    await expect(box.get_by_text("API Error: 500")).to_be_visible()


async def folds_an_answered_request(page: Page) -> None:
    await write(page, "push it")
    await page.get_by_role("button", name="Allow once").click()
    answered = page.locator(".answered")
    await expect(answered.locator("summary")).to_contain_text("Allowed once by ada at")
    await expect(answered.locator("summary")).to_contain_text("git push origin discount")
    await expect(answered.locator("pre")).to_be_hidden()
    await answered.locator("summary").press("Enter")
    await expect(answered.locator("pre")).to_have_text("git push origin discount")


async def stops_in_place_of_sending(page: Page, go_on: Path) -> None:
    send = page.get_by_role("button", name="Send")
    stop = page.get_by_role("button", name="Stop")
    await write(page, "wait")
    await expect(stop).to_be_visible()
    await expect(send).to_be_hidden()
    await page.get_by_label("Message", exact=True).fill("more")
    await expect(stop).to_be_hidden()
    await expect(send).to_be_visible()
    await page.get_by_label("Message", exact=True).fill("")
    await expect(page.locator(".live .text")).to_have_text("I begin.")
    await stop.click()
    go_on.touch()
    await expect(send).to_be_visible()
    await expect(stop).to_be_hidden()
