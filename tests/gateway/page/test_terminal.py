"""The terminal on the page, in a real browser: drawing, rights and input."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from remoteclaw.errors import CallRefused
from remoteclaw.messages import SessionKey
from remoteclaw.tools.base import Scope
from tests.support.agents import AgentCli
from tests.support.browser import PHONE, logged_in, write
from tests.support.doors import Door, gateway_process
from tests.support.panes import Pane, Runs, frame, pane_opened, terminal_shown
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.views import faults_in_windows
from tests.support.waiting import eventually

#: The session of the person's first conversation, encoded for a URL.
OWN_SESSION = """async () => {
  const { get } = await import("/page/rpc.js");
  return encodeURIComponent((await (await get("/page/whoami")).json()).session);
}"""


def rows(page: Page) -> Locator:
    return page.locator(".tty-lines .tty-row")


def button(page: Page, name: str) -> Locator:
    return page.locator(".terminal").get_by_role("button", name=name, exact=True)


async def choose(page: Page, name: str) -> None:
    """Open the menu of the terminal, and choose an action."""
    await button(page, "More").click()
    await button(page, name).click()


def _random_runs(chance: random.Random) -> Runs:
    """Return a random row with styles and wide characters, or an empty one."""
    runs: Runs = []
    room = 40
    while room > 4 and chance.random() < 0.7:
        is_wide = chance.random() < 0.2
        letters = "漢字한글" if is_wide else "abc <&>─│✻éشل"
        text = "".join(chance.choices(letters, k=chance.randint(1, room // 4)))
        style: dict[str, Any] = {"w": 2} if is_wide else {}
        if chance.random() < 0.1:
            text, style = "e\u0301", {"c": 1}
        if chance.random() < 0.5:
            colour = chance.choice((1, 9, 208, 244, "#00ff7f"))
            style |= {chance.choice(("fg", "bg")): colour, chance.choice("bdivs"): 1}
        runs.append([text, style] if style else [text])
        room -= len(text) * (2 if is_wide else 1)
    return runs


async def _check_drawing(page: Page, pane: Pane) -> None:
    """Check that the page draws the screen however its frames are split."""
    chance = random.Random(22)
    screen: dict[int, Runs] = {}
    changed_at: dict[int, int] = {}
    sent = 1
    for revision in range(2, 200):
        for row in chance.sample(range(8), chance.randint(0, 3)):
            screen[row], changed_at[row] = _random_runs(chance), revision
        if chance.random() < 0.6:  # a slow viewer gets several revisions at once
            new = {row: runs for row, runs in screen.items() if changed_at[row] > sent}
            pane.show(**frame(new, revision=revision, since=sent))
            if chance.random() < 0.1:  # an outdated frame changes nothing
                pane.show(**frame({0: [["old"]]}, revision=sent, since=sent - 1))
            sent = revision
    pane.show(**frame(screen, revision=200, since=sent, title="the last"))
    await expect(page.locator(".tty-title")).to_have_text("the last")
    wanted = ["".join(run[0] for run in screen.get(row, [])) for row in range(8)]
    assert await drawn(page) == wanted
    watched = len(pane.calls("terminals.watch"))
    pane.screen = frame({2: [["all of it"]]}, revision=300, rows=12)
    pane.show(**frame({0: [["lost in between"]]}, revision=299, since=250))
    await expect(rows(page).nth(2)).to_have_text("all of it")
    assert await drawn(page) == ["", "", "all of it", *[""] * 9]
    assert len(pane.calls("terminals.watch")) == watched + 1


async def drawn(page: Page) -> list[str]:
    """Return the rows after the next drawing."""
    await page.evaluate("new Promise(requestAnimationFrame)")
    return [each.rstrip() for each in await rows(page).all_text_contents()]


async def test_a_terminal_is_opened_once_and_only_when_a_person_asks(
    browser: Browser, stack: Stack
) -> None:
    """A second click or a reload opens no other terminal. The page draws the screen, and requests
    all of it again if a frame is missing.
    """
    pane = Pane()
    pane.may_open.clear()
    async with pane_opened(stack, pane) as door, logged_in(browser, stack, door) as page:
        await terminal_shown(page)
        state = page.locator(".tty-state")
        await expect(state).to_have_text("No terminal is open here.")
        assert pane.calls("terminals.open") == []
        await button(page, "Open terminal").dblclick()
        await expect(button(page, "Open terminal")).to_have_attribute("aria-disabled", "true")
        pane.may_open.set()
        await expect(state).to_have_text("Starting")
        pane.change(reason="Do you trust this folder?")
        await expect(state).to_have_text(
            "Starting · needs you: a dialog is open (Do you trust this folder?)"
        )
        pane.live()
        await expect(state).to_have_text("Waits for you to write")
        pane.change(activity="waiting", waiting_for="Bash: make")
        await expect(state).to_have_text("Needs you: Bash: make")
        await page.reload()
        await expect(state).to_have_text("Needs you: Bash: make")
        await page.get_by_role("button", name="Terminal", exact=True).click()
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
        pane.show(**frame({0: [["drawn while it was hidden"]]}, revision=2))
        await page.get_by_role("button", name="Terminal", exact=True).click()
        await expect(rows(page).first).to_have_text("drawn while it was hidden")
        await rows(page).first.evaluate("(element) => { window.before = element; }")
        await choose(page, "Park")
        await expect(state).to_have_text("Parked · it can be resumed")
        await expect(rows(page).first).to_have_text("drawn while it was hidden")
        await page.get_by_role("link", name="Fleet").click()
        await page.get_by_role("link", name="RemoteClaw").click()
        await expect(button(page, "Resume")).to_be_visible()
        is_same = await rows(page).first.evaluate("(element) => element === window.before")
        assert is_same, "the pane was rebuilt"
        (opening,) = pane.calls("terminals.open")
        assert opening["session"] == pane.told().session_key
        await button(page, "Resume").click()
        await expect(state).to_have_text("Starting")
        assert len(pane.calls("terminals.open")) == 2

        pane.live()
        await expect(state).to_have_text("Waits for you to write")
        await eventually(lambda: pane.viewers)
        await _check_drawing(page, pane)


async def test_a_viewer_who_may_not_type_is_offered_no_keyboard(
    browser: Browser, stack: Stack
) -> None:
    pane = Pane()
    pane.screen = frame({0: [["❯ "], ["make", {"b": 1}]]}, cols=140)
    key = (await stack.append("hello")).session
    async with pane_opened(stack, pane) as door:
        await _check_no_input(browser, stack, door, pane, key, "read")
        await _check_no_input(browser, stack, door, pane, key, "write")
    assert {name for name, _ in pane.asked} <= {
        *("terminals.watch", "terminals.get", "terminals.screen", "terminals.leave")
    }


async def _check_no_input(
    browser: Browser, stack: Stack, door: Door, pane: Pane, key: SessionKey, scope: Scope
) -> None:
    pane.live(writer="bob", viewers=3)
    async with logged_in(browser, stack, door, scope=scope) as page:
        await page.goto(f"{door.url}/#/s/{str(key).replace('/', '%2F')}")
        await terminal_shown(page)
        await expect(rows(page).first).to_have_text("❯ make")
        await expect(page.locator(".tty-people")).to_have_text("bob types · 3 watch")
        for name in ("Take control from bob", "Interrupt (Esc)", "Park", "End", "Give back"):
            await expect(button(page, name)).to_be_hidden()
        await expect(page.locator(".tty-composer")).to_be_hidden()
        for element in (".tty-scroller", "body"):
            await page.locator(element).press("x")
            await page.locator(element).press("Enter")
        await page.locator(".tty-screen").click()
        await page.keyboard.type("y\n")
        fits = "(each) => each.scrollWidth <= each.clientWidth"
        assert await page.locator(".tty-scroller").evaluate(fits), (
            "the text is wider than the window"
        )
        pane.change(state="exited", writer="", resumable=False, exit=3)
        await expect(page.locator(".tty-state")).to_have_text("Ended · with the status 3")
        await expect(button(page, "Open terminal")).to_be_visible(visible=scope == "write")


async def test_one_viewer_types_and_a_takeover_is_visible(browser: Browser, stack: Stack) -> None:
    """After a lost connection, the page gets the keyboard back unless another client has it."""
    pane = Pane()
    pane.live()
    async with (
        pane_opened(stack, pane) as door,
        logged_in(browser, stack, door) as page,
        logged_in(browser, stack, door, name="bob") as other,
    ):
        await expect(page.get_by_role("button", name="Terminal", exact=True)).to_be_visible()
        # As a tap on a notification opens it.
        await other.goto(f"{door.url}/#/s/{await page.evaluate(OWN_SESSION)}/terminal")
        await terminal_shown(page)
        for each in (page, other):
            await expect(each.locator(".tty-people")).to_contain_text("Nobody types")
        await page.bring_to_front()
        await button(page, "Take control").click()
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        await expect(page.locator(".tty-people")).to_contain_text("You type")
        await page.keyboard.type("one")
        await eventually(lambda: "".join(pane.typed) == "t:ot:nt:e")
        taken = len(pane.calls("terminals.take"))
        lost, pane.typist = pane.typist, None
        lost.end(1012, "")
        await eventually(lambda: len(pane.calls("terminals.take")) > taken)
        await expect(page.locator(".tty-people")).to_contain_text("You type")
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        size = pane.calls("terminals.take")[-1]
        assert size["cols"] > 80
        await other.set_viewport_size({"width": 900, "height": 600})
        await other.evaluate("new Promise((done) => setTimeout(done, 150))")  # the resize delay
        await page.set_viewport_size({"width": 700, "height": 600})
        await eventually(
            lambda: any(to["cols"] < size["cols"] for to in pane.calls("terminals.resize"))
        )

        assert pane.asked_by["terminals.resize"] == {"ada"}
        await other.bring_to_front()
        await button(other, "Take control from ada").click()
        await expect(page.locator(".tty-people")).to_contain_text("bob types")
        await expect(page.get_by_label("Type into the terminal")).to_be_hidden()
        await expect(other.get_by_label("Type into the terminal")).to_be_focused()
        await page.keyboard.type("two")
        await other.keyboard.type("three")
        await eventually(lambda: pane.typed[3:] == ["t:t", "t:h", "t:r", "t:e", "t:e"])
        pane.typist = None
        await other.keyboard.type("!")
        await expect(other.locator(".terminal").get_by_role("alert")).to_have_text(
            "Another one types here now."
        )
        await expect(button(other, "Take control from bob")).to_be_visible()
        await choose(page, "End")
        await button(page, "Keep it").click()
        await button(page, "End").click()
        assert pane.calls("terminals.end") == []
        await button(page, "End it, whatever it does").click()
        await expect(other.locator(".tty-state")).to_have_text("Ended")


async def test_typed_composed_and_pasted_text_keeps_its_order(
    browser: Browser, stack: Stack
) -> None:
    pane = Pane()
    pane.live()
    pane.screen = frame({1: [["copied   "]], 2: [["too"], [" ", {"bg": 1}]]})
    pane.past = [[[f"row {number}"]] for number in range(700)]
    pane.screen |= {"history": 700}
    async with pane_opened(stack, pane) as door, logged_in(browser, stack, door) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await terminal_shown(page)
        await button(page, "Take control").click()
        field = page.get_by_label("Type into the terminal")
        await expect(field).to_be_focused()
        devices = await page.context.new_cdp_session(page)
        await page.keyboard.type("a")
        for text in ("に", "にほ"):
            composed = {"text": text, "selectionStart": len(text), "selectionEnd": len(text)}
            await devices.send("Input.imeSetComposition", composed)
        await devices.send("Input.insertText", {"text": "日本"})
        for key in ("Enter", "Shift+Tab", "ArrowUp", "Escape", "Control+c", "F5"):
            await page.keyboard.press(key)
        await page.evaluate("navigator.clipboard.writeText('two\\nlines')")
        await page.keyboard.press("Control+v")
        await page.keyboard.type("<b>")
        keys = ["enter", "shift+tab", "up", "esc", "ctrl+c", "f5"]
        wanted = ["t:a", "t:日本", *(f"k:{key}" for key in keys), "p:two\nlines"]
        await eventually(lambda: pane.typed == [*wanted, "t:<", "t:b", "t:>"])

        await (
            rows(page)
            .nth(1)
            .evaluate("(one) => getSelection().setBaseAndExtent(one, 0, one.nextSibling, 2)")
        )
        await page.keyboard.press("Control+c")
        assert await page.evaluate("navigator.clipboard.readText()") == "copied\ntoo"
        await page.evaluate("getSelection().empty()")
        assert len(pane.typed) == 12

        await page.locator(".tty-scroller").hover()
        await page.mouse.wheel(0, -100)
        await expect(page.locator(".tty-past .tty-row")).to_have_count(500)
        assert pane.calls("terminals.history") == [{"start": 200, "count": 500}]
        await page.locator(".tty-scroller").evaluate("(one) => { one.scrollTop = 0; }")
        await expect(page.locator(".tty-past .tty-row")).to_have_count(700)
        await expect(page.locator(".tty-past .tty-row").first).to_have_text("row 0")
        pane.show(**frame({1: [["now"]]}, revision=2, since=1, history=701))
        await page.evaluate("new Promise(requestAnimationFrame)")
        await expect(rows(page).nth(1)).to_have_text("copied")
        await button(page, "Back to now").click()
        await expect(rows(page).nth(1)).to_have_text("now")
        await expect(page.locator(".tty-past .tty-row")).to_have_count(0)

        pane.tell("terminal.clipboard", {"text": "rm -rf <b>"})
        offer = page.get_by_label("What the program offers")
        await expect(offer).to_have_value("rm -rf <b>")
        assert await page.evaluate("navigator.clipboard.readText()") == "copied\ntoo"
        await button(page, "Copy what the program offers").click()
        await expect(page.get_by_text("Copied.")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == "rm -rf <b>"
        await page.evaluate("document.hasFocus = () => false")
        pane.tell("terminal.bell", {})
        await expect(page).to_have_title(re.compile("^🔔 "))
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(page).not_to_have_title(re.compile("🔔"))
        await field.focus()
        await page.keyboard.press("Control+Shift+Period")
        await expect(button(page, "Give back")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(button(page, "Take control")).to_be_visible()
        await expect(field).to_be_hidden()
        assert len(pane.typed) == 12


#: Key presses, and the key that the page sends; None leaves the press to the browser.
KEYS: dict[str, str | None] = {
    **{"x": None, "é": None, "Dead": None, "Process": None, "meta c": None, "altgr @": None},
    **{"ctrl t": None, "ctrl w": None, "ctrl n": None, "ctrl v": None, "ctrl shift c": None},
    **{"ctrl Tab": None, "alt Tab": None, "ctrl +": None, "ctrl 0": None, "shift Insert": None},
    **{"Enter": "k:enter", "shift Enter": "k:shift+enter", "Tab": "k:tab", "F12": "k:f12"},
    **{"ctrl r": "k:ctrl+r", "ctrl Z": "k:ctrl+z", "ctrl c": "k:ctrl+c", "ctrl [": "k:esc"},
    **{"ctrl shift _": "k:ctrl+_"},
    **{"alt b": "k:alt+b", "alt Enter": "k:alt+enter", "ctrl ArrowLeft": "k:ctrl+left"},
    **{"ctrl shift ArrowUp": "k:ctrl+shift+up", "PageUp": "k:pageup", "Backspace": "k:backspace"},
    **{"composing a": None, "composing Enter": None, "selected ctrl c": None},
}
_MAP = """async (names) => {
  const { keyOf } = await import("/page/terminal_keys.js");
  return names.map((name) => {
    const parts = name.split(" "), key = parts.pop(), has = (part) => parts.includes(part);
    const event = { key, ctrlKey: has("ctrl"), altKey: has("alt"), shiftKey: has("shift"),
      metaKey: has("meta"), isComposing: has("composing"),
      getModifierState: () => has("altgr") };
    return keyOf(event, { hasSelection: has("selected"), isMacKeyboard: false });
  });
}"""


#: Drags the screen down with a finger.
_PULL = """(scroller) => {
  for (const [type, clientY] of [["touchstart", 300], ["touchmove", 400]]) {
    const touches = [new Touch({ identifier: 1, target: scroller, clientY })];
    scroller.dispatchEvent(new TouchEvent(type, { touches }));
  }
}"""


async def test_a_phone_types_with_a_key_bar_and_keeps_a_refused_message(
    browser: Browser, stack: Stack
) -> None:
    """axe finds no accessibility fault either."""
    pane = Pane()
    pane.live(title="✳ Basket")
    pane.screen = frame(
        {0: [["❯ ", {"fg": 4}], ["make the basket", {"b": 1}]], 1: [["─" * 40, {"d": 1}]]}
    )
    pane.past = [[[f"row {number}"]] for number in range(10)]
    pane.screen |= {"history": 10}
    pane.refuses["terminals.type"] = CallRefused("CONFLICT", "It asks something: answer it first.")
    options: Any = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "bypass_csp": True}
    async with (
        pane_opened(stack, pane) as door,
        logged_in(browser, stack, door, **options) as page,
    ):
        assert await page.evaluate(_MAP, list(KEYS)) == list(KEYS.values())
        await terminal_shown(page)
        message = page.get_by_label("Message to the program")
        await message.fill("yes, do it")
        await page.locator(".terminal").get_by_role("button", name="Send").tap()
        await expect(page.locator(".terminal").get_by_role("alert")).to_have_text(
            "It asks something: answer it first."
        )
        await expect(message).to_have_value("yes, do it")
        assert pane.typed == []
        pane.refuses.clear()
        await page.locator(".terminal").get_by_role("button", name="Send").tap()
        await expect(message).to_have_value("")
        await button(page, "Take control").tap()
        for name in ("Up", "Control, for the next key"):
            await button(page, name).tap()
        await page.keyboard.insert_text("c")
        for name in ("Escape", "Enter"):
            await button(page, name).tap()
        await page.get_by_label("Type into the terminal").evaluate(
            "(field) => field.dispatchEvent(new InputEvent('beforeinput', "
            "{ inputType: 'deleteContentBackward', cancelable: true }))"
        )
        names = ["up", "ctrl+c", "esc", "enter", "backspace"]
        await eventually(lambda: pane.typed == [f"k:{name}" for name in names])
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await page.locator(".tty-scroller").evaluate(_PULL)
        await expect(page.locator(".tty-past .tty-row").last).to_have_text("row 9")
        faults = [fault async for fault in faults_in_windows(page)]
    assert not faults, "\n".join(faults)


@pytest.mark.thorough
async def test_a_chat_has_what_was_said_in_its_terminal(
    browser: Browser, stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """After the terminal has ended, after a reload, and between the chat's own messages."""
    (workspace := directory / "workspace").mkdir()
    env = used_before(claude, directory / "home", workspace)
    stack.configure(claude.config(workspace=str(workspace), env=env))
    await stack.start_worker()
    async with (
        stack.swept(),
        gateway_process(stack) as (door, _),
        logged_in(browser, stack, door) as page,
    ):
        said = page.locator(".message .text")
        await write(page, "remember plum")
        await expect(said).to_have_count(2)
        await terminal_shown(page)
        await button(page, "Open terminal").click()
        await expect(page.locator(".tty-state")).to_have_text("Waits for you to write")
        await expect(page.locator(".sessions .state")).to_contain_text("is open in a terminal")
        await expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
        await page.get_by_label("Message to the program").fill("remember pear")
        await page.locator(".terminal").get_by_role("button", name="Send").click()
        await expect(rows(page).filter(has_text="ECHO remember pear")).to_be_visible()
        await choose(page, "End")
        await button(page, "End it, whatever it does").click()
        await page.get_by_role("button", name="Terminal", exact=True).click()
        await expect(said).to_have_count(4)
        await write(page, "remember fig")
        await expect(said).to_have_count(6)
        shown = await said.all_text_contents()
        assert [text.split()[-1].strip(".") for text in shown[::2]] == ["plum", "pear", "fig"]
        await page.reload()
        await expect(said).to_have_text(shown)
        await expect(page.locator(".message.own .who")).to_contain_text(["You", "ada", "You"])
