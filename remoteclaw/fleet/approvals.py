"""Configuration changes that wait for approval.

A change is kept exactly as it would be made, with its file's hash, for an hour or until it is
decided. `ToolCalls.change()` puts it there, fenced by the turn that asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

__all__ = ["VALID_MS", "Approval", "Approvals"]

#: How long a change waits, in milliseconds: longer than a person at a keyboard needs.
VALID_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A configuration change that waits."""

    id: str
    host: str
    """The host whose file it changes."""
    tool: str
    patch: Mapping[str, Any]
    """The change, as a JSON merge patch."""
    base: str
    after: str
    """The hashes of the file before and after it."""
    changed: Sequence[str]
    needs_restart: Sequence[str]
    session_key: str
    """The key of the session whose agent asks."""
    senders: Sequence[str]
    """The ids of the people on whose behalf."""
    asked_ms: int
    expires_ms: int

    def encode(self) -> bytes:
        """Return the JSON that is stored."""
        return orjson.dumps(asdict(self))


class Approvals:
    """The changes that wait, by id."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def list(self) -> list[Approval]:
        """Return the changes that wait, oldest first."""
        client = self._scripts.client
        found: Sequence[bytes] = await self._scripts.call(client.hvals, keys.APPROVALS)
        now = await self._scripts.now_ms()
        changes = (_decoded(data) for data in found)
        waiting = (one for one in changes if one and one.expires_ms > now)
        return sorted(waiting, key=lambda one: one.asked_ms)

    async def find(self, change_id: str) -> Approval | None:
        """Return a change that waits; None if there is none."""
        data = await self._scripts.call(self._scripts.client.hget, keys.APPROVALS, change_id)
        found = _decoded(data) if data else None
        return found if found and found.expires_ms > await self._scripts.now_ms() else None

    async def remove(self, change_id: str) -> None:
        """Remove a change that is decided. The caller holds the lock of its file."""
        await self._scripts.call(self._scripts.client.hdel, keys.APPROVALS, change_id)


def _decoded(data: bytes) -> Approval | None:
    """Return a change; None if it is damaged."""
    try:
        found = Approval(**orjson.loads(data))
        return found if isinstance(found.expires_ms, int) else None
    except (TypeError, ValueError):
        return None
