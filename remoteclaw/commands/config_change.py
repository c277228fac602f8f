"""Applies or discards a configuration change after a person's answer, and reports the result once.

The process that receives the answer does this, under the lock of the configuration file. If that
process is killed first, or runs on another host, the gateway of the file's host does it.
"""

import asyncio
import contextlib
from typing import Literal

from remoteclaw.commands import memory_change
from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.requests.request import Change, Request
from remoteclaw.fleet.requests.requests import Requests

IS_DONE = "{decided} {changed} changed.{restart}"
RESTART = " It takes effect after a restart: {needs}."
NOT_DONE = "{decided} It is not done: {problem}"
MOVED = (
    "the configuration file has changed since the request. Have the agent request the change again "
    "if you still want it."
)
#: The message to the agent that requested the change.
RESULT = "Your request {id} to change the configuration is decided. {became}\n\n{what}"


async def carry_out(requests: Requests, home: Home, request: Request, decided: str) -> None:
    """Carry out the answer to a change request, unless that is done or needs another host.

    `decided` is a sentence that says who answered what, and when.
    """
    change, answer = request.change, request.answer
    assert change, "only called for configuration changes"
    assert answer, "only called for answered requests"
    if change.memory:
        await memory_change.carry_out(requests, home, request, decided)
        return
    if answer.verdict == "deny":
        await _close(requests, request, "denied", decided)
    elif change.host == home.host_id:
        # If another process has the lock, it or the gateway's next check carries the change out.
        with contextlib.suppress(ConfigError):
            async with (file := ConfigFile(home.config_file)).locked():
                await _carry_out(requests, file, request, decided)


async def _carry_out(requests: Requests, file: ConfigFile, request: Request, decided: str) -> None:
    """Apply a change. The caller holds the lock of `file`."""
    current = await requests.find(request.id)
    if current is None or current.state != "answered" or current.change is None:
        return
    try:
        await _apply(file, current.change)
    except (CallRefused, ConfigError) as error:
        await _close(requests, current, "void", NOT_DONE.format(decided=decided, problem=error))
    else:
        await _close(requests, current, "used", _success(current.change, decided))


async def _apply(file: ConfigFile, change: Change) -> None:
    """Write a change to `file`, unless a process that was then killed has written it."""
    content = file.read()
    if content.hash == change.after:
        return
    if content.hash != change.base:
        raise ConfigError(MOVED)
    # The rights of agents are checked again, because they may have been reduced in between.
    plan = await asyncio.to_thread(file.plan_patch, content, change.patch, for_agent=True)
    if plan.after.hash != change.after:
        raise ConfigError(MOVED)
    await file.write(plan)


def _success(change: Change, decided: str) -> str:
    """Return the report of an applied change."""
    names = list(change.changed)
    changed = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
    restart = RESTART.format(needs=", ".join(change.needs_restart)) if change.needs_restart else ""
    return IS_DONE.format(decided=decided, changed=changed, restart=restart)


async def _close(
    requests: Requests, request: Request, state: Literal["used", "denied", "void"], became: str
) -> None:
    """Close the request with `state`, and report `became` to people and to the agent."""
    result = RESULT.format(id=request.id, became=became, what=request.what)
    await requests.close_change(request, state, closing_text=became, entry_text=result)
