"""A person on a homeserver, whose client doesn't encrypt."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx2

from tests.support.matrix.server import BRIDGE, Homeserver, Login
from tests.support.waiting import HANG_S

Event = dict[str, Any]


class Person:
    """A person, by the client-server API."""

    def __init__(self, url: str, login: Login) -> None:
        self.id = login.user
        self.login = login
        headers = {"Authorization": f"Bearer {login.token}"}
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=HANG_S)
        self.events: dict[str, list[Event]] = {}
        """The events of each room, in order, while `follow()` runs."""
        self._position = ""
        self._has_news = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def registered(cls, server: Homeserver, name: str) -> AsyncIterator[Self]:
        """Make an account, and use it until exit."""
        person = cls(server.url, await server.register(name))
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
