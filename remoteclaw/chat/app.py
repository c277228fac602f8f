"""A chat in this terminal: what is typed goes to the gateway, and what it tells is shown."""

import asyncio
import contextlib
import errno
import functools
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.output.vt100 import Vt100_Output

from remoteclaw.chat.conversation import Conversation
from remoteclaw.chat.editor import LEAVING, ChatCompleter, Editor, Interrupts
from remoteclaw.chat.indicator import SPIN_S
from remoteclaw.chat.paint import Look, Painter
from remoteclaw.chat.screen import Screen
from remoteclaw.client.link import Address
from remoteclaw.errors import RemoteClawError, first_of

#: How long leaving waits for what is not sent yet without a word, in seconds.
UNSAID_S = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a chat is with."""

    agent: str | None = None
    """An agent; None for the first one that is configured."""
    session: str | None = None
    """Instead, a session of any channel: its key, the start of its id, or its title."""

    @property
    def params(self) -> dict[str, str]:
        """Return it as parameters of `chat.open`."""
        given = {"agentId": self.agent, "sessionKey": self.session}
        return {name: value for name, value in given.items() if value is not None}


class Chat:
    """A person at this terminal."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: Target,
        downloads: Path,
        history: Path | None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Files that the agent sends are saved in `downloads`, what is typed in `history`."""
        self._look = Look.of(environ)
        self._environ = environ
        self._lines: list[str] = []
        self._screen = Screen(Painter(self._look), self._lines.append, size=_size)
        self._conversation = Conversation(
            address,
            token,
            target=target.params,
            screen=self._screen,
            draw=self._draw,
            downloads=downloads,
        )
        self._history = history
        self._interrupts = Interrupts()
        self._deeds: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]] | None] = asyncio.Queue()
        """What the person wants done, in their order; None when they leave."""
        self._is_moving = asyncio.Event()
        self._drawing = asyncio.Lock()
        self._editor: Editor

    async def run(self) -> None:
        """Chat until the person leaves, or the terminal does.

        Raises `GatewayMissing` without a gateway, and `GatewayRefused` for a token, an agent or a
        session that it refuses.
        """
        # Nothing here needs to know where the cursor is, and a terminal that doesn't answer that
        # question would delay every line by a second.
        term = self._environ.get("TERM", "")
        output = Vt100_Output.from_pty(sys.stdout, term=term)
        output.enable_cpr = False
        # Between two lines, and in a dumb terminal, a Ctrl-C comes as a signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        with create_app_session(output=output):
            self._editor = Editor(
                self._screen.above,
                self._interrupt,
                self._escape,
                completer=ChatCompleter(self._commands, Path.cwd()),
                history=self._history,
                look=self._look,
            )
            try:
                await self._chat()
            except* RemoteClawError as group:
                raise first_of(group) from None
            finally:
                self._print()

    async def _chat(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            talking = tasks.create_task(self._conversation.run())
            await self._conversation.opened()
            moving = tasks.create_task(self._move())
            doing = tasks.create_task(self._do())
            try:
                await self._read()
            finally:
                # What was typed or stopped a moment ago is waited for, unless the person won't.
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, doing.cancel)
                self._deeds.put_nowait(None)
                with contextlib.suppress(asyncio.CancelledError):
                    _, undone = await asyncio.wait((doing,), timeout=UNSAID_S)
                    if undone:
                        self._screen.say("(Waiting until it is sent. Ctrl-C leaves without that.)")
                        self._print()
                        await asyncio.wait((doing,))
                talking.cancel()
                moving.cancel()

    # -- what the person does ------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            try:
                text = await self._editor.read()
            except EOFError:
                return
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return  # the terminal was closed
            self._interrupts.forget()
            if text.strip().casefold() in LEAVING:
                return
            if text.strip():
                name = uuid.uuid4().hex
                self._screen.typed(text)
                self._screen.indicator.waits(name)
                await self._draw()
                self._deeds.put_nowait(functools.partial(self._conversation.send, text, name))

    async def _do(self) -> None:
        """Do what the person wants, one thing after another, while they type on."""
        while (deed := await self._deeds.get()) is not None:
            await deed()

    def _interrupt(self) -> None:
        """Take a Ctrl-C: it stops the answer, and a second one leaves."""
        if self._interrupts.press():
            self._editor.leave()
        else:
            self._deeds.put_nowait(functools.partial(self._stop, "Press Ctrl-C again to leave."))

    def _escape(self) -> None:
        """Take an Esc: it stops the answer, however often it is pressed."""
        self._deeds.put_nowait(self._stop)

    async def _stop(self, otherwise: str = "") -> None:
        """Stop the answer; without one, say something else."""
        if self._screen.indicator.is_busy:
            await self._conversation.stop()
        elif otherwise:
            self._screen.say(otherwise)
        await self._draw()

    def _commands(self) -> list[tuple[str, str]]:
        return [
            (f"/{name}", meaning) for name, meaning in self._conversation.here.get("commands", ())
        ]

    # -- the screen ----------------------------------------------------------------------------

    async def _move(self) -> None:
        """Draw the indicator while something goes on."""
        while True:
            await self._is_moving.wait()
            await asyncio.sleep(SPIN_S)
            self._editor.redraw()
            if not self._screen.indicator.is_busy:
                self._is_moving.clear()

    async def _draw(self) -> None:
        """Move what is complete above the input line, and draw what stands in it."""
        self._is_moving.set()
        async with self._drawing:
            if self._lines:
                await self._editor.write(self._print)
            self._editor.redraw()

    def _print(self) -> None:
        # Not `self._lines = []`: the screen keeps adding to this list.
        lines, self._lines[:] = [*self._lines], []
        try:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
        except OSError:
            self._editor.leave()  # the terminal was closed


def _size() -> tuple[int, int]:
    columns, rows = shutil.get_terminal_size()
    return columns, rows
