"""The console's adapter: a chat in this terminal, through the same streams as any channel."""

import asyncio
import errno
import functools
import math
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.output.vt100 import Vt100_Output

from remoteclaw.channels.console.editor import PROMPT, Editor, Interrupts
from remoteclaw.channels.console.transcript import RunningTools, Transcript
from remoteclaw.channels.relay import relay
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import MessageRefused, PlatformRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.inbound import PERHAPS_SENT, Accepted
from remoteclaw.host.files import about_file, save_file
from remoteclaw.host.terminal import login_name, printable
from remoteclaw.messages import Attachment, ChannelMessage, SessionKey, stream_order
from remoteclaw.protocols import Receipt, Reply

__all__ = ["Console"]

PROVIDER = "console"
CHANNEL_ID = "console"
#: How much of an unfinished line stands above the prompt, in characters: the screen is not higher.
MOST_UNFINISHED = 600
#: How much of what was typed is repeated in the transcript, in characters: people paste files.
MOST_TYPED = 2000
#: How long Redis may be silent until the person is told, in seconds: it starts again in less.
AWAY_S = 2.0
#: How often it is asked, in seconds.
ASK_EVERY_S = 1.0
#: How often the seconds of a running tool are drawn, in seconds.
COUNT_EVERY_S = 1.0


class Console:
    """A person at this terminal, talking to one agent."""

    def __init__(self, fleet: Fleet, *, agent: str, account: str, downloads: Path) -> None:
        """`account` tells the consoles of several installations on one Redis apart.

        The files that the agent sends are saved in `downloads`.
        """
        self._downloads = downloads
        self._fleet = fleet
        self._agent = agent
        self._account = account
        self._user = login_name()
        self._session = SessionKey(agent, PROVIDER, account, CHANNEL_ID, self._user)
        self._lines: list[str] = []
        self._transcript = Transcript(f"{agent}> ", self._lines.append)
        self._unfinished = ""
        """The line that is still being written, as it stands above the prompt."""
        self._tools = RunningTools()
        self._is_counting = asyncio.Event()
        self._drawing = asyncio.Lock()
        self._unanswered: set[str] = set()
        self._answered: set[str] = set()
        """What was answered since the last message was typed: an answer may come before its message
        is known to be accepted."""
        self._interrupts = Interrupts()
        self._deeds: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]] | None] = asyncio.Queue()
        """What the person wants done, in their order; None when they leave."""
        self._editor: Editor

    async def run(self) -> None:
        """Chat until the person leaves, or the terminal does."""
        # Nothing here needs to know where the cursor is, and a terminal that doesn't answer that
        # question would delay every line by a second.
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        output.enable_cpr = False
        # Between two lines, a Ctrl-C comes as a signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        with create_app_session(output=output):
            self._editor = Editor(self._above, self._interrupt)
            try:
                await self._chat()
            finally:
                self._transcript.end_line()
                self._print()

    async def _chat(self) -> None:
        # Our process holds the state directory's lock, so no other console has this account.
        reader = self._fleet.replies.reader(PROVIDER, self._account, token=self._account)
        async with asyncio.TaskGroup() as tasks:
            duties = [
                tasks.create_task(relay(reader, self)),
                tasks.create_task(self._follow()),
                tasks.create_task(self._count()),
                tasks.create_task(self._watch_redis()),
            ]
            doing = tasks.create_task(self._do())
            try:
                await self._read()
            finally:
                # What was typed or stopped a moment ago is waited for, unless the person won't.
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, doing.cancel)
                self._deeds.put_nowait(None)
                for duty in duties:
                    duty.cancel()

    # -- what the person does ------------------------------------------------------------------

    async def _read(self) -> None:
        self._deeds.put_nowait(self._greet)
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
            if text.strip():
                await self._say(f"{PROMPT}{_shortened(printable(text))}")
                self._deeds.put_nowait(functools.partial(self._send, text))

    async def _do(self) -> None:
        """Do what the person wants, one thing after another, while they type on."""
        while (deed := await self._deeds.get()) is not None:
            await deed()

    async def _greet(self) -> None:
        try:
            view = await self._fleet.sessions.view(self._session.sid)
        except (RedisRefused, RedisUnavailable):
            return
        if view and view.waiting:
            await self._say("(Going on with what was not finished. Ctrl-C stops it.)")

    async def _send(self, text: str) -> None:
        self._answered.clear()
        try:
            message = ChannelMessage.checked(
                id=uuid.uuid4().hex,
                text=text,
                from_=self._user,
                channel_id=CHANNEL_ID,
                provider=PROVIDER,
                account=self._account,
                timestamp=now_ms(),
            )
            accepted = await self._accepted(message)
        except (MessageRefused, RedisRefused) as error:
            await self._say(f"Not sent: {error}")
        else:
            self._unanswered |= {accepted.entry_id} - self._answered
            await self._draw()

    async def _accepted(self, message: ChannelMessage) -> Accepted:
        """Send a message until Redis is there to accept it, or the person leaves."""
        while True:
            try:
                return await self._fleet.inbound.append(message, agent=self._agent)
            except RedisUnavailable:
                pass  # the person was told, and with its id it counts once
            except asyncio.CancelledError:
                self._lines.append(PERHAPS_SENT.format(sid=self._session.sid[:8]))
                raise

    def _interrupt(self) -> None:
        """Take a Ctrl-C: it stops the answer, and a second one leaves."""
        if self._interrupts.press():
            self._editor.leave()
        else:
            self._deeds.put_nowait(self._stop)

    async def _stop(self) -> None:
        try:
            if not await self._fleet.sessions.stop(self._session.sid):
                await self._say("Press Ctrl-C again to leave.")
        except (RedisRefused, RedisUnavailable) as error:
            await self._say(f"Not stopped: {error}")

    # -- what the agent does -------------------------------------------------------------------

    async def deliver(self, reply: Reply) -> Receipt:
        """Show one message; the terminal has it when this returns. What can't be saved is kept."""
        unsaved = []
        if reply.call is None:
            self._transcript.complete(reply.turn, reply.attempt, reply.index, reply.text)
        elif reply.channel_id != CHANNEL_ID:
            raise PlatformRefused(f"The console is one chat, called {CHANNEL_ID}.")
        elif reply.text:
            self._transcript.message(reply.text)
        for attachment in reply.attachments:
            note, is_saved = await self._save(reply, attachment)
            self._lines.append(note)
            unsaved += [] if is_saved else [attachment]
        self._answered |= set(reply.entries)
        self._unanswered -= self._answered
        if reply.entries:
            if reply.sid == self._session.sid:
                self._tools.end(stream_order(reply.turn))
            self._lines.append("")
        await self._draw()
        return Receipt(kept=unsaved)

    async def _save(self, reply: Reply, attachment: Attachment) -> tuple[str, bool]:
        """Save a file that the agent sent; return what the person reads, and whether it is."""
        content = await self._fleet.blobs.get(reply.sid, attachment, deadline=lambda: math.inf)
        if content is None:
            return about_file(attachment, problem="it is not kept any more"), False
        try:
            self._downloads.mkdir(mode=0o700, exist_ok=True)
            path = await asyncio.to_thread(save_file, self._downloads, attachment.name, content)
        except OSError as error:
            problem = str(error.strerror)
            if reply.call is None:
                again = f"remoteclaw sessions files {reply.sid[:8]}-{reply.turn} DIR"
                problem += f". It is kept: `{again}`"
            return about_file(attachment, problem=problem), False
        return about_file(attachment, saved=str(path)), True

    async def _follow(self) -> None:
        """Show answers while they come."""
        async for live in self._fleet.replies.live(self._session.sid):
            turn, attempt, index = live["turn"], live["attempt"], live["index"]
            if live["text"]:
                self._transcript.live(turn, attempt, index, live["text"])
            self._tools.show(stream_order(turn), live["activity"])
            if self._tools.is_running:
                self._is_counting.set()
            await self._draw()

    async def _count(self) -> None:
        """Draw the seconds of tools while they run."""
        while True:
            await self._is_counting.wait()
            await asyncio.sleep(COUNT_EVERY_S)
            self._editor.redraw()
            if not self._tools.is_running:
                self._is_counting.clear()

    async def _watch_redis(self) -> None:
        """Say once that Redis is away, and once that it is back."""
        scripts, is_away = self._fleet.scripts, False
        while True:
            try:
                await scripts.call(scripts.client.ping, deadline=boottime() + AWAY_S)
            except (RedisRefused, RedisUnavailable):
                if not is_away:
                    await self._say("(Redis is away; I keep trying.)")
                is_away = True
            else:
                if is_away:
                    await self._say("(Redis is back.)")
                is_away = False
            await asyncio.sleep(ASK_EVERY_S)

    # -- the screen ----------------------------------------------------------------------------

    async def _say(self, words: str) -> None:
        self._lines.append(words)
        await self._draw()

    async def _draw(self) -> None:
        """Move complete lines above the prompt, and show the unfinished one in it."""
        async with self._drawing:
            if self._lines:
                await self._editor.write(self._print)
            self._unfinished = self._transcript.line
            self._editor.redraw()

    def _print(self) -> None:
        # Not `self._lines = []`: the transcript keeps adding to this list.
        lines, self._lines[:] = [*self._lines], []
        try:
            sys.stdout.write(printable("".join(f"{line}\n" for line in lines)))
            sys.stdout.flush()
        except OSError:
            self._editor.leave()  # the terminal was closed
        self._unfinished = self._transcript.line

    def _above(self) -> str:
        """Return what stands above the prompt: the unfinished line and the tools that run.

        Without either, it is a sign that the answer is waited for.
        """
        above = self._unfinished
        if len(above) > MOST_UNFINISHED:
            above = f"…{above[-MOST_UNFINISHED:]}"
        lines = [*filter(None, (above,)), *self._tools.lines(time.time())]
        if not lines and self._unanswered:
            lines = ["… (Ctrl-C stops)"]
        return "\n".join(lines)


def _shortened(text: str) -> str:
    if len(text) <= MOST_TYPED:
        return text
    return f"{text[:MOST_TYPED]}… ({len(text):,} characters)"
