"""Attacks by transcripts and foreign pages, in a real browser."""

import asyncio
import contextlib
import unicodedata
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from aiohttp import web as http
from playwright.async_api import Browser, Page, expect

from remoteclaw.fleet import keys
from remoteclaw.tty.screen import Screen
from tests.support.browser import logged_in
from tests.support.doors import Door, hello, opened
from tests.support.escapes import ESCAPES
from tests.support.leases import begun
from tests.support.manual_turn import ManualTurn
from tests.support.pages import KEY_HEADER, OWN
from tests.support.panes import Pane, Runs, frame, pane_opened, terminal_shown
from tests.support.stack import Stack
from tests.support.vectors import VECTORS

CHAT = "admin.ada"


async def watched(page: Page) -> tuple[list[str], list[str]]:
    """Return two growing lists: foreign scripts and errors in a page, and its requests."""
    ran: list[str] = []
    requested: list[str] = []

    async def pwned() -> None:
        ran.append("pwned")

    await page.expose_function("pwned", pwned)
    page.on("dialog", lambda dialog: ran.append(dialog.message))
    page.on("popup", lambda opened: ran.append(opened.url))
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda line: ran.append(line.text) if line.type == "error" else None)
    return ran, requested


FOREIGN = """<!doctype html><title>foreign</title><iframe src="{url}/"></iframe><script>
const results = window.results = {{}};
const own = {{ headers: {{ "X-RemoteClaw-Page": "1" }}, credentials: "include" }};
const post = {{ method: "POST", body: "{{}}", credentials: "include" }};
const end = (name, made) => Promise.resolve(made).then(
  (answer) => {{ results[name] = `answered ${{answer.status ?? answer}}`; }},
  () => {{ results[name] = "refused"; }});
const socket = new WebSocket("{url}/page/ws".replace("http", "ws"));
end("socket", new Promise((yes, no) => {{
  socket.onmessage = () => yes("open");
  socket.onerror = no;
}}));
end("fetch", fetch("{url}/page/whoami", own));
end("post", fetch("{url}/page/logout", {{ ...own, ...post }}));
end("plain", fetch("{url}/page/logout", post));
</script>"""


@contextlib.asynccontextmanager
async def foreign(url: str) -> AsyncIterator[str]:
    """Serve a page of another origin, which may be of the same site; yield its port."""

    async def answer(_request: http.Request) -> http.Response:
        return http.Response(text=FOREIGN.format(url=url), content_type="text/html")

    application = http.Application()
    application.router.add_get("/", answer)
    runner = http.AppRunner(application)
    await runner.setup()
    site = http.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield str(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def _foreign_is_refused(page: Page, door: Door) -> None:
    async with foreign(door.url) as port:
        for host in ("127.0.0.1", "localhost"):
            other = await page.context.new_page()
            await other.goto(f"http://{host}:{port}/")
            await other.wait_for_function("Object.keys(window.results).length === 4")
            results = await other.evaluate("window.results")
            assert results == dict.fromkeys(("socket", "fetch", "post", "plain"), "refused")
            framed = other.frames[-1]
            assert framed != other.main_frame
            await asyncio.wait_for(framed.wait_for_load_state(), 60)
            assert "RemoteClaw" not in await framed.content()
            await other.close()


async def test_transcripts_run_no_scripts_and_load_nothing(browser: Browser, stack: Stack) -> None:
    """In messages, names, live text and the input of tools, in two views. Nor can a foreign page
    use the cookie or frame the page, whether its origin differs in the port, which is the same
    site, or in the host name.
    """
    assert len(VECTORS) > 140
    files = [
        {"name": each, "mime_type": "image/svg+xml", "size": 1, "blob": "f" * 32}
        for each in VECTORS[::9]
    ]
    for number, text in enumerate((*VECTORS, "\n\n".join(VECTORS))):
        about: Mapping[str, Any] = {"from": "agent", "text": text, "files": files[number:][:1]}
        about = {**about, "origin": text, "sid": "0" * 32, "replyTo": None}
        await stack.fleet.web.add(CHAT, "message", about, once="", keep_ms=600_000)
    lease, accepted = await begun(stack.fleet, "hi", provider="web", channel_id=CHAT, from_=CHAT)
    records = [
        {"role": role, "at": number, "text": text, "from": text, "tool": text}
        for number, text in enumerate(VECTORS)
        for role in ("tool", "agent", "user")
    ]
    lines = b"\n".join(map(orjson.dumps, records))
    await stack.fleet.scripts.client.set(keys.record(lease.sid), lines)
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await expect(page.locator(".message")).not_to_have_count(0)
        ran, requested = await watched(page)
        await page.reload()
        await expect(page.locator(".message").last).to_be_visible()
        await expect(page.locator(".message")).not_to_have_count(0)
        turn = ManualTurn(lease, accepted.entry_id, CHAT)
        await turn.show("\n\n".join(VECTORS), plan=[])
        await expect(page.locator(".live .text")).to_contain_text("constructor")
        await page.get_by_role("button", name="Earlier messages").dispatch_event("click")
        await expect(page.locator(".message .text", has_text="javascript").first).to_be_attached()
        await page.goto(f"{door.url}/#/s/{str(accepted.session).replace('/', '%2F')}")
        await expect(page.locator(".message").last).to_be_attached()
        for element in ("script:not([src])", "iframe", "object", "embed", "base", "[onerror]"):
            await expect(page.locator(f"main {element}")).to_have_count(0)
        await expect(page.locator("main img, main svg:not(.icon)")).to_have_count(0)
        assert ran == []
        own = (door.url, f"ws{door.url.removeprefix('http')}", "blob:")
        assert [url for url in requested if not url.startswith(own)] == []

        await _foreign_is_refused(page, door)
        assert len(await stack.fleet.tokens.list()) == 1
        await page.goto(door.url)
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()


@contextlib.asynccontextmanager
async def neighbour() -> AsyncIterator[tuple[str, list[str]]]:
    """Run a development server on another port; yield its address, and the cookies that it gets."""
    seen: list[str] = []

    async def answer(request: http.Request) -> http.Response:
        seen.append(request.headers.get("Cookie", ""))
        return http.Response(text="<!doctype html><title>app</title>", content_type="text/html")

    application = http.Application()
    application.router.add_get("/page/app", answer)
    runner = http.AppRunner(application)
    await runner.setup()
    await http.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/page/app", seen
    finally:
        await runner.cleanup()


async def test_a_server_on_another_port_cannot_use_the_cookie_that_it_gets(
    browser: Browser, stack: Stack
) -> None:
    """A program of the machine can send every header of a browser, and the cookie to every door."""
    async with (
        opened(stack) as door,
        neighbour() as (address, seen),
        logged_in(browser, stack, door) as page,
    ):
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.evaluate("address => { location.href = address; }", address)
        await expect(page).to_have_title("app")
        (cookie,) = filter(None, seen)
        value = cookie.partition("=")[2]

        for key in ({}, {KEY_HEADER: ""}, {KEY_HEADER: value}, {KEY_HEADER: "0" * 32}):
            headers = {"Cookie": cookie, "Origin": door.url, **OWN, **key}
            for path in ("/page/whoami", "/page/metrics", f"/page/files/{'0' * 32}/b?size=1"):
                assert (await door.get(path, **headers)).status == 401, path
            assert (await door.post("/page/files", None, b"x", **headers)).status == 401
            assert (await door.post("/page/logout", None, b"", **headers)).status == 200
        for token in (value, "", f"{value}{'0' * 32}"):
            assert not await connects(door, "/page/ws", token, Cookie=cookie)
            assert not await connects(door, "/ws", token)
            assert (await door.get("/metrics", Authorization=f"Bearer {token}")).status == 401
        await page.goto(door.url)
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()


async def connects(door: Door, path: str, token: str, **headers: str) -> bool:
    """Return whether a program can connect to the gateway's WebSocket."""
    url, origin = f"{door.ws_url.removesuffix('/ws')}{path}", door.url if "page" in path else None
    async with door.socket_at(url, origin=origin, additional_headers=headers) as client:
        await client.frame()
        return bool((await client.answer(await client.begin("connect", hello(token))))["ok"])


async def test_a_browser_that_lost_half_of_its_login_asks_for_a_link(
    browser: Browser, stack: Stack
) -> None:
    async with opened(stack) as door, logged_in(browser, stack, door) as page:
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        other = await page.context.new_page()

        await other.goto(door.url)
        await expect(other.get_by_label("Message", exact=True)).to_be_focused()  # tabs share it
        await other.evaluate("localStorage.clear()")
        await other.reload()
        await expect(other.get_by_role("status")).to_contain_text("has deleted the page's data")
        await other.get_by_label("Link").fill(
            f"{door.url}/#{await stack.fleet.logins.create('ada', 'admin', 3_600_000)}"
        )
        await other.keyboard.press("Enter")

        await expect(other.get_by_label("Message", exact=True)).to_be_focused()
        await other.add_init_script(_NO_STORAGE)
        await other.reload()
        await expect(other.get_by_role("status")).to_contain_text("stores nothing for this page")


_NO_STORAGE = """Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("", "SecurityError"); } });"""


async def test_a_login_from_before_halves_ends_with_a_sentence(
    browser: Browser, stack: Stack
) -> None:
    """Such a cookie was a whole token, which every server of the host may have."""
    async with opened(stack) as door:
        token, _ = await stack.fleet.tokens.create("ada", "admin", 3_600_000)
        context = await browser.new_context()
        old = {"name": f"remoteclaw_{door.port}", "value": token, "url": f"{door.url}/page/"}
        await context.add_cookies([old])  # type: ignore[list-item]
        page = await context.new_page()
        await page.goto(door.url)

        await expect(page.get_by_role("status")).to_contain_text("An update has ended this login")
        assert await stack.fleet.tokens.list() == []
        await page.goto(f"{door.url}/#{await stack.fleet.logins.create('ada', 'admin', 60_000)}")
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await context.close()


async def test_output_of_a_program_in_a_terminal_never_becomes_markup(
    browser: Browser, stack: Stack
) -> None:
    """In rows, titles, links, clipboard offers and waiting states. No escape sequence causes a
    request, an answer or a copy.
    """
    links = "javascript:pwned()| javascript:pwned()|JaVaScRiPt:pwned()|vbscript:pwned()|x"
    links += "|data:text/html,<script>pwned()</script>|//evil.example/x|file:///etc/passwd"
    texts = [*VECTORS, "\u202e<b>", "\x1b]0;<script>pwned()</script>\x07"]
    runs: list[Runs] = [
        [[text, {"fg": "red;background:url(//evil.example)", "bg": text}]] for text in texts
    ]
    runs[0] = [[link, {"l": link}] for link in links.split("|")]
    runs[1] = [["good", {"l": "https://good.example/?a=<b>"}]]
    pane = Pane()
    async with pane_opened(stack, pane) as door, logged_in(browser, stack, door) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        ran, requested = await watched(page)
        pane.live(waiting_for=VECTORS[0], activity="waiting", writer=VECTORS[0], viewers=2)
        await terminal_shown(page)
        for first in range(0, len(runs), 200):
            shown = dict(enumerate(runs[first : first + 200]))
            pane.show(**frame(shown, rows=200, revision=first + 2, title=VECTORS[first]))
            pane.tell("terminal.clipboard", {"text": VECTORS[first]})
            await expect(page.locator(".tty-title")).to_have_text(VECTORS[first])
            await page.evaluate("new Promise(requestAnimationFrame)")
            drawn = await page.locator(".tty-lines .tty-row").all_text_contents()
            assert drawn[: len(shown)] == ["".join(run[0] for run in row) for row in shown.values()]
            if first:
                continue
            (link,) = await page.locator(".terminal a").all()
            assert await link.get_attribute("href") == "https://good.example/?a=%3Cb%3E"
            assert await link.get_attribute("rel") == "noopener noreferrer"
        tags = "[...new Set([...document.querySelectorAll('.tty-lines *')].map((e) => e.tagName))]"
        assert set(await page.evaluate(tags)) <= {"DIV", "SPAN", "A"}
        attributes = """[...new Set([...document.querySelectorAll(".tty-lines *")].flatMap(
          (each) => each.getAttributeNames()))]"""
        assert set(await page.evaluate(attributes)) <= {"class", "href", "target", "rel", "style"}

        last = len(runs) + 2
        pane.change(waiting_for="", writer="")
        await page.locator(".terminal").get_by_role("button", name="Take control").click()
        await page.evaluate("navigator.clipboard.writeText('mine')")
        for number, sequence in enumerate(ESCAPES.values(), 1):
            screen = Screen(40, 8)
            screen._clock = iter(range(10_000)).__next__  # ends the delay of output
            screen.feed(sequence + b"\x1b\\\x18 after")
            screen.frame(None)
            seen = screen.frame(None)
            assert seen is not None
            pane.change(title=screen.title, waiting_for=screen.title, writer=screen.title or "ada")
            for kind, text in screen.take_osc_events():
                pane.tell("terminal.clipboard", {"text": f"{kind} {text}"})
            pane.show(**{**seen, "title": f"{number} {seen['title']}", "revision": last + number})
            await page.wait_for_function(_HAS_TITLE, arg=f"{number} ")
            await page.evaluate("new Promise(requestAnimationFrame)")
            text_shown, links = await page.evaluate(_TEXT_AND_LINKS)
            unwanted = {
                unicodedata.category(letter) for letter in text_shown if letter not in "\n\u200d"
            }
            assert not unwanted & {"Cc", "Cf", "Cs", "Zl", "Zp"}, text_shown
            assert all(link.startswith("https://a/") for link in links)
            screen.close()
        assert await page.evaluate("navigator.clipboard.readText()") == "mine"
        assert pane.typed == []
        assert ran == []
        own = (door.url, f"ws{door.url.removeprefix('http')}")
        assert [url for url in requested if not url.startswith(own)] == []


_HAS_TITLE = """(begin) =>
  document.querySelector(".tty-title").textContent.startsWith(begin)"""
#: All text in a terminal, and the targets of its links.
_TEXT_AND_LINKS = """() => {
  const pane = document.querySelector(".terminal");
  const fields = [...pane.querySelectorAll("textarea")].map((each) => each.value);
  const texts = [document.title, pane.textContent, ...fields];
  return [texts.join(""), [...pane.querySelectorAll("a")].map((each) => each.href)];
}"""
