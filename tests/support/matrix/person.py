"""A person on a homeserver, whose client doesn't encrypt."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx2
import orjson

from tests.support.matrix.reading import Seen, seen
from tests.support.matrix.server import BRIDGE, TLS, Homeserver, Login
from tests.support.waiting import HANG_S

Event = dict[str, Any]


class Person:
    """A person, by the client-server API."""

    def __init__(self, url: str, login: Login) -> None:
        self.id = login.user
        self.login = login
        headers = {"Authorization": f"Bearer {login.token}"}
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=HANG_S, verify=TLS)
        self.events: dict[str, list[Event]] = {}
        """The events of each room, in order, while `follow()` runs."""
        self._position = ""
        self._has_news = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def registered(cls, server: Homeserver, name: str) -> AsyncIterator[Self]:
        """Make an account, and use it until exit."""
        async with cls.at(server.url, await server.register(name)) as person:
            yield person

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, url: str, login: Login) -> AsyncIterator[Self]:
        """Use an account until exit, also through `Faults`."""
        person = cls(url, login)
        async with person._http:
            yield person

    async def call(
        self,
        method: str,
        *path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Any:
        """Call the API; return the response. A refusal fails the test."""
        address = "/".join(("/_matrix/client/v3", *(quote(each, safe="") for each in path)))
        answer = await self._http.request(
            method, address, json=body, params=params, headers=headers
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def create(
        self, *invited: str, is_direct: bool = True, is_encrypted: bool = False, **more: Any
    ) -> str:
        """Create a room; return its id."""
        encryption = {
            "type": "m.room.encryption",
            "state_key": "",
            "content": {"algorithm": "m.megolm.v1.aes-sha2"},
        }
        body = {
            "preset": "trusted_private_chat" if is_direct else "private_chat",
            "is_direct": is_direct,
            "invite": invited,
            "initial_state": [encryption] if is_encrypted else [],
            **more,
        }
        return str((await self.call("POST", "createRoom", body=body))["room_id"])

    async def join(self, room: str) -> None:
        """Join a room."""
        await self.call("POST", "join", room, body={})

    async def send(
        self, room: str, kind: str, content: dict[str, Any], *, at_ms: int | None = None
    ) -> str:
        """Send an event, also one of another time; return its id."""
        path = ("rooms", room, "send", kind, uuid.uuid4().hex)
        if at_ms is None:
            return str((await self.call("PUT", *path, body=content))["event_id"])
        bridge = {"Authorization": f"Bearer {BRIDGE}"}
        about: Event = {"ts": str(at_ms), "user_id": self.id}
        sent = await self.call("PUT", *path, body=content, headers=bridge, **about)
        return str(sent["event_id"])

    async def say(
        self,
        room: str,
        text: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        edits: str | None = None,
        mentions: Sequence[str] = (),
        at_ms: int | None = None,
        **more: Any,
    ) -> str:
        """Say a text, as Element does; return the message's id."""
        content: Event = {"msgtype": "m.text", "body": text, "m.mentions": {}, **more}
        if mentions:
            content["m.mentions"] = {"user_ids": [*mentions]}
        answered = {"m.in_reply_to": {"event_id": reply_to or thread}}
        if thread:
            is_falling_back = {"is_falling_back": not reply_to}
            about = {"rel_type": "m.thread", "event_id": thread}
            content["m.relates_to"] = {**about, **answered, **is_falling_back}
        elif reply_to:
            content["m.relates_to"] = answered
        if edits:
            content = {**content, "body": f"* {text}", "m.new_content": content}
            content["m.relates_to"] = {"rel_type": "m.replace", "event_id": edits}
        return await self.send(room, "m.room.message", content, at_ms=at_ms)

    async def react(self, room: str, message: str, emoji: str) -> str:
        """React to a message; return the reaction's id."""
        relation = {"rel_type": "m.annotation", "event_id": message, "key": emoji}
        return await self.send(room, "m.reaction", {"m.relates_to": relation})

    async def redact(self, room: str, event: str) -> None:
        """Remove a message or a reaction."""
        await self.call("PUT", "rooms", room, "redact", event, uuid.uuid4().hex, body={})

    async def upload(self, name: str, content: bytes, mime_type: str = "text/plain") -> str:
        """Store a file; return its address."""
        headers = {"Content-Type": mime_type}
        where = f"/_matrix/media/v3/upload?filename={quote(name)}"
        answer = await self._http.post(where, content=content, headers=headers)
        return str(answer.json()["content_uri"])

    def downloaded(self, address: str) -> bytes:
        """Return the content of a file, without waiting for others."""
        path = address.removeprefix("mxc://")
        where = f"{self._http.base_url}/_matrix/client/v1/media/download/{path}"
        return httpx2.get(where, headers=self._http.headers).content

    async def timeline(self, room: str) -> list[Event]:
        """Return the newest 200 events of a room, oldest first."""
        page = await self.call("GET", "rooms", room, "messages", dir="b", limit=200)
        return list(page["chunk"])[::-1]

    async def follow(self) -> None:
        """Keep `events` current until cancelled, and join each room to which it is invited."""
        while True:
            params: Event = {"since": self._position, "timeout": 20_000} if self._position else {}
            answer = await self.call("GET", "sync", **params)
            rooms = answer.get("rooms", {})
            for room in rooms.get("invite", {}):
                await self.join(room)
            for room, joined in rooms.get("join", {}).items():
                self.events.setdefault(room, []).extend(joined["timeline"]["events"])
            self._position = answer["next_batch"]
            self._has_news.set()

    # What people do in rooms

    async def invite(self, room: str, user: str) -> None:
        """Invite somebody."""
        await self.call("POST", "rooms", room, "invite", body={"user_id": user})

    async def leave(self, room: str) -> None:
        """Leave a room."""
        await self.call("POST", "rooms", room, "leave", body={})

    async def kick(self, room: str, user: str) -> None:
        """Remove somebody, or withdraw an invitation."""
        await self.call("POST", "rooms", room, "kick", body={"user_id": user})

    async def state(self, room: str, kind: str, key: str = "") -> Any:
        """Return the content of a state event."""
        return await self.call("GET", "rooms", room, "state", kind, key)

    async def set_state(self, room: str, kind: str, content: Any, key: str = "") -> None:
        """Set a state, for example `m.room.encryption`."""
        await self.call("PUT", "rooms", room, "state", kind, key, body=content)

    async def set_power(self, room: str, **levels: Any) -> None:
        """Change power levels: `events_default=50` lets only moderators write."""
        now = await self.state(room, "m.room.power_levels")
        await self.set_state(room, "m.room.power_levels", {**now, **levels})

    async def upgrade(self, room: str, version: str = "11") -> str:
        """Replace a room, invite its members as Element does, and return the new room's id."""
        found = await self.call("GET", "rooms", room, "joined_members")
        made = await self.call("POST", "rooms", room, "upgrade", body={"new_version": version})
        for member in set(found["joined"]) - {self.id}:
            await self.invite(made["replacement_room"], member)
        return str(made["replacement_room"])

    async def send_file(
        self, room: str, name: str, content: bytes, mime_type: str = "text/plain", **more: Any
    ) -> str:
        """Send a file, and return the message's id."""
        more |= await self.attached(name, content, mime_type)
        info = {"mimetype": mime_type, "size": len(content)}
        return await self.say(room, name, **{"msgtype": "m.file", "info": info, **more})

    async def send_voice(self, room: str, content: bytes) -> str:
        """Send a voice message of Ogg, as Element does, and return its id."""
        audio = {"duration": 1000, "waveform": [0, 512, 1024]}
        voice = {"org.matrix.msc1767.audio": audio, "org.matrix.msc3245.voice": {}}
        name = "Voice message.ogg"
        return await self.send_file(room, name, content, "audio/ogg", msgtype="m.audio", **voice)

    async def ask_poll(self, room: str, question: str, *answers: str) -> str:
        """Start a poll, as Element does, and return its id."""
        text = "org.matrix.msc1767.text"
        numbered = [f"{number}. {label}" for number, label in enumerate(answers, 1)]
        poll = {
            "question": {"msgtype": "m.text", "body": question, text: question},
            "kind": "org.matrix.msc3381.poll.disclosed",
            "max_selections": 1,
            "answers": [{"id": str(number), text: label} for number, label in enumerate(answers)],
        }
        kind = "org.matrix.msc3381.poll.start"
        return await self.send(room, kind, {text: "\n".join((question, *numbered)), kind: poll})

    async def type(self, room: str) -> None:
        """Type in a room, as others see."""
        body = {"typing": True, "timeout": 30_000}
        await self.call("PUT", "rooms", room, "typing", self.id, body=body)

    async def attached(self, name: str, content: bytes, mime_type: str) -> dict[str, Any]:
        """Store a file; return what names it in a message."""
        return {"url": await self.upload(name, content, mime_type)}

    async def file(self, message: Seen) -> bytes:
        """Return the file of a message."""
        return await self._stored(message.content["url"])

    async def _stored(self, address: str) -> bytes:
        path = address.removeprefix("mxc://")
        answer = await self._http.get(f"/_matrix/client/v1/media/download/{path}")
        assert answer.status_code == 200, answer.text
        return answer.content

    # What people see

    async def messages(self, room: str, *, of: str | None = None) -> list[Seen]:
        """Return the messages of a room, or those of one sender, with their edits and reactions."""
        return [one for one in seen(await self.timeline(room)) if of in (None, one.sender)]

    async def typing(self, room: str) -> list[str]:
        """Return who is typing in a room."""
        return [user for one in await self._passing(room, "m.typing") for user in one["user_ids"]]

    async def receipts(self, room: str) -> dict[str, str]:
        """Return the event up to which each user has read a room."""
        return {
            user: event
            for one in await self._passing(room, "m.receipt")
            for event, kinds in one.items()
            for user in kinds.get("m.read", ())
        }

    async def _passing(self, room: str, kind: str) -> list[Any]:
        wanted = orjson.dumps({"room": {"rooms": [room], "timeline": {"limit": 1}}}).decode()
        found = (await self.call("GET", "sync", filter=wanted))["rooms"]["join"][room]
        events = found["ephemeral"]["events"]
        return [event["content"] for event in events if event["type"] == kind]
