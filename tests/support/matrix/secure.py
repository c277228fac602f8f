"""A person whose client encrypts: everything that `Person` can do, by matrix-js-sdk."""

import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self

from tests.support.matrix.person import Event, Person
from tests.support.matrix.reading import Seen
from tests.support.matrix.second import Second
from tests.support.matrix.server import Homeserver, Login


class SecurePerson(Person):
    """A person with a client of `Second`.

    `timeline()`, and so `messages()`, is what the client could read since it was opened; the
    `failure` of an event says why it could not be decrypted, and `isHighlighted` whether the client
    notifies the person because it mentions them.
    """

    _second: Second

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls, second: Second, server: Homeserver, name: str, *, signed_only: bool = False
    ) -> AsyncIterator[Self]:
        """Make an account, and use it until exit."""
        async with cls.registered(server, name) as person:
            await second.open(server.url, person.login, signed_only=signed_only)
            person._second = second
            yield person

    async def send(self, room: str, kind: str, content: dict[str, Any], **_about: Any) -> str:
        """Send an event, encrypted in an encrypted room; return its id."""
        about = {"room": room, "kind": kind, "content": content}
        return str(await self._second.do("send", user=self.id, **about))

    async def timeline(self, room: str) -> list[Event]:
        """Return the events of a room, decrypted, oldest first."""
        return list(await self._second.do("timeline", user=self.id, room=room))

    async def failures(self, room: str) -> dict[str, str]:
        """Return why events could not be read, by their ids."""
        events = await self.timeline(room)
        return {event["event_id"]: event["failure"] for event in events if event["failure"]}

    async def attached(self, name: str, content: bytes, mime_type: str) -> dict[str, Any]:
        """Encrypt and store a file; return what names it in a message."""
        plain = base64.b64encode(content).decode()
        made = await self._second.do("encryptFile", content=plain)
        stored = base64.b64decode(made["content"])
        return {
            "file": {
                **made["file"],
                "url": await self.upload("", stored, "application/octet-stream"),
            }
        }

    async def file(self, message: Seen) -> bytes:
        """Return the file of a message, decrypted; its hash is checked."""
        about = message.content["file"]
        secret = base64.b64encode(await self._stored(about["url"])).decode()
        return base64.b64decode(await self._second.do("decryptFile", content=secret, file=about))

    async def trusts(self, login: Login) -> bool:
        """Whether the client knows a device that its owner has signed."""
        about = {"of": login.user, "device": login.device}
        return bool(await self._second.do("isSigned", user=self.id, **about))

    async def verify(self, login: Login, *, room: str | None = None) -> int:
        """Ask somebody to verify, in a room or else their device; return the request's number."""
        about = {"of": login.user, "device": login.device, "room": room}
        return int(await self._second.do("verify", user=self.id, **about))

    async def verification(self, number: int) -> dict[str, Any]:
        """Return what became of a request: `isCancelled`, with the `code` and `by` whom."""
        return dict(await self._second.do("verification", number=number))
