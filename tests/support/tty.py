"""An agent's own program in a pseudo-terminal, watched as the gateway watches it."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator

import pexpect

from remoteclaw.protocols import Activity, Launch, TerminalWatch
from remoteclaw.tty.input import paste
from remoteclaw.tty.screen import Screen
from tests.support.waiting import eventually

#: How long a person takes to press Enter behind their words, in seconds, and to press it again: one
#: that comes with the words is a part of what was pasted to some programs.
PAUSE_S, AGAIN_S = 0.2, 2.0


class Tty:
    """One program with its watch."""

    def __init__(self, child: "pexpect.spawn[bytes]", watch: TerminalWatch) -> None:
        self.watch = watch
        self.seen: list[Activity] = []
        """What it did, one after the other."""
        self._child = child
        self._following: asyncio.Task[None]
        self._screen = Screen(120, 32)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, launch: Launch, watch: TerminalWatch) -> AsyncIterator["Tty"]:
        """Have it running; it is killed at the end if it still runs."""
        child = pexpect.spawn(
            launch.argv[0],
            list(launch.argv[1:]),
            env={**launch.env, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            dimensions=(32, 120),
            timeout=None,
            cwd=launch.cwd,
        )
        tty = cls(child, watch)
        loop = asyncio.get_running_loop()
        loop.add_reader(child.child_fd, tty._read)
        tty._following = asyncio.create_task(watch.run(tty._note))
        try:
            yield tty
        finally:
            await tty.end(signal.SIGKILL)
            child.close()
            tty._screen.close()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait until it has ended."""
        self._following.cancel()
        await asyncio.wait([self._following])
        if self._child.isalive():
            self._child.kill(number)
            await eventually(lambda: not self._child.isalive())
        asyncio.get_running_loop().remove_reader(self._child.child_fd)

    async def type(self, keys: str) -> None:
        """Press keys."""
        self._press(keys)

    def _press(self, keys: str) -> None:
        self.watch.typed()
        os.write(self._child.child_fd, keys.encode())

    async def paste(self, text: str) -> None:
        """Paste a text as a gateway does."""
        self.watch.typed()
        os.write(self._child.child_fd, paste(text, self._screen.modes))
        await asyncio.sleep(PAUSE_S)

    def resize(self) -> None:
        """Have it drawn in another size and in the one before."""
        for rows in (31, 32):
            self._child.setwinsize(rows, 120)

    async def submit(self, words: str) -> None:
        """Type words as a person does: Enter once they are there, and again if nothing happens."""
        if "\n" in words:
            await self.paste(words)
        else:
            self._press(words)
            await self.see(words)
        await asyncio.sleep(PAUSE_S)
        before, pressed = len(self.seen), -AGAIN_S

        def is_taken() -> bool:
            nonlocal pressed
            is_taken = bool({"busy", "waiting"} & set(self.seen[before:]))
            if not is_taken and time.monotonic() > pressed + AGAIN_S:
                pressed = time.monotonic()
                self._press("\r")
            return is_taken

        await eventually(is_taken)

    async def see(self, words: str) -> None:
        """Wait until words are on the screen."""
        try:
            await eventually(lambda: words in self.shown())
        except AssertionError:
            raise AssertionError(f"not seen: {words}\n{self.shown()}") from None

    async def becomes(self, activity: Activity) -> None:
        """Wait until it does something."""
        try:
            await eventually(lambda: self.watch.activity == activity)
        except AssertionError:
            why = f"not {activity} but {self.watch.activity}, after {self.seen}\n{self.shown()}"
            raise AssertionError(why) from None

    def shown(self) -> str:
        """Return the screen."""
        return self._screen.text().strip()

    def _note(self) -> None:
        if not self.seen or self.seen[-1] != self.watch.activity:
            self.seen.append(self.watch.activity)

    def _read(self) -> None:
        try:
            data = os.read(self._child.child_fd, 65536)
        except OSError:  # it has ended
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._child.child_fd)
            return
        if reply := self._screen.feed(data):
            os.write(self._child.child_fd, reply)
        for number, said in self._screen.take_said():
            if number in (0, 2):
                self.watch.title(said)
            else:
                self.watch.osc(number, said)
