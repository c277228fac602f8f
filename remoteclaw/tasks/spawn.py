"""The start of a task: a session of its own, with the task as its first entry.

When the task's turn ends, its result is appended to the session that started it as an entry
(`tasks/result.py`), so it survives restarts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between, provenance_of_task

__all__ = ["spawn"]


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
) -> tuple[SessionKey, str]:
    """Start a task's session; return its key and the id of its first entry.

    `caller` is None for an operator. `parent` gets the result; `session` has agent, chat and user
    of the new session, and `people` are those whose rights it has, each as CHANNEL:ID.
    `side_effect` is noted with the caller's turn. Idempotent by `call_id`; in a repeated turn, by
    agent, place, prompt and label. Raises `CallRefused` if the parent has `max_children`
    unfinished tasks, or another session has the label.
    """
    sender = caller.session if caller else None
    return await fleet.calls.spawn(
        caller,
        call_id,
        session,
        message_between(sender, session, prompt, name=f"session-{call_id}"),
        note=side_effect,
        provenance=provenance_of_task(caller, parent.key, await fleet.sessions.above(parent)),
        people=people,
        parent=parent.key,
        depth=parent.depth + 1,
        label=label,
        max_unfinished=config.sessions.max_children,
    )
