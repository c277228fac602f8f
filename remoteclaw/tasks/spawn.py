"""The start of a task: a session of its own, with the task as its first entry.

The result comes to the session that started it with the end of its turn (`tasks/result.py`), as an
entry of its own: no process waits for it, and no restart loses it.
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
    """The session that starts it, and gets its result."""
    place: SessionKey
    """Agent, chat and user of the new session."""
    label: str | None
    people: Sequence[str]
    """On whose behalf it is done."""


def check_spawn(config: Config, caller: Caller | None, parent: SessionView) -> None:
    """Raise `CallRefused` if a session may start no task now."""
    check_hops(config, caller)
    check_depth(config, parent)


async def spawn(
    fleet: Fleet,
    config: Config,
    caller: Caller | None,
    call_id: str,
    task: Task,
    *,
    note: Mapping[str, Any],
) -> tuple[SessionKey, str]:
    """Start a task's session; return its key and the id of its first entry.

    The same call again returns what the first one started, and so does a turn that is begun again
    and asks for the same. Raises `CallRefused` if the parent has `max_children` unfinished ones, or
    another session has the label.
    """
    sender = caller.session if caller else None
    parent = task.parent
    return await fleet.calls.spawn(
        caller,
        call_id,
        task.place,
        message_between(sender, task.place, task.prompt, name=f"session-{call_id}"),
        note=note,
        provenance=provenance_of_task(caller, parent.key, await fleet.sessions.above(parent)),
        people=task.people,
        parent=parent.key,
        depth=parent.depth + 1,
        label=task.label,
        most=config.sessions.max_children,
    )
