"""The turns that failed lately, of the whole fleet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.errors import OF_THE_MESSAGE
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import reference

#: A failed turn is shown for this long, in milliseconds.
LATELY_MS = 24 * 3600 * 1000
#: An agent has a problem if at least so many turns have failed since its last answer, the newest of
#: them at most this long ago, in milliseconds: after that, an operator has perhaps mended it, and
#: no message has come since.
PROBLEM_TURNS, PROBLEM_MS = 3, 3600 * 1000


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """A turn that failed."""

    at_ms: int
    """The time of its end, on Redis' clock, in milliseconds."""
    agent: str
    category: str
    """The `ErrorCategory`."""
    sid: str
    turn: str
    host_id: str
    answered: int
    """The number of turns of the agent that were answered before it."""

    @property
    def reference(self) -> str:
        """The reference of the turn."""
        return reference(self.sid, self.turn)

    @property
    def is_of_agent(self) -> bool:
        """Whether the turn failed for a reason that concerns other messages, too."""
        return self.category not in OF_THE_MESSAGE


@dataclass(frozen=True, slots=True)
class FailingAgent:
    """An agent of which turns failed lately."""

    agent: str
    failed: tuple[FailedTurn, ...]
    """The turns, newest first; at least one."""
    answered: int
    """The number of turns that were answered since the oldest of them."""
    in_a_row: int
    """The number of the turns that failed after the last answer."""

    @property
    def line(self) -> str:
        """The share of its last turns that failed, in words."""
        failed, all_turns = len(self.failed), len(self.failed) + self.answered
        if not self.answered:
            return "the last turn failed" if failed == 1 else f"the last {failed} turns failed"
        last = "one" if self.in_a_row == 1 else str(self.in_a_row)
        also = f", also the last {last}" if self.in_a_row else ""
        return f"{failed} of the last {all_turns} turns failed{also}"

    @property
    def by_category(self) -> Sequence[tuple[FailedTurn, int]]:
        """The newest failed turn of each category, newest first, with their number."""
        newest = {turn.category: turn for turn in reversed(self.failed)}
        counts = Counter(turn.category for turn in self.failed)
        return [(newest[category], count) for category, count in counts.items()]

    def problem(self, at_ms: int) -> str | None:
        """Return a sentence if the agent seems to answer no message at `at_ms`; None otherwise.

        Failures that are due to a single message or conversation don't count.
        """
        turns = [turn for turn in self.failed[: self.in_a_row] if turn.is_of_agent]
        if len(turns) < PROBLEM_TURNS or at_ms - turns[0].at_ms > PROBLEM_MS:
            return None
        counts = Counter(turn.category for turn in turns)
        why = ", ".join(f"{count} {category}" for category, count in counts.items())
        return (
            f"{len(turns)} failed, with no answer between them ({why}): "
            f"`remoteclaw sessions trace {turns[0].reference}` says why the newest one did."
        )


class FailedTurns:
    """Reads the turns that failed lately."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def by_agent(self) -> Sequence[FailingAgent]:
        """Return the agents of which turns failed lately, the one with the newest turn first."""
        client, oldest_ms = self._scripts.client, now_ms() - LATELY_MS
        rows = await self._scripts.call(client.xrevrange, keys.FAILED_TURNS, "+", oldest_ms)
        turns: dict[str, list[FailedTurn]] = {}
        for stream_id, fields in rows:
            turn = _turn(stream_id, fields)
            turns.setdefault(turn.agent, []).append(turn)
        if not turns:
            return []
        names = [f"turns/{agent}/done/" for agent in turns]
        answered = await self._scripts.call(client.hmget, keys.METRICS, names)
        return [
            _agent(agent, failed, int(count or 0))
            for (agent, failed), count in zip(turns.items(), answered, strict=True)
        ]

    async def reasons(self, turns: Sequence[FailedTurn]) -> Sequence[str]:
        """Return why each of the turns failed, as its agent's CLI has said; empty if unknown.

        A reason can contain a secret.
        """

        def commands(ask: Any) -> None:
            for turn in turns:
                ask.hget(keys.outcome(turn.sid, turn.turn), "error")

        errors = await self._scripts.run_pipeline(commands) if turns else []
        return [str(orjson.loads(error)["detail"]) if error else "" for error in errors]


def _agent(agent: str, failed: Sequence[FailedTurn], answered: int) -> FailingAgent:
    """Return an agent; `failed` are its turns, newest first, and `answered` all its answers."""
    in_a_row = sum(1 for _ in takewhile(lambda turn: turn.answered >= answered, failed))
    return FailingAgent(agent, tuple(failed), max(0, answered - failed[-1].answered), in_a_row)


def _turn(stream_id: bytes, fields: Mapping[bytes, bytes]) -> FailedTurn:
    texts = {name.decode(): value.decode() for name, value in fields.items()}
    return FailedTurn(
        at_ms=int(stream_id.partition(b"-")[0]),
        agent=texts["agent"],
        category=texts["category"],
        sid=texts["sid"],
        turn=texts["turn"],
        host_id=texts["host"],
        answered=int(texts["answered"]),
    )
