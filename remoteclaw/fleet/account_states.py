"""The state of each account: whether it works, which process delivers, and which stand by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from remoteclaw.config.model import Config
from remoteclaw.fleet.accounts import Accounts, AdapterProcessState
from remoteclaw.fleet.replies.replies import Replies


@dataclass(frozen=True, slots=True)
class AccountState:
    """The state of an account."""

    account: str
    """Its channel and name: `telegram/default`."""
    state: Literal["runs", "refused", "stopped"]
    """`runs` while a process delivers; `refused` if none does and the last one reported a problem
    recently; else `stopped`."""
    name: str
    """The account's name on its platform."""
    problem: str
    """The problem, as a sentence; empty if there is none."""
    waiting: int
    """The number of replies that are not delivered yet."""
    accepted: int
    """The number of messages that were accepted."""
    skipped: int
    """The number of messages that were skipped: unreadable, or their handling failed."""
    by: AdapterProcessState | None
    """The process that delivers; None if no process delivers, or if it is not known by its id."""
    standbys: Sequence[AdapterProcessState]
    """The processes that stand by to take over."""

    @property
    def line(self) -> str:
        """The account's state on one line."""
        state = f"runs as {self.name}" if self.state == "runs" else self.state
        if count := len(self.standbys):
            state += f", {count} {'stands' if count == 1 else 'stand'} by"
        replies = "1 reply waits" if self.waiting == 1 else f"{self.waiting} replies wait"
        waiting = f", {replies}" if self.waiting else ""
        problem = f": {self.problem}" if self.problem else ""
        return f"{self.account} {state}{waiting}{problem}"


#: The problem of an account that no process runs.
NOT_RUN = (
    "No process runs it: start `remoteclaw up` or `remoteclaw channel run`, or restart it if the "
    "channel's package was installed after its start."
)
#: A reported problem counts as current for this long, in milliseconds: three times the 30 s after
#: which a process that is refused tries again and reports it.
FRESH_MS = 90_000


async def configured_accounts(
    accounts: Accounts,
    replies: Replies,
    config: Config,
    *,
    also: Collection[tuple[str, str]] = (),
) -> Sequence[AccountState]:
    """Return the states of the configured accounts, and of the accounts in `also` that run.

    Raises `RedisUnavailable` and `RedisRefused`.
    """
    readers = await replies.readers()
    states = []
    running = [key for key in also if readers.is_read(*key)]
    for provider, account in (*config.accounts(), *running):
        view = await accounts.view(provider, account)
        is_running = readers.is_read(provider, account)
        by, standbys = await accounts.processes(provider, account, readers.now_ms)
        is_fresh = bool(view.problem) and view.at_ms > readers.now_ms - FRESH_MS
        problem = view.problem if is_running or is_fresh else NOT_RUN
        states.append(
            AccountState(
                account=f"{provider}/{account}",
                state="runs" if is_running else "refused" if is_fresh else "stopped",
                name=view.name,
                problem=problem,
                waiting=await replies.waiting(provider, account),
                accepted=view.accepted,
                skipped=view.skipped,
                by=by,
                standbys=standbys,
            )
        )
    return states
