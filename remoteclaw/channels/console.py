"""The console: a chat in this terminal, through the same streams as every other channel."""

import asyncio
import getpass
import os
import sys
import time
import uuid
from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output

from remoteclaw.channels.relay import relay
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.messages import ChannelMessage, SessionKey
from remoteclaw.protocols import Deliverable

__all__ = ["Console", "Transcript"]

PROVIDER = "console"
CHANNEL_ID = "console"
#: How much of an unfinished line stands above the prompt, in characters: the screen is not higher.
MOST_UNFINISHED = 600

#: An agent's text is only shown: what would move the cursor or set the title is left out.
_CONTROLS = dict.fromkeys([*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)])


class Transcript:
    """What the terminal shows of the answers: complete lines go up, the last one stays apart.

    Live text and the final text are one message: only what was not shown yet is added.
    """

    def __init__(self, label: str, write: Callable[[str], None]) -> None:
        self._label = label
        self._write = write
        self._shown: tuple[str, int, int] | None = None
        self._text = ""
        self._done: tuple[str, int, int] | None = None
        self.line = ""
        """The line that is still being written."""

    def live(self, turn: str, attempt: int, index: int, text: str) -> None:
        """Show a message as far as it has come; one that is complete already stays as it is."""
        position = (turn, attempt, index)
        if self._done is None or position > self._done:
            self._show(position, text)

    def complete(self, turn: str, attempt: int, index: int, text: str) -> None:
        """Show the whole message and end its last line."""
        position = (turn, attempt, index)
        self._done = position
        if text.strip():
            self._show(position, text)
        self._end_line()
        self._shown, self._text = None, ""

    def _show(self, position: tuple[str, int, int], text: str) -> None:
        text = text.translate(_CONTROLS).expandtabs()
        if self._shown == position and text.startswith(self._text.rstrip()):
            added = text[len(self._text) :]
        else:
            self._end_line()  # another message, or the agent took back what it had said
            added = f"{self._label}{text}"
        self._shown, self._text = position, text
        *lines, self.line = (self.line + added).split("\n")
        for line in lines:
            self._write(line)

    def _end_line(self) -> None:
        if self.line:
            self._write(self.line)
        self.line = ""


class Console:
    """A person at this terminal, talking to one agent."""

    def __init__(self, fleet: Fleet, *, agent: str, account: str) -> None:
        """`account` tells the consoles of several installations on one Redis apart."""
        self._fleet = fleet
        self._agent = agent
        self._account = account
        self._user = _user()
        self._session = SessionKey(agent, PROVIDER, account, CHANNEL_ID, self._user)
        self._lines: list[str] = []
        self._transcript = Transcript(f"{agent}> ", self._lines.append)
        self._unfinished = ""
        """The line that is still being written, as it stands above the prompt."""
        self._drawing = asyncio.Lock()
        self._unanswered: set[str] = set()
        self._interrupts = 0
        self._prompt: PromptSession[str] | None = None

    async def run(self) -> None:
        """Chat until the person leaves."""
        # Whoever runs this holds the state directory's lock, so no other console has this account.
        reader = self._fleet.replies.reader(PROVIDER, self._account, token=self._account)
        # Nothing here needs to know where the cursor is, and a terminal that doesn't answer that
        # question would delay every line by a second.
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        output.enable_cpr = False
        with create_app_session(output=output):
            self._prompt = PromptSession(self._message, key_bindings=self._keys())
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(relay(reader, self)),
                    tasks.create_task(self._follow()),
                ]
                try:
                    await self._read()
                finally:
                    for duty in duties:
                        duty.cancel()

    # -- what the person does ------------------------------------------------------------------

    async def _read(self) -> None:
        assert self._prompt is not None, "run() comes first"
        view = await self._fleet.sessions.view(self._session.sid)
        if view and view.waiting:
            await self._say("(Going on with what was not finished. Ctrl-C stops it.)")
        while True:
            try:
                text = await self._prompt.prompt_async()
            except (EOFError, KeyboardInterrupt):
                return
            self._interrupts = 0
            if text.strip():
                await self._send(text)

    async def _send(self, text: str) -> None:
        try:
            message = ChannelMessage.checked(
                id=uuid.uuid4().hex,
                text=text,
                from_=self._user,
                channel_id=CHANNEL_ID,
                provider=PROVIDER,
                account=self._account,
                timestamp=int(time.time() * 1000),
            )
            accepted = await self._fleet.inbound.append(message, agent=self._agent)
        except (MessageRefused, RedisRefused, RedisUnavailable) as error:
            await self._say(f"Not sent: {error}")
        else:
            self._unanswered.add(accepted.entry_id)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            self._interrupts += 1
            if self._interrupts > 1:
                event.app.exit(exception=KeyboardInterrupt)
            else:
                event.app.create_background_task(self._stop())

        return keys

    async def _stop(self) -> None:
        try:
            if not await self._fleet.sessions.stop(self._session.sid):
                await self._say("Press Ctrl-C again to leave.")
        except (RedisRefused, RedisUnavailable) as error:
            await self._say(f"Not stopped: {error}")

    # -- what the agent does -------------------------------------------------------------------

    async def deliver(self, reply: Deliverable) -> None:
        """Show one message; the terminal has it when this returns."""
        self._transcript.complete(reply.turn, reply.attempt, reply.index, reply.text)
        self._unanswered.difference_update(reply.entries)
        if reply.entries:
            self._lines.append("")
        await self._draw()

    async def _follow(self) -> None:
        """Show answers while they come."""
        async for live in self._fleet.replies.live(self._session.sid):
            turn, attempt, index = live["turn"], live["attempt"], live["index"]
            self._transcript.live(turn, attempt, index, live["text"])
            await self._draw()

    # -- the screen ----------------------------------------------------------------------------

    async def _say(self, words: str) -> None:
        self._lines.append(words)
        await self._draw()

    async def _draw(self) -> None:
        """Move complete lines above the prompt, and show the unfinished one in it."""
        async with self._drawing:
            if self._lines:
                await run_in_terminal(self._print)
            self._unfinished = self._transcript.line
            if self._prompt:
                self._prompt.app.invalidate()

    def _print(self) -> None:
        # Not `self._lines = []`: the transcript keeps adding to this list.
        lines, self._lines[:] = [*self._lines], []
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._unfinished = self._transcript.line

    def _message(self) -> StyleAndTextTuples:
        """Return what stands before the input: the unfinished line, and the prompt."""
        above = self._unfinished
        if len(above) > MOST_UNFINISHED:
            above = f"…{above[-MOST_UNFINISHED:]}"
        if not above and self._unanswered:
            above = "… (Ctrl-C stops)"
        return [("", f"{above}\n" if above else ""), ("bold", "you> ")]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"
