"""Approvals of configuration changes, and the changes that wait for them.

A change is kept exactly as it would be made, with its file's hash, for an hour; so is the decision.
`ToolCalls.change()` puts it there, fenced by the turn that asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

__all__ = ["VALID_MS", "Approval", "Approvals"]

#: How long a change waits, in milliseconds: longer than a person at a keyboard needs.
VALID_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A configuration change, and the decision about it."""

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
    session: str
    """The key of the session whose agent asks."""
    senders: Sequence[str]
    """The ids of the people on whose behalf."""
    asked_ms: int
    expires_ms: int
    status: Literal["pending", "done", "rejected"] = "pending"
    by: str | None = None
    """The person who decided."""
    stored: bytes = field(default=b"", compare=False, repr=False)
    """Its JSON as it was read, which a decision must still find."""

    def encode(self) -> bytes:
        """Return the JSON that is stored."""
        fields = asdict(self)
        del fields["stored"]
        return orjson.dumps(fields)


class Approvals:
    """Changes and their approvals, by id."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def list(self) -> list[Approval]:
        """Return the changes that wait, oldest first."""
        client = self._scripts.client
        found: Sequence[bytes] = await self._scripts.call(client.hvals, keys.APPROVALS)
        now = await self._scripts.now_ms()
        changes = (_decoded(data) for data in found)
        waiting = [
            one for one in changes if one and one.status == "pending" and one.expires_ms > now
        ]
        return sorted(waiting, key=lambda one: one.asked_ms)

    async def find(self, change_id: str) -> Approval | None:
        """Return a change that waits, or was decided within the hour; None if there is none."""
        data = await self._scripts.call(self._scripts.client.hget, keys.APPROVALS, change_id)
        found = _decoded(data) if data else None
        return found if found and found.expires_ms > await self._scripts.now_ms() else None

    async def decide(
        self, change: Approval, status: Literal["done", "rejected"], *, by: str
    ) -> bool:
        """Record a decision; False if another one came first."""
        decided = replace(change, status=status, by=by)
        told = await self._scripts.run(
            "decide",
            keys={"approvals": keys.APPROVALS},
            args={"id": change.id, "before": change.stored, "after": decided.encode()},
        )
        return bool(told == b"done")


def _decoded(data: bytes) -> Approval | None:
    """Return a change; None if it is damaged."""
    try:
        found = Approval(**orjson.loads(data), stored=data)
        return found if isinstance(found.expires_ms, int) else None
    except (TypeError, ValueError):
        return None
