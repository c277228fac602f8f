"""Tool calls, plans and text of an agent in a conversation on the page."""

import re
from pathlib import Path
from urllib.parse import quote

import orjson
from playwright.async_api import Browser, Page, expect

from remoteclaw.fleet import keys
from remoteclaw.messages import SessionKey
from tests.support.bridges import claude_script
from tests.support.browser import DESK, PHONE, logged_in, write
from tests.support.doors import Door, opened
from tests.support.stack import Stack

#: claude in a turn that continues when the test creates files.
AT_WORK = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
def use(id, name, **input):
    block = dict(type='tool_use', id=id, name=name, input=input)
    say(type='assistant', message=dict(content=[block]))
def returned(id, content, is_error=False):
    block = dict(type='tool_result', tool_use_id=id, content=content, is_error=is_error)
    say(type='user', message=dict(content=[block]))
def plan(*states):
    todos = [dict(content=f'Step {n}', status=state) for n, state in enumerate(states, 1)]
    use(f'plan {states}', 'TodoWrite', todos=todos)
    returned(f'plan {states}', 'noted')
echo(heard())
plan('in_progress', 'pending')
use('1', 'Bash', command='make all\\n# twice', timeout=5)
until('built')
returned('1', 'built <b>it</b>')
delta('It is built: all of the words before stand. ')
until('more')
delta('Now the tests.\\n\\n- one')
until('tests')
plan('completed', 'in_progress')
use('2', 'Bash', command='make test')
until('failed')
returned('2', 'two of them failed', True)
delta('\\n- two')
until('end')
result('', usage=dict(input_tokens=5, output_tokens=7))
echo(heard())
result('API Error: 500', is_error=True, subtype='error_during_execution')
heard()
"""


def address(door: Door, session: SessionKey) -> str:
    return f"{door.url}/#/s/{quote(str(session), safe='')}"


async def shown(page: Page) -> list[str]:
    """Return the items of a conversation, each as its class and its first line."""
    found: list[str] = await page.locator(".messages > li").evaluate_all(
        """items => items.map((item) => {
             const line = item.querySelector(".words, .text, .plan");
             return `${item.className}: ${line.textContent.trim()}`;
           })"""
    )
    return found


async def test_tool_calls_are_shown_while_they_run_and_afterwards(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    command = list(claude_script(directory, AT_WORK.replace("DIRECTORY", str(directory))))
    stack.configure({"runtime": "claude", "command": command})
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "go")
        card = page.locator(".tool-use", has_text="make all")
        await expect(card).to_have_class("tool-use runs")
        await expect(page.locator(".plan .in_progress")).to_have_text("▸ Step 1")
        await expect(card.locator(".seconds")).to_have_text(re.compile(r"^[1-9]\d*\s?s$"))
        run = page.locator(".tool-run")
        await expect(run.locator(".words")).to_have_text("Running make all # twice")
        await run.locator("summary").first.click()
        await card.locator("summary").click()
        await expect(card.locator("pre").first).to_have_text(
            "command:\nmake all\n# twice\ntimeout: 5"
        )
        await expect(card.locator("pre").nth(1)).to_be_hidden()
        (directory / "built").touch()
        await expect(card).to_have_class("tool-use over")
        await expect(card.locator("pre").nth(1)).to_have_text("built <b>it</b>")

        text = page.locator(".live .text")
        await expect(text).to_contain_text("It is built")
        await text.evaluate(
            """text => {
                 globalThis.card = document.querySelector(".tool-use [open]");
                 const words = text.querySelector("p").firstChild;
                 getSelection().setBaseAndExtent(words, 3, words, 11);
               }"""
        )
        (directory / "more").touch()
        await expect(text.locator("li")).to_have_text("one")
        assert await page.evaluate("getSelection().toString()") == "is built"
        (directory / "tests").touch()
        await expect(page.locator(".plan .in_progress")).to_have_text("▸ Step 2")
        await expect(page.locator(".tool-use.runs")).to_contain_text("make test")
        (directory / "failed").touch()
        failed = page.locator(".tool-use.failed")
        await expect(failed.locator(".seconds")).to_have_text(re.compile("^failed · "))
        await expect(text.locator("li")).to_have_text(["one", "two"])
        session = SessionKey("main", "web", "default", "admin.ada", "admin.ada", None)
        other = await page.context.new_page()
        for place in (door.url, address(door, session)):  # opened during the turn
            await other.goto(place)
            await expect(other.locator(".live .text li")).to_have_text(["one", "two"])
        await other.close()
        (directory / "end").touch()
        answer = page.locator(".message.agent")
        await expect(answer.locator(".ended")).to_contain_text("7 tokens")
        await expect(page.locator(".live")).to_be_hidden()
        assert await page.evaluate("getSelection().toString()") == "is built"
        assert await page.evaluate("card.isConnected && card.open")

        before = await shown(page)
        assert [one.partition(":")[0] for one in before] == [
            "message own",
            "plan-use",
            "tool-run over failed",
            "message agent",
        ]
        await page.reload()
        await expect(answer.locator(".text")).to_contain_text("Now the tests.")
        await expect(failed).to_have_count(1)
        assert await shown(page) == before
        await run.locator("summary").first.click()
        await failed.locator("summary").click()
        await expect(failed.locator("pre").nth(1)).to_have_text("two of them failed")

        await write(page, "and now?")
        error = page.locator(".message.error")
        await expect(error).to_contain_text(f"{session.sid[:8]}-")
        await page.goto(address(door, session))
        await expect(error).to_contain_text(f"{session.sid[:8]}-")
        await expect(error.locator("details code").first).to_have_text("API Error: 500")
        await expect(page.locator(".message.agent li")).to_have_text(["one", "two"])
        await expect(page.locator(".tool-use")).to_have_count(4)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()


#: claude with an answer of many parts that arrive quickly.
AT_LENGTH = """
echo(heard())
for number in range(1, 41): delta(f'## Part {number}\\n\\n' + 'All work. ' * 24 + '\\n\\n')
result('')
heard()
"""


async def test_new_messages_leave_the_scroll_position_or_follow_the_end(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """Whatever is added at the end, or above when earlier messages are loaded."""
    await stack.start_worker()
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        for number in range(40):
            about = {"from": "agent", "text": f"the answer {number}", "files": []}
            await stack.fleet.scripts.client.xadd(
                keys.web("admin.ada"), {"kind": "message", "about": orjson.dumps(about)}
            )
        await page.reload()
        await write(page, "slow")
        await expect(page.locator(".live .text")).to_contain_text("1 2 3")
        await expect(page.locator(".live")).to_be_in_viewport()
        await page.locator(".scroller").evaluate("scroller => { scroller.scrollTop = 200; }")
        read = page.get_by_text("the answer 5", exact=True)
        place = "message => message.getBoundingClientRect().top"
        before = await read.evaluate(place)
        await read.evaluate(
            """message => {
                 const above = document.createElement("li");
                 above.textContent = "above";
                 message.closest("ol").prepend(above);
               }"""
        )
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".message.line", has_text="Stopped.")).to_be_attached()
        await expect(page.locator(".live")).to_be_hidden()
        assert abs(await read.evaluate(place) - before) < 1  # in pixels

        await page.set_viewport_size(PHONE)
        await page.locator(".scroller").evaluate("it => { it.scrollTop = it.scrollHeight; }")
        command = list(claude_script(directory, AT_LENGTH))
        stack.configure({"runtime": "claude", "command": command})
        await write(page, "long")
        await expect(page.locator(".message", has_text="Part 40")).to_be_attached()
        reply = page.get_by_role("button", name="Reply").last
        await expect(reply).to_be_in_viewport()
        await page.get_by_label("Message", exact=True).fill("and\n" * 9)
        await expect(reply).to_be_in_viewport()

        accepted = await stack.append("hello")
        await stack.outcome(accepted)
        lines = [
            orjson.dumps({"role": "agent", "at": 10**12 + number, "text": f"the answer {number}"})
            for number in range(1, 501)
        ]
        await stack.fleet.scripts.client.set(keys.record(accepted.session.sid), b"\n".join(lines))
        await page.set_viewport_size(DESK)
        await page.goto(address(door, accepted.session))
        answers = page.locator(".message.agent .text")
        await expect(answers).to_have_count(200)
        await expect(answers.last).to_be_in_viewport()
        scroller = page.locator(".scroller")
        await scroller.evaluate("scroller => { scroller.scrollTop = 10; }")
        await expect(answers).to_have_count(400)
        await expect(page.get_by_text("the answer 302", exact=True)).to_be_in_viewport()
        await expect(page.get_by_text("the answer 200", exact=True)).not_to_be_in_viewport()
        await scroller.evaluate("scroller => { scroller.scrollTop = 0; }")
        await expect(answers).to_have_count(500)
        await expect(page.get_by_role("button", name="Earlier messages")).to_be_hidden()
        texts = await answers.all_text_contents()
        assert texts == [f"the answer {number}" for number in range(1, 501)]
