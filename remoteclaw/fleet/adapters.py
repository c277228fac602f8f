"""Adapters: for each account, whether it works, which process delivers, and which stand by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.accounts import AdapterProcess


@dataclass(frozen=True, slots=True)
class AccountState:
    """An account of the configuration."""

    account: str
    """Its channel and name: `telegram/default`."""
    state: Literal["runs", "refused", "stopped"]
    name: str
    """The account's name on its platform."""
    problem: str
    """What is wrong, in a sentence."""
    waiting: int
    """How many replies it has still to deliver."""
    accepted: int
    aside: int
    by: AdapterProcess | None
    """The process that delivers; None if no process does, or one that gives no name."""
    standbys: Sequence[AdapterProcess]
    """Those that would take over."""

    @property
    def line(self) -> str:
        """The account on a line."""
        told = f"runs as {self.name}" if self.state == "runs" else self.state
        if count := len(self.standbys):
            told += f", {count} {'stands' if count == 1 else 'stand'} by"
        replies = "1 reply waits" if self.waiting == 1 else f"{self.waiting} replies wait"
        waiting = f", {replies}" if self.waiting else ""
        problem = f": {self.problem}" if self.problem else ""
        return f"{self.account} {told}{waiting}{problem}"


#: What an account lacks that no process runs.
NOT_RUN = "No process runs it: `remoteclaw up` does, and `remoteclaw channel run`."
#: How long a report of a problem counts, in milliseconds: it is repeated every 30 s.
FRESH_MS = 90_000


async def accounts_here(
    fleet: Fleet, config: Config, *, also: Collection[tuple[str, str]] = ()
) -> Sequence[AccountState]:
    """Return the state of each account of the configuration, and of those in `also` that run.

    Raises `RedisUnavailable` and `RedisRefused`.
    """
    readers = await fleet.replies.readers()
    found = []
    running = [place for place in also if readers.is_there(*place)]
    for provider, account in (*config.accounts(), *running):
        view = await fleet.accounts.view(provider, account)
        is_there = readers.is_there(provider, account)
        by, standbys = await fleet.accounts.processes(provider, account, readers.now_ms)
        is_fresh = bool(view.problem) and view.at_ms > readers.now_ms - FRESH_MS
        problem = view.problem if is_there or is_fresh else NOT_RUN
        found.append(
            AccountState(
                account=f"{provider}/{account}",
                state="runs" if is_there else "refused" if is_fresh else "stopped",
                name=view.name,
                problem=problem,
                waiting=await fleet.replies.waiting(provider, account),
                accepted=view.accepted,
                aside=view.aside,
                by=by,
                standbys=standbys,
            )
        )
    return found
