"""Traces: every state that a message passed through, and the requests to people of its turn."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remoteclaw.errors import NotFound
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.requests.request import Request
from remoteclaw.fleet.turns.outcomes import Outcome, Step
from remoteclaw.gateway.request_view import request_view
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import reference
from remoteclaw.tools.sessions import MessageTrace, TraceStep

#: A step shows at most this many characters of a request or of its answer.
MAX_DETAIL_CHARS = 120


async def find_message(fleet: Fleet, what: str) -> tuple[str, str]:
    """Return the session and entry of a message.

    `what` is a message's reference, a reply's PROVIDER/ACCOUNT/CHAT/MESSAGE_ID, or a session, which
    stands for its newest message. Raises `NotFound`.
    """
    if match := re.fullmatch(r"([0-9a-f]{1,32})-(\d+-\d+)", what):
        return await fleet.sessions.find(match[1]), match[2]
    match what.split("/"):
        case [provider, account, chat, message_id]:
            reply = await fleet.replies.message_origin(provider, account, chat, message_id)
            if reply is not None:
                return reply.sid, [reply.turn, *reply.entries][-1]
    view = await fleet.sessions.named(what)
    if view.last_entry is None:
        raise NotFound(f"There is no {what!r}, or its record has expired.")
    return view.sid, view.last_entry


async def read_trace(fleet: Fleet, sid: str, entry_id: str, *, limit: int = 1) -> Sequence[Outcome]:
    """Return the outcomes of a message and of the messages before it, newest first.

    Their steps include the requests to people of their turns. Raises `NotFound` if the message's
    record has expired.
    """
    outcomes: list[Outcome] = []
    next_id: str | None = entry_id
    while next_id and len(outcomes) < limit:
        outcome = await fleet.outcomes.read(sid, next_id)
        if outcome is None:
            break
        outcomes.append(await _with_branch_steps(fleet, outcome))
        next_id = outcome.previous
    if not outcomes:
        raise NotFound(
            f"There is no message {reference(sid, entry_id)}, or its record has expired."
        )
    requests = [request for request in await fleet.requests.all() if request.session.sid == sid]
    return [_with_request_steps(outcome, requests) for outcome in outcomes]


def message_trace(sid: str, outcome: Outcome) -> MessageTrace:
    """Return a message's trace in the form that clients receive."""
    return MessageTrace(
        reference=reference(sid, outcome.entry_id),
        status=outcome.status,
        turn=reference(sid, outcome.turn) if outcome.turn else None,
        steps=tuple(TraceStep.of(step) for step in outcome.steps),
        error=outcome.error,
        usage=outcome.usage.plain() if outcome.usage else None,
        aside_usage=outcome.aside_usage.plain() if outcome.aside_usage else None,
    )


async def _with_branch_steps(fleet: Fleet, outcome: Outcome) -> Outcome:
    """Return an outcome; if its message was moved to a branch, with the steps there."""
    moved = next((step for step in outcome.steps if step.name == "moved"), None)
    if moved is None:
        return outcome
    sid, _, entry_id = moved.detail.partition("-")
    branch_outcome = await fleet.outcomes.read(sid, entry_id)
    branch_steps = branch_outcome.steps if branch_outcome else ()
    more = [step for step in branch_steps if step.name not in ("accepted", "finished")]
    steps = sorted((*outcome.steps, *more), key=lambda step: step.at_ms)
    return replace(outcome, steps=tuple(steps))


def _with_request_steps(outcome: Outcome, requests: Sequence[Request]) -> Outcome:
    own = [request for request in requests if request.turn == outcome.turn]
    more = [step for request in own for step in _request_steps(request)]
    steps = sorted((*outcome.steps, *more), key=lambda step: step.at_ms)
    return replace(outcome, steps=tuple(steps))


def _request_steps(request: Request) -> Iterator[Step]:
    """Yield the steps of a request: that people were asked, and the answer or the end."""
    detail = f"{request.id} {request.tool}: {one_line(request.what, max_chars=MAX_DETAIL_CHARS)}"
    yield Step(request.asked_ms, "asked", None, detail)
    if answer := request_view(request).answer:
        words = f": {one_line(answer.words, max_chars=MAX_DETAIL_CHARS)}" if answer.words else ""
        detail = f"{request.id} {answer.verdict}, by {answer.by}{words}"
        yield Step(answer.at_ms, "answered", None, detail)
    if request.ended_ms and request.state not in ("answered", "given"):
        yield Step(request.ended_ms, request.state, None, request.id)
