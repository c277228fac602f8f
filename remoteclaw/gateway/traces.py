"""Traces: every state that a message passed through, and what people were asked for meanwhile."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remoteclaw.errors import NotFound
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.outcomes import Outcome, Step
from remoteclaw.fleet.request import Request
from remoteclaw.gateway.asks import shown
from remoteclaw.host.terminal import one_line
from remoteclaw.tools.oversight import MessageTrace, TraceStep

#: How much of what was asked for is in a step, in characters.
MAX_SHOWN = 120


async def find_message(fleet: Fleet, what: str) -> tuple[str, str]:
    """Return session and entry of the message that `what` names, by a reference or as newest.

    Raises `NotFound`.
    """
    if match := re.fullmatch(r"([0-9a-f]{1,32})-(\d+-\d+)", what):
        return await fleet.sessions.find(match[1]), match[2]
    match what.split("/"):
        case [provider, account, chat, message_id]:
            said = await fleet.replies.said(provider, account, chat, message_id)
            if said is not None:
                return said.sid, [said.turn, *said.entries][-1]
    view = await fleet.sessions.named(what)
    if view.last_entry is None:
        raise NotFound(f"There is no {what!r}, or its record has expired.")
    return view.sid, view.last_entry


async def traced(fleet: Fleet, sid: str, entry_id: str, *, most: int = 1) -> Sequence[Outcome]:
    """Return a message's outcome and those of messages before it, newest first.

    Their steps have what people were asked for in their turns. Raises `NotFound` if nothing is
    known of the message any more.
    """
    found: list[Outcome] = []
    next_id: str | None = entry_id
    while next_id and len(found) < most:
        outcome = await fleet.outcomes.read(sid, next_id)
        if outcome is None:
            break
        found.append(await _with_moved(fleet, outcome))
        next_id = outcome.previous
    if not found:
        raise NotFound(f"There is no message {sid[:8]}-{entry_id}, or its record has expired.")
    asked = [one for one in await fleet.asks.all() if one.session.sid == sid]
    return [_with_asked(outcome, asked) for outcome in found]


def told(sid: str, outcome: Outcome) -> MessageTrace:
    """Return a message's trace as clients read it."""
    return MessageTrace(
        reference=f"{sid[:8]}-{outcome.entry_id}",
        status=outcome.status,
        turn=f"{sid[:8]}-{outcome.turn}" if outcome.turn else None,
        steps=tuple(TraceStep.of(step) for step in outcome.steps),
        error=outcome.error,
        usage=outcome.usage.plain() if outcome.usage else None,
    )


async def _with_moved(fleet: Fleet, outcome: Outcome) -> Outcome:
    """Return the outcome of a message with what a branch did with it, if it was moved to one."""
    moved = next((step for step in outcome.steps if step.name == "moved"), None)
    if moved is None:
        return outcome
    sid, _, entry_id = moved.detail.partition("-")
    there = await fleet.outcomes.read(sid, entry_id)
    more = (
        [step for step in there.steps if step.name not in ("accepted", "finished")] if there else []
    )
    steps = sorted((*outcome.steps, *more), key=lambda step: step.at_ms)
    return replace(outcome, steps=tuple(steps))


def _with_asked(outcome: Outcome, asked: Sequence[Request]) -> Outcome:
    more = [step for one in asked if one.turn == outcome.turn for step in _steps(one)]
    steps = sorted((*outcome.steps, *more), key=lambda step: step.at_ms)
    return replace(outcome, steps=tuple(steps))


def _steps(request: Request) -> Iterator[Step]:
    """Yield that people were asked for something, and what came of it."""
    what = f"{request.id} {request.tool}: {one_line(request.what, most=MAX_SHOWN)}"
    yield Step(request.asked_ms, "asked", None, what)
    if answer := shown(request).answer:
        words = f": {one_line(answer.words, most=MAX_SHOWN)}" if answer.words else ""
        told = f"{request.id} {answer.verdict}, by {answer.by}{words}"
        yield Step(answer.at_ms, "answered", None, told)
    if request.ended_ms and request.state not in ("answered", "given"):
        yield Step(request.ended_ms, request.state, None, request.id)
