"""Watches one terminal: turns its output into a screen, and follows the program's activity.

All output is read at once, with or without viewers, so that the program never blocks on it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused
from remoteclaw.holder.terminal_client import (
    MAX_MESSAGE_BYTES,
    Replaced,
    TerminalClient,
    TerminalEnded,
    TerminalOutput,
)
from remoteclaw.holder.tree import descendants
from remoteclaw.host.logs import frames_of
from remoteclaw.host.terminal import one_line
from remoteclaw.protocols.terminal import Activity, TerminalWatch
from remoteclaw.tty import input as terminal_input
from remoteclaw.tty import keys
from remoteclaw.tty.composer import Composer, draft_of, is_composing
from remoteclaw.tty.frames import Frame
from remoteclaw.tty.saved_state import SavedState
from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import SnapshotUnreadable
from remoteclaw.tty.tail import Tail

#: The state is saved with the holder at this interval (in seconds), and after this much output: far
#: less than the holder's buffer of output holds.
SAVE_S, SAVE_BYTES = 3.0, 256 * 1024
#: The largest saved state that the holder accepts, in bytes.
MAX_SAVED_BYTES = 256 * 1024
#: How much output is processed at once, in bytes: it blocks the event loop for a millisecond.
CHUNK_BYTES = 64 * 1024
#: How many OSC numbers are saved for the next gateway, and how many characters of each text.
MAX_OSC_TEXTS, MAX_OSC_CHARS = 8, 1000
#: The pause between a text and its Enter, in seconds: gemini takes an earlier Enter for a part of
#: the text.
ENTER_S = 0.15
#: How long to wait for the program, in seconds: until it shows the typed text; until it is idle
#: again if it became busy by itself, as codex does after its start; until it confirms the text.
SHOWN_S, IDLE_AGAIN_S, CONFIRMED_S = 2.0, 10.0, 10.0
#: How long the composer has to stay the same before a text is typed, in seconds; `LIVELY_S` if it
#: can't be recognized, or if the rest of the screen changes. How long to wait for that, and how
#: often a lost text is typed: gemini replaces its composer after a resumed one was `idle`.
STEADY_S, LIVELY_S, SETTLED_S, TRIES = 0.5, 2.0, 8.0, 3
#: How long the composer must look empty until it counts as empty, in seconds: a program may show a
#: key only after a moment. How long `submit()` waits for that, and for the effect of keys.
REST_S, UNTIL_REST_S = 0.5, 3.0
#: How long a program may take to show the effect of a key, in seconds.
REACTION_S = 2.0
#: How many times a draft is deleted until its composer is not known to be empty.
CLEARINGS = 3
#: The maximum length of a draft that is shown, in characters.
MAX_DRAFT_CHARS = 2000
#: The pause before the program's activity is followed again after an error, in seconds.
RETRY_S = 1.0

#: OSC numbers of `Screen.take_osc_events()`.
TITLE, CLIPBOARD = 0, 52
TOO_LARGE = "The input is larger than 1 MB: nothing was typed."
NOT_READ = "The program does not read its input: it is busy, or it hangs."
NOT_IDLE = "The program is not known to be idle: nothing was typed."
HAS_DRAFT = "Something else was typed and not sent yet: nothing was added to it."
NOT_CLEARED = "What was typed could not be deleted: nothing was added to it."
SINGLE_CHARACTER = (
    "The program asks something, and could take the pasted character for an answer: press its key"
    " instead."
)
NOT_IDLE_ANY_MORE = (
    "The program became busy, or asks something, while the text was typed: the text is in its "
    "input, and was not sent. Look at it in the terminal."
)
NOT_CONFIRMED = (
    "The text was typed, but the program has not confirmed that it received it. Look at it in the "
    "terminal."
)

log = logging.getLogger(__name__)


class TerminalListener(Protocol):
    """Receives the events of a terminal. The methods must not block."""

    def screen_changed(self) -> None:
        """The screen may have changed."""

    def status_changed(self) -> None:
        """The activity, the title or the conversation has changed."""

    def bell_rang(self) -> None:
        """The bell has rung."""

    def clipboard_offered(self, text: str) -> None:
        """The program offers a text for the clipboard."""


@dataclass(slots=True)
class WatchedTerminal:
    """A terminal to which this gateway is attached."""

    client: TerminalClient
    program: TerminalWatch
    listener: TerminalListener
    scrollback: int = 1000
    has_draft: bool = True
    """Whether there may be typed text that was not sent."""
    wait_count: int = 0
    """How often the program has begun to wait for a person, which numbers its dialogs."""
    screen: Screen = field(init=False)
    tail: Tail = field(init=False, default_factory=Tail)
    _offset: int = 0
    """The offset of the next output."""
    _saved_at: int = 0
    """The offset of the output at which the state was saved last."""
    _osc_texts: dict[int, str] = field(default_factory=dict)
    """The last text of each OSC number."""
    _bell_count: int = 0
    _activity: Activity = "unknown"
    _is_waiting: bool = False
    _was_typed_early: bool = False
    """Whether a user typed before the program was ready, that is into a dialog of its start."""
    _inputs: int = 0
    """How often a user has typed."""
    _is_pasted: bool = False
    """Whether text was pasted into a dialog: codex puts it into its composer, as a draft."""
    _is_submitting: bool = False
    _empty: Composer | None = None
    """The composer when it was last known to be empty, before somebody typed."""
    _processes: frozenset[int] | None = None
    """The processes below the holder at that time; None if unknown."""
    _empty_since: float | None = None
    """Since when the composer has looked empty again, on the clock of `boottime()`."""
    _wrote_at: float = field(default_factory=boottime)
    """When the program last wrote, on the same clock."""
    _typed_at: float = 0.0
    """When somebody last typed."""
    _began_work: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the program begins to work or to wait for a person."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by output, by a change of the activity, and by typing."""

    async def restore(self) -> None:
        """Build the current screen from the saved state and the output since then."""
        client = self.client
        saved = SavedState.decode(client.picture) if client.picture else SavedState()
        skipped = max(client.picture_offset - client.output_offset, 0) if client.picture else 0
        self.screen = self._screen_from(saved)
        for number, text in saved.osc_texts.items():
            self._note_osc(number, text)
        # Set after the replay above, which changes them when it passes through activities that the
        # program did not have at once.
        self.has_draft, self.wait_count = saved.has_draft, saved.wait_count
        self._is_waiting = saved.is_waiting
        self._empty, self._processes = saved.empty, saved.processes
        if not client.picture and client.output_offset == 0:
            self.has_draft = False  # the output is complete, and no gateway has typed anything
        self._offset = client.output_offset + skipped
        is_gap = client.output_offset > (client.picture_offset if client.picture else 0)
        output, client.output, client.picture = client.output[skipped:], b"", b""
        await self._process(output, is_past=True)
        if is_gap:
            await self.repaint()

    def _screen_from(self, saved: SavedState) -> Screen:
        cols, rows = self.client.cols, self.client.rows
        if saved.snapshot:
            with contextlib.suppress(SnapshotUnreadable):
                return Screen.restored(saved.snapshot, cols, rows, scrollback=self.scrollback)
        return Screen(cols, rows, scrollback=self.scrollback)

    async def run(self) -> TerminalEnded | Replaced:
        """Watch the terminal until it ends, or until another gateway attaches to it."""
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._save_regularly())]
        try:
            return await self._read_output()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def leave(self) -> None:
        """Save the state and detach. The program continues."""
        with contextlib.suppress(OSError):
            await self.save()
        self.client.close()
        self.tail.close()
        self.screen.close()

    # -- output --------------------------------------------------------------------------------

    async def _read_output(self) -> TerminalEnded | Replaced:
        while True:
            match await self.client.read():
                case TerminalOutput(offset, data):
                    is_gap, self._offset = offset != self._offset, offset
                    await self._process(data)
                    if is_gap:
                        await self.repaint()
                case end:
                    return end

    async def _process(self, data: bytes, *, is_past: bool = False) -> None:
        """Process output. Past output is not answered: a late answer would be taken for typing."""
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            answers = self.screen.feed(chunk)
            self.tail.put(self._offset, chunk)
            self._offset += len(chunk)
            for number, text in self.screen.take_osc_events():
                if number == CLIPBOARD:
                    if not is_past:
                        self.listener.clipboard_offered(text)
                else:
                    self._note_osc(number, text)
            if self.screen.bell_count != self._bell_count:
                self._bell_count = self.screen.bell_count
                if not is_past:
                    self.listener.bell_rang()
            if answers and not is_past:
                await self.client.write(answers)
            self._changed.set()
            self._wrote_at = boottime()
            self.listener.screen_changed()
            if len(data) > CHUNK_BYTES:
                await asyncio.sleep(0)
        if self._offset - self._saved_at >= SAVE_BYTES and not is_past:
            await self.save()

    def _note_osc(self, number: int, text: str) -> None:
        if number in self._osc_texts or len(self._osc_texts) < MAX_OSC_TEXTS:
            self._osc_texts[number] = text[:MAX_OSC_CHARS]
        if number == TITLE:
            self.program.title(text)
        else:
            self.program.osc(number, text)
        # Some programs animate a spinner in the title: these changes are not worth an update.
        if number != TITLE or self.program.activity != self._activity:
            self._update_status()

    async def repaint(self) -> None:
        """Make the program redraw its screen, by a resize, because output is missing."""
        cols, rows = self.client.cols, self.client.rows
        await self.client.resize(cols, rows - 1)
        await self.client.resize(cols, rows)

    async def save(self) -> None:
        """Save the state with the holder, for the next gateway."""
        snapshot = self.screen.snapshot()
        if not snapshot:
            return  # in the middle of a long sequence: the last saved state stays valid
        saved = SavedState(
            snapshot,
            dict(self._osc_texts),
            self.has_draft,
            self.wait_count,
            self._is_waiting,
            self._empty,
            self._processes,
        ).encode()
        self._saved_at = self._offset
        if len(saved) <= MAX_SAVED_BYTES:
            await self.client.keep(self._offset, saved)

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            if self._saved_at != self._offset:
                await self.save()

    # -- activity ------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                await self.program.run(self._update_status)
            except Exception as error:  # noqa: BLE001 - the terminal itself still works
                log.error("a terminal's activity can't be followed: %s", frames_of(error))
            await asyncio.sleep(RETRY_S)

    def _update_status(self) -> None:
        """Update the state from the watch's activity.

        Once the program works, what was typed before has been sent, or has answered a dialog.
        """
        before, self._activity = self._activity, self.program.activity
        if self._was_typed_early and self.program.is_ready:
            self._was_typed_early = self.has_draft = False
        if self._activity != before:
            is_at_work = self._activity in ("busy", "waiting")
            if is_at_work and before not in ("busy", "waiting"):
                self._is_pasted = False
            if is_at_work or (before == "waiting" and self._activity == "idle"):
                self.has_draft = self._is_pasted
            if is_at_work:
                self._began_work.set()
            elif self._activity == "idle" and self._processes is None:
                self._processes = self._below_holder()  # typed in before it was idle
            if self._activity == "waiting" and not self._is_waiting:
                self.wait_count += 1
            if self._activity != "unknown":  # unknown does not mean that the dialog is closed
                self._is_waiting = self._activity == "waiting"
        self._changed.set()
        self.listener.status_changed()

    # -- typing --------------------------------------------------------------------------------

    async def type(self, data: bytes, *, is_pasted: bool = False) -> None:
        """Type bytes, of which some are pasted if `is_pasted` is set.

        Raises `CallRefused` for too many bytes, or while the program does not read its input.
        """
        _check_size(data)
        self._is_pasted = self._is_pasted or (is_pasted and self.program.activity == "waiting")
        await self._note_typing()
        self._inputs += 1
        self._changed.set()
        self._was_typed_early = self._was_typed_early or not self.program.is_ready
        self.program.typed()
        if not await self.client.write(data):
            raise CallRefused("UNAVAILABLE", NOT_READ)

    def pasted(self, text: str) -> bytes:
        """Return the bytes that paste a text as one piece.

        Raises `CallRefused` or `PasteRefused`.
        """
        # A “1” that is pasted into gemini's dialog grants the permission.
        if self.program.activity == "waiting" and len(terminal_input.cleaned(text)) == 1:
            raise CallRefused("CONFLICT", SINGLE_CHARACTER)
        return terminal_input.paste(text, self.screen.modes)

    async def submit(self, text: str, *, clear: bool = False) -> str:
        """Type a text and send it; return the draft that was deleted before, with `clear`.

        Raises `CallRefused` unless the program is surely idle and its composer empty.
        """
        if self._is_submitting:
            raise CallRefused("CONFLICT", HAS_DRAFT)
        data = terminal_input.paste(text, self.screen.modes)
        _check_size(data)
        self._is_submitting = True
        try:
            is_empty = await self._until_empty()
            cleared = await self._clear() if clear and not is_empty else ""
            await self._until_settled()
            if self.has_draft or self.program.activity != "idle":
                what = HAS_DRAFT if self.program.activity == "idle" else NOT_IDLE
                raise CallRefused("CONFLICT", self._with_draft(NOT_CLEARED if clear else what))
            await self._submit(data)
        finally:
            self._is_submitting = False
        return cleared

    async def _submit(self, data: bytes) -> None:
        try:
            await self._type_and_send(data)
        except CallRefused:
            # The text may be unsent, even if the program has worked since.
            await self._note_typing()
            raise

    async def _type_and_send(self, data: bytes) -> None:
        wait_count, inputs = self.wait_count, self._inputs
        await self._note_typing()
        for _ in range(TRIES):
            if not await self.client.write(data):
                raise CallRefused("UNAVAILABLE", NOT_READ)
            # A program that has not read the text yet would read the Enter together with it.
            await self._until(lambda: not self._looks_empty(), SHOWN_S)
            await asyncio.sleep(ENTER_S)
            if not self._has_lost_text() or self.program.activity != "idle":
                break
            await self._until_settled()
            if not self._has_lost_text():  # it was only slow
                break

        def is_disturbed() -> bool:
            """Whether a dialog opened, which would take the Enter, or another user typed."""
            is_changed = (self.wait_count, self._inputs) != (wait_count, inputs)
            return is_changed or self.program.activity == "waiting"

        await self._until(lambda: self.program.activity == "idle" or is_disturbed(), IDLE_AGAIN_S)
        if self.program.activity != "idle" or is_disturbed():
            raise CallRefused("CONFLICT", NOT_IDLE_ANY_MORE)
        self._began_work.clear()
        self.program.typed()
        await self.client.write(keys.encode("enter", self.screen.modes))
        try:
            async with asyncio.timeout(CONFIRMED_S):
                await self._began_work.wait()
        except TimeoutError:
            raise CallRefused("TIMEOUT", NOT_CONFIRMED) from None

    async def resize(self, cols: int, rows: int) -> None:
        """Change the size of the terminal."""
        await self.client.resize(cols, rows)
        if answers := self.screen.resize(cols, rows):
            await self.client.write(answers)
        self.listener.screen_changed()

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `condition()` is true, or until `timeout_s` has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    # -- the composer --------------------------------------------------------------------------

    @property
    def draft(self) -> str:
        """The text that is typed and not sent, as the screen shows it; empty if there is none."""
        if not self.has_draft or self.program.activity not in ("idle", "unknown"):
            return ""
        return draft_of(self._frame(), self._empty)[:MAX_DRAFT_CHARS]

    @property
    def quiet_s(self) -> float:
        """For how long the program has written nothing, and nobody has typed."""
        return boottime() - max(self._wrote_at, self._typed_at)

    def has_new_process(self) -> bool:
        """Whether a process runs that didn't when the program was last known to be idle."""
        return self._processes is None or bool(self._below_holder() - self._processes)

    def check_composer(self) -> bool:
        """Return whether nothing is left of what was typed; then the program may be idle again.

        The composer has to look empty for `REST_S`, and the program must have started nothing.
        """
        if self.program.activity not in ("idle", "unknown") or not self._has_reacted():
            self._empty_since = None
        elif not (self.has_draft or self.program.activity == "unknown"):
            self._remember_empty()
            return True
        elif not self._looks_empty():
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = boottime()
        elif boottime() - self._empty_since >= REST_S and not self._has_started_something():
            self.program.rested()
            if self.program.activity == "idle":
                self._is_pasted = self.has_draft = False
                self._update_status()
                return True
        return False

    async def _until_settled(self) -> None:
        """Wait until an idle program's composer stays the same, but not longer than `SETTLED_S`."""
        before, since = None, boottime()
        until = since + SETTLED_S
        while self.program.activity == "idle" and (now := boottime()) < until:
            if (composer := Composer.of(self._frame())) != before:
                before, since = composer, now
            is_drawn = composer.is_bare and self.quiet_s >= STEADY_S
            if now - since >= (STEADY_S if is_drawn else LIVELY_S):
                return
            await asyncio.sleep(STEADY_S / 10)

    def _has_lost_text(self) -> bool:
        """Whether a text that was typed is not in the composer."""
        return self._looks_empty() and self._has_reacted()

    def _looks_empty(self) -> bool:
        composer = Composer.of(self._frame())
        # opencode says that it is idle before it draws anything that could be remembered.
        may_be_other = self.program.activity == "idle" or self._empty is None
        return composer == self._empty or (may_be_other and composer.is_bare)

    def _has_reacted(self) -> bool:
        """Whether the program has written since somebody typed, or would have."""
        return self._wrote_at > self._typed_at or self.quiet_s >= REACTION_S

    def _has_started_something(self) -> bool:
        is_known = self._processes is not None or self.program.activity != "idle"
        return is_known and self.has_new_process()

    async def _until_empty(self) -> bool:
        """Wait until `check_composer()`, but not for longer than `UNTIL_REST_S`; return it."""
        until = boottime() + UNTIL_REST_S
        while not (is_empty := self.check_composer()) and boottime() < until:
            if self.program.activity not in ("idle", "unknown"):
                break
            await asyncio.sleep(REST_S / 10)
        return is_empty

    async def _clear(self) -> str:
        """Delete the draft and close a menu, as far as keys can; return the draft."""
        cleared = ""
        for _ in range(CLEARINGS):
            if self.program.activity not in ("idle", "unknown"):
                break
            frame, modes = self._frame(), self.screen.modes
            if self._empty is None or is_composing(frame, self._empty):
                shown = draft_of(frame, self._empty)
                cleared = cleared or shown
                await self.type(keys.encode("backspace", modes) * (len(shown) + 1))
                await self.type(keys.encode("delete", modes) * (len(shown) + 1))
            else:
                await self.type(keys.encode("esc", modes))
            if await self._until_empty():
                break
        return cleared

    def _with_draft(self, sentence: str) -> str:
        """Return a sentence with the text that the composer shows, if there is any."""
        shown = one_line(draft_of(self._frame(), self._empty), max_chars=200)
        return f"{sentence} The composer shows “{shown}”." if shown else sentence

    def _frame(self) -> Frame:
        frame = self.screen.frame(None)
        assert frame is not None, "a whole screen is never None"
        return frame

    def _below_holder(self) -> frozenset[int]:
        holder = int(self.client.holder.split()[1])
        return frozenset(descendants(holder))  # type: ignore[no-untyped-call]

    async def _note_typing(self) -> None:
        """Note, also for the next gateway, that there will be unsent text. Called before typing."""
        if not self.has_draft and self.program.activity == "idle":
            self._remember_empty()
            self._processes = self._below_holder()
        self._empty_since, self._typed_at = None, boottime()
        if not self.has_draft:
            self.has_draft = True
            await self.save()

    def _remember_empty(self) -> None:
        """Remember the composer of an idle program without a draft, unless it is being drawn."""
        if (composer := Composer.of(self._frame())).is_bare:
            self._empty = composer


def _check_size(data: bytes) -> None:
    """Raise `CallRefused` for more input than the holder accepts at once."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise CallRefused("TOO_LARGE", TOO_LARGE)
