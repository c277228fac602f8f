"""The client of a chat: sends messages to the gateway, and shows the events it publishes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.chat.editor import KEYS
from remoteclaw.chat.files import Files
from remoteclaw.chat.indicator import ending
from remoteclaw.chat.screen import ChatScreen
from remoteclaw.client.link import Address, GatewayRefused, Link
from remoteclaw.errors import RemoteClawError, first_of
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import stream_order
from remoteclaw.protocols import Card

#: Time limit for the first connection to the gateway, in seconds.
CONNECT_S = 5.0
#: A lost connection is reported after this time, in seconds: a gateway restarts in less.
REPORT_AFTER_S = 2.0
#: The last exchange of a session is searched for among this many items of its record.
MAX_EARLIER_ITEMS = 40
#: Time limit of one request for the outcome of a message, in seconds.
OUTCOME_S = 100.0
#: Notices for messages that get no answer of their own, by the status of their outcome.
NOTES = {
    "steered": "Added to the turn that ran",
    "dropped": "Not answered; the agent got at most the beginning of",
}
#: The part of a message that such a notice repeats, in characters.
MAX_REPEATED_CHARS = 50
#: A file of a message from before the chat was opened.
EARLIER_FILE = "({name}: `/save {number}` saves it.)"
NO_FILE = "There is no such file: /save needs the number of a file that this chat has shown."
#: After a long absence, the chat continues with the newest messages.
MISSED = "(There are more messages before these: the page shows all.)"
#: Notices for a session that is busy when the chat is opened.
UNFINISHED = "(Going on with what was not finished. Ctrl-C stops it.)"
IN_TERMINAL = (
    "(The session is open in a terminal, which `remoteclaw attach` shows. Your messages wait until "
    "it is closed; Ctrl-C ends it.)"
)


class ChatClient:
    """Connects a chat to the gateway: sends messages, and shows events."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        target: Mapping[str, str],
        screen: ChatScreen,
        draw: Callable[[], Awaitable[None]],
        downloads: Path,
    ) -> None:
        """`target` are the parameters of `chat.open`; `draw` draws the changes of `screen`.

        Files that the agent sends are saved in `downloads`.
        """
        self.chat: dict[str, Any] = {}
        """The result of `chat.open`; empty until the chat is opened."""
        self._screen = screen
        self._draw = draw
        self._target: dict[str, Any] = dict(target)
        """The parameters of the next `chat.open`."""
        self._link = Link(
            address,
            token,
            opening=("chat.open", self._target),
            on_open=self._on_open,
            on_event=self._on_event,
            on_problem=self._on_problem,
        )
        self._files = Files(address, token, downloads)
        self._pending: dict[str, str] = {}
        """The entry ids of messages without an outcome, by message id."""
        self._beginnings: dict[str, str] = {}
        """The beginnings of these messages, by entry id."""
        self._requested: set[str] = set()
        """The ids of entries whose outcome is requested, because its event may have been missed."""
        self._outcomes: set[str] = set()
        """The ids of entries whose outcome is known."""
        self._shown: set[str] = set()
        """The ids of turns whose answer is shown, and of entries that are answered or have an
        outcome."""
        self._own: set[str] = set()
        """The ids of the messages that were written, and shown, here."""
        self._newest: list[dict[str, Any]] | None = []
        """The newest events of a conversation that is being opened; None while it is shown."""
        self._earlier_files: list[tuple[str, dict[str, Any]]] = []
        """The files of earlier messages that `/save` saves, each with its session's id."""
        self._events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        """The gateway's events to show, in order, with their payloads."""
        self._is_open = asyncio.Event()
        self._report_timer: asyncio.TimerHandle | None = None
        """The timer that reports a lost connection; None while the connection works."""
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Show events until cancelled.

        Raises `GatewayMissing` if no gateway answers, and `GatewayRefused` if the gateway refuses
        the token, the agent or the session.
        """
        refused: RemoteClawError | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._link.run(connect_s=CONNECT_S))
                await self._is_open.wait()
                await self._show_events()
        except* RemoteClawError as group:
            refused = first_of(group)
        if refused:
            raise refused

    async def opened(self) -> None:
        """Wait until the gateway has opened the chat."""
        await self._is_open.wait()

    # -- what the person does ------------------------------------------------------------------

    async def send(self, text: str, message_id: str) -> None:
        """Send a message or command under `message_id`, and show the immediate result."""
        self._own.add(message_id)
        try:
            text, files = await self._files.upload_named(text, self.chat)
            sent = await self._link.ask(
                "chat.send",
                {
                    "sessionKey": self.chat["sessionKey"],
                    "messageId": message_id,
                    "text": text,
                    "files": files,
                },
                persists=True,
            )
        except RemoteClawError as error:
            self._screen.indicator.remove_messages([message_id])
            self._screen.show_notice(f"Not sent: {error}")
        else:
            if sent["reply"]:
                self._screen.show_command_reply(sent["reply"])
            if text.strip().casefold() == "/help":
                self._screen.show_command_reply(KEYS)
            if (entry := sent["entry"]) is None:
                self._screen.indicator.remove_messages([message_id])
            else:
                self._pending[message_id] = entry
                self._beginnings[entry] = one_line(text, max_chars=MAX_REPEATED_CHARS)
                self._screen.indicator.accept_message(message_id, entry, sent["ahead"])
                if entry in self._shown:
                    self._settle([entry])
                elif sent["isDuplicate"]:  # accepted on an earlier connection: an event may be lost
                    self._request_outcome(entry)
            if sent["opens"] and sent["opens"] != self.chat["sessionKey"]:
                await self._change_to(sent["opens"])
        await self._draw()

    async def _change_to(self, session: str) -> None:
        """Continue with another conversation."""
        self._settle([*self._pending.values()])
        self._newest = []
        self._target.clear()
        self._target["sessionKey"] = session
        await self._link.reopen()

    async def save(self, number: str) -> None:
        """Save a file of an earlier message, by the number that was shown with it."""
        if number.isdecimal() and 0 < int(number) <= len(self._earlier_files):
            sid, file = self._earlier_files[int(number) - 1]
            self._screen.show_notice(await self._files.save(sid, file))
        else:
            self._screen.show_notice(NO_FILE)
        await self._draw()

    async def stop(self) -> None:
        """Stop the running turn, and drop the waiting messages."""
        try:
            await self._link.ask("sessions.stop", {"sessionKey": self.chat["sessionKey"]})
        except GatewayRefused as error:
            self._screen.show_notice(f"Not stopped: {error}")

    # -- events of the gateway -----------------------------------------------------------------

    def _on_open(self, chat: dict[str, Any]) -> None:
        """Handle the result of `chat.open`, on each new connection."""
        self.chat = chat
        self._screen.agent = chat["agent"]
        self._screen.gets_final_texts = chat["person"] is not None
        for name in ("agentId", "conversation"):
            self._target.pop(name, None)
        self._target["sessionKey"] = chat["sessionKey"]
        for entry in self._pending.values():
            self._request_outcome(entry)
        self._is_open.set()
        self._events.put_nowait(("chat.opened", chat))

    def _on_event(self, event: str, payload: dict[str, Any]) -> None:
        self._events.put_nowait((event, payload))

    def _on_problem(self, problem: str) -> None:
        """Show `problem` if it lasts for `REPORT_AFTER_S`; an empty one means that it is over."""
        if not problem:
            if self._report_timer:
                self._report_timer.cancel()
            self._report_timer = None
            self._set_problem("")
        elif self._report_timer is None and self._is_open.is_set():
            loop = asyncio.get_running_loop()
            notice = f"({problem[0].upper()}{problem[1:].rstrip('.')}. Trying again.)"
            self._report_timer = loop.call_later(REPORT_AFTER_S, self._set_problem, notice)

    def _set_problem(self, notice: str) -> None:
        self._screen.problem = notice
        self._events.put_nowait(("", {}))  # wakes `_show_events`, which draws the screen

    async def _show_events(self) -> None:
        while True:
            event, payload = await self._events.get()
            match event:
                case "chat.opened":
                    await self._show_opened(payload)
                case "chat.event" if self._newest is not None:
                    self._newest.append(payload)
                case "chat.event":
                    await self._show_event(payload)
                case "session.live":
                    self._screen.show_live(payload)
                case "session.outcome":
                    self._handle_outcome(payload)
                case "chat.problem":
                    self._on_problem(payload["problem"])
            if self._events.empty():
                await self._draw()

    async def _show_opened(self, chat: Mapping[str, Any]) -> None:
        """Show what a chat has when it is opened; after a reconnection, only its state."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._screen.begin()
        self._screen.indicator.resync(is_running=chat["state"] == "running")
        if newest is None:
            if chat["person"] is not None and chat["isAfresh"] and chat["hasEarlier"]:
                self._screen.show_notice(MISSED)
            return
        if chat["person"] is None:
            await self._show_record()
        else:
            self._show_newest(newest)
        for text in chat["unanswered"]:
            self._screen.show_user_message(text)
        if chat["waiting"]:
            is_open = chat["state"] == "terminal"
            self._screen.show_notice(IN_TERMINAL if is_open else UNFINISHED)

    def _show_newest(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Show the newest messages of a conversation that fit on the screen."""
        # An opening that failed halfway may have sent some of them before.
        events = [*{event["id"]: event for event in events}.values()]
        if events:
            self._target["after"] = events[-1]["id"]
        messages = []
        for event in events:
            if event["kind"] == "message" and event["conversation"] == self.chat["conversation"]:
                is_own = event["from"] == self.chat["person"]
                text = str(event["text"]) if is_own else text_of(event)
                messages.append({**event, "role": "user" if is_own else "agent", "text": text})
                self._update_requests(event)
        for message in self._screen.show_earlier(messages, is_cut=True):
            for file in () if message["role"] == "user" else message["files"]:
                self._earlier_files.append((message["sid"], file))
                number = len(self._earlier_files)
                note = EARLIER_FILE.format(name=one_line(file["name"]), number=number)
                self._screen.show_notice(note)

    async def _show_event(self, event: Mapping[str, Any]) -> None:
        """Show an event of the conversation that has just happened, and save its files."""
        if (after := self._target.get("after")) and stream_order(event["id"]) <= stream_order(
            after
        ):
            return  # shown already, before a reconnection
        self._target["after"] = event["id"]
        if event["kind"] == "deletion":
            return  # what is on the screen stays there
        if event["from"] == self.chat["person"]:
            if event["kind"] == "message" and event.get("messageId") not in self._own:
                names = [file["name"] for file in event["files"]]
                self._screen.show_user_message("\n".join(filter(None, (event["text"], *names))))
        elif event["kind"] == "reaction" and event["emoji"]:
            self._screen.show_notice(f"({self.chat['agent']}: {event['emoji']})")
        elif event["kind"] == "message":
            # First, so that the indicator disappears together with the answer's last line.
            self._shown.update(event["entries"])
            self._settle(event["entries"])
            self._screen.show_message({**event, "text": text_of(event)})
            self._update_requests(event)
            for file in event["files"]:
                self._screen.show_notice(await self._files.save(event["sid"], file))
        await self._draw()

    def _update_requests(self, message: Mapping[str, Any]) -> None:
        """Track the request that a message shows, or that it reports as closed."""
        if card := message.get("card"):
            if card["choices"]:
                self._screen.indicator.add_request(card["id"])
            else:
                self._screen.indicator.remove_request(card["id"])

    def _handle_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Record the outcome of an entry. Show its reply if the session is another channel's."""
        entry = str(outcome["runId"]).partition("-")[2]
        if entry in self._outcomes:  # received both as an event and as a requested outcome
            return
        self._outcomes.add(entry)
        if self.chat["person"] is None:
            self._show_outcome(outcome)
        note, beginning = NOTES.get(str(outcome.get("status"))), self._beginnings.pop(entry, None)
        if note and beginning:
            self._screen.show_notice(f"({note}: {beginning})")
        self._shown.add(entry)
        self._settle([entry])

    def _show_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Show the answer of another channel's session, whose messages are no events here."""
        turn = outcome.get("turn")
        if turn in self._shown:
            return
        if outcome.get("reply"):
            self._screen.show_reply(turn, str(outcome["reply"]))
        self._screen.end_turn(turn, note=ending(outcome))
        self._shown.update([turn] if turn else [])

    def _settle(self, entries: list[str]) -> None:
        """Record that the messages of `entries` do not wait for an outcome any more."""
        ids = [id_ for id_, entry in self._pending.items() if entry in entries]
        for id_ in ids:
            del self._pending[id_]
        self._screen.indicator.remove_messages([*ids, *entries])

    def _request_outcome(self, entry: str) -> None:
        """Request an entry's outcome, whose event may have been published while disconnected."""
        if entry not in self._requested:
            self._requested.add(entry)
            self._tasks.create_task(self._await_outcome(entry))

    async def _await_outcome(self, entry: str) -> None:
        """Request the outcome of an entry until it is final, or an event has reported it."""
        outcome, run_id = {}, f"{self.chat['sid']}-{entry}"
        params = {"runId": run_id, "timeout": OUTCOME_S, "knowsPause": True}
        while entry in self._pending.values():
            try:
                result = await self._link.ask("outcomes.wait", params, persists=True)
            except GatewayRefused:
                break
            if result["status"] not in ("accepted", "running"):
                texts = [part["text"] for part in result["reply"] if part["text"]]
                outcome = {**result, "reply": "\n\n".join(texts)}
                break
        self._requested.discard(entry)
        self._events.put_nowait(("session.outcome", {**outcome, "runId": run_id}))

    async def _show_record(self) -> None:
        """Show the last exchange of another channel's session, if there is one."""
        params = {"sessionKey": self.chat["sessionKey"], "limit": MAX_EARLIER_ITEMS}
        try:
            items = (await self._link.ask("sessions.history", params))["items"]
        except GatewayRefused:
            return  # the session has no history yet
        questions = [index for index, item in enumerate(items) if item["role"] == "user"]
        if questions:
            self._screen.show_earlier(items[questions[-1] :])


def text_of(event: Mapping[str, Any]) -> str:
    """Return the text of an agent's message, with the choices of the request that it shows."""
    card = event.get("card")
    return Card.of(card).with_choices(event["text"]) if card else str(event["text"])
