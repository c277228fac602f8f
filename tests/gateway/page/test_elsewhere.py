"""A page of another origin, such as a custom cockpit, that uses the gateway's HTTP API."""

import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from playwright.async_api import Browser

from remoteclaw.runtimes import RUNTIMES
from tests.support.doors import Door, opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime

#: Script of such a page: opens a terminal, and reads its first event with fetch.
PAGE = """async ([url, token]) => {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  try {
    const opened = await fetch(`${url}/api/sessions`, {
      method: "POST", headers: { ...headers, "Idempotency-Key": "k" },
      body: JSON.stringify({ agent: "main" }),
    });
    const { sid } = (await opened.json()).result;
    const stream = await fetch(`${url}/api/sessions/${sid}/events`, { headers });
    const reader = stream.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    while (!text.includes("snapshot")) text += decoder.decode((await reader.read()).value);
    await reader.cancel();
    return `${opened.status} ${opened.headers.get("Location")} ${sid}`;
  } catch (error) {
    return `${error.name}`;
  }
}"""


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    """Serve a page; it has two origins, because this computer has two names."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="A cockpit.", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _run_page(browser: Browser, origin: str, door: Door, token: str) -> str:
    page = await browser.new_page()
    await page.goto(f"{origin}/")
    return str(await page.evaluate(PAGE, [door.url, token]))


async def test_a_page_of_a_configured_origin_opens_a_terminal_and_reads_its_events(
    browser: Browser, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of an origin that is not configured is refused, even with the same token."""
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    async with served() as port:
        stack.configure(gateway={"origins": [f"http://127.0.0.1:{port}"]})
        await stack.start_worker()
        token = own_token(stack)
        async with opened(stack) as door:
            assert await _run_page(browser, f"http://localhost:{port}", door, token) == "TypeError"
            assert await stack.fleet.sessions.list(limit=9) == []
            done = await _run_page(browser, f"http://127.0.0.1:{port}", door, token)
            status, location, sid = done.split()
            assert (status, location) == ("201", f"/api/sessions/{sid}")
            assert await stack.fleet.terminals.record(sid) is not None
