"""Approvals of configuration changes: asking a person, and what they decide.

The command line and the gateway's operators approve and reject; nothing is done before that.
"""

import asyncio
import secrets

from remoteclaw.config.edit import ConfigFile, PlannedChange
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.approvals import VALID_MS, Approval
from remoteclaw.gateway.call import Call

__all__ = ["approval_of", "approve", "reject"]


async def approval_of(call: Call, plan: PlannedChange) -> Approval:
    """Return a change that an agent asks for as it waits for approval."""
    assert call.caller is not None, "operators' changes don't wait"
    now = await call.fleet.scripts.now_ms()
    people = {entry.message.from_ for entry in call.turn.entries if entry.origin == "chat"}
    return Approval(
        id=secrets.token_hex(6),  # random, so that no agent can have another one's
        host=call.home.host_id,
        tool=call.tool.tool,
        patch=plan.patch,
        base=plan.before.hash,
        after=plan.after.hash,
        changed=plan.paths,
        needs_restart=plan.needs_restart,
        session_key=str(call.caller.session),
        senders=sorted(people),
        asked_ms=now,
        expires_ms=now + VALID_MS,
    )


async def approve(fleet: Fleet, home: Home, change_id: str) -> Approval:
    """Apply a change that waits; return it.

    Raises `CallRefused` if there is none, or the file has changed since it was asked for.
    """
    file = ConfigFile(home.config_file)
    async with file.locked():
        change = await _find(fleet, home, change_id)
        content = file.read()
        # With that hash, a process that was killed since has written it.
        if content.hash != change.after:
            if content.hash != change.base:
                raise _moved(change_id)
            # What agents may change is checked again: it may be less by now.
            plan = await asyncio.to_thread(file.patched, content, change.patch, for_agent=True)
            if plan.after.hash != change.after:
                raise _moved(change_id)
            await file.write(plan)
        await fleet.approvals.remove(change_id)
        return change


async def reject(fleet: Fleet, home: Home, change_id: str) -> None:
    """Discard a change that waits. Raises `CallRefused` if there is none."""
    async with ConfigFile(home.config_file).locked():
        await _find(fleet, home, change_id)
        await fleet.approvals.remove(change_id)


async def _find(fleet: Fleet, home: Home, change_id: str) -> Approval:
    change = await fleet.approvals.find(change_id)
    if change is None:
        raise CallRefused(
            "NOT_FOUND",
            f"No change {change_id!r} waits for approval: `remoteclaw config approvals` shows "
            "those that do, each for an hour or until it is decided.",
        )
    if change.host != home.host_id:
        raise CallRefused(
            "INVALID_REQUEST",
            f"The change {change_id} is one of the file of {change.host}: decide it there.",
        )
    return change


def _moved(change_id: str) -> CallRefused:
    return CallRefused(
        "INVALID_REQUEST",
        f"The configuration file has changed since {change_id} was asked for, so it is not done: "
        "have it asked for again.",
    )
