"""Outcomes of messages, readable for 7 days after they are final."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.fleet.usage import Usage

#: How long outcomes can be read, in milliseconds.
OUTCOME_MS = 7 * 24 * 3600 * 1000

_NOT_STEPS = ("status", "previous", "turn", "reply", "error", "usage")
#: The order of steps that fall into the same millisecond.
_ORDER = (
    *("accepted", "moved", "begun", "dropped", "reset", "spawned", "aside", "verdict", "steered"),
    *("tool", "output"),
    *("postponed", "finished", "delivered", "undelivered", "retried"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A state that a message passed through."""

    at_ms: int
    """Milliseconds since 1970 on Redis' clock."""
    name: str
    attempt: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One message's story so far."""

    entry_id: str
    status: str
    """accepted, running, or how it ended: done, failed, stopped, interrupted (by a newer message),
    steered (into the turn before), dropped (too many waited), dead (given up)."""
    turn: str | None
    reply: tuple[dict[str, Any], ...]
    error: dict[str, Any] | None
    """`category` and `detail` of a failure, for operators."""
    steps: tuple[Step, ...]
    previous: str | None
    """The session's entry before this one."""
    usage: Usage | None
    """The usage of the turn that answered it; None if no agent was asked."""

    @property
    def is_final(self) -> bool:
        """Whether the message has had its one outcome."""
        return self.status not in ("accepted", "running")

    @property
    def pause(self) -> str | None:
        """Why and until when it is put off; None if it isn't."""
        last = self.steps[-1] if self.steps else None
        is_paused = last and last.name == "postponed" and self.status == "accepted"
        return last.detail if last and is_paused else None


class Outcomes:
    """Reads outcomes and waits for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def read(self, sid: str, entry_id: str) -> Outcome | None:
        """Return an entry's outcome; None once it is forgotten, or if there never was one."""
        client = self._scripts.client
        found = await self._scripts.call(client.hgetall, keys.outcome_prefix(sid) + entry_id)
        return _outcome(entry_id, found) if found else None

    async def follow(self, sid: str, entry_id: str) -> AsyncGenerator[Outcome, None]:
        """Yield an entry's outcome as it is, whenever there is news, until it is final."""
        news = announcements(self._scripts.client, keys.outcome_channel(sid))
        async with contextlib.aclosing(news):
            async for _ in news:
                outcome = None
                with contextlib.suppress(RedisUnavailable):
                    outcome = await self.read(sid, entry_id)
                if outcome:
                    yield outcome
                    if outcome.is_final:
                        return

    async def wait(self, sid: str, entry_id: str, *, timeout_s: float) -> Outcome | None:
        """Wait until an entry's outcome is final and return it; None if that takes too long."""
        following = self.follow(sid, entry_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), contextlib.aclosing(following):
                async for outcome in following:
                    if outcome.is_final:
                        return outcome
        return None


def _outcome(entry_id: str, found: dict[bytes, bytes]) -> Outcome:
    fields = {name.decode(): value.decode() for name, value in found.items()}
    steps = []
    for name, value in fields.items():
        if name in _NOT_STEPS:
            continue
        at_ms, _, detail = value.partition(" ")
        step, _, attempt = name.partition(".")
        if not at_ms.isdecimal() or not (attempt or "0").isdecimal():
            continue  # of a newer version, and no step
        steps.append(Step(int(at_ms), step, int(attempt) if attempt else None, detail))
    return Outcome(
        entry_id=entry_id,
        status=fields["status"],
        turn=fields.get("turn"),
        reply=tuple(orjson.loads(fields["reply"])) if "reply" in fields else (),
        error=orjson.loads(fields["error"]) if "error" in fields else None,
        steps=tuple(sorted(steps, key=_position)),
        previous=fields.get("previous") or None,
        usage=Usage.decode(fields["usage"]) if "usage" in fields else None,
    )


def _position(step: Step) -> tuple[int, int]:
    """Return where a step belongs; one that only a newer version knows comes last."""
    return step.at_ms, _ORDER.index(step.name) if step.name in _ORDER else len(_ORDER)
