"""The watching of one terminal: its output becomes a screen, and what it says of itself is heard.

The program is never kept waiting: all its output is read at once, with or without viewers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from remoteclaw.errors import CallRefused
from remoteclaw.holder.terminal_client import MESSAGE_BYTES, Ended, Output, Replaced, TerminalClient
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols.terminal import Activity, TerminalWatch
from remoteclaw.tty import input as typing
from remoteclaw.tty import keys
from remoteclaw.tty.saved_state import Kept
from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import PictureUnreadable
from remoteclaw.tty.tail import Tail

#: Interval in which what is known is left with the holder, in seconds, and the most output between
#: two of these: much less than the holder's ring has room for.
KEEP_S, KEEP_BYTES = 3.0, 256 * 1024
#: The largest that a holder keeps, in bytes.
MAX_KEPT = 256 * 1024
#: How much output is taken at once, in bytes: others of this process wait for it, a millisecond.
TAKE_BYTES = 64 * 1024
#: How many kinds of what a program says are kept for the next gateway, and how much of each.
MAX_SAID, MAX_SAID_CHARS = 8, 1000
#: The pause between a text and its Enter, in seconds: gemini takes an earlier one for a part of it.
ENTER_S = 0.15
#: How long to wait for a program, in seconds: to show what was typed, to be idle again when it
#: became busy by itself meanwhile, as codex does at its start, and to say that it has taken it.
SHOWN_S, AGAIN_IDLE_S, TAKEN_S = 2.0, 10.0, 5.0
#: The pause after what follows a program has failed, in seconds.
AGAIN_S = 1.0

TITLE, CLIPBOARD = 0, 52
LONG = f"That is more than {MESSAGE_BYTES // 1024} KB: nothing was typed."
FULL = "The program does not read what is typed: it is busy, or it hangs."
NOT_IDLE = "The program is not idle, as far as is known: nothing was typed."
DRAFT = "Something else was typed and not sent yet: nothing was added to it."
ONE_KEY = (
    "The program asks something, and could take what is pasted for a key: press the key itself."
)
NOT_IDLE_ANY_MORE = (
    "The program became busy, or asks something, while the text was typed: it stands there, and "
    "was not sent. Look at it in the terminal."
)
NOT_TAKEN = (
    "The text was typed, and the program has not said that it has taken it. Look at it in the "
    "terminal."
)

log = logging.getLogger(__name__)


class Hearer(Protocol):
    """Who is told of what happens in a terminal; must not wait."""

    def drawn(self) -> None:
        """The screen may have changed."""

    def changed(self) -> None:
        """The activity, the title or the conversation has changed."""

    def rang(self) -> None:
        """The bell has rung."""

    def offered(self, text: str) -> None:
        """The program offers a text for the clipboard."""


@dataclass(slots=True)
class Watching:
    """One terminal, attached."""

    client: TerminalClient
    watch: TerminalWatch
    hearer: Hearer
    scrollback: int = 1000
    has_draft: bool = True
    """Whether something may have been typed that was not sent."""
    waits: int = 0
    """How often it has begun to wait for a person: the number of the last time."""
    screen: Screen = field(init=False)
    tail: Tail = field(init=False, default_factory=Tail)
    _offset: int = 0
    _kept_at: int = 0
    _said: dict[int, str] = field(default_factory=dict)
    _bells: int = 0
    _activity: Activity = "unknown"
    _is_waiting: bool = False
    _was_typed_early: bool = False
    """Whether something was typed before it said that it is ready: into a question of its start."""
    _typed: int = 0
    """How often a person has typed."""
    _is_pasted: bool = False
    """Whether something was pasted into a dialog: codex puts that into its composer."""
    _is_submitting: bool = False
    _submits: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by its output, its signs, and by typing."""

    async def restore(self) -> None:
        """Build the screen as it is now, from what was kept and what was printed since."""
        client = self.client
        kept = Kept.decode(client.picture) if client.picture else Kept()
        behind = max(client.picture_offset - client.output_offset, 0) if client.picture else 0
        self.screen = self._screen(kept)
        for number, text in kept.said.items():
            self._heard(number, text)
        # Not what it seems to do between one sign and the next.
        self.has_draft, self.waits = kept.has_draft, kept.waits
        self._is_waiting = kept.is_waiting
        if not client.picture and client.output_offset == 0:
            self.has_draft = False  # it is all here, and nobody has typed
        self._offset = client.output_offset + behind
        is_gap = client.output_offset > (client.picture_offset if client.picture else 0)
        printed, client.output, client.picture = client.output[behind:], b"", b""
        await self._take(printed, is_past=True)
        if is_gap:
            await self.repaint()

    def _screen(self, kept: Kept) -> Screen:
        cols, rows = self.client.cols, self.client.rows
        if kept.picture:
            with contextlib.suppress(PictureUnreadable):
                return Screen.restored(kept.picture, cols, rows, scrollback=self.scrollback)
        return Screen(cols, rows, scrollback=self.scrollback)

    async def run(self) -> Ended | Replaced:
        """Follow it until it ends, or until another gateway has it."""
        duties = [asyncio.create_task(self._follow()), asyncio.create_task(self._keep_at_times())]
        try:
            return await self._pump()
        finally:
            for duty in duties:
                duty.cancel()
            await asyncio.wait(duties)

    async def leave(self) -> None:
        """Detach; the program works on."""
        with contextlib.suppress(OSError):
            await self.keep()
        self.client.close()
        self.tail.close()
        self.screen.close()

    # -- what it prints ------------------------------------------------------------------------

    async def _pump(self) -> Ended | Replaced:
        while True:
            match await self.client.read():
                case Output(offset, data):
                    is_gap, self._offset = offset != self._offset, offset
                    await self._take(data)
                    if is_gap:
                        await self.repaint()
                case end:
                    return end

    async def _take(self, data: bytes, *, is_past: bool = False) -> None:
        """Take output; what is past is not answered: a late answer would be typed."""
        for start in range(0, len(data), TAKE_BYTES):
            some = data[start : start + TAKE_BYTES]
            answers = self.screen.feed(some)
            self.tail.put(self._offset, some)
            self._offset += len(some)
            for number, text in self.screen.take_said():
                if number == CLIPBOARD:
                    if not is_past:
                        self.hearer.offered(text)
                else:
                    self._heard(number, text)
            if self.screen.bell != self._bells:
                self._bells = self.screen.bell
                if not is_past:
                    self.hearer.rang()
            if answers and not is_past:
                await self.client.write(answers)
            self._news.set()
            self.hearer.drawn()
            if len(data) > TAKE_BYTES:
                await asyncio.sleep(0)
        if self._offset - self._kept_at >= KEEP_BYTES and not is_past:
            await self.keep()

    def _heard(self, number: int, text: str) -> None:
        if number in self._said or len(self._said) < MAX_SAID:
            self._said[number] = text[:MAX_SAID_CHARS]
        if number == TITLE:  # some draw a wheel in it, all the time
            self.watch.title(text)
        else:
            self.watch.osc(number, text)
        if number != TITLE or self.watch.activity != self._activity:
            self._look()

    async def repaint(self) -> None:
        """Make the program draw its screen again, because ours can't be trusted."""
        cols, rows = self.client.cols, self.client.rows
        await self.client.resize(cols, rows - 1)
        await self.client.resize(cols, rows)

    async def keep(self) -> None:
        """Leave what is known with the holder, for the gateway that comes next."""
        picture = self.screen.picture()
        if not picture:
            return  # in the middle of something long: the one before and the output since are whole
        kept = Kept(
            picture, dict(self._said), self.has_draft, self.waits, self._is_waiting
        ).encode()
        self._kept_at = self._offset
        if len(kept) <= MAX_KEPT:
            await self.client.keep(self._offset, kept)

    async def _keep_at_times(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            if self._kept_at != self._offset:
                await self.keep()

    # -- what it says of itself ----------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                await self.watch.run(self._look)
            except Exception as error:  # noqa: BLE001 - what it says is lost, not the terminal
                log.error("what a terminal's program says is not followed: %s", frames_of(error))
            await asyncio.sleep(AGAIN_S)

    def _look(self) -> None:
        """Take what has changed: once it works, what was typed was sent, or was an answer."""
        before, self._activity = self._activity, self.watch.activity
        if self._was_typed_early and self.watch.is_ready:
            self._was_typed_early = self.has_draft = False
        if self._activity != before:
            is_at_work = self._activity in ("busy", "waiting")
            if is_at_work and before not in ("busy", "waiting"):
                self._is_pasted = False
            if is_at_work or (before == "waiting" and self._activity == "idle"):
                self.has_draft = self._is_pasted
            if is_at_work:
                self._submits.set()
            if self._activity == "waiting" and not self._is_waiting:
                self.waits += 1
            if self._activity != "unknown":  # which doesn't say that it is over
                self._is_waiting = self._activity == "waiting"
        self._news.set()
        self.hearer.changed()

    # -- typing --------------------------------------------------------------------------------

    async def type(self, data: bytes) -> None:
        """Type something. Raises `CallRefused` for too much, or while the program reads nothing."""
        _check_size(data)
        await self._note_typing()
        self._typed += 1
        self._news.set()
        self._was_typed_early = self._was_typed_early or not self.watch.is_ready
        self.watch.typed()
        if not await self.client.write(data):
            raise CallRefused("UNAVAILABLE", FULL)

    async def paste(self, text: str) -> None:
        """Paste a text as one piece. Raises `CallRefused`."""
        # A “1” that is pasted into gemini's dialog allows what it asks for.
        if self.watch.activity == "waiting" and len(typing.cleaned(text)) == 1:
            raise CallRefused("CONFLICT", ONE_KEY)
        self._is_pasted = self._is_pasted or self.watch.activity == "waiting"
        await self.type(typing.paste(text, self.screen.modes))

    async def submit(self, text: str) -> None:
        """Type a text and send it, where the program is surely idle. Raises `CallRefused`."""
        if self.has_draft or self._is_submitting:
            raise CallRefused("CONFLICT", DRAFT)
        if self.watch.activity != "idle":
            raise CallRefused("CONFLICT", NOT_IDLE)
        data = typing.paste(text, self.screen.modes)
        _check_size(data)
        self._is_submitting = True
        try:
            await self._submit(data)
        except CallRefused:
            await self._note_typing()  # it stands there, although the program may have worked
            raise
        finally:
            self._is_submitting = False

    async def _submit(self, data: bytes) -> None:
        offset, waits, typed = self._offset, self.waits, self._typed
        await self._note_typing()
        if not await self.client.write(data):
            raise CallRefused("UNAVAILABLE", FULL)
        # One that has not read it yet would read the Enter with it.
        await self._until(lambda: self._offset > offset, SHOWN_S)
        await asyncio.sleep(ENTER_S)

        def is_out_of_hand() -> bool:
            """Whether a dialog was there, which had taken the Enter, or somebody else has typed."""
            return (self.waits, self._typed) != (waits, typed) or self.watch.activity == "waiting"

        await self._until(lambda: self.watch.activity == "idle" or is_out_of_hand(), AGAIN_IDLE_S)
        if self.watch.activity != "idle" or is_out_of_hand():
            raise CallRefused("CONFLICT", NOT_IDLE_ANY_MORE)
        self._submits.clear()
        self.watch.typed()
        await self.client.write(keys.encode("enter", self.screen.modes))
        try:
            async with asyncio.timeout(TAKEN_S):
                await self._submits.wait()
        except TimeoutError:
            raise CallRefused("TIMEOUT", NOT_TAKEN) from None

    async def resize(self, cols: int, rows: int) -> None:
        """Give it another size."""
        await self.client.resize(cols, rows)
        if answers := self.screen.resize(cols, rows):
            await self.client.write(answers)
        self.hearer.drawn()

    async def _until(self, is_so: Callable[[], bool], within_s: float) -> None:
        """Wait until something is so, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()

    async def _note_typing(self) -> None:
        """Note that something is typed, before it is, also for the next gateway."""
        if not self.has_draft:
            self.has_draft = True
            await self.keep()


def _check_size(data: bytes) -> None:
    """Refuse what is too much for one piece of input."""
    if len(data) > MESSAGE_BYTES:
        raise CallRefused("TOO_LARGE", LONG)
