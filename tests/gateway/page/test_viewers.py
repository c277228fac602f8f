"""The page, the gateway, a holder and a program in a real pseudo-terminal, together.

Many clients watch one terminal, some in real pages. They see what one of them types, and nothing
else.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from remoteclaw.fleet.terminals.state import HeldLease
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty.screen import Screen as Emulator
from tests.support.browser import logged_in
from tests.support.cockpit import Cockpit, SseStream
from tests.support.doors import Door, Refused, RpcClient, hello, opened, own_token
from tests.support.panes import session_shown
from tests.support.stack import Stack
from tests.support.terminal_program import ANSWER, QUERIES, ProgramRuntime, held_terminal
from tests.support.waiting import eventually
from tests.support.watched import Screen, watching

#: Typed text: before and after a restart of the gateway, and later with more viewers.
BEFORE, TYPED = ("hi", "half a line"), ("quiz", "flood", "hello")
#: One of the lines that the program floods with.
LINE = re.compile(r"^line \d+$")
#: Records each text that follows the prompt from then on, even for a moment.
_NOTES_PROMPTS = """() => {
  const box = document.querySelector(".tty-lines"), seen = window.seen = new Set();
  new MutationObserver(() => {
    for (const row of box.children) {
      if (row.textContent.startsWith("> ")) seen.add(row.textContent.slice(2).trimEnd());
    }
  }).observe(box, { childList: true, subtree: true });
}"""


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


async def follow(screen: Screen, prompts: set[str]) -> None:
    """Apply all frames until cancelled."""
    while True:
        screen.take(await screen.client.event("terminal.screen"))
        prompts |= {row[2:] for row in screen.text.split("\n") if row.startswith("> ")}


async def read(stream: SseStream) -> None:
    with contextlib.suppress(EOFError):
        while True:
            await stream.next()


@contextlib.asynccontextmanager
async def slow(door: Door, token: str, sid: str) -> AsyncIterator[Screen]:
    """Watch a terminal without reading unless the test does."""
    async with door.socket_at(door.ws_url, max_queue=1) as client:
        await client.frame()
        await client.call("connect", hello(token))
        await client.call("terminals.watch", {"sid": sid})
        yield Screen(client, sid)


async def attack(door: Door, token: str, client: RpcClient, sid: str) -> None:
    """Type without having the keyboard, and send invalid requests."""
    for method, params in (
        ("type", {"keys": ["t:rm -rf", "k:enter"]}),
        ("type", {"keys": ["b:726d0d"]}),
        ("type", {"keys": ["p:rm"]}),
        ("type", {"keys": ["p:rm"], "submit": True}),
        ("resize", {"cols": 20, "rows": 5}),
        ("take", {}),
        ("type", {"keys": [{"t": "rm"}]}),
        ("type", {"keys": ["b:-1"]}),
        ("type", {"keys": "t:rm"}),
        ("resize", {"cols": 10**9, "rows": -1}),
        ("type", {"keys": ["p:" + "rm" * 100_000]}),
        ("rm", {}),
    ):
        with pytest.raises(Refused):
            await client.call(f"terminals.{method}", {"sid": sid, **params})
    for frame in ("rm\r", b"rm\r", '{"id": "1"', "[" * 100_000, "rm" * 5_000_000):
        with contextlib.suppress(Exception):
            async with door.connected(token) as other:
                await other.call("terminals.watch", {"sid": sid})
                await other.socket.send(frame)
                await other.closed()


def button(page: Page, name: str) -> Locator:
    return page.locator(".terminal").get_by_role("button", name=name, exact=True)


def screen(page: Page) -> Locator:
    return page.locator(".tty-lines")


async def _one_types(page: Page, other: Page) -> None:
    await button(page, "Take control").click()
    await expect(page.locator(".tty-people")).to_have_text("You type · 2 watch")
    await expect(other.locator(".tty-people")).to_have_text("ada types · 2 watch")
    await page.keyboard.type("hi")
    await page.keyboard.press("Enter")
    for each in (page, other):
        await expect(screen(each)).to_contain_text("You said hi.")
    await page.keyboard.type("half a")
    await expect(screen(other)).to_contain_text("> half a")


async def _goes_on(page: Page, other: Page) -> None:
    await expect(page.locator(".tty-people")).to_contain_text("You type")
    await page.locator(".tty-screen").click()
    await page.keyboard.type(" line")
    await page.keyboard.press("Enter")
    for each in (page, other):
        await expect(screen(each)).to_contain_text("You said half a line.")


async def _another_takes_over(page: Page, other: Page) -> None:
    await button(other, "Take control from ada").click()
    await expect(page.locator(".tty-people")).to_contain_text("bob types")
    await other.locator(".tty-screen").click()
    await other.keyboard.type("flood")
    await other.keyboard.press("Enter")
    await expect(screen(page)).not_to_contain_text("You said hello.")
    for each in (page, other):
        await expect(screen(each)).to_contain_text("You said flood.")
    wanted = await screen(other).inner_text()
    await expect(screen(page)).to_have_text(wanted, use_inner_text=True)
    await other.locator(".tty-scroller").hover()
    await other.mouse.wheel(0, -100)
    await expect(other.locator(".tty-past .tty-row").last).to_have_text(LINE)
    await button(other, "Back to now").click()
    await button(other, "Give back").click()
    await expect(page.locator(".tty-people")).to_contain_text("Nobody types · ")


async def test_all_viewers_see_the_same_screen_with_only_what_was_typed(
    browser: Browser, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the gateway, the pages reconnect without a click and get the keyboard
    back. Then one viewer joins late, one is slow, one is hostile, and the program sends many
    terminal queries.
    """
    async with held_terminal(stack) as held, contextlib.AsyncExitStack() as pages:
        async with opened(stack) as door:
            monkeypatch.setenv("REMOTECLAW__GATEWAY__PORT", str(door.port))
            page = await pages.enter_async_context(logged_in(browser, stack, door))
            other = await pages.enter_async_context(logged_in(browser, stack, door, name="bob"))
            for each in (page, other):
                await session_shown(each, door, held.session)
                await each.evaluate(_NOTES_PROMPTS)
            await _one_types(page, other)
        await expect(other.locator(".tty-state")).to_contain_text("Connection lost")
        await expect(screen(other)).to_contain_text("> half a")

        async with opened(stack) as door:
            await _goes_on(page, other)
            seen = await _many_watch(stack, door, held, page, other)
            await _another_takes_over(page, other)
        typed_input = Path(f"{held.place.files}/notes.read").read_bytes()
    every = (*BEFORE, *TYPED, "flood")
    assert seen <= {text[:length] for text in every for length in range(len(text) + 1)}
    assert ANSWER.sub(b"", typed_input) == b"".join(f"{text}\r".encode() for text in every)
    alone = Emulator(80, 24).feed(QUERIES.encode())
    kinds = re.sub(rb"\d+", b"0", alone)
    assert re.sub(rb"\d+", b"0", b"".join(ANSWER.findall(typed_input))) == kinds * (len(TYPED) + 1)


async def _many_watch(
    stack: Stack, door: Door, held: HeldLease, first: Page, other: Page
) -> set[str]:
    """Add viewers of all kinds; return all texts that have followed the prompt."""
    token = own_token(stack)
    seen: set[str] = set()
    async with contextlib.AsyncExitStack() as stacked:
        enter = stacked.enter_async_context
        third_page = await first.context.new_page()
        await session_shown(third_page, door, held.session)
        await third_page.evaluate(_NOTES_PROMPTS)
        viewers = [await enter(watching(door, token, held.sid)) for _ in range(9)]
        hostile, late = viewers.pop(), None
        asleep = await enter(slow(door, token, held.sid))
        streams = [f"/sessions/{held.sid}/{name}" for name in ("events", "output")]
        tasks = [asyncio.create_task(follow(each, seen)) for each in viewers]
        for path in streams:
            stream = await enter(Cockpit(door, token).stream(path))
            tasks.append(asyncio.create_task(read(stream)))
        stacked.callback(lambda: [task.cancel() for task in tasks])
        await first.bring_to_front()
        for text in TYPED:
            await first.locator(".tty-screen").click()
            await first.keyboard.type(text)
            await first.keyboard.press("Enter")
            if text == "flood":
                await attack(door, token, hostile.client, held.sid)
                late = await enter(watching(door, token, held.sid))
                tasks.append(asyncio.create_task(follow(late, seen)))
            await expect(first.locator(".tty-lines")).to_contain_text(f"You said {text}.")
        assert late is not None
        viewers.append(late)

        await eventually(lambda: all("You said hello." in each.text for each in viewers))
        (rows,) = {each.text for each in viewers}
        await asleep.until("You said hello.")
        assert asleep.text == rows
        assert max(len(each.frames) for each in (*viewers, asleep)) < 500  # of 30,000 lines
        for page in (first, other, third_page):
            drawn = page.locator(".tty-lines")
            await expect(drawn).to_contain_text("You said hello.")
            texts = await page.locator(".tty-lines .tty-row").all_text_contents()
            assert "\n".join(each.rstrip() for each in texts).rstrip() == rows
            seen |= set(await page.evaluate("[...seen]"))
    return seen
