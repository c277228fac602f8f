"""A program that uses the webhook channel, with people on it."""

import base64
import io
import time
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from remoteclaw.channels.webhook.signing import signed_headers
from tests.support.doors import Door
from tests.support.receiver import Receiver
from tests.support.stack import Stack
from tests.support.worlds.world import (
    FIRST,
    FLOOD,
    MEGABYTE,
    NO_FILES,
    OPENED,
    OUTAGE,
    OWNER,
    UNSTORED,
    World,
)


class WebhookWorld(World):
    """A webhook program between RemoteClaw and people."""

    provider = "webhook"
    most = 100_000
    large = 3 * MEGABYTE
    lacks = MappingProxyType(
        {
            "test_an_agent_mentions_nobody": "The program knows its platform's mentions.",
            FLOOD: "It has no groups here.",
            OPENED: "The program opens threads.",
            UNSTORED: "The program gets an error, and posts again.",
            OUTAGE: "The gateway takes what the program posts.",
            FIRST: "The program posts no messages of bots, and no old ones.",
        }
    )

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self.door: Door
        self._receiver: Receiver = request.getfixturevalue("receiver")
        self.settings: dict[str, Any] = {"token": self._receiver.token, "url": self._receiver.url}
        self._last = b""

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
        **more: Any,
    ) -> str:
        body: dict[str, Any] = {"id": uuid.uuid4().hex, "chat": str(by), "from": str(by)}
        body |= {"text": text, "name": name, "files": [*map(_posted, files, files.values())]}
        body |= {"replaces": edits} if edits else more
        self._last = orjson.dumps(body)
        await self.repeat()
        return str(body["id"])

    async def delete(self, message: str) -> None:
        await self.say("", deletes=message)

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        body = {"id": uuid.uuid4().hex, "chat": str(OWNER), "from": str(by)}
        answer = {"request": request, "verdict": "once"}
        self._last = orjson.dumps({**body, "answer": answer})
        await self.repeat()

    async def repeat(self) -> None:
        headers = signed_headers(self._receiver.token, self._last, at_s=int(time.time()))
        url = f"{self.door.url}/webhook"
        body = io.BytesIO(self._last)
        async with self.door.http.post(url, data=body, headers=headers) as answer:
            self.refused = "" if answer.ok else str((await answer.json())["error"]["message"])

    def _posts(self, chat: int) -> list[dict[str, Any]]:
        """Return the received messages without repetitions, which have the same key."""
        posts = {each["key"]: each for each in self._receiver.messages}
        return [each for each in posts.values() if each["chat"] == str(chat)]

    def texts(self, chat: int = OWNER) -> list[str]:
        return [each["text"] for each in self._posts(chat) if each["text"]]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        sent = [each["file"] for each in self._posts(chat) if "file" in each]
        return {each["name"]: base64.b64decode(each["content"]) for each in sent}

    def is_busy(self, after_s: int) -> None:
        self._receiver.answers.append((429, {"Retry-After": str(after_s)}, b""))

    def forgets(self) -> None:
        self._receiver.forgets = True

    def is_away(self) -> None:
        self._receiver.is_away = True

    def is_back(self) -> None:
        self._receiver.is_away = self._receiver.forgets = False


def _posted(name: str, content: bytes) -> dict[str, str]:
    return {"name": name, "mimeType": "text/plain", "content": base64.b64encode(content).decode()}
