"""The start of a task: a session of its own, with the task as its first entry.

When the task's turn ends, its result is appended to the session that started it as an entry
(`tasks/result.py`), so it survives restarts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between, provenance_of_task
from remoteclaw.tasks.limits import check_depth, check_hops

__all__ = ["Task", "check_spawn", "spawn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a new session."""

    prompt: str
    parent: SessionView
    """The session that starts the task, and gets its result."""
    session: SessionKey
    """Agent, chat and user of the new session."""
    label: str | None
    people: Sequence[str]
    """The people whose rights the task has, as CHANNEL:ID."""


def check_spawn(config: Config, caller: Caller | None, parent: SessionView) -> None:
    """Raise `CallRefused` if a session may start no task now; called before `spawn()`."""
    check_hops(config, caller)
    check_depth(config, parent)


async def spawn(
    fleet: Fleet,
    config: Config,
    caller: Caller | None,
    call_id: str,
    task: Task,
    *,
    side_effect: Mapping[str, Any],
) -> tuple[SessionKey, str]:
    """Start a task's session; return its key and the id of its first entry.

    `caller` is None for an operator; `side_effect` is noted with the caller's turn. Idempotent by
    `call_id`; in a repeated turn, by agent, place, prompt and label. Raises `CallRefused` if the
    parent has `max_children` unfinished tasks, or another session has the label.
    """
    sender = caller.session if caller else None
    parent = task.parent
    return await fleet.calls.spawn(
        caller,
        call_id,
        task.session,
        message_between(sender, task.session, task.prompt, name=f"session-{call_id}"),
        note=side_effect,
        provenance=provenance_of_task(caller, parent.key, await fleet.sessions.above(parent)),
        people=task.people,
        parent=parent.key,
        depth=parent.depth + 1,
        label=task.label,
        max_unfinished=config.sessions.max_children,
    )
