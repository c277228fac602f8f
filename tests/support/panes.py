"""A stand-in for terminals behind a real gateway: sends the test's frames to the real page.

Calls go through the gateway's real doors, which check parameters, scopes and results. The stand-in
has one keyboard, and records all calls.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from playwright.async_api import Page, expect

from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.messages import SessionKey
from remoteclaw.tools import terminals as contract
from remoteclaw.tools.base import Result
from remoteclaw.tools.catalog import METHODS
from tests.support.doors import Door, opened
from tests.support.stack import Stack

MODES = {
    **{"paste": True, "appCursor": False, "appKeypad": False, "kitty": 0, "modifyOther": 0},
    **{"mouse": 0, "sgrMouse": False, "focus": False, "alternate": False},
}
Runs = list[list[Any]]


def frame(
    lines: Mapping[int, Runs] | None = None,
    *,
    revision: int = 1,
    since: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a frame of 40 × 8 cells."""
    cursor = {"row": 0, "col": 0, "visible": True, "shape": "block"}
    about = {"revision": revision, "since": since, "cols": 40, "rows": 8, "cursor": cursor}
    known = {str(row): runs for row, runs in (lines or {}).items()}
    every = map(str, range(more.get("rows", 8)))
    rows = {row: known.get(row, []) for row in every} if since is None else known
    return {**about, "lines": rows, "title": "", "modes": MODES, "history": 0, **more}


@dataclass
class Pane:
    """One terminal, which answers for every session."""

    record: dict[str, Any] | None = None
    screen: dict[str, Any] = field(default_factory=frame)
    past: list[Runs] = field(default_factory=list)
    links: list[contract.GuestLink] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The calls in order, without the parameter that names the terminal."""
    asked_by: dict[str, set[str]] = field(default_factory=dict)
    """The callers of each method."""
    refuses: dict[str, CallRefused] = field(default_factory=dict)
    """The errors to raise, by method."""
    may_open: asyncio.Event = field(default_factory=asyncio.Event)
    """An opening waits until this is set."""
    viewers: dict[Any, None] = field(default_factory=dict)
    typist: Any = None

    def __post_init__(self) -> None:
        """Let openings succeed at once."""
        self.may_open.set()

    def calls(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of all calls of `methods`."""
        return [params for name, params in self.asked if name in methods]

    @property
    def typed(self) -> list[Any]:
        """The input that was typed and pasted, in order, without submitted texts."""
        calls = [each for each in self.calls("terminals.type") if not each.get("submit")]
        return [key for each in calls for key in each["keys"]]

    def live(self, **fields: Any) -> None:
        """Set the terminal's state to live, and notify its viewers."""
        self.change(**{"state": "live", "reason": "", **fields})

    def change(self, **fields: Any) -> None:
        """Change the terminal's record, and notify its viewers."""
        self.record = {**(self.record or dict(_RECORD)), **fields}
        self.tell("terminal.state", self.told().to_json())

    def show(self, **frame_of: Any) -> None:
        """Send a frame unchanged to all viewers."""
        self.tell("terminal.screen", {**frame_of})

    def tell(self, event: str, payload: dict[str, Any]) -> None:
        """Send an event to all viewers."""
        for viewer in list(self.viewers):
            viewer.send_event(event, {"sid": (self.record or _RECORD)["sid"], **payload})

    def told(self) -> contract.Terminal:
        """Return the record as it is told."""
        if self.record is None:
            raise CallRefused("NOT_FOUND", "No terminal was opened in this session.")
        return contract.Terminal(**self.record)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of the terminals' methods."""
        return {method.name: self._handler(method.name) for method in contract.METHODS}

    def _handler(self, name: str) -> Handler:
        async def answer(call: Call, params: Any) -> Result:
            about = params.model_dump(exclude_unset=True)
            about.pop("sid", None)
            self.asked.append((name, about))
            self.asked_by.setdefault(name, set()).add(call.operator.name)
            if name in self.refuses:
                raise self.refuses[name]
            handle = getattr(self, f"_{name.partition('.')[2]}", None)
            if handle is not None:
                result: Result = await handle(call, params)
                return result
            return self.told()

        return answer

    async def _open(self, call: Call, params: contract.OpenTerminalParams) -> Result:
        await self.may_open.wait()
        is_new = self.record is None or self.record["state"] not in ("starting", "live")
        if is_new:
            self.record = {**_RECORD, "session_key": params.session, "state": "starting"}
        return contract.OpenedTerminal(terminal=self.told(), created=is_new, waits=False)

    async def _watch(self, call: Call, _params: contract.TerminalParams) -> Result:
        record = self.told()
        if record.state not in ("starting", "live"):
            raise CallRefused("CONFLICT", "It is not open.")
        events: Any = call.events
        self.viewers[events] = None
        events.send_event("terminal.screen", {"sid": record.sid, **self.screen, "since": None})
        return record

    async def _leave(self, call: Call, _params: contract.TerminalParams) -> Result:
        self.viewers.pop(call.events, None)
        if call.events is self.typist:
            self.typist = None
            self.change(writer="")
        return self.told()

    async def _screen(self, _call: Call, _params: contract.TerminalParams) -> Result:
        return contract.TerminalScreen(sid=self.told().sid, frame=self.screen, text="")

    async def _history(self, _call: Call, params: contract.TerminalHistoryParams) -> Result:
        rows = self.past[params.start : params.start + params.count]
        sid = self.told().sid
        return contract.HistoryRows(sid=sid, start=params.start, total=len(self.past), rows=rows)

    async def _search(self, _call: Call, params: contract.TerminalSearchParams) -> Result:
        wanted, rows = params.text.lower(), [*self.past]
        rows += [self.screen["lines"].get(str(row), []) for row in range(self.screen["rows"])]
        texts = ["".join(run[0] for run in runs) for runs in rows]
        found = [
            contract.FoundRow(row=number, count=text.lower().count(wanted), text=text)
            for number, text in enumerate(texts)
            if wanted in text.lower()
        ]
        total = sum(each.count for each in found)
        return contract.TerminalSearchResult(
            sid=self.told().sid,
            rows=tuple(found),
            total=total,
            more=False,
            scrollback=len(self.past),
        )

    async def _links(self, _call: Call, _params: contract.TerminalParams) -> Result:
        return contract.GuestLinks(links=tuple(self.links))

    async def _share(self, call: Call, params: contract.ShareParams) -> Result:
        link = {"id": "0" * 12, "by": call.operator.name, "created_ms": 1}
        link |= {"expires_ms": now_ms() + params.minutes * 60_000}
        self.links.append(contract.GuestLink(**link))
        return contract.SharedTerminal(**link, token="rcg_x", url="http://x/watch#rcg_x")

    async def _unshare(self, _call: Call, params: contract.UnshareParams) -> Result:
        self.links = [link for link in self.links if link.id != params.link]
        return contract.GuestLinks(links=tuple(self.links))

    async def _drop(self, _call: Call, _params: contract.DropParams) -> Result:
        return contract.Dropped(sid=self.told().sid, paths=())

    async def _take(self, call: Call, params: contract.TakeParams) -> Result:
        if self.typist not in (None, call.events) and not params.force:
            raise CallRefused("CONFLICT", "Another one types.")
        self.typist = call.events
        self.change(writer=call.operator.name)
        return self.told()

    async def _type(self, call: Call, params: contract.TypeParams) -> Result:
        # A text can be submitted while nobody has the keyboard.
        if self.typist is not call.events and not (params.submit and self.typist is None):
            raise CallRefused("CONFLICT", "Another one types here now.")
        return self.told()

    async def _resize(self, call: Call, _params: contract.ResizeParams) -> Result:
        if self.typist is not call.events:
            raise CallRefused("CONFLICT", "Another one types here now.")
        return self.told()

    async def _park(self, _call: Call, _params: contract.ParkParams) -> Result:
        self.change(state="parked", resumable=True, writer="")
        self.tell("terminal.gone", {"record": self.told().to_json()})
        self.viewers.clear()
        return self.told()

    async def _end(self, _call: Call, _params: contract.TerminalParams) -> Result:
        self.change(state="exited", writer="", exit=0)
        return self.told()


_RECORD: dict[str, Any] = {
    **{"sid": "5" * 32, "session_key": "", "agent": "main", "name": "main", "host": "here"},
    **{"state": "live", "reason": "", "activity": "idle", "waiting_for": "", "title": ""},
    **{"opened_by": "ada", "writer": "", "viewers": 1, "cols": 40, "rows": 8, "exit": None},
    **{"conversation": None, "resumable": False, "since_ms": 1, "opened_ms": 1},
}


@contextlib.asynccontextmanager
async def pane_opened(stack: Stack, pane: Pane) -> AsyncIterator[Door]:
    """Run a gateway whose terminals are played by `pane`."""
    methods = {name: one for name, one in METHODS.items() if name in HANDLERS}
    methods |= {method.name: replace(method) for method in contract.METHODS}
    async with opened(stack, {**HANDLERS, **pane.handlers()}, methods=methods) as door:
        yield door


async def terminal_shown(page: Page) -> None:
    """Click from the conversation to its terminal."""
    await page.get_by_role("button", name="Terminal", exact=True).click()
    await expect(page.locator(".terminal .tty-state")).not_to_have_text("Loading…")


async def session_shown(page: Page, door: Door, session: SessionKey) -> None:
    """Open the terminal of an idle session on the page."""
    await page.goto(f"{door.url}/#/s/{quote(str(session), safe='')}")
    await terminal_shown(page)
    await expect(page.locator(".tty-state")).to_have_text("Waits for you to write")
