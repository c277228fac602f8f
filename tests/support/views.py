"""Every view of the page: photographed, measured and searched for faults in several windows."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize, expect

from tests.support.browser import DESK, PHONE

#: The variable with the directory of the pictures. With it, all windows are photographed.
DIRECTORY = os.environ.get("REMOTECLAW_TEST_PICTURES")


@dataclass(frozen=True, slots=True)
class Window:
    """A window in which each view is looked at."""

    size: ViewportSize
    scheme: Literal["light", "dark"]

    async def apply(self, page: Page) -> None:
        """Give the page this window; nothing moves in it."""
        await page.set_viewport_size(self.size)
        await page.emulate_media(color_scheme=self.scheme, reduced_motion="reduce")


#: The windows in which a view is loaded, measured and searched for accessibility faults.
LOADED = {"wide": Window(DESK, "light"), "phone-dark": Window(PHONE, "dark")}
#: Further windows, in which only the layout is checked.
RESIZED = {
    "narrow": Window({"width": 320, "height": 640}, "light"),
    "4k": Window({"width": 3840, "height": 2160}, "light"),
    "wide-dark": Window(DESK, "dark"),
    "phone": Window(PHONE, "light"),
}


@dataclass(frozen=True, slots=True)
class View:
    """A view of the page in one state: add a line to `VIEWS` for each."""

    name: str
    place: str
    """The part of the address after `#/`; `{session}` is a session that waits for a person."""
    shows: str
    """The selector of what is visible as soon as it is complete."""
    act: Callable[[Page], Awaitable[Any]] | None = None
    """What a person does there first."""
    windows: frozenset[str] = frozenset((*LOADED, *RESIZED))
    """The windows that have it."""
    is_over: bool = False
    """Whether it covers the view below it, whose landmark and heading are inert then."""


def press(key: str) -> Callable[[Page], Awaitable[Any]]:
    """Return the act of pressing a key."""
    return lambda page: page.keyboard.press(key)


def click(selector: str) -> Callable[[Page], Awaitable[Any]]:
    """Return the act of clicking an element."""
    return lambda page: page.locator(selector).first.click()


def begin_job(when: str) -> Callable[[Page], Awaitable[Any]]:
    """Return the act of beginning a cron job, with its schedule in words."""

    async def act(page: Page) -> None:
        await page.get_by_role("button", name="New job").click()
        await page.get_by_label("When?").fill(when)

    return act


VIEWS = (
    View("chat", "", ".message.agent"),
    View("chat-new", "c/0123456789abcdef", ".composer"),
    View("session", "s/{session}", ".request"),
    View("terminal", "s/{session}/terminal", ".tty-empty"),
    View("requests", "requests", ".request"),
    View("requests-answered", "requests", ".request.over", click(".request .danger")),
    View("cron", "cron", ".job"),
    View("cron-form", "cron", ".upcoming", begin_job("every weekday at 9")),
    View("usage", "usage", ".figures"),
    View("fleet", "fleet", ".figures"),
    View("fleet-given-up", "fleet", ".letters li", click(".wrong [aria-expanded]")),
    View("palette", "usage", "[role=option]", press("Control+k")),
    View("keys", "requests", "dialog.keys", press("?")),
    View(
        "drawer",
        "cron",
        ".sessions a",
        click(".menu"),
        frozenset(("phone-dark", "phone")),
        is_over=True,
    ),
)

#: Sums the layout shifts of the page since it was loaded, and notes what moved.
_SHIFTS = """
if (!window.shifts) new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput) shifts.push([entry.value,
      ...entry.sources.map(({ node }) => node?.outerHTML?.slice(0, 120) ?? node?.nodeName)]);
  }
}).observe({ type: "layout-shift", buffered: true });
window.shifts ??= [];
"""
#: Elements whose content is wider than they are, unless they scroll or end in an ellipsis.
_CUT_OFF = """() => [...document.querySelectorAll("html, body *")].filter((each) => {
  const { overflowX, textOverflow } = getComputedStyle(each);
  return each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1
    && textOverflow !== "ellipsis" && (overflowX !== "visible" || each.matches("html"))
    && !each.matches("pre, .table, .tty-scroller, .tty-keybar, input, textarea, select, svg");
}).map((each) => `${each.outerHTML.slice(0, 100)}: ${each.scrollWidth} > ${each.clientWidth}`)"""
#: axe's rules about what each page has.
_OF_WHOLE_PAGES = ("landmark-one-main", "page-has-heading-one")
_MOVING = """() => document.getAnimations()
  .filter(({ effect }) => effect.getTiming().duration > 0).length"""
_FIGURES = """() => ({
  paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
  bytes: performance.getEntriesByType("resource")
    .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
})"""


async def faults_of(page: Page, *, is_over: bool = False) -> AsyncIterator[str]:
    """Yield the accessibility faults that axe finds in the shown page."""
    is_there = await page.evaluate("'axe' in window")
    rules = {name: {"enabled": False} for name in (_OF_WHOLE_PAGES if is_over else ())}
    found = await (Axe("0") if is_there else Axe()).run(page, options={"rules": rules})
    if found.violations_count:
        yield f"{page.url}: {found.generate_report()}"


async def faults_in_windows(page: Page) -> AsyncIterator[str]:
    """Yield the accessibility faults of the shown page on a dark phone and on a wide screen."""
    for window in reversed(LOADED.values()):
        await window.apply(page)
        async for fault in faults_of(page):
            yield fault


async def look_at(
    page: Page, view: View, url: str, directory: Path, *, skipped: str | None = None
) -> AsyncIterator[str]:
    """Photograph a view in its windows, and yield what is wrong with it.

    In the window `skipped`, only the layout is checked.
    """
    pictures = Path(DIRECTORY) if DIRECTORY else directory
    pictures.mkdir(parents=True, exist_ok=True)
    windows = {name: each for name, each in (LOADED | RESIZED).items() if name in view.windows}
    is_loaded = [name for name in LOADED if name in windows and (name != skipped or view.is_over)]
    for name in is_loaded:
        await windows[name].apply(page)
        await page.goto("about:blank")
        await page.add_init_script(_SHIFTS)
        await page.goto(url)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        shifts = []
        if view.act:
            await expect(page.locator(".sessions a").first).to_be_attached()
            shifts = await page.evaluate("shifts")  # what follows is caused by the person
            await view.act(page)
        await expect(page.locator(view.shows).first).to_be_visible()
        async for fault in faults_of(page, is_over=view.is_over):
            yield f"{view.name}, {name}: {fault}"
        shifts = shifts if view.act else await page.evaluate("shifts")
        async for fault in layout_faults(page):
            yield f"{view.name}, {name}: {fault}"
        for shift in shifts:
            yield f"{view.name}, {name}: it moved while it was loaded: {shift}"
        figures = await page.evaluate(_FIGURES)
        with (pictures / "figures.txt").open("a") as file:
            paint, size = figures["paint"], figures["bytes"]
            file.write(f"{view.name}, {name}: {paint:.0f} ms to the first paint, {size:,} bytes\n")
        if DIRECTORY:
            await page.screenshot(path=pictures / f"{view.name}-{name}.png")
    for name in windows.keys() - is_loaded:
        await windows[name].apply(page)
        async for fault in layout_faults(page):
            yield f"{view.name}, {name}: {fault}"
        if DIRECTORY:
            await page.screenshot(path=pictures / f"{view.name}-{name}.png")


async def layout_faults(page: Page) -> AsyncIterator[str]:
    """Yield what is cut off, and what moves although the system asks for no motion."""
    for fault in await page.evaluate(_CUT_OFF):
        yield f"it is cut off: {fault}"
    if await page.evaluate("document.documentElement.scrollHeight > innerHeight"):
        yield "the window scrolls, and not a part of it"
    if moving := await page.evaluate(_MOVING):
        yield f"{moving} animations run, although the system asks for none"
