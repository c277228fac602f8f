"""The channel `plaza`: a chat platform that pushes what people do, as Discord does.

Plaza repeats the events of a lost connection to a connection that resumes its session. After a
longer absence, the adapter reads the events from the histories of rooms and threads.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from remoteclaw.bridge.chunks import Chunker
from remoteclaw.config.model import ChannelConfig, Secret, SecretsConfig
from remoteclaw.config.rights import BY_PEOPLE, SECRET
from remoteclaw.messages import code_files, without_mentions
from remoteclaw.profiles import Channel
from remoteclaw.protocols import (
    AdapterState,
    Allowance,
    ChannelProfile,
    ContextMessage,
    Identity,
    Incoming,
    IncomingFile,
    Live,
    Method,
    Operation,
    Part,
    Place,
    PollResult,
    Rate,
    Reply,
    Sent,
)
from remoteclaw_plaza.connection import PAGE, Connection, NoThread
from remoteclaw_plaza.reports import Event, report_of, source_of

#: The maximum length of a text. Plaza takes 2,000 characters, of which a repetition needs a line.
MAX_CHARS = 1900
PROFILE = ChannelProfile(
    chunk_limit=MAX_CHARS,
    code_file_lines=60,
    formatting=("The user reads Markdown.",),
    attachment_mb=1,
    live_every_s=0.5,
    rates=(Rate(frozenset(("send", "edit")), 50, per_s=1, scope="account"),),
    reactions="differences",
    opens_threads=True,
    private_replies=True,
    reads_history=True,
    cursors_grow=True,
    state_emoji={
        "received": "👀",
        "works": "⏳",
        "needs_you": "✋",
        "done": "✅",
        "failed": "❌",
    },
)
#: How long a poll waits for events, in seconds.
POLL_S = 30.0
AGAIN = "(perhaps a second time)\n"
#: A mention: of a person by id, or of `all`.
MENTION = re.compile(r"<@(?P<who>\w+)>")


class PlazaAccount(SecretsConfig):
    """An account of Plaza: a bot, which has a token to write and one for the feed of events."""

    secrets: ClassVar[Mapping[str, Secret]] = {
        "token": Secret(form=r"pb-\w+", kind="a bot's token, which begins with pb-"),
        "feed_token": Secret(
            form=r"pf-\w+",
            kind="a feed token, which begins with pf-",
            how="The bot's page has its feed token, too, under Feed.",
        ),
    }

    url: Annotated[str, BY_PEOPLE] = "wss://plaza.example"
    """The address of the server."""
    token: Annotated[str | None, SECRET] = None
    """The bot's token. Prefer `token_env` or `token_file`, which keep it out of this file."""
    token_env: Annotated[str | None, BY_PEOPLE] = None
    """The environment variable that contains the token."""
    token_file: Annotated[str | None, BY_PEOPLE] = None
    """The file that contains the token."""
    feed_token: Annotated[str | None, SECRET] = None
    """The feed token."""
    feed_token_env: Annotated[str | None, BY_PEOPLE] = None
    """The environment variable that contains the feed token."""
    feed_token_file: Annotated[str | None, BY_PEOPLE] = None
    """The file that contains the feed token."""


class PlazaConfig(PlazaAccount, ChannelConfig):
    """The section `[channels.plaza]`."""

    accounts: Annotated[dict[str, PlazaAccount], BY_PEOPLE] = Field(default_factory=dict)
    """More accounts, by names that you choose."""


class Plaza:
    """The adapter of an account."""

    key_window_s = 120.0  # Plaza knows the key of a post for 180 s
    has_buttons = True

    def __init__(self, settings: PlazaAccount) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._pushing: Connection | None = None
        """The connection to which Plaza pushes events."""
        self._is_behind = False
        """Whether the histories have events that Plaza won't push."""
        self._returned: Mapping[str, str] = {}
        """The cursors of the last result."""
        self._report: Callable[[Allowance], None] = lambda _: None

    def report_to(self, report: Callable[[Allowance], None]) -> None:
        """Report what each answer allows, so that no call is refused."""
        self._report = report

    async def use_state(self, state: AdapterState) -> None:
        """Keep the session there, so that the account's next process can resume it."""
        self._state = state

    async def connect(self) -> Identity:
        """Log in."""
        connection = await self._connected()
        return Identity(connection.name)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection:
            await self._connection.close()

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Put the commands into the menu."""
        await self._call("menu", commands=dict(commands))

    async def _connected(self) -> Connection:
        """Return the connection, or a new one if it is lost."""
        async with self._opening:
            if self._connection and self._connection.is_lost:
                await self._connection.close()
                self._connection = None
            if self._connection is None:
                token = self._settings.read_secret("token")
                self._connection = await Connection.open(self._settings.url, token)
            return self._connection

    async def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        connection = await self._connected()
        answer = await connection.call(name, **arguments)
        if "left" in answer:  # of the room's posts and edits, which Plaza counts together
            kinds = frozenset[Method](("send", "edit"))
            left = Allowance(kinds, answer["left"], answer["after_s"], arguments["room"])
            self._report(left)
        return answer

    # What people do.

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for events. The cursor of a room or thread is the number of its newest event."""
        if self._connection and not self._is_stored(cursors):
            await self._connection.close()  # the session repeats what could not be stored
        connection = await self._connected()
        if connection is not self._pushing:
            await self._follow(connection)
        if not cursors:
            return await self._first_start(connection)
        if self._is_behind and (missed := await self._missed(connection, cursors)):
            return missed
        self._is_behind = False
        events = await connection.events(POLL_S)
        if not events:
            return PollResult()
        return self._result(events, {source_of(event): event["number"] for event in events})

    def _is_stored(self, cursors: Mapping[str, str]) -> bool:
        """Whether the last result was stored; another process may have had the account then."""
        returned = self._returned.items()
        return all(int(number) <= int(cursors.get(source, 0)) for source, number in returned)

    async def _follow(self, connection: Connection) -> None:
        """Have events pushed: resume the session, or begin one."""
        stored = await self._state.read("session")
        last = json.loads(stored) if stored else {"session": "", "seq": 0}
        token = self._settings.read_secret("feed_token")
        answer = await connection.call("follow", token=token, **last)
        connection.session, connection.seq = answer["session"], answer["seq"]
        self._is_behind = not answer["is_resumed"]
        self._pushing = connection

    async def _first_start(self, connection: Connection) -> PollResult:
        """Begin at the newest events: what was said before is not answered."""
        self._is_behind = False
        found = await connection.call("sources")
        newest = {each["source"]: each["newest"] for each in found["sources"]}
        return self._result([], {"": found["newest"], **newest})  # also without any room

    async def _missed(
        self, connection: Connection, cursors: Mapping[str, str]
    ) -> PollResult | None:
        """Return the next missed events of a room or thread; None if there are no more."""
        for each in (await connection.call("sources"))["sources"]:
            source = each["source"]
            after = cursors.get(source, each["since"])
            if int(after) < int(each["newest"]):
                page = await connection.call("history", source=source, after=after, limit=PAGE)
                return self._result(page["events"], {source: page["newest"]})
        return None

    def _result(self, events: Sequence[Event], cursors: Mapping[str, str]) -> PollResult:
        """Return events as reports, which RemoteClaw stores before it acknowledges them."""
        connection, is_behind = self._pushing, self._is_behind
        self._returned = cursors

        async def acknowledge() -> None:
            assert connection is not None, "events come from a connection"
            for event in events:
                if event["event"] == "pressed":  # Plaza waits 3 s, then the person sees an error
                    await connection.call("confirm", press=event["id"])
            if not is_behind:  # else another process has to read the histories again
                connection.seq = max([connection.seq, *(each.get("seq", 0) for each in events)])
                session = {"session": connection.session, "seq": connection.seq}
                await self._state.write("session", json.dumps(session).encode())

        return PollResult(tuple(map(report_of, events)), cursors, acknowledge)

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file."""
        return base64.b64decode((await self._call("fetch", file=file.id))["content"])

    async def context(self, place: Place, before: str, limit: int) -> Sequence[ContextMessage]:
        """Return the messages of a thread before a message."""
        found = await self._messages(place, before=before, limit=limit)
        return [ContextMessage(each["by"], each["text"], each["name"]) for each in found]

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Show the result of a press to the person who has pressed."""
        await self._call("tell", press=incoming.id, text=text)

    async def answer_invitation(self, incoming: Incoming, *, joins: bool) -> None:
        """Join a room, or decline."""
        await self._call("join" if joins else "decline", room=incoming.chat)

    # What agents write.

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the text, long code and each file; nothing for the mere end of a turn."""
        shown, made = code_files(reply.text, reply.code_file_lines)
        cut = Chunker(MAX_CHARS)  # an ineffective mention is longer
        text = without_mentions(shown, MENTION, stays=reply.asked_by)
        contents: list[dict[str, Any]] = [
            {"content": each} for each in (*cut.feed(text), *cut.finish())
        ]
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Post one part. Plaza drops a post with a key that it knows."""
        message: dict[str, Any] = {
            "text": "" if part.file_name else (AGAIN if is_again else "") + part.content,
            "key": f"{reply.key}/{part.index}",
            "reply_to": reply.reply_to_id,
            "only_for": reply.to_person,
            "is_silent": reply.is_silent,
        }
        if part.file_name:
            encoded = base64.b64encode(content or b"").decode()
            message["file"] = {"name": part.file_name, "content": encoded}
        if reply.card and part.index == 0:
            message |= {"card": reply.card.id, "buttons": reply.card.choices}
        return Sent(await self._post(Place(reply.channel_id, reply.thread_id), **message))

    async def _post(self, place: Place, **message: Any) -> str:
        """Post a message, and return its id. If nobody has opened its thread, open it."""
        where = {"room": place.chat, "thread": place.thread}
        try:
            posted = await self._call("post", **where, **message)
        except NoThread:
            await self._call("open_thread", room=place.chat, message=place.thread)
            posted = await self._call("post", **where, **message)
        return str(posted["id"])

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Look for a part in the history, which has no keys."""
        place = Place(reply.channel_id, reply.thread_id)
        for each in await self._messages(place, since_ms=since_ms, limit=PAGE):
            is_same = each["text"].removeprefix(AGAIN) == part.content
            if part.file_name:
                is_same = part.file_name in each["files"]
            if each["is_yours"] and is_same and each["id"] not in known:
                return Sent(each["id"])
        return None

    async def _messages(self, place: Place, **which: Any) -> list[dict[str, Any]]:
        found = await self._call("messages", room=place.chat, thread=place.thread, **which)
        return list(found["messages"])

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Show the state of a turn."""
        lines = filter(None, (live.plan, live.text, live.activity))
        text = without_mentions("\n".join(lines), MENTION)[-MAX_CHARS:]
        if message_id is None:
            return await self._post(place, text=text, is_silent=True)
        await self._edit(place, message_id, text=text)
        return message_id

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Put a part in the place of a preview, or of a card."""
        place = Place(reply.channel_id, reply.thread_id)
        await self._edit(place, message_id, text=part.content, key=reply.key)
        return Sent(message_id)

    async def _edit(self, place: Place, message_id: str, **changes: Any) -> None:
        where = {"room": place.chat, "thread": place.thread, "message": message_id}
        await self._call("edit", **where, **changes)

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete a preview."""
        await self._call("delete", room=place.chat, message=message_id, may_be_gone=True)

    async def typing(self, place: Place) -> None:
        """Show that an answer is being written."""
        await self._call("type", room=place.chat, thread=place.thread)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to a message, delete or pin it, or read a room or thread."""
        room, args = operation.channel_id, operation.args
        match operation.name:
            case "react":
                await self._call("react", room=room, message=args["messageId"], emoji=args["emoji"])
            case "read":
                place = Place(room, operation.thread_id)
                found = await self._messages(place, limit=args["limit"])
                names = {"id": "id", "by": "from", "text": "text", "at_ms": "at"}
                return {
                    "messages": [
                        {ours: each[name] for name, ours in names.items()} for each in found
                    ]
                }
            case "delete" | "pin" as name:
                await self._call(name, room=room, message=args["messageId"])
        return {}


CHANNEL = Channel(profile=PROFILE, settings=f"{__name__}:PlazaConfig", adapter=f"{__name__}:Plaza")
