"""The page in a real browser: `python -m tests.bench.page`."""

import asyncio
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from playwright.async_api import Browser, Page, expect
from websockets.asyncio.client import connect

from remoteclaw.clock import now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.lease import Lease
from tests.bench.chats import alone
from tests.bench.gateway import RowParts, ask, echoed, echoing, measure_alternately
from tests.bench.load import Figure, in_parallel, workers
from tests.support.browser import installed, launched, logged_in
from tests.support.doors import Door, RpcClient, gateway_process, own_token
from tests.support.leases import begun
from tests.support.processes import proportional_mb
from tests.support.stack import Stack
from tests.support.waiting import HANG_S

#: The number of tabs that show one session, and of listed sessions.
TABS, SESSIONS = 20, 500
#: The length of a partial answer, in characters.
LONG = 2000
#: The time between two changes of a busy session's text, in seconds.
EVERY_S = 0.1
#: Reports the time at which a mark in the answer was painted, in milliseconds since 1970.
WATCH = """() => {
  let shown = 0;
  new MutationObserver(() => {
    const found = document.querySelector(".live .text")?.textContent.match(/mark (\\d+)/);
    if (!found || Number(found[1]) <= shown) return;
    shown = Number(found[1]);
    requestAnimationFrame(() => setTimeout(() => seen(shown, Date.now())));
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
BYTES = """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .reduce((sum, one) => sum + one.transferSize, 0)"""


async def bench_page(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure the page's start, its live text, and the load of many tabs."""
    if installed() is None:
        sys.stderr.write("no Chromium is installed: the page's rows are left out\n")
        return [], []
    await workers(stack, 0, {"runtime": "demo"})
    token = own_token(stack)
    async with (
        gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, process),
        door.connected(token) as client,
        echoing() as echo,
        connect(f"ws://{echo}/ws") as socket,
        launched() as browser,
    ):
        paints, figures = await _starts(browser, stack, door, echo, max(3, rounds // 3))
        lists, listing = await _lists(browser, stack, door, client, rounds)
        alone_mb = proportional_mb(process.pid)
        quiet = await measure_alternately(lambda: ask(client), lambda: echoed(socket), rounds * 4)
        lease, accepted = await begun(stack.fleet, channel_id="busy")
        async with _tabs(browser, stack, door, str(accepted.session)) as (open_tab, seen):
            await open_tab()
            live = await _live(lease, client, str(accepted.session), seen, tabs=1, rounds=rounds)
            for _ in range(TABS - 1):
                await open_tab()
            async with _busy(lease):
                loaded = await measure_alternately(
                    lambda: ask(client), lambda: echoed(socket), rounds * 4
                )
            many = await _live(
                lease, client, str(accepted.session), seen, tabs=TABS, rounds=max(5, rounds // 3)
            )
            memory = (proportional_mb(process.pid) - alone_mb) / TABS
    rows = [
        paints,
        lists,
        ("page, live text on screen", "a bare client of the gateway", *live, "≤ 30 ms"),
        (f"page, the same in {TABS} tabs, each", "a bare client", *many, ""),
        ("RPC round trip, no tab", "bare WebSocket echo", *quiet, ""),
        (f"RPC, {TABS} tabs on a busy session", "bare WebSocket echo", *loaded, "≤ 1.1 × no tab"),
    ]
    tab = Figure("page: the gateway's memory for a tab", memory, "MB", "")
    return rows, [*figures, listing, tab]


async def _starts(
    browser: Browser, stack: Stack, door: Door, echo: str, rounds: int
) -> tuple[RowParts, list[Figure]]:
    """Measure the first paint with an empty cache, and that of a page of one line."""
    async with logged_in(browser, stack, door) as page:
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        login: Any = await page.context.storage_state()
    ours, baseline, weights = [], [], []
    for _ in range(rounds + 1):
        async with _fresh(browser, login) as page:
            await page.goto(door.url)
            await expect(page.get_by_label("Message", exact=True)).to_be_focused()
            ours.append(float(await page.evaluate(PAINTED)) / 1000)
            weights.append(int(await page.evaluate(BYTES)) / 1000)
        async with _fresh(browser, login) as page:
            await page.goto(f"http://{echo}/")
            await page.wait_for_function(PAINTED)
            baseline.append(float(await page.evaluate(PAINTED)) / 1000)
    row = ("page, first paint, nothing cached", "a page of one line", ours[1:], baseline[1:])
    weight = Figure("page: bytes on the wire", statistics.median(weights), "KB", "≤ 100")
    return (*row, "≤ 150 ms"), [weight]


@contextlib.asynccontextmanager
async def _fresh(browser: Browser, login: Any = None) -> AsyncIterator[Page]:
    """Open a page in a browser that has only a login."""
    context = await browser.new_context(storage_state=login)
    yield await context.new_page()
    await context.close()


async def _lists(
    browser: Browser, stack: Stack, door: Door, client: RpcClient, rounds: int
) -> tuple[RowParts, Figure]:
    """Measure listing many sessions, and showing them on the page."""

    async def accept(sender: str) -> None:
        await stack.append(f"what {sender} wants", from_=sender, channel_id=sender)

    await in_parallel(stack, [f"person-{number}" for number in range(SESSIONS)], accept)
    redis = stack.fleet.scripts.client
    sids = [view.sid for view in await stack.fleet.sessions.list(limit=SESSIONS)]
    assert len(sids) == SESSIONS

    async def listed() -> None:
        result = await client.call("sessions.search", {"limit": SESSIONS})
        assert len(result["sessions"]) > 400

    async def bare() -> None:
        pipeline = redis.pipeline(transaction=False)
        for sid in sids:
            pipeline.hgetall(keys.state(sid))
        await pipeline.execute()

    measured = await measure_alternately(listed, bare, rounds)
    started = time.perf_counter()
    async with logged_in(browser, stack, door) as page:
        await expect(page.locator(".sessions > li").nth(40)).to_be_attached()
        took_ms = (time.perf_counter() - started) * 1000
    name = f"{SESSIONS} sessions: list"
    figure = Figure(f"page: from the link to the newest of {SESSIONS} sessions", took_ms, "ms", "")
    return (name, "bare HGETALLs", *measured, ""), figure


@contextlib.asynccontextmanager
async def _tabs(
    browser: Browser, stack: Stack, door: Door, session: str
) -> AsyncIterator[tuple[Any, "asyncio.Queue[tuple[int, float]]"]]:
    """Open tabs that show a session; yield the function that opens one, and the painted marks."""
    seen: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
    async with logged_in(browser, stack, door) as first:
        await expect(first.get_by_label("Message", exact=True)).to_be_focused()
        context = first.context
        await context.expose_binding("seen", lambda _, *mark: seen.put_nowait(mark))

        async def open_tab() -> None:
            page = await context.new_page()
            await page.goto(f"{door.url}/#/s/{session.replace('/', '%2F')}")
            await expect(page.get_by_role("button", name="Stop")).to_be_visible()
            await page.evaluate(WATCH)

        yield open_tab, seen


#: The marks in live texts, unique in a run.
_MARKS = itertools.count(1)


async def _show(lease: Lease) -> int:
    """Publish live text with a mark, as a turn does; return the mark."""
    mark = next(_MARKS)
    text = f"{'Some *words* of an answer. ' * (LONG // 27)}\n\nmark {mark}"
    about = {"index": 0, "text": text, "activity": [], "plan": [], "since_ms": now_ms()}
    await lease.turns.publish_live_text({"sid": lease.sid, "turn": "1", "attempt": 1, **about})
    return mark


async def _live(
    lease: Lease,
    client: RpcClient,
    session: str,
    seen: "asyncio.Queue[tuple[int, float]]",
    *,
    tabs: int,
    rounds: int,
) -> tuple[list[float], list[float]]:
    """Return the seconds from publishing until each tab has painted, and until a client has it."""
    await client.call("sessions.subscribe", {"sessionKey": session})
    on_screen: list[float] = []
    in_client: list[float] = []
    for _ in range(rounds):
        await asyncio.sleep(EVERY_S)
        mark = await _show(lease)
        published = time.time()
        while f"mark {mark}" not in str(await client.event("session.live")):
            pass
        in_client.append(time.time() - published)
        async with asyncio.timeout(HANG_S):
            left = tabs
            while left:
                number, at_ms = await seen.get()
                if number == mark:  # a tab may still report an earlier one
                    on_screen.append(max(0.0, at_ms / 1000 - published))
                    left -= 1
    await client.call("sessions.unsubscribe", {"sessionKey": session})
    client.events.clear()
    return on_screen, in_client


@contextlib.asynccontextmanager
async def _busy(lease: Lease) -> AsyncIterator[None]:
    """Change a session's live text all the time."""

    async def write() -> None:
        while True:
            await _show(lease)
            await asyncio.sleep(EVERY_S)

    writing = asyncio.create_task(write())
    yield
    writing.cancel()


if __name__ == "__main__":
    asyncio.run(alone(bench_page, int(sys.argv[1]) if len(sys.argv) > 1 else 20))
