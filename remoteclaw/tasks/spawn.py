"""The start of a task, a session with the task as its first entry; and the limits on that.

When the task's turn ends, its result is appended to the session that started it as an entry
(`tasks/entries.py`), so it survives restarts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.calls import Copied
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.branches import copyable
from remoteclaw.tasks.entries import message_between, provenance_of_task


async def spawn(
    fleet: Fleet,
    config: Config,
    caller: Caller | None,
    call_id: str,
    *,
    prompt: str,
    parent: SessionView,
    session: SessionKey,
    label: str | None,
    people: Sequence[str],
    side_effect: Mapping[str, Any],
    knows_conversation: bool = False,
) -> tuple[SessionKey, str, str]:
    """Start a task's session; return its key and the id of its first entry.

    `caller` is None for an operator. `parent` gets the result; `session` has agent, chat and user
    of the new session, and `people` are those whose rights it has, each as CHANNEL:ID.
    `side_effect` is noted with the caller's turn. Idempotent by `call_id`; in a repeated turn, by
    agent, place, prompt and label. A task that `knows_conversation` begins with a copy of its
    parent's, and is a branch of it if agent and place are the same; the last string is what it
    begins with: `conversation`, `notes` or `nothing`. Raises `CallRefused` if the parent has
    `max_children` unfinished tasks, or the tree `max_tree`, or another session has the label.
    """
    sender = caller.session if caller else None
    above = await fleet.sessions.above(parent)
    is_own = replace(parent.key, task=None) == session
    is_branch = knows_conversation and is_own
    copied = None
    if knows_conversation:
        is_busy = parent.status != "idle"
        names = copyable(parent.session_ids, is_busy=is_busy) if is_own else []
        copied = Copied(names, parent.launch_of if is_branch else None)
    started = await fleet.calls.spawn(
        caller,
        call_id,
        session,
        message_between(sender, session, prompt, name=f"session-{call_id}"),
        note=side_effect,
        provenance=provenance_of_task(
            caller, parent.key, above, is_branch=is_branch, knows_conversation=knows_conversation
        ),
        people=people,
        parent=parent.key,
        depth=parent.depth + 1,
        label=label,
        max_unfinished=config.sessions.max_children,
        root=above[-1] if above else parent.key,
        max_below=config.sessions.max_tree,
        copied=copied,
    )
    await fleet.work.announce((parent.key, *above))
    return started


def check_depth(config: Config, parent: SessionView) -> None:
    """Refuse a task to a session that is too far down."""
    if parent.depth >= config.sessions.max_depth:
        raise CallRefused(
            "FORBIDDEN",
            "A session this far down can't start another one (max_depth in [sessions]).",
        )


def check_hops(config: Config, caller: Caller | None) -> None:
    """Refuse to set another turn going after too many in a row without a person.

    Of turns about results there may be fewer: agents that start tasks about what tasks have found
    don't end by themselves.
    """
    if caller and caller.turn and caller.turn.hops >= config.sessions.max_hops:
        raise CallRefused(
            "FORBIDDEN",
            f"Sessions have set each other going {caller.turn.hops} times in a row: a person has "
            "to write something first (max_hops in [sessions]).",
        )
    if caller and caller.turn and caller.turn.relays >= config.sessions.max_relays:
        raise CallRefused(
            "FORBIDDEN",
            f"This is turn {caller.turn.relays} in a row about results: nothing new is started "
            "until a person writes. Say what was found, and that they have to write for more "
            "(max_relays in [sessions]).",
        )


def check_direction(caller: Caller, target: SessionKey) -> None:
    """Refuse a message to oneself, and to a session that waits for this one, even indirectly."""
    assert caller.turn is not None, "it was checked"
    if target == caller.session:
        raise CallRefused(
            "INVALID_REQUEST", "That is this session itself: it would wait for its own turn."
        )
    if target == caller.parent or target.sid in caller.turn.via:
        raise CallRefused(
            "INVALID_REQUEST",
            f"The session {target} waits for what comes of this turn, or gets it: what you answer "
            "goes there by itself.",
        )
