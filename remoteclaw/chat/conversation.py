"""The conversation of a chat: what is sent to the gateway, and what it tells is shown."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.chat.editor import KEYS
from remoteclaw.chat.files import Files
from remoteclaw.chat.indicator import ending
from remoteclaw.chat.screen import Screen
from remoteclaw.client.link import Address, GatewayRefused, Link
from remoteclaw.errors import RemoteClawError, first_of
from remoteclaw.host.terminal import one_line

#: How long a gateway may take until it answers, at the start, in seconds.
PATIENCE_S = 5.0
#: How long a lost connection is not mentioned, in seconds: a gateway starts again in less.
UNMENTIONED_S = 2.0
#: How many items of the conversation before are asked for, to find the last exchange in.
MAX_EARLIER = 40
#: Pause between two questions about a message whose outcome was not told, in seconds.
ASK_S = 100.0
#: What is said of a message that got no answer of its own, by the status of its outcome, and how
#: much of the message is repeated there, in characters.
NOTES = {
    "steered": "Added to the turn that ran",
    "dropped": "Too many messages waited: the agent was only told the beginning of",
}
MAX_REPEATED = 50
#: What is said where the conversation is not at rest.
UNFINISHED = "(Going on with what was not finished. Ctrl-C stops it.)"
IN_TERMINAL = (
    "(It is open in its terminal, which `remoteclaw attach` shows. What you write waits for that; "
    "Ctrl-C ends it.)"
)


class Conversation:
    """What is said between the person of this terminal and an agent."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: Mapping[str, str],
        screen: Screen,
        draw: Callable[[], Awaitable[None]],
        downloads: Path,
    ) -> None:
        """`target` has the parameters of `chat.open`; `draw` shows what has changed on the screen.

        Files that the agent sends are saved in `downloads`.
        """
        self.here: dict[str, Any] = {}
        """What the gateway says of the chat."""
        self._screen = screen
        self._draw = draw
        self._link = Link(
            address,
            token,
            opening=("chat.open", target),
            opened=self._opened,
            event=self._on_event,
            problem=self._on_problem,
        )
        self._files = Files(address, token, downloads)
        self._pending: dict[str, str] = {}
        """Messages without an outcome: the entry of each, by the name that the chat gives it."""
        self._words: dict[str, str] = {}
        """How those messages begin, by their entries."""
        self._asked_for: set[str] = set()
        """Those of them whose outcome is asked for, because the connection was lost meanwhile."""
        self._outcomes: set[str] = set()
        """Entries whose outcome is known."""
        self._shown: set[str] = set()
        """What was shown: messages by their keys, and of answers their turns and entries."""
        self._arrived: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        """Events, in their order."""
        self._is_open = asyncio.Event()
        self._mentioning: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Show what is told, until cancelled.

        Raises `GatewayMissing` without a gateway, and `GatewayRefused` for a token, an agent or a
        session that it refuses.
        """
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._link.run(patience_s=PATIENCE_S))
                await self._is_open.wait()
                await self._show_events()
        except* RemoteClawError as group:
            raise first_of(group) from None

    async def opened(self) -> None:
        """Wait until the gateway has opened the chat."""
        await self._is_open.wait()

    # -- what the person does ------------------------------------------------------------------

    async def send(self, text: str, name: str) -> None:
        """Send a message, or a command, under a name of its own; what comes of it is shown."""
        try:
            text, attachments = await self._files.in_message(text, self.here)
            sent = await self._link.ask(
                "chat.send",
                {
                    "sessionKey": self.here["sessionKey"],
                    "message": text,
                    "messageId": name,
                    "attachments": attachments,
                },
                persists=True,
            )
        except RemoteClawError as error:
            self._screen.indicator.answered([name])
            self._screen.say(f"Not sent: {error}")
        else:
            if sent["answer"]:
                keys = f"\n\n{KEYS}" if text.strip().casefold() == "/help" else ""
                self._screen.answer(sent["answer"] + keys)
            if sent["entry"] is None:
                self._screen.indicator.answered([name])
            else:
                self._pending[name] = sent["entry"]
                self._words[sent["entry"]] = one_line(text, most=MAX_REPEATED)
                self._screen.indicator.accepted(name, sent["entry"], sent["ahead"])
                if sent["entry"] in self._shown:
                    self._over([sent["entry"]])
                elif sent["isDuplicate"]:  # it was accepted on a connection that was lost then
                    self._look_for(sent["entry"])
            if sent["sessionKey"]:
                await self._move_to(sent["sessionKey"])
        await self._draw()

    async def _move_to(self, session: str) -> None:
        """Change to another session."""
        self._over([*self._pending.values()])
        await self._link.reopen({"sessionKey": session})
        await self._show_earlier()

    async def stop(self) -> None:
        """Stop what runs, and drop what waits."""
        try:
            await self._link.ask("sessions.stop", {"sessionKey": self.here["sessionKey"]})
        except GatewayRefused as error:
            self._screen.say(f"Not stopped: {error}")

    # -- what the gateway tells ----------------------------------------------------------------

    def _opened(self, here: dict[str, Any]) -> None:
        """Take what the gateway says of the chat, on each new connection."""
        self.here = here
        self._screen.agent = here["agent"]
        for entry in self._pending.values():
            self._look_for(entry)
        self._is_open.set()
        self._arrived.put_nowait(("chat.opened", here))

    def _on_event(self, event: str, payload: dict[str, Any]) -> None:
        self._arrived.put_nowait((event, payload))

    def _on_problem(self, what: str) -> None:
        """Show what keeps the chat from working, unless it is over in a moment."""
        if not what:
            if self._mentioning:
                self._mentioning.cancel()
            self._mentioning = None
            self._mention("")
        elif self._mentioning is None and self._is_open.is_set():
            loop = asyncio.get_running_loop()
            words = f"({what[0].upper()}{what[1:].rstrip('.')}. Trying again.)"
            self._mentioning = loop.call_later(UNMENTIONED_S, self._mention, words)

    def _mention(self, words: str) -> None:
        self._screen.problem = words
        self._arrived.put_nowait(("", {}))

    async def _show_events(self) -> None:
        await self._show_earlier()
        while True:
            event, payload = await self._arrived.get()
            match event:
                case "chat.opened":
                    self._screen.indicator.opened(is_running=payload["state"] == "running")
                case "session.live":
                    self._screen.live(payload)
                case "session.outcome":
                    self._take_outcome(payload)
                case "chat.problem":
                    self._on_problem(payload["text"])
                case "chat.message" if payload["role"] == "user":
                    self._screen.typed(payload["text"])
                case "chat.message":
                    await self._show_message(payload)
            if self._arrived.empty():
                await self._draw()

    async def _show_message(self, told: dict[str, Any]) -> None:
        """Show a message of the chat, save its files, and say that this was done."""
        unsaved = []
        # First, so that the indicator goes with the answer's last line and not a moment later.
        self._shown.update(told["entries"])
        self._over(told["entries"])
        if told["key"] not in self._shown:
            self._screen.message(told)
            self._take_card(told)
            for file in told["attachments"]:
                saved = await self._files.save(told["sid"], file)
                self._screen.say(saved.note)
                unsaved += [] if saved.is_saved else [file["blob"]]
            self._shown.add(told["key"])
        await self._draw()
        params = {"key": told["key"], "unsaved": unsaved}
        self._tasks.create_task(self._tell_shown(params))

    def _take_card(self, told: Mapping[str, Any]) -> None:
        """Take what a message says of a request to the person: it is made, or is over."""
        if asked := told.get("asks"):
            self._screen.indicator.asks(asked)
        if closed := told.get("closes"):
            self._screen.indicator.closed(closed)

    async def _tell_shown(self, params: Mapping[str, Any]) -> None:
        with contextlib.suppress(GatewayRefused):
            await self._link.ask("chat.shown", params)

    def _take_outcome(self, told: Mapping[str, Any]) -> None:
        """Note that an entry has its outcome; the reply of another channel's session is shown."""
        entry = str(told["runId"]).partition("-")[2]
        if entry in self._outcomes:  # it was asked for, and told as well
            return
        self._outcomes.add(entry)
        if not self.here["isConsole"]:
            self._show_outcome(told)
        if (note := NOTES.get(str(told.get("status")))) and (words := self._words.get(entry)):
            self._screen.say(f"({note}: {words})")
        self._words.pop(entry, None)
        self._shown.add(entry)
        self._over([entry])

    def _show_outcome(self, told: Mapping[str, Any]) -> None:
        """Show the answer to a session of another channel, of whose messages nothing else comes."""
        turn = told.get("turn")
        if turn in self._shown:
            return
        if told.get("reply"):
            self._screen.reply(turn, str(told["reply"]))
        self._screen.ended(turn, note=ending(told))
        self._shown.update([turn] if turn else [])

    def _over(self, entries: list[str]) -> None:
        """Note that messages are answered, under the name that each has here."""
        names = [name for name, entry in self._pending.items() if entry in entries]
        for name in names:
            del self._pending[name]
        self._screen.indicator.answered([*names, *entries])

    def _look_for(self, entry: str) -> None:
        """Ask for a message's outcome, which may have come while the connection was lost."""
        if entry not in self._asked_for:
            self._asked_for.add(entry)
            self._tasks.create_task(self._ask_for(entry))

    async def _ask_for(self, entry: str) -> None:
        """Ask what became of a message until it is known, or told otherwise."""
        session, told = self.here, {}
        params = {
            "sessionKey": session["sessionKey"],
            "entry": entry,
            "timeout": ASK_S,
            "knowsPause": True,
        }
        while entry in self._pending.values():
            try:
                found = await self._link.ask("chat.outcome", params, persists=True)
            except GatewayRefused:
                break
            if found["status"] not in ("accepted", "running"):
                texts = [part["text"] for part in found["reply"] if part["text"]]
                told = {**found, "reply": "\n\n".join(texts)}
                break
        self._asked_for.discard(entry)
        run = f"{session['sid']}-{entry}"
        self._arrived.put_nowait(("session.outcome", {**told, "runId": run}))

    async def _show_earlier(self) -> None:
        """Show the last exchange of the conversation, if there was one."""
        params = {"sessionKey": self.here["sessionKey"], "limit": MAX_EARLIER}
        try:
            items = (await self._link.ask("chat.history", params))["items"]
        except GatewayRefused:
            return  # nothing was said yet
        asked = [number for number, item in enumerate(items) if item["role"] == "user"]
        if asked:
            self._screen.earlier(items[asked[-1] :])
        if self.here["waiting"]:
            is_open = await self._has_terminal()
            self._screen.say(IN_TERMINAL if is_open else UNFINISHED)
        await self._draw()

    async def _has_terminal(self) -> bool:
        """Whether what goes on is the agent's own program, in a terminal."""
        try:
            terminal = await self._link.ask("terminals.get", {"sid": self.here["sid"]})
        except GatewayRefused:
            return False  # there was none
        return terminal["state"] in ("starting", "live")
