"""Every view of the page looks right, and the documentation's pictures of it are up to date."""

from itertools import cycle
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Browser, expect

from remoteclaw.cron.schedule import Schedule
from remoteclaw.fleet.replies.reader import DeliveryFailure
from tests.conftest import THOROUGH
from tests.support.bridges import claude_script
from tests.support.browser import logged_in, write
from tests.support.day import EXPLAINED
from tests.support.doors import opened
from tests.support.drawing import PICTURES
from tests.support.jobs import add
from tests.support.page_pictures import page_pictures
from tests.support.stack import Stack
from tests.support.views import DIRECTORY, LOADED, VIEWS, View, look_at

#: An agent that explains something, with tools; asks before it publishes; and works without an end
#: at anything else.
_AGENT = """
def use(id, name, output, **input):
    call = dict(type='tool_use', id=id, name=name, input=input)
    say(type='assistant', message=dict(content=[call]))
    back = dict(type='tool_result', tool_use_id=id, content=output)
    say(type='user', message=dict(content=[back]))
while True:
    message = heard()
    text = json.dumps(message)
    echo(message)
    if 'xplain' in text:
        use('1', 'Grep', 'shop/basket.py:12', pattern='def total', path='shop')
        use('2', 'Edit', '…', file_path='shop/mail.py', old_string='a = 1', new_string='a = 2')
        delta(EXPLAINED)
        result(EXPLAINED)
    elif 'ublish' in text:
        delta('All 31 tests pass.')
        asks('r', 'Bash', dict(command='npm version 2.1.0 && npm publish ' + '--force ' * 30))
        heard('control_response')
        result('Published.')
    else:
        delta('I look at it …')
        heard('never')
"""


async def test_every_view_is_accessible_still_and_whole_in_every_window(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """axe finds no fault, nothing moves while a view is loaded, nothing is cut off at 320 or 3840
    pixels, and nothing is animated if the system asks for no motion.

    Without REMOTECLAW_TEST_THOROUGH, each view is loaded in one window, in each one in turn.
    """
    command = list(claude_script(directory, _AGENT.replace("EXPLAINED", repr(EXPLAINED))))
    stack.configure(
        {"runtime": "claude", "command": command},
        budgets=[{"of": "all", "per": "day", "usd": 20}],
    )
    for _ in range(3):
        await stack.start_worker()
    faults: list[str] = []
    # The content security policy of the page would refuse axe's script.
    async with opened(stack) as door, logged_in(browser, stack, door, bypass_csp=True) as page:
        await write(page, "Explain how the basket is priced.")
        await expect(page.locator(".message.agent")).to_have_count(1)
        asked = await stack.append("Publish 2.1.", provider="telegram", channel_id="-77")
        second = await stack.append("Publish 2.2.", channel_id="2")
        await stack.append("Find the leak in the importer, and say what it costs.", channel_id="3")
        refused = stack.fleet.replies.reader("test", "refused")
        await stack.put_reply("test", "refused", "The importer is 12 % faster now.", chat="3")
        failure = DeliveryFailure("refused", "The bot was blocked by the user.")
        await refused.receipt(await anext(refused.replies()), failure=failure)
        await add(stack.fleet, Schedule(every_s=3600), session=asked.session)
        badge = page.locator("nav .badge")
        await expect(badge).to_have_text("2")
        await page.wait_for_function("document.getAnimations().length")  # an agent is at work
        session = quote(str(second.session), safe="")
        all_windows = THOROUGH or DIRECTORY is not None
        for view, skipped in zip(VIEWS, cycle(LOADED)):
            place = f"{door.url}/#/{view.place.format(session=session)}"
            looking = look_at(
                page,
                view,
                place,
                directory / "pictures",
                skipped=None if all_windows else skipped,
            )
            faults += [each async for each in looking]
        stranger = await browser.new_page(bypass_csp=True)
        login = View("login", "", ".locked form")
        faults += [
            each async for each in look_at(stranger, login, door.url, directory / "pictures")
        ]
        await stranger.close()
    assert not faults, "\n".join(faults)


async def test_the_pictures_of_the_page_have_its_current_text(
    browser: Browser, stack: Stack, directory: Path
) -> None:
    """Only the text is compared, because versions of a browser draw a page differently."""
    for name, picture in (await page_pictures(browser, stack, directory)).items():
        text = (PICTURES / f"{name}.txt").read_text()
        assert text == picture.text, f"run scripts/pictures: {name}"
        size = (PICTURES / f"{name}.png").stat().st_size
        assert size < 100_000
