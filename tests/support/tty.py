"""An agent's own program in a pseudo-terminal, watched like the gateway watches it."""

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

#: The pause before Enter, and before a repeated Enter, in seconds. Some programs take an Enter that
#: arrives with the text as part of a paste.
PAUSE_S, AGAIN_S = 0.2, 2.0


class Tty:
    """A program with its watch."""

    def __init__(self, child: "pexpect.spawn[bytes]", watch: TerminalWatch) -> None:
        self.watch = watch
        self.seen: list[Activity] = []
        """The program's activities, in order."""
        self._child = child
        self._following: asyncio.Task[None]
        self._screen = Screen(120, 32)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, launch: Launch, watch: TerminalWatch) -> AsyncIterator["Tty"]:
        """Run a program, and kill it at exit if it is still running."""
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
        """End the program, and wait until it has ended."""
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
        """Paste a text, as the gateway does."""
        self.watch.typed()
        os.write(self._child.child_fd, paste(text, self._screen.modes))
        await asyncio.sleep(PAUSE_S)

    def resize(self) -> None:
        """Change the size and change it back, so that the program draws its screen again."""
        for rows in (31, 32):
            self._child.setwinsize(rows, 120)

    async def submit(self, words: str) -> None:
        """Type a text as a user does: Enter once it is shown, and again if nothing happens."""
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
        """Wait until a text is on the screen."""
        try:
            await eventually(lambda: words in self.shown())
        except AssertionError:
            raise AssertionError(f"not seen: {words}\n{self.shown()}") from None

    async def becomes(self, activity: Activity) -> None:
        """Wait for an activity of the program."""
        try:
            await eventually(lambda: self.watch.activity == activity)
        except AssertionError:
            why = f"not {activity} but {self.watch.activity}, after {self.seen}\n{self.shown()}"
            raise AssertionError(why) from None

    def shown(self) -> str:
        """Return the text of the screen."""
        return self._screen.text().strip()

    def _note(self) -> None:
        if not self.seen or self.seen[-1] != self.watch.activity:
            self.seen.append(self.watch.activity)

    def _read(self) -> None:
        try:
            data = os.read(self._child.child_fd, 65536)
        except OSError:  # the program has ended
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._child.child_fd)
            return
        if reply := self._screen.feed(data):
            os.write(self._child.child_fd, reply)
        for number, said in self._screen.take_osc_events():
            if number in (0, 2):
                self.watch.title(said)
            else:
                self.watch.osc(number, said)
