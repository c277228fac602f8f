"""The state of each account: whether it works, which process delivers, and which stand by."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from remoteclaw.config.chats import NO_FACTS, agent_of
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.accounts import AdapterProcessState
from remoteclaw.fleet.pairings import A_GROUP, Paired
from remoteclaw.messages import ChatPlace


@dataclass(frozen=True, slots=True)
class GroupAgent:
    """A group, or a key of the setting `groups`, and the agent that answers there."""

    id: str
    agent: str


@dataclass(frozen=True, slots=True)
class AccountState:
    """The state of an account."""

    account: str
    """Its channel and name: `telegram/default`."""
    state: Literal["runs", "refused", "waits", "stopped"]
    """`runs` while a process delivers. If none does and the last one reported a problem recently,
    `refused` if a person has to solve it, and `waits` if it is tried again; else `stopped`."""
    name: str
    """The account's name on its platform."""
    agent: str
    """The agent that answers in direct chats."""
    groups: Sequence[GroupAgent]
    """The groups that have access, or settings of their own, with their agents."""
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
        """The account and its state on one line."""
        return f"{self.account} {self.summary}"

    @property
    def summary(self) -> str:
        """Its state on one line."""
        state = f"runs as {self.name}" if self.state == "runs" else self.state
        if count := len(self.standbys):
            state += f", {count} {'stands' if count == 1 else 'stand'} by"
        if count := sum(group.agent != self.agent for group in self.groups):
            state += f", {count} {'group has' if count == 1 else 'groups have'} another agent"
        replies = "1 reply waits" if self.waiting == 1 else f"{self.waiting} replies wait"
        waiting = f", {replies}" if self.waiting else ""
        problem = f": {self.problem}" if self.problem else ""
        return f"{state}{waiting}{problem}"


#: The problem of an account that no process runs.
NOT_RUN = (
    "No process runs it: start `remoteclaw up` or `remoteclaw channel run`, or restart it if the "
    "channel's package was installed after its start."
)
#: A reported problem counts as current for this long, in milliseconds: three times the 30 s after
#: which a process that is refused tries again and reports it.
FRESH_MS = 90_000


#: The problem of a group whose agent was removed from the configuration.
NO_AGENT = (
    "The group {id} belongs to the agent {agent!r}, which is not configured: add the agent, or use "
    "`/pair as NAME` in the group."
)


async def configured_accounts(
    fleet: Fleet, config: Config, *, also: Collection[tuple[str, str]] = ()
) -> Sequence[AccountState]:
    """Return the states of the configured accounts, and of the accounts in `also` that run.

    Raises `RedisUnavailable` and `RedisRefused`.
    """
    accounts, replies = fleet.accounts, fleet.replies
    readers, paired = await replies.readers(), await fleet.pairings.list()
    states = []
    running = [key for key in also if readers.is_read(*key)]
    for provider, account in (*config.accounts(), *running):
        view = await accounts.view(provider, account)
        is_running = readers.is_read(provider, account)
        by, standbys = await accounts.processes(provider, account, readers.now_ms)
        is_fresh = bool(view.problem) and view.at_ms > readers.now_ms - FRESH_MS
        failed: Literal["refused", "waits"] = "refused" if view.is_refused else "waits"
        problem = view.problem if is_running or is_fresh else NOT_RUN
        groups = await _groups(fleet, config, provider, account, paired)
        gone = [NO_AGENT.format(**asdict(g)) for g in groups if g.agent not in config.agents]
        states.append(
            AccountState(
                account=f"{provider}/{account}",
                state="runs" if is_running else failed if is_fresh else "stopped",
                name=view.name,
                agent=agent_of(config, ChatPlace(provider, account, ""), NO_FACTS, is_group=False),
                groups=groups,
                problem=problem or next(iter(gone), ""),
                waiting=await replies.waiting(provider, account),
                accepted=view.accepted,
                skipped=view.skipped,
                by=by,
                standbys=standbys,
            )
        )
    return states


async def _groups(
    fleet: Fleet, config: Config, provider: str, account: str, paired: Sequence[Paired]
) -> Sequence[GroupAgent]:
    """Return the groups of an account that are configured or paired, with their agents."""
    own = [
        one.id
        for one in paired
        if (one.provider, one.account, one.name) == (provider, account, A_GROUP)
    ]
    ids = list(dict.fromkeys((*config.channel(provider).groups, *own)))
    places = [ChatPlace(provider, account, id_) for id_ in ids]
    facts = await fleet.chats.facts_of(places)
    return [
        GroupAgent(place.chat, agent_of(config, place, each, is_group=True))
        for place, each in zip(places, facts, strict=True)
    ]
