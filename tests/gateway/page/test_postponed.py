"""A conversation that waits for the end of a provider's limit, in a real browser."""

import re
import time
from pathlib import Path

from playwright.async_api import Browser, expect

from remoteclaw.messages import SessionKey
from tests.support.bridges import script
from tests.support.browser import logged_in, write
from tests.support.cli import run
from tests.support.doors import opened
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: An agent that has reached a limit for an hour, until a file exists.
AGENT = """
while True:
    word = turn()['prompt'].split()[-1]
    if os.path.exists('GO'):
        say(type='text', text=word + ' is answered'); say(type='done')
    else:
        say(type='done', error='it failed', category='usage_limit', retry_at_ms=UNTIL)
"""


async def test_the_page_shows_until_when_a_message_waits_and_can_try_now_or_drop_it(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    go = directory / "go"
    until = str(int(time.time() * 1000) + 3_600_000)
    command = script(directory, AGENT.replace("GO", str(go)).replace("UNTIL", until))
    stack.configure({"runtime": "demo", "command": list(command)})
    await stack.start_worker()
    session = SessionKey("main", "web", "default", "admin.ada", "admin.ada", None)

    async def is_asked(times: int) -> bool:
        outcome = await stack.fleet.outcomes.read(session.sid, entry)
        steps = outcome.steps if outcome else ()
        return sum(step.name == "postponed" for step in steps) == times

    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await write(page, "first")
        paused = page.locator(".paused p")
        waits = re.compile(r"^It waits until .*\d.*M \(the plan's limit\)\.$")
        await expect(paused).to_have_text(waits)
        await expect(page.locator(".live, .stop:visible")).to_have_count(0)
        await expect(page.locator(".sessions .state")).to_contain_text("waits until")
        view = await stack.fleet.sessions.view(session.sid)
        assert view is not None
        assert "(the plan's limit)" in run(stack, "sessions", "list").stdout
        entry = view.last_entry or ""
        await page.reload()
        await expect(paused).to_have_text(waits)
        await page.get_by_role("button", name="Try now").click()
        await eventually(lambda: is_asked(2))
        await expect(paused).to_have_text(waits)
        other = await page.context.new_page()
        await other.goto(f"{door.url}/#/s/{session.sid}")
        await expect(other.locator(".paused p")).to_have_text(waits)
        go.touch()
        await other.get_by_role("button", name="Try now").click()
        for each in (page, other):
            await expect(each.locator(".message.agent").last).to_contain_text("first is answered")
            await expect(each.locator(".paused")).to_be_hidden()

        go.unlink()
        await write(page, "second")
        await expect(paused).to_have_text(waits)
        await page.get_by_role("button", name="Drop").click()
        for each in (page, other):
            await expect(each.locator(".paused")).to_be_hidden()
        await expect(page.locator(".sessions .about")).not_to_contain_text("waits")
        assert (
            "The session is not postponed." in run(stack, "sessions", "retry", session.sid).stdout
        )
