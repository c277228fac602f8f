"""Shows a session's terminal in the user's own, and sends what they type to it."""

import asyncio
import base64
import contextlib
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.attach.actions import Hands
from remoteclaw.attach.paint import Painter, Scene
from remoteclaw.attach.remote import Far, Target
from remoteclaw.attach.status import Status
from remoteclaw.attach.view import PAGE, View
from remoteclaw.attach.window import WHEEL_OFF, WHEEL_ON, Window, WindowClosed
from remoteclaw.client.link import Address, GatewayRefused
from remoteclaw.tty.frames import applied

#: What a terminal may have, in columns and rows.
LEAST, MOST = (20, 5), (500, 200)
#: How long a window has to keep a size until the terminal gets it, in seconds: each one makes its
#: program paint everything.
RESIZE_S = 0.15
#: How long a note stays in the last line, in seconds.
NOTE_S = 5.0
#: How long leaving waits for the gateway, in seconds.
LEAVE_S = 1.0
#: Signals that end it, with everything put back.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
#: The exit status when the terminal isn't there any more, without a status of its program.
GONE = 3


@dataclass(frozen=True, slots=True)
class End:
    """How `attach` ended."""

    status: int
    """The exit status."""
    words: str


class Attachment:
    """A person at a far terminal."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: Target,
        window: Window,
        is_reader: bool = False,
        has_all_colours: bool = True,
    ) -> None:
        self._window, self._target = window, target
        self._is_reader = is_reader
        self._far = Far(address, token, changed=self._changed, drawn=self._drawn, said=self._heard)
        self._far.wants_keyboard = not is_reader
        self._view = View()
        self._painter = Painter(has_all_colours)
        self._hands = Hands(self)
        self._note = ""
        self._note_ends: asyncio.TimerHandle | None = None
        self._offered = ""
        """The text that the program offers for the clipboard."""
        self._beside: list[str] = []
        """Control sequences to write with the next picture: a bell, a copied text."""
        self._wheel = WHEEL_OFF
        self._is_dirty, self._is_resized = asyncio.Event(), asyncio.Event()
        self._is_asking = False
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._tasks: asyncio.TaskGroup

    async def run(self) -> End:
        """Be attached until the person leaves or it ends.

        Raises `GatewayMissing`, `GatewayRefused` or `NotOpen`, in a group.
        """
        async with asyncio.TaskGroup() as self._tasks:
            linking = self._tasks.create_task(self._far.run())
            if self._is_reader:
                await self._far.find(self._target)
            else:
                await self._far.open(self._target, self._size())
            end = await self._attached()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._far.leave()
            linking.cancel()
        return end

    async def _attached(self) -> End:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.leave, End(128 + number, ""))
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._far.gone.add_done_callback(
            lambda gone: self.leave(_end(gone.result(), self._far.away))
        )
        duties = (self._far.stay(), self._paint(), self._hands.send(), self._resize())
        with self._window.entered(self._hands.take):
            running = [self._tasks.create_task(self._until_closed(duty)) for duty in duties]
            self._draw()
            try:
                return await self._end
            finally:
                for task in running:
                    task.cancel()

    async def _until_closed(self, duty: Coroutine[Any, Any, None]) -> None:
        try:
            await duty
        except WindowClosed:
            self.closed()

    # -- for the hands -------------------------------------------------------------------------

    @property
    def far(self) -> Far:
        """The far terminal."""
        return self._far

    @property
    def is_reader(self) -> bool:
        """Whether this viewer only reads: its keys are dropped."""
        return self._is_reader

    @property
    def view(self) -> View:
        """The part of the screen that the window shows."""
        return self._view

    @property
    def height(self) -> int:
        """The rows of the window without the status line."""
        return max(self._window.size[1] - 1, 1)

    def leave(self, end: End | None = None) -> None:
        """End; without more words, because the person leaves."""
        if not self._end.done():
            words = f"Detached; it works on: remoteclaw attach {self._far.sid[:8]}"
            self._end.set_result(end or End(0, words))

    def closed(self) -> None:
        """End, because the person's terminal is gone."""
        self.leave(End(128 + signal.SIGHUP, ""))

    def say(self, note: str, *, for_s: float = NOTE_S) -> None:
        """Show a note in the last line for a while; an empty one takes it away."""
        if self._note_ends:
            self._note_ends.cancel()
            self._note_ends = None
        self._note = note
        if note:
            self._note_ends = asyncio.get_running_loop().call_later(for_s, self.say, "")
        self._draw()

    def copy(self) -> None:
        """Give what the program has offered to the clipboard of the person's terminal."""
        if not self._offered:
            self.say("The program has offered nothing for the clipboard.")
            return
        content = base64.b64encode(self._offered.encode()).decode()
        self._beside.append(f"\x1b]52;c;{content}\x07")
        self._offered = ""
        self.say("Copied.")

    async def take_keyboard(self) -> None:
        """Take the keyboard, although another one types."""
        try:
            await self._far.take(force=True)
        except GatewayRefused as error:
            self.say(str(error))

    def start(self, deed: Coroutine[Any, Any, None]) -> None:
        """Do something beside."""
        self._tasks.create_task(deed)

    # -- what is heard -------------------------------------------------------------------------

    def _changed(self) -> None:
        self._hands.look()
        self._draw()

    def _drawn(self, frame: Mapping[str, Any]) -> None:
        state = applied(self._view.frame, dict(frame))
        if state is None:
            self._far.watch_again()
            return
        self._view.frame = state
        self._draw()

    def _heard(self, what: str, text: str) -> None:
        match what:
            case "bell":
                self._beside.append("\x07")
                self._draw()
            case "clipboard":
                self._offered = text
                self.say("The program offers a text for the clipboard: Ctrl-] y copies it.")
            case "refused":
                self.say(text)

    # -- the window ----------------------------------------------------------------------------

    def _draw(self) -> None:
        self._is_dirty.set()

    async def _paint(self) -> None:
        """Paint the latest state, as fast as the terminal takes it."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            beside = "".join(self._beside)
            self._beside.clear()
            wheel = WHEEL_ON if self._is_reader or self._view.is_back else WHEEL_OFF
            if wheel != self._wheel:
                self._wheel = wheel
                beside += wheel
            await self._window.write(self._painter.paint(self._scene()) + beside)
            self._look_back()

    def _scene(self) -> Scene:
        cols = self._window.size[0]
        far, view, height = self._far, self._view, self.height
        status = Status(
            far.record,
            is_reader=self._is_reader,
            is_writer=far.is_writer or far.is_taking,
            is_away=far.away != "",
            note=self._note,
            cut=view.cut(cols, height),
            is_back=view.is_back,
            is_waiting=far.has_waited,
        )
        frame = view.frame or {}
        return Scene(
            cols=cols,
            lines=view.rows(height),
            status=status.line(cols),
            cursor=view.cursor(cols, height),
            shape=frame["cursor"]["shape"] if frame else "",
            title=frame.get("title") or far.record["agent"],
        )

    def _look_back(self) -> None:
        """Ask for rows of the past that are to be seen and not known."""
        missing = self._view.missing(self.height)
        if missing is not None and not self._is_asking:
            self._is_asking = True
            self.start(self._ask(missing))

    async def _ask(self, start: int) -> None:
        try:
            self._view.learn(await self._far.rows(start, PAGE))
        except GatewayRefused as error:
            self._view.follow()
            self.say(str(error))
        finally:
            self._is_asking = False
            self._draw()

    def _size(self) -> tuple[int, int]:
        """Return the size of a terminal that fits into the window, above the last line."""
        given = (self._window.size[0], self.height)
        cols, rows = (
            min(max(value, least), most)
            for value, least, most in zip(given, LEAST, MOST, strict=True)
        )
        return cols, rows

    def _resized(self) -> None:
        self._painter.forget()
        self._is_resized.set()
        self._draw()

    async def _resize(self) -> None:
        while True:
            await self._is_resized.wait()
            await asyncio.sleep(RESIZE_S)
            self._is_resized.clear()
            with contextlib.suppress(GatewayRefused):
                await self._far.resize(self._size())


def _end(record: Mapping[str, Any] | None, why: str) -> End:
    """Return the end of a terminal that is gone, with what the person reads."""
    if record is None:
        return End(GONE, f"For a minute, {why}; the terminal works on where it is.")
    again = f"remoteclaw attach {record['sid'][:8]}"
    status = record["exit"]
    match record["state"]:
        case "parked" if record["reason"]:
            return End(GONE, f"The terminal was ended: {record['reason']}.")
        case "parked":
            return End(GONE, f"The terminal was ended while it was idle; it goes on with: {again}")
        case "lost":
            return End(GONE, f"The terminal's host {record['host']} is away.")
    if status is None:
        words = record["reason"] or "it did not say how"
        return End(1, f"The terminal has ended: {words}.")
    code = status if 0 <= status < 256 else 128 + abs(status) if status < 0 else 1
    return End(
        code, f"The program has ended with status {status}." if status else "The program has ended."
    )
