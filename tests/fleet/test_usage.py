"""The sums of the usage of turns."""

from remoteclaw.cli.usage import MAX_DAYS
from remoteclaw.events import AgentRunResult, AgentUsage
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turn import USAGE_MS
from remoteclaw.fleet.usage import USAGE_DAYS, Usage
from tests.support.leases import begun

TURN = Usage.of(
    AgentRunResult(duration_ms=1500, usage=AgentUsage(100, 7, 5000, 30), total_cost_usd=0.0123456)
)


async def test_a_repeated_finish_counts_its_usage_once(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    batch = lease.turns._batch
    assert batch is not None

    await lease.turns.finish("done", reply=[], usage=TURN)
    lease.turns._batch = batch  # the reply was lost: the caller repeats it
    await lease.turns.finish("done", reply=[], usage=TURN)

    (part,) = await fleet.usage.days(days=1)
    assert (part.agent, part.sid, part.usage) == ("main", lease.sid, TURN)
    assert await fleet.usage.agents() == {"main": TURN}
    outcome = await fleet.outcomes.read(lease.sid, batch.turn)
    assert outcome is not None
    assert outcome.usage == TURN
    (day,) = await fleet.scripts.client.keys(keys.usage_day("*"))
    assert USAGE_MS - 60_000 < await fleet.scripts.client.pttl(day) <= USAGE_MS


async def test_usage_is_summed_by_session_and_agent(fleet: Fleet) -> None:
    for chat in ("a", "b", "a"):
        lease, _ = await begun(fleet, channel_id=chat)
        await lease.turns.finish("done", reply=[], usage=TURN)
        await lease.close()

    assert await fleet.usage.session("main", lease.sid) == TURN + TURN
    assert await fleet.usage.agents() == {"main": TURN + TURN + TURN}
    assert sorted(part.usage.turns for part in await fleet.usage.days(days=1)) == [1, 2]


async def test_a_turn_without_an_agent_has_no_usage(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)

    await lease.turns.finish("stopped", reply=[])

    assert await fleet.usage.days(days=1) == []
    assert await fleet.usage.agents() == {}


def test_the_usage_command_covers_all_stored_days() -> None:
    assert MAX_DAYS == USAGE_DAYS
