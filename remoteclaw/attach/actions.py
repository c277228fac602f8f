"""The user's actions: input for the remote terminal, and commands that begin with Ctrl-]."""

import asyncio
import itertools
from typing import TYPE_CHECKING

from remoteclaw.attach.keys import Key, KeyReader, Paste, TypedText, UserInput
from remoteclaw.attach.status import HELP
from remoteclaw.client.link import GatewayRefused

if TYPE_CHECKING:
    from remoteclaw.attach.app import AttachSession

PREFIX = Key("ctrl+]")
#: How many keys are sent at once, and how many inputs are queued: more are dropped, because they
#: would reach a slow terminal long after they were typed.
MAX_KEYS, MAX_QUEUED = 256, 4096
#: The largest paste, in characters.
MAX_PASTE_CHARS = 100_000
#: How long the help is shown, in seconds.
HELP_S = 20.0
REFUSED = {
    "ctrl+z": "Ctrl-Z is not typed: it would stop the program.",
    "ctrl+\\": "Ctrl-\\ is not typed: it would kill the program.",
}
NOT_OURS = "The keyboard isn't yours: Ctrl-] c takes it."
TOO_LARGE = "Not pasted: a paste has at most 100,000 characters."
#: Keys that scroll, with their direction: by a line, by a page, and to the beginning or the end.
_LINES = {"up": 1, "down": -1}
_PAGES = {"pageup": 1, "pagedown": -1}
_ENDS = {"home": 1, "end": -1}


class UserActions:
    """Reads the user's terminal, runs commands, and types the rest in the remote terminal."""

    def __init__(self, session: "AttachSession") -> None:
        self._session = session
        self._reader = KeyReader()
        self._queue: list[UserInput] = []
        self._may_send = asyncio.Event()
        self._is_command = False
        """Whether the last key was Ctrl-]."""
        self._expiry: asyncio.TimerHandle | None = None

    def receive(self, data: bytes) -> None:
        """Handle bytes of the user's terminal; b"" means that it is closed."""
        if not data:
            self._session.window_closed()
            return
        if self._expiry:
            self._expiry.cancel()
            self._expiry = None
        self._handle_all(self._reader.feed(data))
        if (timeout_s := self._reader.timeout_s) is not None:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(
                timeout_s, lambda: self._handle_all(self._reader.expire())
            )

    def remote_changed(self) -> None:
        """Send queued input, or drop it if another user has the keyboard after all."""
        remote = self._session.remote
        if self._queue and not (remote.is_writer or remote.is_taking):
            self._queue.clear()
            self._session.show_note(NOT_OURS)
        self._may_send.set()

    async def send(self) -> None:
        """Type queued input in the remote terminal, in order, until cancelled."""
        while True:
            await self._may_send.wait()
            self._may_send.clear()
            while self._queue and self._session.remote.is_writer:
                try:
                    await self._send_some()
                except GatewayRefused as error:
                    self._queue.clear()
                    self._session.show_note(str(error))

    async def _send_some(self) -> None:
        # A paste is large, and may be refused: it is sent in a call of its own.
        keys = itertools.takewhile(lambda item: not isinstance(item, Paste), self._queue[:MAX_KEYS])
        items = list(keys) or self._queue[:1]
        del self._queue[: len(items)]
        await self._session.remote.type([_item_of(item) for item in items])

    def _handle_all(self, inputs: list[UserInput]) -> None:
        for typed in inputs:
            if self._is_command and isinstance(typed, TypedText) and len(typed.text) > 1:
                self._handle_all([TypedText(typed.text[0]), TypedText(typed.text[1:])])
            elif self._is_command:
                self._run_command(typed)
            elif typed == PREFIX:
                self._is_command = True
                self._session.show_note(HELP, for_s=HELP_S)
            elif not self._handle_scrolling(typed):
                self._type(typed)

    def _type(self, typed: UserInput) -> None:
        """Queue input for the remote terminal, or show why it is not typed."""
        session = self._session
        if session.is_reader:
            return
        if isinstance(typed, Key) and typed.name in REFUSED:
            session.show_note(REFUSED[typed.name])
        elif isinstance(typed, Paste) and (typed.text is None or len(typed.text) > MAX_PASTE_CHARS):
            session.show_note(TOO_LARGE)
        elif not (session.remote.is_writer or session.remote.is_taking):
            session.show_note(NOT_OURS)
        elif len(self._queue) < MAX_QUEUED and typed != Paste(""):
            self._queue.append(typed)
            self._may_send.set()

    def _run_command(self, typed: UserInput) -> None:
        session = self._session
        self._is_command = False
        session.show_note("")
        match typed:
            case TypedText("d"):
                session.leave()
            case TypedText("c") if session.is_reader:
                session.show_note("You are attached with --read-only.")
            case TypedText("c"):
                session.start_task(session.take_keyboard())
            case TypedText("]") | Key("ctrl+]"):
                self._type(PREFIX)
            case TypedText("y"):
                session.copy()
            case Key("pageup" | "up" | "home"):
                self._scroll(typed.name)
            case Key("esc"):
                pass
            case _:
                session.show_note(HELP, for_s=HELP_S)

    def _handle_scrolling(self, typed: UserInput) -> bool:
        """Scroll, or return to the live screen; return whether the input was used for this."""
        view = self._session.view
        if not (view.is_scrolled_back or self._session.is_reader):
            return False
        if isinstance(typed, Key) and typed.name in {*_LINES, *_PAGES, *_ENDS}:
            self._scroll(typed.name)
        elif view.is_scrolled_back:
            view.follow()
            self._session.show_note("")
        return True

    def _scroll(self, key: str) -> None:
        view, height = self._session.view, self._session.height
        page, all_rows = max(height - 1, 1), view.history + height
        rows = _LINES.get(key, 0) + page * _PAGES.get(key, 0) + all_rows * _ENDS.get(key, 0)
        view.scroll(rows, height=height)
        self._session.show_note("")


def _item_of(typed: UserInput) -> str:
    """Return an input as an item of `terminals.type`."""
    if isinstance(typed, Key):
        return f"k:{typed.name}"
    if isinstance(typed, TypedText):
        return f"t:{typed.text}"
    assert typed.text is not None, "a paste that is too large is not queued"
    return f"p:{typed.text}"
