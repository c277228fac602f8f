"""The start of a task: a new session with the task as its first entry; and the limits on tasks.

When the task's turn ends, its result is appended to the parent session as an entry
(`tasks/entries.py`), so it survives restarts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.budgets.budgets import Budgets
from remoteclaw.fleet.sessions.sessions import Sessions, SessionView
from remoteclaw.fleet.sessions.task_tree import TaskTrees
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.fleet.turns.calls import ConversationCopy, ToolCalls
from remoteclaw.messages import SessionKey, payers_of
from remoteclaw.tasks.branches import copyable
from remoteclaw.tasks.entries import message_between, provenance_of_task


async def spawn(
    sessions: Sessions,
    calls: ToolCalls,
    trees: TaskTrees,
    budgets: Budgets,
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
    """Start a task's session. Return its key, the id of its first entry, and what it begins with.

    `caller` is None for an operator. `parent` gets the result. `session` names the agent, chat and
    user of the new session, and `people` the persons whose rights it has, each as CHANNEL:ID.
    `side_effect` is noted with the caller's turn. The call is idempotent by `call_id`, and in a
    retried turn by agent, place, prompt and label. A task that `knows_conversation` begins with a
    copy of its parent's conversation, and is a branch of it if agent and place are the same. The
    third value says whether it begins with the `conversation`, with `notes` about it or with
    `nothing`. Raises `CallRefused` if the parent has `max_children` unfinished tasks, if its tree
    has `max_tree`, if another session has the label, or if a budget is used up.
    """
    sender = caller.session if caller else None
    above = await sessions.ancestors(parent)
    root = above[-1] if above else parent.key
    payers = payers_of(caller.turn.entries) if caller and caller.turn else people
    why = await budgets.refusal(config, session, root, payers)
    if why and await calls.result_of(caller, call_id) is None:  # else a repeated call
        raise CallRefused("FORBIDDEN", why)
    is_own = replace(parent.key, task=None) == session
    is_branch = knows_conversation and is_own
    copied = None
    if knows_conversation:
        is_busy = parent.status != "idle"
        names = copyable(parent.session_ids, is_busy=is_busy) if is_own else []
        copied = ConversationCopy(names, parent.launch_of if is_branch else None)
    started = await calls.spawn(
        caller,
        call_id,
        session,
        message_between(sender, session, prompt, name=f"session-{call_id}"),
        effect=side_effect,
        provenance=provenance_of_task(
            caller, parent.key, above, is_branch=is_branch, knows_conversation=knows_conversation
        ),
        people=people,
        parent=parent.key,
        limits=parent.limits.of_task,
        label=label,
        max_unfinished=config.sessions.max_children,
        root=root,
        max_below=config.sessions.max_tree,
        copied=copied,
    )
    await trees.announce((parent.key, *above))
    return started


def check_depth(config: Config, parent: SessionView) -> None:
    """Raise `CallRefused` if `parent` is too deep in its tree to start a task."""
    if parent.limits.depth >= config.sessions.max_depth:
        raise CallRefused(
            "FORBIDDEN",
            "A session this far down can't start another one (max_depth in [sessions]).",
        )


def check_hops(config: Config, caller: Caller | None) -> None:
    """Raise `CallRefused` after too many turns in a row without a message from a person.

    The limit on turns about results is lower: agents that start tasks about the results of tasks
    would go on forever.
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
    """Raise `CallRefused` if `target` is the caller, or waits for its turn, even indirectly."""
    assert caller.turn is not None, "the caller was checked"
    if target == caller.session:
        raise CallRefused(
            "INVALID_REQUEST", "That is this session itself: it would wait for its own turn."
        )
    if target == caller.state.parent or target.sid in caller.turn.via:
        raise CallRefused(
            "INVALID_REQUEST",
            f"The session {target} waits for the result of this turn: your answer is sent there "
            "automatically.",
        )
