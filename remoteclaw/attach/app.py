"""Shows a session's terminal in the user's own terminal, and sends the user's input to it."""

import asyncio
import base64
import contextlib
import signal
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.attach.actions import UserActions
from remoteclaw.attach.paint import Scene, ScreenPainter
from remoteclaw.attach.remote import RemoteTerminal, TerminalTarget
from remoteclaw.attach.status import StatusLine
from remoteclaw.attach.view import PAGE_ROWS, View
from remoteclaw.attach.window import WHEEL_OFF, WHEEL_ON, Window, WindowClosed
from remoteclaw.client.link import Address, GatewayRefused
from remoteclaw.tty.frames import apply_frame

#: The limits of a terminal's size, in columns and rows.
MIN_SIZE, MAX_SIZE = (20, 5), (500, 200)
#: How long to wait for further resizes of the window before the terminal is resized, in seconds:
#: its program repaints everything each time.
RESIZE_S = 0.15
#: How long a note is shown in the status line, in seconds.
NOTE_S = 5.0
#: How long leaving waits for the gateway, in seconds.
LEAVE_S = 1.0
#: The signals that end `attach`, after the user's terminal is restored.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
#: The exit status if the terminal is gone and its program's own exit status is unknown.
GONE_STATUS = 3


@dataclass(frozen=True, slots=True)
class AttachEnd:
    """The end of `attach`."""

    status: int
    """The exit status."""
    message: str
    """The sentence for the user; empty for none."""
    screen: str = ""
    """The last screen of a program that has ended with an error, which shows the reason."""


class AttachSession:
    """A user's session at a remote terminal."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: TerminalTarget,
        window: Window,
        is_reader: bool = False,
        has_true_colour: bool = True,
    ) -> None:
        self._window, self._target = window, target
        self._is_reader = is_reader
        self._remote = RemoteTerminal(
            address,
            token,
            on_change=self._remote_changed,
            on_frame=self._apply_frame,
            on_notice=self._handle_notice,
        )
        self._remote.wants_keyboard = not is_reader
        self._view = View()
        self._painter = ScreenPainter(has_true_colour)
        self._actions = UserActions(self)
        self._note = ""
        self._note_timer: asyncio.TimerHandle | None = None
        self._offered = ""
        """The text that the program offers for the clipboard."""
        self._sequences: list[str] = []
        """Control sequences to write after the next painting: a bell, a copied text."""
        self._wheel = WHEEL_OFF
        self._needs_painting, self._has_new_size = asyncio.Event(), asyncio.Event()
        self._is_requesting = False
        self._end: asyncio.Future[AttachEnd] = asyncio.get_running_loop().create_future()
        self._tasks: asyncio.TaskGroup

    async def run(self) -> AttachEnd:
        """Stay attached until the user leaves or the terminal ends.

        Raises `GatewayMissing`, `GatewayRefused` or `NotOpen`, in an exception group.
        """
        async with asyncio.TaskGroup() as self._tasks:
            linking = self._tasks.create_task(self._remote.run())
            if self._is_reader:
                await self._remote.find(self._target)
            else:
                await self._remote.open(self._target, self._size())
            end = await self._run_attached()
            if self._has_failed:
                end = replace(end, screen=await self._remote.last_screen())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._remote.leave()
            linking.cancel()
        return end

    @property
    def _has_failed(self) -> bool:
        """Whether the program itself has ended with an error."""
        record = self._remote.gone.result() if self._remote.gone.done() else None
        return record is not None and bool(record["exit"])

    async def _run_attached(self) -> AttachEnd:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.leave, AttachEnd(128 + number, ""))
        loop.add_signal_handler(signal.SIGWINCH, self._window_resized)
        self._remote.gone.add_done_callback(
            lambda gone: self.leave(_end_of(gone.result(), self._remote.away_reason))
        )
        loops = (
            self._remote.keep_watching(),
            self._paint(),
            self._actions.send(),
            self._send_sizes(),
        )
        with self._window.entered(self._actions.receive):
            running = [self._tasks.create_task(self._until_closed(each)) for each in loops]
            self._request_painting()
            try:
                return await self._end
            finally:
                for task in running:
                    task.cancel()

    async def _until_closed(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except WindowClosed:
            self.window_closed()

    # -- for the user's actions -----------------------------------------------------------------

    @property
    def remote(self) -> RemoteTerminal:
        """The remote terminal."""
        return self._remote

    @property
    def is_reader(self) -> bool:
        """Whether this viewer only watches, so that its keys are dropped."""
        return self._is_reader

    @property
    def view(self) -> View:
        """The part of the screen that the window shows."""
        return self._view

    @property
    def height(self) -> int:
        """The number of rows of the window, without the status line."""
        return max(self._window.size[1] - 1, 1)

    def leave(self, end: AttachEnd | None = None) -> None:
        """End the session; `end` is None if the user leaves."""
        if not self._end.done():
            message = f"Detached; the program runs on: remoteclaw attach {self._remote.sid[:8]}"
            self._end.set_result(end or AttachEnd(0, message))

    def window_closed(self) -> None:
        """End the session, because the user's terminal is gone."""
        self.leave(AttachEnd(128 + signal.SIGHUP, ""))

    def show_note(self, note: str, *, for_s: float = NOTE_S) -> None:
        """Show a note in the status line for `for_s` seconds; an empty one removes the note."""
        if self._note_timer:
            self._note_timer.cancel()
            self._note_timer = None
        self._note = note
        if note:
            self._note_timer = asyncio.get_running_loop().call_later(for_s, self.show_note, "")
        self._request_painting()

    def copy(self) -> None:
        """Copy the text that the program offers to the clipboard of the user's terminal."""
        if not self._offered:
            self.show_note("The program has offered nothing for the clipboard.")
            return
        content = base64.b64encode(self._offered.encode()).decode()
        self._sequences.append(f"\x1b]52;c;{content}\x07")
        self._offered = ""
        self.show_note("Copied.")

    async def take_keyboard(self) -> None:
        """Take the keyboard, even from another user."""
        try:
            await self._remote.take(force=True)
        except GatewayRefused as error:
            self.show_note(str(error))

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task of its own."""
        self._tasks.create_task(work)

    # -- callbacks of the remote terminal -------------------------------------------------------

    def _remote_changed(self) -> None:
        self._actions.remote_changed()
        self._request_painting()

    def _apply_frame(self, frame: Mapping[str, Any]) -> None:
        state = apply_frame(self._view.frame, dict(frame))
        if state is None:
            self._remote.watch_again()
            return
        self._view.frame = state
        self._request_painting()

    def _handle_notice(self, kind: str, text: str) -> None:
        match kind:
            case "bell":
                self._sequences.append("\x07")
                self._request_painting()
            case "clipboard":
                self._offered = text
                self.show_note("The program offers a text for the clipboard: Ctrl-] y copies it.")
            case "refused":
                self.show_note(text)

    # -- the window ----------------------------------------------------------------------------

    def _request_painting(self) -> None:
        self._needs_painting.set()

    async def _paint(self) -> None:
        """Paint the latest state, as often as the user's terminal can read it."""
        while True:
            await self._needs_painting.wait()
            self._needs_painting.clear()
            sequences = "".join(self._sequences)
            self._sequences.clear()
            wheel = WHEEL_ON if self._is_reader or self._view.is_scrolled_back else WHEEL_OFF
            if wheel != self._wheel:
                self._wheel = wheel
                sequences += wheel
            await self._window.write(self._painter.paint(self._scene()) + sequences)
            self._request_scrollback()

    def _scene(self) -> Scene:
        cols = self._window.size[0]
        remote, view, height = self._remote, self._view, self.height
        status = StatusLine(
            remote.record,
            is_reader=self._is_reader,
            is_writer=remote.is_writer or remote.is_taking,
            is_away=remote.away_reason != "",
            note=self._note,
            cut_note=view.cut_note(cols, height),
            is_scrolled_back=view.is_scrolled_back,
            is_waiting=remote.has_waited,
        )
        frame = view.frame or {}
        return Scene(
            cols=cols,
            lines=view.rows(height),
            status=status.runs(cols),
            cursor=view.cursor(cols, height),
            shape=frame["cursor"]["shape"] if frame else "",
            title=frame.get("title") or remote.record["agent"],
        )

    def _request_scrollback(self) -> None:
        """Request rows of the scrollback that are visible and not known."""
        missing = self._view.first_missing(self.height)
        if missing is not None and not self._is_requesting:
            self._is_requesting = True
            self.start_task(self._load_scrollback(missing))

    async def _load_scrollback(self, start: int) -> None:
        try:
            self._view.add_scrollback(await self._remote.scrollback(start, PAGE_ROWS))
        except GatewayRefused as error:
            self._view.follow()
            self.show_note(str(error))
        finally:
            self._is_requesting = False
            self._request_painting()

    def _size(self) -> tuple[int, int]:
        """Return the size of a terminal that fits into the window, above the status line."""
        room = (self._window.size[0], self.height)
        cols, rows = (
            min(max(value, least), most)
            for value, least, most in zip(room, MIN_SIZE, MAX_SIZE, strict=True)
        )
        return cols, rows

    def _window_resized(self) -> None:
        self._painter.reset()
        self._has_new_size.set()
        self._request_painting()

    async def _send_sizes(self) -> None:
        while True:
            await self._has_new_size.wait()
            await asyncio.sleep(RESIZE_S)
            self._has_new_size.clear()
            with contextlib.suppress(GatewayRefused):
                await self._remote.resize(self._size())


def _end_of(record: Mapping[str, Any] | None, away_reason: str) -> AttachEnd:
    """Return the end for a terminal's last record, which is None if the gateway is away."""
    if record is None:
        return AttachEnd(
            GONE_STATUS, f"For a minute, {away_reason}; the terminal runs on without this window."
        )
    command = f"remoteclaw attach {record['sid'][:8]}"
    status = record["exit"]
    match record["state"]:
        case "parked" if record["reason"]:
            return AttachEnd(GONE_STATUS, f"The terminal was ended: {record['reason']}.")
        case "parked":
            return AttachEnd(
                GONE_STATUS, f"The terminal was ended while it was idle; to continue: {command}"
            )
        case "lost":
            return AttachEnd(GONE_STATUS, f"The terminal's host {record['host']} is away.")
    if status is None:
        reason = record["reason"] or "the reason is unknown"
        return AttachEnd(1, f"The terminal has ended: {reason.removesuffix('.')}.")
    code = status if 0 <= status < 256 else 128 + abs(status) if status < 0 else 1
    return AttachEnd(
        code, f"The program has ended with status {status}." if status else "The program has ended."
    )
