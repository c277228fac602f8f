"""The audit: who opened, watched, took over and ended terminals, and who was refused.

It has no word of what was typed or shown.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How many are kept, about.
MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """An act of a user on a terminal, or its refusal."""

    at_ms: int
    who: str
    """The token's name."""
    did: Literal["open", "watch", "take", "park", "end", "type"]
    """`type` is only told of where it was refused."""
    session: str
    """The session's id; of what was refused, as it was named."""
    outcome: str
    """`ok`, or the code of the refusal."""
    is_forced: bool
    address: str = ""
    """From where: an IP address, or `this host` over the socket in the state directory."""


class Audit:
    """The newest deeds of the fleet."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add(self, deed: Deed) -> None:
        """Write down a deed."""
        add = self._scripts.client.xadd
        fields: Any = {"deed": orjson.dumps(asdict(deed))}
        await self._scripts.call(lambda: add(keys.AUDIT, fields, maxlen=MOST))

    async def newest(self, limit: int) -> list[Deed]:
        """Return the newest deeds, newest first; a damaged one is none."""
        found = await self._scripts.call(self._scripts.client.xrevrange, keys.AUDIT, count=limit)
        deeds, shape = [], TypeAdapter(Deed)
        for _, fields in found:
            try:
                deeds.append(shape.validate_json(fields.get(b"deed", b"")))
            except ValidationError:
                continue
        return deeds
