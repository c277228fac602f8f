"""Messages to a task, while it works or after it has ended."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.inbound import encode_entry, entry_args, entry_keys
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.fleet.state import STATE_MS
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between, provenance_of_task

#: How long a running turn may take to take an entry in, in seconds: it hears of it at once, and
#: what it takes in later is said to wait, which is no less true.
JOIN_S = 2.0
LOOK_EVERY_S = 0.02

REFUSALS = {
    "unknown": "That session has no task.",
    "cancelled": "That task was cancelled: start another one with sessions_spawn.",
    "dead": "That task was given up after three tries, and only an operator can have it tried "
    "again: start another one with sessions_spawn.",
    "full": "It has ended, and {made} of the sessions that this one has started have not, which is "
    "the most: wait for their results, or cancel one with subagents.",
    "too many": "It has ended, and {made} sessions below this conversation have not, which is the "
    "most (max_tree in [sessions]): wait for their results, or cancel one with subagents.",
}


@dataclass(frozen=True, slots=True)
class TellResult:
    """The place of what a task was told."""

    run: str
    """The entry that names the run whose result is about it."""
    place: Literal["joined", "waiting", "continued"]
    """`joined`: the running turn has taken it in. `waiting`: it has a turn behind that, if the
    running one doesn't take it in yet. `continued`: the task had ended, and goes on."""


async def tell(
    fleet: Fleet,
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
    """Tell a task something on behalf of the session that has started it, once per call.

    Each thing that is told is covered by exactly one result. While one is awaited, that is about
    this as well: of the turn that takes it in, or of the one behind; and then it has the answers of
    both, since the first one would be lost. After the result, it is a run of its own, in the same
    conversation. Which of these it is, is decided in the step that stores the entry; `joined` alone
    is waited for, until the running turn has recorded that.
    `caller` is None for an operator. Raises `CallRefused` for a task that was cancelled or given
    up, and where an ended one would be one too many.
    """
    sender = caller.session if caller else None
    message = message_between(sender, child.key, text, name=f"session-{call_id}")
    above = await fleet.sessions.above(parent)
    provenance = provenance_of_task(caller, parent.key, above, is_branch=child.is_branch)
    entry = encode_entry(message, "parent", "session", provenance, people)
    status, made = await fleet.calls.perform(
        caller,
        call_id,
        side_effect,
        "call_tell",
        {**entry_keys(child.key), "children": keys.children(parent.sid)},
        {
            **entry_args(child.key, entry),
            "lane": "background",
            "bell": keys.bell(child.sid),
            "most": config.sessions.max_children,
            "root": (above[-1] if above else parent.key).sid,
            "most_below": config.sessions.max_tree,
            "known_ms": STATE_MS,
        },
    )
    if status in REFUSALS:
        raise CallRefused(
            "UNAVAILABLE" if status in ("full", "too many") else "INVALID_REQUEST",
            REFUSALS[status].format(made=made[0]),
        )
    when, run, entry_id, queue = made
    await fleet.calls.waker.try_hint(child.key, queue)
    if when == "continued":
        await fleet.work.announce((parent.key, *above))
        return TellResult(run, "continued")
    is_in = when == "running" and await _has_joined(fleet, child.key, entry_id)
    return TellResult(run, "joined" if is_in else "waiting")


async def _has_joined(fleet: Fleet, session: SessionKey, entry_id: str) -> bool:
    """Wait a moment until the turn that runs has taken an entry in; return whether it has."""
    until = monotonic() + JOIN_S
    while True:
        outcome = await fleet.outcomes.read(session.sid, entry_id)
        if outcome is None or outcome.turn or outcome.is_final or monotonic() > until:
            return outcome is not None and outcome.turn not in (None, entry_id)
        await asyncio.sleep(LOOK_EVERY_S)
