"""Applies or discards a configuration change that needed approval.

Whoever can ask a person calls this: the command line, the gateway's operators.
"""

import asyncio

from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.confirmations import PendingChange

__all__ = ["confirm", "reject"]


async def confirm(fleet: Fleet, home: Home, change_id: str, *, by: str) -> PendingChange:
    """Do a change that waits; done twice, it is done once. Return it.

    Raises `CallRefused` if there is none, or the file is not any more what it was made for.
    """
    file = ConfigFile(home.config_file)
    async with file.locked():
        change = await _find(fleet, home, change_id)
        if change.status == "rejected":
            raise CallRefused("INVALID_REQUEST", f"The change {change_id} was rejected.")
        if change.status == "done":
            return change
        version = file.read()
        if version.hash != change.after:  # else it was done by somebody who then was killed
            if version.hash != change.base:
                raise _moved(change_id)
            # What agents may do is asked once more: it may be less by now.
            plan = await asyncio.to_thread(file.patched, version, change.patch, for_agent=True)
            if plan.after.hash != change.after:
                raise _moved(change_id)
            await file.write(plan)
        await fleet.confirmations.settle(change, "done", by=by)
        return change


async def reject(fleet: Fleet, home: Home, change_id: str, *, by: str) -> None:
    """Have a change never done. Raises `CallRefused` if there is none, or it is done."""
    async with ConfigFile(home.config_file).locked():
        change = await _find(fleet, home, change_id)
        if change.status == "done":
            raise CallRefused("INVALID_REQUEST", f"The change {change_id} was done already.")
        await fleet.confirmations.settle(change, "rejected", by=by)


async def _find(fleet: Fleet, home: Home, change_id: str) -> PendingChange:
    change = await fleet.confirmations.find(change_id)
    if change is None:
        raise CallRefused(
            "NOT_FOUND",
            f"No change {change_id!r} waits to be confirmed: `remoteclaw config pending` shows "
            "those that do, each for an hour.",
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
        "have it asked for anew.",
    )
