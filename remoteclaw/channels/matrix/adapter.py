"""The Matrix adapter: receives an account's messages and sends its replies."""

from collections.abc import Mapping, Sequence
from typing import Any

from remoteclaw.channels.matrix.api import Homeserver
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.errors import PlatformRefused
from remoteclaw.protocols import AdapterState, Identity, IncomingFile, Part, PollResult, Reply, Sent


class MatrixAdapter:
    """One account on a homeserver."""

    key_window_s = 29 * 60.0  # a homeserver remembers transactions for at least 30 minutes

    def __init__(self, settings: MatrixAccount) -> None:
        self._api = Homeserver(settings.api_url, settings.read_secret("token"))
        self._me = ""

    async def use_state(self, state: AdapterState) -> None:
        """Keep keys there, so that the account's next process can read."""
        self._state = state

    async def connect(self) -> Identity:
        """Check the token."""
        who = await self._api.get("account", "whoami")
        self._me = str(who["user_id"])
        return Identity(self._me)

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for events. The only source is `sync`, and its cursor the homeserver's token."""
        params: dict[str, Any] = {"timeout": 25_000 if cursors else 0}
        if cursors:
            params["since"] = cursors["sync"]
        answer = await self._api.get("sync", wait_s=25, **params)
        return PollResult((), {"sync": answer["next_batch"]})

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""
        return await self._api.download(file.id, max_bytes=20_000_000)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing: Matrix has no menu of commands."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the text."""
        return [Part(0, reply.text)] if reply.text else []

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one part of a reply."""
        raise PlatformRefused("Nothing is sent yet.")
