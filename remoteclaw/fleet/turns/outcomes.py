"""The outcomes of entries, kept for 7 days after they are final."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts, announcements
from remoteclaw.fleet.sessions.usage import Usage

#: An outcome is kept for this long after it is final, in milliseconds.
OUTCOME_MS = 7 * 24 * 3600 * 1000

#: The fields of an outcome's hash that are no steps.
_NOT_STEPS = ("status", "previous", "turn", "reply", "error", "usage", "is_edited")
#: The order of steps within the same millisecond.
_ORDER = (
    *(
        "accepted",
        "edited",
        "moved",
        "begun",
        "dropped",
        "reset",
        "fallback",
        "spawned",
        "aside",
        "verdict",
        "steered",
    ),
    *("tool", "output"),
    *("postponed", "withdrawn", "finished", "delivered", "undelivered", "retried"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an entry on the way to its outcome."""

    at_ms: int
    """The time of the step, in milliseconds since 1970 on Redis' clock."""
    name: str
    attempt: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one entry: its status, final or not, and its steps so far."""

    entry_id: str
    status: str
    """`accepted`, `running`, or a final status: `done`, `failed`, `stopped`, `interrupted` (by a
    newer message), `steered` (joined the running turn), `dropped` (too many were waiting, or its
    sender deleted it) or `dead` (a dead letter)."""
    turn: str | None
    reply: tuple[dict[str, Any], ...]
    error: dict[str, Any] | None
    """The `category` and `detail` of a failure, for operators."""
    steps: tuple[Step, ...]
    previous: str | None
    """The id of the session's previous entry."""
    usage: Usage | None
    """The usage of the turn or aside that answered the entry; None if no agent was asked."""
    aside_usage: Usage | None = None
    """The usage of the aside about the entry, whatever its verdict; None without one."""
    refusal: str | None = None
    """Why Redis refuses writes, if `follow()` found that; else None."""

    @property
    def is_final(self) -> bool:
        """Whether the status is final."""
        return self.status not in ("accepted", "running")

    @property
    def pause(self) -> str | None:
        """The reason and the end of the pause of a postponed entry; None if it isn't postponed."""
        if self.refusal:
            return f"while {self.refusal.rstrip('.')}"
        last = self.steps[-1] if self.steps else None
        is_paused = last and last.name == "postponed" and self.status == "accepted"
        return last.detail if last and is_paused else None


class Outcomes:
    """Reads outcomes and waits for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def read(self, sid: str, entry_id: str) -> Outcome | None:
        """Return an entry's outcome; None if it has expired or never existed."""
        client = self._scripts.client
        fields = await self._scripts.call(client.hgetall, keys.outcome(sid, entry_id))
        return _outcome(entry_id, fields) if fields else None

    async def follow(self, sid: str, entry_id: str) -> AsyncGenerator[Outcome, None]:
        """Yield an entry's current outcome, and again after each change, until it is final.

        While Redis refuses writes, the outcome that is not final is paused: nothing can change it.
        """
        changes = announcements(self._scripts.client, keys.outcome_channel(sid))
        async with contextlib.aclosing(changes):
            async for announced in changes:
                if announced not in (None, entry_id.encode()):
                    continue  # many calls may wait for entries of one session
                outcome = None
                with contextlib.suppress(RedisUnavailable):
                    outcome = await self.read(sid, entry_id)
                if outcome:
                    if announced is None and not outcome.is_final:
                        outcome = replace(outcome, refusal=await self._scripts.refusal())
                    yield outcome
                    if outcome.is_final:
                        return

    async def wait(self, sid: str, entry_id: str, *, timeout_s: float) -> Outcome | None:
        """Wait until an entry's outcome is final and return it; None after `timeout_s`."""
        outcomes = self.follow(sid, entry_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), contextlib.aclosing(outcomes):
                async for outcome in outcomes:
                    if outcome.is_final:
                        return outcome
        return None


def _outcome(entry_id: str, raw_fields: dict[bytes, bytes]) -> Outcome:
    fields = {name.decode(): value.decode() for name, value in raw_fields.items()}
    steps = []
    for name, value in fields.items():
        if name in _NOT_STEPS:
            continue
        at_ms, _, detail = value.partition(" ")
        step, _, attempt = name.partition(".")
        if not at_ms.isdecimal() or not (attempt or "0").isdecimal():
            continue  # a field of a newer version that is no step
        steps.append(Step(int(at_ms), step, int(attempt) if attempt else None, detail))
    return Outcome(
        entry_id=entry_id,
        status=fields["status"],
        turn=fields.get("turn"),
        reply=tuple(orjson.loads(fields["reply"])) if "reply" in fields else (),
        error=orjson.loads(fields["error"]) if "error" in fields else None,
        steps=tuple(sorted(steps, key=_sort_key)),
        previous=fields.get("previous") or None,
        usage=Usage.decode(fields["usage"]) if "usage" in fields else None,
        aside_usage=_aside_usage(fields.get("aside_usage")),
    )


def _aside_usage(field: str | None) -> Usage | None:
    """Return the usage in a field of an outcome; the word before it shows that it is no step."""
    return None if field is None else Usage.decode(field.removeprefix("used "))


def _sort_key(step: Step) -> tuple[int, int]:
    """Return a step's sort key; a step of a newer version is last in its millisecond."""
    return step.at_ms, _ORDER.index(step.name) if step.name in _ORDER else len(_ORDER)
