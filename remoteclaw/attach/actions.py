"""The person's actions: keys for the far terminal, and commands behind Ctrl-]."""

import asyncio
import itertools
from typing import TYPE_CHECKING

from remoteclaw.attach.keys import Key, Keyboard, Paste, Text, Typed
from remoteclaw.attach.status import HELP
from remoteclaw.client.link import GatewayRefused

if TYPE_CHECKING:
    from remoteclaw.attach.app import Attachment

PREFIX = Key("ctrl+]")
#: How many keys are sent at once, and how many wait at most: what is typed into a terminal that
#: doesn't take it is lost, not typed a minute later.
MAX_KEYS, MAX_WAITING = 256, 4096
#: The most that is pasted, in characters.
MAX_PASTED = 100_000
#: How long the help stays, in seconds.
HELP_S = 20.0
REFUSED = {
    "ctrl+z": "Ctrl-Z is not typed: it would stop the program.",
    "ctrl+\\": "Ctrl-\\ is not typed: it would kill the program.",
}
NOT_OURS = "The keyboard isn't yours: Ctrl-] c takes it."
TOO_LARGE = "Not pasted: a paste has at most 100,000 characters."
#: Keys that look back, with the rows, and those that do it by pages.
_LINES = {"up": 1, "down": -1}
_PAGES = {"pageup": 1, "pagedown": -1}
_ENDS = {"home": 1, "end": -1}


class Hands:
    """Takes what the person's terminal sends, and types what is meant for the far one."""

    def __init__(self, attachment: "Attachment") -> None:
        self._at = attachment
        self._keyboard = Keyboard()
        self._waiting: list[Typed] = []
        self._is_there = asyncio.Event()
        self._is_command = False
        self._pause: asyncio.TimerHandle | None = None

    def take(self, data: bytes) -> None:
        """Take bytes of the terminal; none at all when it is closed."""
        if not data:
            self._at.closed()
            return
        if self._pause:
            self._pause.cancel()
            self._pause = None
        self._all(self._keyboard.feed(data))
        if (pause_s := self._keyboard.doubt_s) is not None:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(pause_s, lambda: self._all(self._keyboard.pause()))

    def look(self) -> None:
        """Go on, or drop what waits for a keyboard that is not ours after all."""
        far = self._at.far
        if self._waiting and not (far.is_writer or far.is_taking):
            self._waiting.clear()
            self._at.say(NOT_OURS)
        self._is_there.set()

    async def send(self) -> None:
        """Type in the far terminal what waits for it, in its order, until cancelled."""
        while True:
            await self._is_there.wait()
            self._is_there.clear()
            while self._waiting and self._at.far.is_writer:
                try:
                    await self._send_some()
                except GatewayRefused as error:
                    self._waiting.clear()
                    self._at.say(str(error))

    async def _send_some(self) -> None:
        first = self._waiting[0]
        if isinstance(first, Paste):
            del self._waiting[0]
            assert first.text is not None, "what is too large doesn't wait"
            await self._at.far.paste(first.text)
            return
        keys = [
            f"k:{typed.name}" if isinstance(typed, Key) else f"t:{typed.text}"
            for typed in itertools.takewhile(
                lambda typed: not isinstance(typed, Paste), self._waiting[:MAX_KEYS]
            )
            if not isinstance(typed, Paste)
        ]
        del self._waiting[: len(keys)]
        await self._at.far.type(keys)

    def _all(self, typed: list[Typed]) -> None:
        for one in typed:
            if self._is_command and isinstance(one, Text) and len(one.text) > 1:
                self._all([Text(one.text[0]), Text(one.text[1:])])
            elif self._is_command:
                self._command(one)
            elif one == PREFIX:
                self._is_command = True
                self._at.say(HELP, for_s=HELP_S)
            elif not self._looks_back(one):
                self._type(one)

    def _type(self, typed: Typed) -> None:
        """Type it, or say why it isn't typed."""
        at = self._at
        if at.is_reader:
            return
        if isinstance(typed, Key) and typed.name in REFUSED:
            at.say(REFUSED[typed.name])
        elif isinstance(typed, Paste) and (typed.text is None or len(typed.text) > MAX_PASTED):
            at.say(TOO_LARGE)
        elif not (at.far.is_writer or at.far.is_taking):
            at.say(NOT_OURS)
        elif len(self._waiting) < MAX_WAITING and typed != Paste(""):
            self._waiting.append(typed)
            self._is_there.set()

    def _command(self, typed: Typed) -> None:
        at = self._at
        self._is_command = False
        at.say("")
        match typed:
            case Text("d"):
                at.leave()
            case Text("c") if at.is_reader:
                at.say("You are attached with --read-only.")
            case Text("c"):
                at.start(at.take_keyboard())
            case Text("]") | Key("ctrl+]"):
                self._type(PREFIX)
            case Text("y"):
                at.copy()
            case Key("pageup" | "up" | "home"):
                self._look(typed.name)
            case Key("esc"):
                pass
            case _:
                at.say(HELP, for_s=HELP_S)

    def _looks_back(self, typed: Typed) -> bool:
        """Look back, or on; return whether it was this."""
        view = self._at.view
        if not (view.is_back or self._at.is_reader):
            return False
        if isinstance(typed, Key) and typed.name in {*_LINES, *_PAGES, *_ENDS}:
            self._look(typed.name)
        elif view.is_back:
            view.follow()
            self._at.say("")
        return True

    def _look(self, name: str) -> None:
        view, height = self._at.view, self._at.height
        page, all_rows = max(height - 1, 1), view.history + height
        rows = _LINES.get(name, 0) + page * _PAGES.get(name, 0) + all_rows * _ENDS.get(name, 0)
        view.scroll(rows, height=height)
        self._at.say("")
