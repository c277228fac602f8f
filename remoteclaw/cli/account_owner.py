"""The owner of a new account on a chat platform: who writes to it first."""

import asyncio
from collections.abc import Mapping

import click

from remoteclaw.cli.output import echo
from remoteclaw.errors import PlatformBusy
from remoteclaw.host.hidden_input import drop_input
from remoteclaw.host.terminal import one_line
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import PlatformAdapter, PollResult

#: The pause between two polls for the owner's first message, in seconds.
POLL_S = 1.0


async def find_owner(adapter: PlatformAdapter, channel: str, reach: str) -> str:
    """Return the id of the first sender whom the user confirms as the owner.

    `reach` says how to write to the account. An invitation is accepted once the account runs. No
    message is acknowledged, so all are answered then.
    """
    echo(reach)
    asked: set[str] = set()
    cursors: dict[str, str] = {}
    while True:
        found = await _poll(adapter, cursors)
        if profile_of(channel).reads_history:  # from now on: the first poll says when
            moved = {source: at for source, at in found.cursors.items() if at is not None}
            cursors = {**moved, **cursors}
        for incoming in found.incoming:
            invites = incoming.invitation == "invited"
            if (incoming.is_group and not invites) or incoming.is_bot or incoming.problem:
                continue
            if incoming.sender in asked:
                continue
            asked.add(incoming.sender)
            who = incoming.sender_name or "A person"
            who = one_line(f"{who} with the id {incoming.sender}")
            did = "has invited it" if invites else "has written"
            drop_input()  # one Enter too many must make nobody an owner
            if click.confirm(f"{who} {did}. Is that you?", default=True):
                return incoming.sender
        await asyncio.sleep(POLL_S)


async def _poll(adapter: PlatformAdapter, cursors: Mapping[str, str]) -> PollResult:
    try:
        return await adapter.poll(cursors)
    except PlatformBusy as busy:
        await asyncio.sleep(busy.after_s)
        return PollResult()
