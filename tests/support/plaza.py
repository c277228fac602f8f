"""Plaza's server: the form of the test platform that pushes, for `examples/package`.

    async with PlazaServer(directory).serving() as url: …

It shares the platform's directory with `Platform`, which sets its behaviour. It closes a connection
that is silent for a heartbeat, repeats the events that a resumed session has not had, knows the key
of a post for 180 s, and confirms no press later than 3 s, when the person has seen an error.
"""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    RemoteClawError,
)
from remoteclaw.host.files import mime_type_of
from remoteclaw.protocols import Place, Sent
from tests.support.platform import PRESS_S, PlatformCalls, history_of, kind_of, sources_of

#: How long a key is known, in seconds.
KEY_S = 180.0
#: The maximum length of a text, in characters.
MAX_CHARS = 2000
BOT_TOKEN, FEED_TOKEN = "pb-0123456789abcdef", "pf-0123456789abcdef"
#: So many posts and edits a room takes within so many seconds; each answer says what is left.
ROOM_CALLS, ROOM_S = 12, 0.5
#: The pause between two looks for new events, in seconds.
PUSH_S = 0.01


@dataclass
class Session:
    """The events that were pushed to an account."""

    read: int
    """The number of the platform's last event that the session has taken into account."""
    pushed: list[dict[str, Any]] = field(default_factory=list)
    socket: ServerConnection | None = None
    """The connection to which events are pushed."""


class NoThread(PlatformRefused):
    """Raised for a post to a thread that nobody has opened."""


class PlazaServer(PlatformCalls):
    """The server. Its methods `call_…` are the calls on the wire."""

    def __init__(self, directory: Path, *, heartbeat_s: float = 20.0) -> None:
        super().__init__(directory)
        self._heartbeat_s = heartbeat_s
        self._sessions: dict[str, Session] = {}
        self._keys: dict[str, tuple[float, Sent]] = {}
        """By key, when it was used and the answer."""
        self._counts: dict[str, tuple[float, int]] = {}
        """By room, when its posts and edits were counted anew, and their number since."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a port of this host; return the address."""
        async with serve(self._serve, "127.0.0.1", 0, max_size=None) as server:
            yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

    async def _serve(self, socket: ServerConnection) -> None:
        """Answer the calls of a connection, and push to it, until it is lost."""
        with contextlib.suppress(ConnectionClosed, TimeoutError, ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                await _send(socket, {"hello": {"heartbeat_s": self._heartbeat_s}})
                while True:
                    async with asyncio.timeout(self._heartbeat_s):
                        message = orjson.loads(await socket.recv())
                    if "call" in message:
                        tasks.create_task(self._take(socket, tasks, **message))

    async def _take(
        self,
        socket: ServerConnection,
        tasks: asyncio.TaskGroup,
        *,
        call: str,
        number: int,
        **arguments: Any,
    ) -> None:
        """Answer a call, or lose the connection."""
        try:
            if call == "follow":
                session, result = self._follow(**arguments)
                tasks.create_task(self._push(socket, session, result["seq"]))
            else:
                left = self._count(**arguments) if call in ("post", "edit") else {}
                result = (await getattr(self, f"call_{call}")(**arguments) or {}) | left
            await _send(socket, {"answer": number, "result": result or {}})
        except PlatformUnknown:
            await socket.close()
        except RemoteClawError as error:
            codes = {PlatformBusy: "busy", PlatformAway: "away", AccountRefused: "account"}
            code = {**codes, NoThread: "no_thread"}.get(type(error), "refused")
            about = {"code": code, "text": str(error), "after_s": getattr(error, "after_s", 0)}
            await _send(socket, {"answer": number, "error": about})

    def _count(self, room: str, **_: Any) -> dict[str, Any]:
        """Count a post or an edit, and return what is left."""
        since, count = self._counts.get(room, (0.0, 0))
        if boottime() > since + ROOM_S:
            since, count = boottime(), 0
        after_s = since + ROOM_S - boottime()
        if count == ROOM_CALLS:
            self._journal.add("busy", what="room", about=room)
            raise PlatformBusy("Too many posts.", after_s=after_s)
        self._counts[room] = since, count + 1
        return {"left": ROOM_CALLS - count - 1, "after_s": after_s}

    # Events.

    def _follow(self, *, token: str, session: str, seq: int) -> tuple[Session, dict[str, Any]]:
        if token != FEED_TOKEN:
            raise AccountRefused("Plaza refuses the feed token.")
        known = None if self._told().ends_sessions else self._sessions.get(session)
        if known is None:
            session, seq = uuid.uuid4().hex, 0
            self._sessions[session] = Session(len(self._journal.read()))
        self._journal.add("followed", session=session, is_resumed=known is not None)
        result = {"session": session, "seq": seq, "is_resumed": known is not None}
        return self._sessions[session], result

    async def _push(self, socket: ServerConnection, session: Session, seq: int) -> None:
        """Push the events after `seq`, also those that were pushed to an earlier connection."""
        if session.socket and session.socket is not socket:
            session.socket.transport.abort()  # it may be frozen
        session.socket = socket
        while session.socket is socket:
            try:
                await self._behaviour("poll", "")
            except RemoteClawError:
                await socket.close()
            events = self._journal.read()
            for number, event in enumerate(events[session.read :], session.read + 1):
                session.read = number
                if kind_of(event):
                    about = {"seq": len(session.pushed) + 1, **self._wire(number, event)}
                    session.pushed.append(about)
            for event in session.pushed[seq:]:
                if event["event"] != "pressed" or not _is_late(event):
                    await self._stop("poll after")
                    await _send(socket, event)
                seq = event["seq"]
            await asyncio.sleep(PUSH_S)

    def _wire(self, number: int, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return an event of the platform in the form of the wire."""
        about = {
            "event": kind_of(event),
            "number": str(number),
            "id": event["id"],
            "room": event["chat"],
            "thread": event.get("thread"),
            "is_direct": event["chat"] == event["by"],
            "by": event["by"],
            "name": event.get("sender_name"),
            "is_bot": event.get("is_bot", False),
            "at_ms": event["at_ms"],
            "mentions_you": event.get("is_for_us", True),
            "text": event.get("text", ""),
            "reply_to": event.get("reply_to"),
            "message": event.get("replaces") or event.get("deletes") or event.get("reply_to"),
            "emoji": event.get("reaction"),
            "is_removed": event.get("is_removed", False),
            "card": event.get("card"),
            "verdict": event.get("verdict"),
        }
        files = [
            {
                "id": f"{event['id']}/{name}",
                "name": name,
                "type": mime_type_of(name, b""),
                "size": len(content),
            }
            for name, content in event.get("files", {}).items()
        ]
        return {**about, "files": files}

    async def call_sources(self) -> dict[str, Any]:
        """Return the rooms and threads of the account, each with the number of its last event."""
        events = self._journal.read()
        found = sources_of(events).items()
        return {
            "newest": str(len(events)),
            "sources": [
                {"source": source, "since": str(since), "newest": str(newest)}
                for source, (since, newest) in found
            ],
        }

    async def call_history(self, source: str, after: str, limit: int) -> dict[str, Any]:
        """Return the events of a room or thread after a number, edits and deletions applied."""
        chat, _, thread = source.partition("/")
        events = self._journal.read()
        found = history_of(events, chat, thread or None, int(after))[:limit]
        newest = found[-1][0] if len(found) == limit else len(events)
        self._journal.add("history", source=source)
        return {"events": [self._wire(*each) for each in found], "newest": str(newest)}

    async def call_messages(
        self,
        room: str,
        thread: str | None,
        limit: int,
        before: str | None = None,
        since_ms: int = 0,
    ) -> dict[str, Any]:
        """Return the newest messages of a room, or of a thread with the message that began it."""
        posts = [
            {
                "id": post.id,
                "by": post.by,
                "name": f"Mx {post.by}",
                "is_yours": post.by == "agent",
                "text": post.text,
                "at_ms": post.at_ms,
                "files": list(post.files),
            }
            for post in self._posts(room)
            if thread in (post.thread, post.id) and post.at_ms >= since_ms
        ]
        ids = [post["id"] for post in posts]
        if before in ids:
            del posts[ids.index(before) :]
        return {"messages": posts[-limit:]}

    # Calls.

    async def call_log_in(self, token: str) -> dict[str, Any]:
        await self._behaviour("connect", "")
        if token != BOT_TOKEN:
            raise AccountRefused("Plaza refuses the token.")
        await self._stop("connect after")
        return {"name": "the_bot"}

    async def call_menu(self, commands: dict[str, str]) -> None:
        await self._behaviour("menu", "")
        self._journal.add("commands", commands=list(commands))
        await self._stop("menu after")

    async def call_fetch(self, file: str) -> dict[str, Any]:
        message, _, name = file.partition("/")
        await self._behaviour("fetch", name)
        self._journal.add("fetched", name=name)
        (event,) = [each for each in self._journal.read() if each["id"] == message]
        await self._stop("fetch after")
        return {"content": base64.b64encode(event["files"][name].encode()).decode()}

    async def call_confirm(self, press: str) -> None:
        await self._behaviour("confirm", press)
        (event,) = [each for each in self._journal.read() if each["id"] == press]
        if _is_late(event):
            raise PlatformRefused("The press is older than 3 s.")
        self._journal.add("confirmed", press=press)
        await self._stop("confirm after")

    async def call_tell(self, press: str, text: str) -> None:
        self._journal.add("told", press=press, text=text)

    async def call_join(self, room: str) -> None:
        self._journal.add("joined", room=room)

    async def call_decline(self, room: str) -> None:
        self._journal.add("declined", room=room)

    async def call_open_thread(self, room: str, message: str) -> None:
        self._there(room, message)
        if not self._is_open(room, message):
            self._journal.add("opened", chat=room, thread=message)

    def _is_open(self, room: str, thread: str | None) -> bool:
        events = self._journal.read()
        return any((each.get("chat"), each.get("thread")) == (room, thread) for each in events)

    async def call_post(
        self,
        room: str,
        thread: str | None,
        text: str,
        key: str = "",
        reply_to: str | None = None,
        file: Mapping[str, str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        _check_length(text)
        if thread and not self._is_open(room, thread):
            raise NoThread("There is no such thread: open it first.")
        if not key:
            return {"id": await self.show(Place(room, thread), text, None)}
        used_at, sent = self._keys.get(key, (0.0, None))
        if sent and boottime() - used_at < KEY_S and not self._told().forgets_keys:
            return {"id": (await self._answer("send", sent)).message_id}
        sent = await self.post(
            Place(room, thread),
            text,
            key=key.rpartition("/")[0],
            quotes=reply_to,
            files={file["name"]: base64.b64decode(file["content"])} if file else {},
            on_done=lambda sent: self._keys.update({key: (boottime(), sent)}),
            **more,
        )
        return {"id": sent.message_id}

    async def call_edit(
        self, room: str, thread: str | None, message: str, text: str, key: str = ""
    ) -> dict[str, Any]:
        _check_length(text)
        place = Place(room, thread)
        if key:
            await self.put(place, text, key=key, message_id=message)
        else:
            await self.show(place, text, message)
        return {}

    async def call_delete(self, room: str, message: str, may_be_gone: bool = False) -> None:
        if may_be_gone:
            await self.take_back(room, message)
        else:
            await self.do("delete", room, {"messageId": message})

    async def call_react(self, room: str, message: str, emoji: str) -> None:
        await self.do("react", room, {"messageId": message, "emoji": emoji})

    async def call_pin(self, room: str, message: str) -> None:
        await self.do("pin", room, {"messageId": message})

    async def call_type(self, room: str, thread: str | None) -> None:
        await self.type(Place(room, thread))


async def _send(socket: ServerConnection, message: Mapping[str, Any]) -> None:
    await socket.send(orjson.dumps(message).decode())


def _is_late(press: Mapping[str, Any]) -> bool:
    return bool(now_ms() - press["at_ms"] > PRESS_S * 1000)


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise PlatformRefused(f"The text has {len(text)} characters.")
