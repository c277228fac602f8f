"""The turns that failed lately, as scripts keep them and operators see them."""

from typing import Any

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.failed import PROBLEM_MS, FailingAgent
from tests.support.leases import begun


async def end(fleet: Fleet, category: str = "", *, status: str = "failed") -> str:
    """End a turn of main; return its id."""
    lease, accepted = await begun(fleet)
    error = {"category": category, "detail": f"{category}: why"} if category else None
    await lease.turns.finish(status if error else "done", reply=[], error=error)
    await lease.close()
    return accepted.entry_id


async def failing(fleet: Fleet) -> FailingAgent:
    (agent,) = await fleet.failed_turns.by_agent()
    return agent


async def test_failed_turns_are_known_by_category_among_all_turns_since_the_first(
    fleet: Fleet,
) -> None:
    for ended in ("done", "stopped"):
        await end(fleet, "" if ended == "done" else "aborted", status=ended)
    assert await fleet.failed_turns.by_agent() == []
    assert not await fleet.scripts.client.exists(keys.FAILED_TURNS)
    first = await end(fleet, "auth")
    assert (await failing(fleet)).line == "the last turn failed"
    await end(fleet, "died", status="dead")
    newest = await end(fleet, "auth")
    agent = await failing(fleet)
    assert agent.line == "the last 3 turns failed"
    assert [turn.turn for turn in agent.failed][::2] == [newest, first]
    by_category = [(turn.category, count) for turn, count in agent.by_category]
    assert by_category == [("auth", 2), ("died", 1)]
    turns = [turn for turn, _ in agent.by_category]
    assert turns[0].turn == newest
    assert await fleet.failed_turns.reasons(turns) == ["auth: why", "died: why"]

    await end(fleet)
    assert (await failing(fleet)).line == "3 of the last 4 turns failed"
    await end(fleet, "died")

    assert (await failing(fleet)).line == "4 of the last 5 turns failed, also the last one"


async def test_an_agent_has_a_problem_while_all_of_its_last_turns_fail(fleet: Fleet) -> None:
    async def problem(later_ms: int = 0) -> str | None:
        now_ms = await fleet.scripts.now_ms()
        return (await failing(fleet)).problem(now_ms + later_ms)

    for category in ("auth", "context_overflow", "unfit_image", "auth"):
        await end(fleet, category)
        assert await problem() is None  # two were due to the message
    newest = await end(fleet, "died")

    text = await problem() or ""
    assert text.startswith("3 failed, with no answer between them (1 died, 2 auth): ")
    assert f"-{newest}` says why the newest one did." in text
    assert await problem(PROBLEM_MS + 1) is None  # an operator has perhaps mended it
    await end(fleet)
    assert await problem() is None


async def test_at_most_200_failed_turns_are_kept_for_a_day(fleet: Fleet) -> None:
    client: Any = fleet.scripts.client
    for _ in range(205):
        await client.xadd(keys.FAILED_TURNS, {"agent": "old"})

    await end(fleet, "auth")

    assert await client.xlen(keys.FAILED_TURNS) == 200
    assert 0 < await client.pttl(keys.FAILED_TURNS) <= 24 * 3600 * 1000
