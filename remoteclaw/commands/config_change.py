"""Applies or discards a change of the configuration that a person has decided, and says so once.

The process that takes the answer does this next, under the lock of the file. If it is killed before
it has said so, or is on another host, the gateway of the file's host does it.
"""

import asyncio
import contextlib
from typing import Literal

from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.request import Change, Request

IS_DONE = "{decided} {changed} changed.{restart}"
RESTART = " It holds after a restart: {needs}."
NOT_DONE = "{decided} It is not done: {problem}"
MOVED = (
    "the configuration file has changed since it was asked for. Have it asked for again, if you "
    "still want it."
)
#: What the agent is told that has asked for it.
TOLD = "Your request {id} to change the configuration is decided. {became}\n\n{what}"


async def carry_out(fleet: Fleet, home: Home, request: Request, decided: str) -> None:
    """Do what a person has decided about a change, if that can be done here, and wasn't yet.

    `decided` says what it was, who has done it, and when.
    """
    change, answer = request.change, request.answer
    assert change, "it is for one"
    assert answer, "it is answered"
    if answer.verdict == "deny":
        await _say(fleet, request, "denied", decided)
    elif change.host == home.host_id:
        # Another process may have the lock: it says what became, or the next look does.
        with contextlib.suppress(ConfigError):
            async with (file := ConfigFile(home.config_file)).locked():
                await _carry_out(fleet, file, request, decided)


async def _carry_out(fleet: Fleet, file: ConfigFile, request: Request, decided: str) -> None:
    """Make a change; the caller holds the file's lock."""
    found = await fleet.asks.find(request.id)
    if found is None or found.state != "answered" or found.change is None:
        return
    try:
        await _make(file, found.change)
    except (CallRefused, ConfigError) as error:
        await _say(fleet, found, "void", NOT_DONE.format(decided=decided, problem=error))
    else:
        await _say(fleet, found, "used", _done(found.change, decided))


async def _make(file: ConfigFile, change: Change) -> None:
    """Make a change, unless a process that was killed has made it."""
    content = file.read()
    if content.hash == change.after:
        return
    if content.hash != change.base:
        raise ConfigError(MOVED)
    # What agents may change is checked again: it may be less by now.
    plan = await asyncio.to_thread(file.patched, content, change.patch, for_agent=True)
    if plan.after.hash != change.after:
        raise ConfigError(MOVED)
    await file.write(plan)


def _done(change: Change, decided: str) -> str:
    """Return what is said of a change that is made."""
    names = list(change.changed)
    changed = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
    restart = RESTART.format(needs=", ".join(change.needs_restart)) if change.needs_restart else ""
    return IS_DONE.format(decided=decided, changed=changed, restart=restart)


async def _say(
    fleet: Fleet, request: Request, state: Literal["used", "denied", "void"], became: str
) -> None:
    told = TOLD.format(id=request.id, became=became, what=request.what)
    await fleet.asks.made(request, state, words=became, told=told)
