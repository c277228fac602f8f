"""The check whether ended terminals can be resumed, with all that was said.

Their CLIs' own files decide that now; what they said when the terminal ended may be outdated.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import orjson

from remoteclaw.clock import boottime
from remoteclaw.fleet.terminal_state import TerminalRecord
from remoteclaw.runtimes import create_cli_runtime

#: For how long what was found holds for lists, in seconds: a cockpit asks often, of many.
HOLDS_S = 30.0
#: How many are remembered.
MOST = 1000


class Resumable:
    """The conversations that this host's files still have."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._found: dict[str, tuple[float, bool]] = {}
        """By entry, when it was looked, and whether it was there."""

    async def look(self, records: Sequence[TerminalRecord]) -> list[TerminalRecord]:
        """Return terminals as they are now, those of a list as they were a while ago."""
        now = boottime()
        holds_s = HOLDS_S if len(records) > 1 else 0.0
        due = [
            one
            for one in records
            if self._can_look(one) and now - self._found.get(one.entry, (0.0, True))[0] > holds_s
        ]
        if due:
            there = await asyncio.to_thread(lambda: [_is_there(one) for one in due])
            if len(self._found) > MOST:
                self._found.clear()
            self._found |= {one.entry: (now, it) for one, it in zip(due, there, strict=True)}
        return [
            replace(one, resumable=self._found[one.entry][1]) if self._can_look(one) else one
            for one in records
        ]

    def _can_look(self, record: TerminalRecord) -> bool:
        return not record.is_open and record.host == self._host and bool(record.conversation)


def _is_there(record: TerminalRecord) -> bool:
    """Whether the CLI has a conversation that it can go on with."""
    try:
        where = orjson.loads(record.where)
        program = create_cli_runtime(where["runtime"]).terminal
        assert record.conversation is not None, "it was looked"
        return program is not None and (
            program.transcript(
                record.conversation, workspace=where["workspace"], env=where["places"]
            ).is_there
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
