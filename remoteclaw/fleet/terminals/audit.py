"""The audit log of terminals: who opened, watched, took over or ended one, and who was refused.

It never contains what was typed or shown.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: The log keeps about this many entries, the newest ones.
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One action of a user or an agent on a terminal, or its refusal."""

    at_ms: int
    """The time of the action, in milliseconds since 1970."""
    who: str
    """The name of the user's token, or the agent."""
    did: Literal["open", "watch", "take", "share", "unshare", "park", "end", "type"]
    """The action. `type` is recorded only when it is refused."""
    session: str
    """The session's id; in a refusal, the name that the caller gave."""
    outcome: str
    """`ok`, or the error code of the refusal."""
    is_forced: bool
    """Whether the caller asked to override another user."""
    address: str = ""
    """The caller's IP address, or `this host` for the socket in the state directory."""


class Audit:
    """Adds to and reads the audit log."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add(self, entry: AuditEntry) -> None:
        """Add an entry."""
        add = self._scripts.client.xadd
        fields: Any = {"deed": orjson.dumps(asdict(entry))}
        await self._scripts.call(lambda: add(keys.AUDIT, fields, maxlen=MAX_ENTRIES))

    async def newest(self, limit: int) -> list[AuditEntry]:
        """Return up to `limit` entries, newest first. Entries that can't be read are left out."""
        rows = await self._scripts.call(self._scripts.client.xrevrange, keys.AUDIT, count=limit)
        entries, adapter = [], TypeAdapter(AuditEntry)
        for _, fields in rows:
            try:
                entries.append(adapter.validate_json(fields.get(b"deed", b"")))
            except ValidationError:
                continue
        return entries
