"""The cost of budgets: what usage and five budgets add to a turn's calls of Redis."""

import time
from collections.abc import Sequence
from functools import partial

from remoteclaw.config.budgets import AppliedBudget, budgets_of
from remoteclaw.config.model import Budget, Config
from remoteclaw.events import AgentRunResult, AgentUsage
from remoteclaw.fleet.sessions.usage import Usage, UsageScopes
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Batch
from tests.support.stack import Stack, message

#: A turn's median is taken over many more turns than other rows', because it takes a millisecond.
TURNS = 20
USED = Usage.of(AgentRunResult(duration_ms=1500, usage=AgentUsage(120, 40, 9000, 300)))
BUDGETS = (
    Budget(of="all", tokens=1_000_000_000, per="month"),
    Budget(of="agent:main", tokens=1_000_000_000, usd=1_000_000, per="day"),
    Budget(of="person:*", tokens=1_000_000_000, per="day"),
    Budget(of="person:*", minutes=1_000_000, per="month"),
    Budget(of="tree", tokens=1_000_000_000),
)
ROW = ("a turn in Redis, five budgets", "the same without usage, budgets")


class Turns:
    """The turns of one session, without an agent."""

    def __init__(self, lease: Lease, budgets: Sequence[AppliedBudget], usage: Usage | None) -> None:
        self._lease = lease
        self._budgets = budgets
        self._usage = usage

    async def seconds(self, stack: Stack) -> float:
        """Return the seconds to begin a turn, and to finish it."""
        sent = message("x", from_=self._lease.session.user)
        accepted = await stack.fleet.inbound.append(sent, agent="main")
        turns, started = self._lease.turns, time.perf_counter()
        begun = await turns.begin([accepted.entry_id], budgets=self._budgets)
        assert isinstance(begun, Batch), "no limit is reached"
        await turns.finish("done", reply=[], usage=self._usage)
        return time.perf_counter() - started


async def bench_budgets(
    stack: Stack, rounds: int
) -> tuple[str, str, list[float], list[float], str]:
    """Measure the ledger and the check of a turn: what they add to its calls of Redis."""
    fleet, config = stack.fleet, Config(budgets=BUDGETS)
    day = (await fleet.usage.today(None)).isoformat()
    kinds = []
    for user, usage in (("counted", USED), ("bare", None)):
        accepted = await fleet.inbound.append(message("x", from_=user), agent="main")
        lease = await fleet.leases.acquire(accepted.session.sid, worker="bench", host="here")
        assert lease is not None
        assert await lease.turns.begin([accepted.entry_id])
        await lease.turns.finish("done", reply=[])
        people = (f"test:{user}",)
        lease.usage_scopes = partial(UsageScopes, "main", lease.sid, people)
        applied = budgets_of(config, agent="main", people=people, root=lease.sid, day=day)
        kinds.append(Turns(lease, applied if usage else (), usage))
    counted, bare = kinds
    pairs = [
        (await counted.seconds(stack), await bare.seconds(stack)) for _ in range(rounds * TURNS)
    ]
    ours, baseline = ([pair[side] for pair in pairs[TURNS:]] for side in (0, 1))
    return (*ROW, ours, baseline, "≤ 0.2 ms added")
