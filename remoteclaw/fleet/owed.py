"""The result that a task's session owes: what it is called by, and what was answered towards it."""

from collections.abc import Sequence
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lease import Lease


async def owed(lease: Lease) -> tuple[str | None, Sequence[Sequence[dict[str, Any]]]]:
    """Return what the result of the running turn is about besides that.

    That is the entry that its run is called by, if that is known, and the replies of the turns
    before that are a part of it, as their outcomes have them.

    What a task is told while it works may be answered in another turn than the task itself; then
    one result has all answers. An answer that Redis no longer keeps is left out.
    """
    client, deadline = lease.scripts.client, lease.stop_at
    run, unreported = await lease.scripts.call(
        client.hmget, keys.state(lease.sid), ["task_entry", "unreported"], deadline=deadline
    )
    answers = []
    for turn in (unreported or b"").decode().split(","):
        name = keys.outcome_prefix(lease.sid) + turn
        reply = turn and await lease.scripts.call(client.hget, name, "reply", deadline=deadline)
        if reply:
            answers.append(orjson.loads(reply))
    return run.decode() if run else None, answers
