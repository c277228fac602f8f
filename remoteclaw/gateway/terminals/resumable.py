"""The check whether ended terminals can be resumed with their conversations.

The CLI's own files decide that. What the record says since the terminal's end may be outdated.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.runtimes import create_cli_runtime

#: How long results are reused for lists, in seconds: a cockpit lists many terminals often.
CACHE_S = 30.0
#: The cache is cleared once it has more results than this.
MAX_CACHED = 1000
#: The entry of a terminal that was not checked yet.
_NEVER = (-math.inf, False)


class ResumableTerminals:
    """Checks whether ended terminals of this host can be resumed, and caches the results."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._results: dict[str, tuple[float, bool]] = {}
        """By entry: when its terminal was checked, and whether it could be resumed."""

    async def check(self, records: Sequence[TerminalRecord]) -> list[TerminalRecord]:
        """Return the records with `resumable` updated for ended terminals of this host.

        A single record is always checked. The results of several may be `CACHE_S` old.
        """
        now = boottime()
        max_age_s = CACHE_S if len(records) > 1 else 0.0
        if len(self._results) > MAX_CACHED:
            self._results.clear()
        checkable = [record for record in records if self._is_checkable(record)]
        # Copied, because another call may clear the cache while this one awaits.
        known = {record.entry: self._results.get(record.entry, _NEVER) for record in checkable}
        due = [record for record in checkable if now - known[record.entry][0] > max_age_s]
        if due:
            results = await asyncio.to_thread(lambda: [_can_resume(record) for record in due])
            known |= {
                record.entry: (now, result) for record, result in zip(due, results, strict=True)
            }
            self._results |= known
        return [
            replace(record, resumable=known[record.entry][1])
            if self._is_checkable(record)
            else record
            for record in records
        ]

    def _is_checkable(self, record: TerminalRecord) -> bool:
        return not record.is_open and record.host == self._host and bool(record.conversation)


def _can_resume(record: TerminalRecord) -> bool:
    """Whether the CLI still has the terminal's conversation."""
    try:
        where = orjson.loads(record.where)
        program = create_cli_runtime(where["runtime"]).terminal
        assert record.conversation is not None, "only ended conversations are checked"
        return program is not None and (
            program.transcript(
                record.conversation, workspace=where["workspace"], env=where["places"]
            ).is_resumable
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
