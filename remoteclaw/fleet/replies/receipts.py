"""Receipts for calls: an adapter's report about a message or an operation that a call requested.

Each call has its own stream, with one entry per message or operation. Reading does not remove the
entries, so a repeated call reads the same receipts.
"""

from collections.abc import Collection
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: The maximum time that one read waits for the next receipt, in milliseconds: a command has 5 s.
BLOCK_MS = 2000
#: A read may take this much longer than `timeout_s` while Redis is unavailable, in seconds.
GRACE_S = 1.0

#: The fields of a receipt: `messageId`, `error` and `delivered`, or the result of an operation.
PlatformReceipt = dict[str, Any]


class Receipts:
    """Waits for receipts."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def wait(
        self, call: str, ids: Collection[str], *, timeout_s: float
    ) -> dict[str, PlatformReceipt]:
        """Return the receipts of a call's messages and operations that arrive within `timeout_s`.

        With 0, only existing receipts are returned. `call` is from `call_name()`; `ids` are from
        `ToolCalls.send_messages()` returns them.
        Raises `RedisUnavailable`.
        """
        until = boottime() + timeout_s
        receipts: dict[str, PlatformReceipt] = {}
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
                receipts[fields[b"id"].decode()] = orjson.loads(fields[b"answer"])
            if not left_ms or receipts.keys() >= set(ids):
                return receipts
