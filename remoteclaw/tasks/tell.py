"""Messages to a task, while it works or after it has ended."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.sessions.sessions import Sessions, SessionView
from remoteclaw.fleet.sessions.state import STATE_MS
from remoteclaw.fleet.sessions.task_tree import TaskTrees
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.fleet.turns.inbound import encode_entry, entry_args
from remoteclaw.fleet.turns.outcomes import Outcomes
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between, provenance_of_task

#: The time that a running turn has to take up a message, in seconds. After it, the message is
#: reported as waiting, even if the turn takes it up later.
JOIN_S = 2.0
#: The interval at which the message's outcome is checked during that time, in seconds.
POLL_S = 0.02

#: The sentences for a refused message, by the status of the script.
REFUSALS = {
    "unknown": "That session has no task.",
    "cancelled": "That task was cancelled: start another one with sessions_spawn.",
    "dead": "That task failed three times, and only an operator can retry it: start another one "
    "with sessions_spawn.",
    "full": "That task has ended and can't continue: this session's unfinished tasks are at the "
    "limit of {made} (max_children in [sessions]). Wait for their results, or cancel one with "
    "subagents.",
    "too many": "That task has ended and can't continue: this conversation's tree of unfinished "
    "tasks is at the limit of {made} (max_tree in [sessions]). Wait for their results, or cancel "
    "one with subagents.",
}


@dataclass(frozen=True, slots=True)
class TellResult:
    """The effect of a message to a task."""

    run: str
    """The id of the entry that began the run whose result will cover the message."""
    place: Literal["joined", "waiting", "continued"]
    """`joined`: the running turn took the message up. `waiting`: the next turn answers it, unless
    the running turn still takes it up. `continued`: the task had ended, and begins another run."""


async def tell(
    sessions: Sessions,
    calls: ToolCalls,
    trees: TaskTrees,
    outcomes: Outcomes,
    config: Config,
    caller: Caller | None,
    call_id: str,
    *,
    text: str,
    parent: SessionView,
    child: SessionView,
    people: Sequence[str],
    side_effect: Mapping[str, Any],
) -> TellResult:
    """Send a message to a task on behalf of its parent session, once per `call_id`.

    Exactly one result covers each message. While the task's result is pending, that result covers
    the message as well: the running turn takes it up, or the next turn answers it, and then the
    result has the replies of both turns. After the result, the message begins another run in the
    same conversation. The script that stores the entry decides between these cases. Only `joined`
    is known later, when the running turn has recorded it, so this function waits up to `JOIN_S`.

    `caller` is None for an operator. Raises `CallRefused` if the task was cancelled or is a dead
    letter, or if it has ended and there are too many unfinished tasks to continue it.
    """
    sender = caller.session if caller else None
    message = message_between(sender, child.key, text, name=f"session-{call_id}")
    above = await sessions.ancestors(parent)
    provenance = provenance_of_task(caller, parent.key, above, is_branch=child.is_branch)
    entry = encode_entry(message, "parent", "session", provenance, people)
    status, made = await calls.perform(
        caller,
        call_id,
        side_effect,
        "call_tell",
        lane="background",
        max_children=config.sessions.max_children,
        root=(above[-1] if above else parent.key).sid,
        max_below=config.sessions.max_tree,
        known_ms=STATE_MS,
        parent_sid=parent.sid,
        **entry_args(child.key, entry),
    )
    if status in REFUSALS:
        raise CallRefused(
            "UNAVAILABLE" if status in ("full", "too many") else "INVALID_REQUEST",
            REFUSALS[status].format(made=made.get("number")),
        )
    run, entry_id = made["run"], made["entry_id"]
    await calls.waker.accepted(child.key, entry_id, made.get("queue"), by="a call")
    if made["place"] == "continued":
        await trees.announce((parent.key, *above))
        return TellResult(run, "continued")
    has_joined = made["place"] == "running" and await _has_joined(outcomes, child.key, entry_id)
    return TellResult(run, "joined" if has_joined else "waiting")


async def _has_joined(outcomes: Outcomes, session: SessionKey, entry_id: str) -> bool:
    """Wait until the running turn takes up an entry, at most `JOIN_S`; return whether it did."""
    until = monotonic() + JOIN_S
    while True:
        outcome = await outcomes.read(session.sid, entry_id)
        if outcome is None or outcome.turn or outcome.is_final or monotonic() > until:
            return outcome is not None and outcome.turn not in (None, entry_id)
        await asyncio.sleep(POLL_S)
