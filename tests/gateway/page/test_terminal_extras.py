"""What people do with a terminal on the page besides typing: share, search, drop files, record."""

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.async_api import Browser, Page, expect

from remoteclaw.gateway.doors.guests import OVER
from remoteclaw.protocols import FILES
from remoteclaw.runtimes import RUNTIMES
from tests.support.browser import PHONE, logged_in
from tests.support.casts import played, rows_of
from tests.support.doors import opened
from tests.support.panes import session_shown
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.views import faults_of
from tests.support.waiting import eventually

#: Drops files on the terminal, or pastes them. Each has a name, and base64 content or a size.
_TRANSFER = """([how, files]) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files) {
    const bytes = typeof content === "number" ? new Uint8Array(content)
      : Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  const about = { bubbles: true, cancelable: true };
  const event = how === "paste" ? new ClipboardEvent("paste", { ...about, clipboardData: transfer })
    : new DragEvent("drop", { ...about, dataTransfer: transfer });
  const target = document.querySelector(how === "paste" ? ".tty-keys" : ".tty-screen");
  target.dispatchEvent(event);
}"""
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\nnot really").decode()
#: A name that would be a command in a shell, and control a terminal.
HOSTILE = "a b\n$(touch x);\x1b[201~'\".png"


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


def button(page: Page, name: str) -> Any:
    return page.locator(".terminal").get_by_role("button", name=name, exact=True)


async def test_a_shared_screen_is_watched_without_a_login_until_it_is_revoked(
    browser: Browser, stack: Stack
) -> None:
    async with (
        held_terminal(stack) as held,
        opened(stack) as door,
        logged_in(browser, stack, door, bypass_csp=True) as page,
    ):
        await session_shown(page, door, held.session)
        await button(page, "Take control").click()
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        await page.keyboard.type("hello")
        await button(page, "Share this terminal").click()
        await button(page, "Make a link").click()
        link = page.get_by_label("The link, which is shown only now")
        url = str(await eventually(link.input_value))
        assert url.startswith(f"{door.url}/watch#rcg_")
        faults = [fault async for fault in faults_of(page)]
        assert not faults, "\n".join(faults)

        strangers = await browser.new_context(viewport=PHONE, bypass_csp=True)
        guest = await strangers.new_page()
        asked: list[str] = []
        guest.on("request", lambda request: asked.append(request.url.removeprefix(door.url)))
        await guest.goto(url)
        await expect(guest.locator(".tty-lines")).to_contain_text("> hello")
        await expect(guest.locator(".tty-people")).to_contain_text("ada shares this terminal until")
        assert await guest.locator("textarea, input, button:visible").count() == 0
        await guest.keyboard.type("rm\n")
        await page.keyboard.press("Escape")
        await expect(page.locator(".tty-people")).to_contain_text("2 watch")
        faults = [fault async for fault in faults_of(guest)]
        assert not faults, "\n".join(faults)
        assert await strangers.cookies() == []
        assert await guest.evaluate("localStorage.length + sessionStorage.length") == 0
        assert not [path for path in asked if "rcg_" in path.partition("#")[0]]
        assert {path.partition("#")[0] for path in asked} <= {
            *("/watch", "/watch/screen", "/page/icon.svg", "/page/watch.js"),
            *(f"/page/{name}.css" for name in ("tokens", "base", "terminal")),
            *(f"/page/{name}.js" for name in ("dom", "icons")),
            *(
                f"/page/terminal_{part}.js"
                for part in ("model", "rows", "search", "status", "view")
            ),
        }

        await button(page, "Share this terminal").click()
        await button(page, "Revoke").click()
        await expect(guest.get_by_text(OVER)).to_be_visible()
        await expect(guest.locator(".tty-lines")).to_have_count(0)
        await strangers.close()


async def test_a_search_finds_what_is_kept_and_a_recording_shows_what_was_drawn(
    browser: Browser, stack: Stack
) -> None:
    async with (
        held_terminal(stack) as held,
        opened(stack) as door,
        logged_in(browser, stack, door) as page,
    ):
        assert door.gateway is not None
        await session_shown(page, door, held.session)
        await button(page, "Take control").click()
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        await button(page, "More").click()
        await button(page, "Record").click()
        await page.keyboard.type("flood\n")
        await expect(page.locator(".tty-lines")).to_contain_text("You said flood.")
        _, watching = await door.gateway.terminals.attached(
            door.gateway.terminals.held_record(held.sid)  # type: ignore[arg-type]
        )
        await page.keyboard.press("Control+f")
        field = page.get_by_label("Search in the terminal").and_(page.locator("input"))
        await expect(field).to_be_focused()
        await field.fill("LINE 2990")
        state = page.locator(".tty-count")
        await expect(state).to_have_text("10 of 10")
        await field.press("Enter")
        await expect(state).to_have_text("9 of 10")
        await expect(page.locator(".tty-past .tty-row", has_text="line 29908")).to_be_in_viewport()
        await button(page, "Later match").click()
        await button(page, "Later match").click()
        await expect(state).to_have_text("1 of 10")
        marked = "[...CSS.highlights.get('tty-found-now')].map(String).join()"
        assert await page.evaluate(marked) == "line 2990"
        for text, count in (
            (r"(a+)+$", "Not found"),
            ("<b>", "Not found"),
            ("said flood", "1 of 1"),
        ):
            await field.fill(text)
            await expect(state).to_have_text(count)
        await field.press("Escape")
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        assert await page.evaluate("CSS.highlights.size") == 0

        await page.keyboard.type("漢 e\u0301 done")
        await expect(page.locator(".tty-lines")).to_contain_text("done")
        await button(page, "More").click()
        async with page.expect_download() as download:
            await button(page, "Stop recording").click()
        saved = await download.value
        assert saved.suggested_filename == "shown.cast"
        cast = Path(await saved.path()).read_text()
        assert orjson.loads(cast.splitlines()[0])["version"] == 2
        assert played(cast)[-1] == rows_of(watching.screen.text())
        assert [screen for screen in played(cast) if "You said flood." in screen]


async def test_dropped_files_are_the_agents_and_their_paths_are_typed(
    browser: Browser, stack: Stack
) -> None:
    async with (
        held_terminal(stack) as held,
        opened(stack) as door,
        logged_in(browser, stack, door) as page,
    ):
        await session_shown(page, door, held.session)
        alert = page.locator(".terminal").get_by_role("alert")
        await page.evaluate(_TRANSFER, ["drop", [["a.txt", PICTURE]]])
        await expect(alert).to_have_text("Take control first: then files go to the program.")
        await button(page, "Take control").click()
        await expect(page.get_by_label("Type into the terminal")).to_be_focused()
        await page.evaluate(_TRANSFER, ["drop", [["huge.bin", 20 * 1024 * 1024 + 1]]])
        await expect(alert).to_contain_text("huge.bin has 21 MB, and a file may have at most 21 MB")
        await page.evaluate(_TRANSFER, ["drop", [[HOSTILE, PICTURE], ["Über.txt", PICTURE]]])
        await page.evaluate(_TRANSFER, ["paste", [["image.png", PICTURE]]])

        files = Path(held.place.files) / FILES
        await eventually(lambda: len([*files.glob("*/*")]) == 3)
        names = sorted(path.name for path in files.glob("*/*"))
        assert names == ["1-a-b-touch-x-201.png", "1-image.png", "2-Über.txt"]
        read = Path(f"{held.place.files}/notes.read")
        typed = b"".join(
            b"\x1b[200~%s\x1b[201~ " % str(path).encode()
            for path in sorted(files.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)
        )
        await eventually(lambda: read.exists() and read.read_bytes() == typed)
        assert [path.read_bytes() for path in files.glob("*/*")] == [base64.b64decode(PICTURE)] * 3
        assert not [*Path(held.place.workspace).glob("*.png")]
