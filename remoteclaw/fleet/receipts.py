"""Receipts of adapters to calls: how a message was delivered, the result of an operation.

Each call has a stream of its own, to which a receipt adds one entry for a message or an operation,
under the name of its reply stream and its id there.
Reading it takes nothing away, so a call that is repeated finds the same.
"""

from collections.abc import Collection
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How long one read waits for the next receipt, in milliseconds: each command has 5 s.
BLOCK_MS = 2000
#: How long after its time a read may take while Redis is away, in seconds.
GRACE_S = 1.0

#: What an adapter told, by names: `messageId`, `error`, `delivered`; or what an operation returned.
PlatformReceipt = dict[str, Any]


class Receipts:
    """Waits for what adapters tell."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def wait(
        self, call: str, ids: Collection[str], *, timeout_s: float
    ) -> dict[str, PlatformReceipt]:
        """Return the receipts of a call's entries on reply streams, as many as come in time.

        Without time, those that are there. `call` is from `call_name()`; `ids` are as
        `ToolCalls.messages()` returns them.
        Raises `RedisUnavailable`.
        """
        until = boottime() + timeout_s
        found: dict[str, PlatformReceipt] = {}
        last = b"0"
        while True:
            left_ms = max(0, int((until - boottime()) * 1000))
            after: dict[Any, Any] = {keys.receipts(call): last}
            block = min(left_ms, BLOCK_MS) or None
            streams = await self._scripts.call(
                self._scripts.client.xread, after, block=block, deadline=until + GRACE_S
            )
            for entry_id, fields in streams[0][1] if streams else ():
                last = entry_id
                found[fields[b"id"].decode()] = orjson.loads(fields[b"answer"])
            if not left_ms or found.keys() >= set(ids):
                return found
