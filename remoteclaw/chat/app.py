"""The terminal chat: reads messages from the person, sends them to the gateway, shows replies."""

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

from remoteclaw.chat.chat_client import ChatClient
from remoteclaw.chat.editor import EXIT_WORDS, ChatCompleter, Editor, Interrupts
from remoteclaw.chat.indicator import SPIN_S
from remoteclaw.chat.paint import MarkdownPainter, TerminalFeatures
from remoteclaw.chat.screen import ChatScreen
from remoteclaw.client.link import Address
from remoteclaw.errors import RemoteClawError, first_of

#: The command of this program.
SAVE = ("save", "Save a file of an earlier message.")
#: If a message is unsent when the person leaves, the chat says so after this time, in seconds.
SILENT_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """The agent or session that a chat is with."""

    agent: str | None = None
    """The agent's name; None for the first one in the configuration."""
    session: str | None = None
    """A session of any channel, instead of an agent: its key, the start of its id, or its title."""
    is_new: bool = False
    """Whether to begin a new conversation with the agent."""

    @property
    def params(self) -> dict[str, str]:
        """The target as parameters of the gateway method `chat.open`."""
        if self.is_new:
            return {"conversation": ".".join(filter(None, (self.agent, uuid.uuid4().hex[:12])))}
        params = {"agentId": self.agent, "sessionKey": self.session}
        return {name: value for name, value in params.items() if value is not None}


class Chat:
    """A chat of the person at this terminal."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: ChatTarget,
        downloads: Path,
        history: Path | None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Save files from the agent in the directory `downloads`, and input in the file `history`.

        Without `history`, the input is only remembered while the chat runs.
        """
        self._features = TerminalFeatures.of(environ)
        self._environ = environ
        self._lines: list[str] = []
        """Painted text that is complete and not printed yet."""
        painter = MarkdownPainter(self._features)
        self._screen = ChatScreen(painter, self._lines.append, size=_size)
        self._client = ChatClient(
            address,
            token,
            target=target.params,
            screen=self._screen,
            draw=self._draw,
            downloads=downloads,
        )
        self._history = history
        self._interrupts = Interrupts()
        self._actions: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]] | None]
        self._actions = asyncio.Queue()
        """The person's actions in order; None when the person leaves."""
        self._is_animated = asyncio.Event()
        self._drawing = asyncio.Lock()
        self._editor: Editor

    async def run(self) -> None:
        """Chat until the person leaves or the terminal is closed.

        Raises `GatewayMissing` if no gateway answers, and `GatewayRefused` if the gateway refuses
        the token, the agent or the session.
        """
        term = self._environ.get("TERM", "")
        output = Vt100_Output.from_pty(sys.stdout, term=term)
        # The cursor position is not needed, and a terminal that does not report it would delay
        # every line by a second.
        output.enable_cpr = False
        # Between two lines, and in a dumb terminal, Ctrl-C arrives as a signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        with create_app_session(output=output):
            self._editor = Editor(
                self._screen.above,
                self._interrupt,
                self._escape,
                completer=ChatCompleter(self._commands, self._workspace),
                history=self._history,
                features=self._features,
            )
            refused: RemoteClawError | None = None
            try:
                await self._chat()
            except* RemoteClawError as group:
                refused = first_of(group)
            finally:
                self._print()
            if refused:
                raise refused

    async def _chat(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            talking = tasks.create_task(self._client.run())
            await self._client.opened()
            animating = tasks.create_task(self._animate())
            acting = tasks.create_task(self._act())
            try:
                await self._read()
            finally:
                # Finish the actions that are under way. Ctrl-C now leaves without that.
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, acting.cancel)
                self._actions.put_nowait(None)
                with contextlib.suppress(asyncio.CancelledError):
                    _, unfinished = await asyncio.wait((acting,), timeout=SILENT_WAIT_S)
                    if unfinished:
                        self._screen.show_notice(
                            "(Waiting until it is sent. Ctrl-C leaves without that.)"
                        )
                        self._print()
                        await asyncio.wait((acting,))
                talking.cancel()
                animating.cancel()

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
            self._interrupts.reset()
            if text.strip().casefold() in EXIT_WORDS:
                return
            if text.split()[:1] == ["/save"]:
                self._screen.show_user_message(text)
                number = text.strip().removeprefix("/save").strip()
                self._actions.put_nowait(functools.partial(self._client.save, number))
            elif text.strip():
                name = uuid.uuid4().hex
                self._screen.show_user_message(text)
                self._screen.indicator.add_message(name)
                await self._draw()
                self._actions.put_nowait(functools.partial(self._client.send, text, name))

    async def _act(self) -> None:
        """Run the person's actions one after another, so that typing never waits for them."""
        while (action := await self._actions.get()) is not None:
            await action()

    def _interrupt(self) -> None:
        """Handle Ctrl-C: stop the answer, or leave if it is pressed twice."""
        if self._interrupts.press():
            self._editor.leave()
        else:
            self._actions.put_nowait(functools.partial(self._stop, "Press Ctrl-C again to leave."))

    def _escape(self) -> None:
        """Handle Esc: stop the answer. Esc never leaves the chat."""
        self._actions.put_nowait(self._stop)

    async def _stop(self, otherwise: str = "") -> None:
        """Stop the answer. If there is none, show the notice `otherwise`."""
        if self._screen.indicator.is_busy:
            await self._client.stop()
        elif otherwise:
            self._screen.show_notice(otherwise)
        await self._draw()

    def _commands(self) -> list[tuple[str, str]]:
        """Return the chat's commands, each with its slash and its description."""
        commands = self._client.chat.get("commands", ())
        return [(f"/{name}", description) for name, description in (*commands, SAVE)]

    def _workspace(self) -> Path:
        """Return the directory from which the agent sees paths; on another host it has no files."""
        return Path(self._client.chat.get("workspace", "/nonexistent"))

    # -- the screen ----------------------------------------------------------------------------

    async def _animate(self) -> None:
        """Redraw the indicator regularly while the session is busy."""
        while True:
            await self._is_animated.wait()
            await asyncio.sleep(SPIN_S)
            self._editor.redraw()
            if not self._screen.indicator.is_busy:
                self._is_animated.clear()

    async def _draw(self) -> None:
        """Print complete lines above the prompt, and redraw the prompt."""
        self._is_animated.set()
        async with self._drawing:
            if self._lines:
                await self._editor.write(self._print)
            self._editor.redraw()

    def _print(self) -> None:
        # Empty the list in place, because the screen holds a reference to it.
        lines, self._lines[:] = [*self._lines], []
        try:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
        except OSError:
            self._editor.leave()  # the terminal was closed


def _size() -> tuple[int, int]:
    columns, rows = shutil.get_terminal_size()
    return columns, rows
