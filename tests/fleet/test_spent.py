"""The sums of days, months, people and conversations: each usage is added once, in one step."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.clock import now_ms, zone_offsets
from remoteclaw.errors import LeaseLost
from remoteclaw.events import AgentRunResult, AgentUsage, AsideAnswer
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.sessions.usage import Usage, UsageScopes
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.lease import Lease
from tests.support.leases import accept, acquire, begun, let_pass, postpone

TURN = Usage.of(
    AgentRunResult(duration_ms=1500, usage=AgentUsage(101, 7, 5000, 30), total_cost_usd=0.0123)
)
DAY_MS = 24 * 3600 * 1000
ZONE = "Europe/Berlin"


def shared(lease: Lease, *payers: str, agent: str = "main", root: str | None = None) -> None:
    lease.fallback_agent = agent if agent != "main" else ""
    scopes = UsageScopes("main", root or lease.sid, payers, ZONE)
    lease.usage_scopes = lambda: scopes


async def sums(fleet: Fleet) -> dict[str, dict[str, Usage]]:
    """Return the sums by period and scope, after a check that their parts agree."""
    client: Any = fleet.scripts.client
    found = {}
    for key in sorted(await client.keys(keys.spent("*"))):
        fields = {
            field.decode(): Usage.decode(each)
            for field, each in (await client.hgetall(key)).items()
        }
        agents = [used for field, used in fields.items() if field.startswith("agent ")]
        assert sum(agents, Usage()) == fields["all"]
        found[key.decode().removeprefix(keys.spent(""))] = fields
    months = [fields["all"] for period, fields in found.items() if len(period) == len("2026-11")]
    days = [fields["all"] for period, fields in found.items() if len(period) > len("2026-11")]
    by_session = [part.usage for part in await fleet.usage.days(days=90, zone=ZONE)]
    in_all = sum((await fleet.usage.agents()).values(), Usage())
    assert in_all == sum(months, Usage()) == sum(days, Usage()) == sum(by_session, Usage())
    return found


async def one_day(fleet: Fleet) -> dict[str, Usage]:
    found = await sums(fleet)
    assert len(found) == 2
    day, month = sorted(found, key=len, reverse=True)
    assert day.startswith(month)
    assert found[day] == found[month]
    return found[day]


async def tree(fleet: Fleet, sid: str) -> Usage:
    client: Any = fleet.scripts.client
    return Usage.decode(await client.hget(keys.state(sid), f"tree {sid}"))


async def test_what_one_turn_uses_is_shared_by_its_people_without_a_rest(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    shared(lease, "ada", "telegram:2", "telegram:3")

    await lease.turns.finish("done", reply=[], usage=TURN)

    day = await one_day(fleet)
    people = [day[f"person {name}"] for name in ("ada", "telegram:2", "telegram:3")]
    assert day["all"] == TURN == sum(people, Usage())
    assert sorted(used.input_tokens for used in people) == [33, 34, 34]
    assert await tree(fleet, lease.sid) == TURN


async def test_a_turn_counts_while_it_runs_and_each_token_once(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    shared(lease, "ada", "bob")
    for tokens in (40, 40, 90):  # the second one is a repeated call
        live = Usage(input_tokens=tokens, duration_ms=tokens)
        await lease.turns.publish_live_text({"text": "so far"}, usage=live)
    assert (await one_day(fleet))["all"].input_tokens == 90
    batch = lease.turns._batch

    await lease.turns.finish("done", reply=[], usage=replace(TURN, input_tokens=80))
    lease.turns._batch = batch  # the reply was lost: the caller repeats it
    await lease.turns.finish("done", reply=[], usage=replace(TURN, input_tokens=80))

    day = await one_day(fleet)
    assert day["all"] == replace(TURN, input_tokens=80)  # the report of the end counts
    assert day["person ada"] + day["person bob"] == day["all"]
    assert abs(day["person ada"].input_tokens - day["person bob"].input_tokens) == 0


async def test_who_joins_a_turn_shares_all_of_it(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    shared(lease, "ada")
    await lease.turns.publish_live_text({"text": "so far"}, usage=Usage(input_tokens=60))
    assert (await one_day(fleet))["person ada"].input_tokens == 60

    shared(lease, "ada", "bob")
    await lease.turns.finish("done", reply=[], usage=Usage(turns=1, input_tokens=100))

    day = await one_day(fleet)
    assert [day[f"person {name}"].input_tokens for name in ("ada", "bob")] == [50, 50]


async def test_postponed_and_cut_off_attempts_count_when_they_end(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    shared(lease, "ada")
    await postpone(fleet, lease, 1000, usage=TURN)
    assert (await one_day(fleet))["person ada"] == TURN
    await let_pass(fleet, 2000)
    second = await acquire(fleet, accepted)
    shared(second, "ada")
    assert await second.turns.begin([])
    await second.turns.publish_live_text({"text": "so far"}, usage=Usage(input_tokens=2))
    await fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)  # it is killed
    assert (await one_day(fleet))["all"] == TURN + Usage(input_tokens=2)

    third = await acquire(fleet, accepted)
    shared(third, "ada")
    batch = await third.turns.begin([])
    assert batch is not None
    await third.turns.finish("done", reply=[], usage=batch.spent + TURN)

    used = TURN + Usage(input_tokens=2) + TURN
    assert (await one_day(fleet))["person ada"] == used == await tree(fleet, lease.sid)


async def test_a_withdrawn_turn_leaves_its_usage_to_nobody_else(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    shared(lease, "ada")
    await postpone(fleet, lease, 1000, usage=TURN)
    await let_pass(fleet, 2000)
    await fleet.scripts.client.xdel(keys.inbound(lease.sid), accepted.entry_id)
    other = await accept(fleet, "another")
    lease = await acquire(fleet, accepted)
    shared(lease, "bob")
    assert await lease.turns.begin([]) is None

    batch = await lease.turns.begin([other.entry_id])
    assert batch is not None
    await lease.turns.finish("done", reply=[], usage=batch.spent + Usage(turns=1, input_tokens=3))

    day = await one_day(fleet)
    assert (day["person ada"], day["person bob"].input_tokens) == (TURN, 3)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_the_sums_of_people_agents_and_sessions_agree(
    fleet: Fleet, seed: int
) -> None:
    """Reports that grow and shrink, people who join, repeated calls, kills and new days."""
    chance, totals = random.Random(seed), Usage()
    lease, accepted = await begun(fleet)
    batch = lease.turns._batch
    for _ in range(12):
        payers = chance.sample(["ada", "bob", "telegram:3", "telegram:4"], chance.randint(1, 4))
        shared(lease, *payers, agent=chance.choice(["main", "helper"]))
        assert batch is not None
        live = Usage(input_tokens=chance.randint(0, 999), cost_micro_usd=chance.randint(0, 99))
        for _ in range(chance.randint(1, 2)):
            await lease.turns.publish_live_text({"text": "so far"}, usage=live)
        match chance.choice(["goes on", "is killed", "ends"]):
            case "is killed":
                await fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)
                lease = await acquire(fleet, accepted)
                batch = await lease.turns.begin([])
            case "ends":
                used = batch.spent + replace(live, turns=1, input_tokens=chance.randint(0, 999))
                await lease.turns.finish("done", reply=[], usage=used)
                totals += used
                accepted = await accept(fleet, "next")
                await let_pass(fleet, DAY_MS * chance.randint(0, 1))
                batch = await lease.turns.begin([accepted.entry_id])
    assert batch is not None
    shared(lease, "ada")
    await lease.turns.finish("done", reply=[], usage=batch.spent + TURN)

    for fields in (await sums(fleet)).values():
        people = [used for field, used in fields.items() if field.startswith("person ")]
        assert sum(people, Usage()) == fields["all"]
    assert sum((await fleet.usage.agents()).values(), Usage()) == totals + batch.spent + TURN


async def test_an_aside_counts_for_its_own_sender(fleet: Fleet) -> None:
    lease, first = await begun(fleet)
    shared(lease, "ada")
    message = await accept(fleet, "aside")
    aside = Usage.of_aside(AsideAnswer("yes", AgentUsage(cache_read_tokens=300), cost_usd=0.002))
    for _ in range(2):
        end = AsideEnd(usage=aside, payers=("bob",))
        await Asides(lease).end(first.entry_id, message.entry_id, "answered", end)
    await lease.turns.finish("done", reply=[], usage=TURN)

    day = await one_day(fleet)
    assert (day["person bob"], day["person ada"], day["all"]) == (aside, TURN, TURN + aside)
    assert await tree(fleet, lease.sid) == TURN + aside


async def test_a_task_counts_for_the_conversation_and_a_reset_begins_anew(fleet: Fleet) -> None:
    parent, _ = await begun(fleet)
    shared(parent, "ada")
    await parent.turns.finish("done", reply=[], usage=TURN)
    child, _ = await begun(fleet, channel_id="task")
    shared(child, "ada", agent="helper", root=parent.sid)
    await child.turns.finish("done", reply=[], usage=TURN)
    assert await tree(fleet, parent.sid) == TURN + TURN
    assert await tree(fleet, child.sid) == Usage()

    again = await accept(fleet, "/new")
    assert await parent.turns.begin([again.entry_id])
    await parent.reset(again.entry_id, "the user asked", keep_ms=0, keep=0)
    assert await tree(fleet, parent.sid) == Usage()
    assert (await one_day(fleet))["agent helper"] == TURN


async def test_a_terminal_counts_everything_so_far_each_time_and_never_less(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    scopes = UsageScopes("main", lease.sid, ("ada",), ZONE)

    async def count(tokens: int, *, epoch: str = lease.epoch) -> None:
        usage = Usage(input_tokens=tokens)
        await fleet.terminals.count(lease.sid, epoch, accepted.entry_id, usage, scopes)

    for tokens in (50, 50, 20, 70):  # 20: the program has removed a transcript
        await count(tokens)
    with pytest.raises(LeaseLost):
        await count(90, epoch="1")
    await lease.turns.finish("done", reply=[])

    assert (await one_day(fleet))["person ada"] == Usage(input_tokens=70)
    next_message = await accept(fleet, "next")
    assert await lease.turns.begin([next_message.entry_id])
    shared(lease, "ada")
    await lease.turns.finish("done", reply=[], usage=TURN)
    assert (await one_day(fleet))["person ada"] == Usage(input_tokens=70) + TURN


async def test_a_sum_of_a_conversation_that_is_gone_is_not_begun_again(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    shared(lease, root="0" * 32)

    await lease.turns.finish("done", reply=[], usage=TURN)

    assert not await fleet.scripts.client.exists(keys.state("0" * 32))


async def test_days_and_months_are_those_of_the_zone_on_redis_clock(fleet: Fleet) -> None:
    """A turn over midnight counts on each day what it has used by then; a month is its days."""
    client: Any = fleet.scripts.client
    midnight = datetime(2031, 1, 31, 23, 0, tzinfo=UTC)  # 00:00 on February 1 in Berlin

    async def set_clock(ms: float) -> None:
        await let_pass(fleet, round(ms) - await fleet.scripts.now_ms())

    await set_clock(midnight.timestamp() * 1000 - 20_000)
    lease, _ = await begun(fleet)
    shared(lease, "ada")
    live = Usage(input_tokens=30)
    await lease.turns.publish_live_text({"text": "so far"}, usage=live)
    await set_clock(midnight.timestamp() * 1000 + 100)
    await lease.turns.finish("done", reply=[], usage=Usage(turns=1, input_tokens=100))
    await set_clock(midnight.timestamp() * 1000 + 27 * DAY_MS)
    again = await accept(fleet, "again")
    assert await lease.turns.begin([again.entry_id])
    await lease.turns.finish("done", reply=[], usage=TURN)

    found = {
        key.decode().removeprefix(keys.spent("")): Usage.decode(
            await client.hget(key, "person ada")
        )
        for key in await client.keys(keys.spent("*"))
    }
    rest = Usage(turns=1, input_tokens=70)
    assert found == {
        "2031-01-31": live,
        "2031-01": live,
        "2031-02-01": rest,
        "2031-02-28": TURN,
        "2031-02": rest + TURN,
    }


def test_the_offsets_of_a_zone_follow_its_clock_changes() -> None:
    summer = round(datetime(2026, 7, 1, tzinfo=UTC).timestamp() * 1000)
    hour = 3_600_000
    changes = [
        (datetime(2026, 10, 25, 1, tzinfo=UTC), hour),
        (datetime(2027, 3, 28, 1, tzinfo=UTC), 2 * hour),
    ]

    numbers = [int(text) for text in zone_offsets(summer, ZONE).split()]

    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert pairs == [(0, 2 * hour), *((round(at.timestamp() * 1000), to) for at, to in changes)]
    assert zone_offsets(now_ms(), "Asia/Kolkata") == f"0 {5 * hour + hour // 2}"


async def test_the_day_and_the_hour_of_the_scripts_are_those_of_the_calendar(fleet: Fleet) -> None:
    """Leap years, ends of months, and both sides of Greenwich."""
    lua = import_module("lupa.lua51").LuaRuntime()
    source = (Path(keys.__file__).parent / "scripts" / "_usage.lua").read_text()
    names_of = lua.execute(
        f"local time = 0; local function now_ms() return time end\n{source}\n"
        "return function(at, offsets) time = at; return today(offsets) end"
    )
    for zone, offset_h in (("UTC", 0), ("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11)):
        for day in (*range(19_000, 19_800), 11_016, 47_540, 47_541):
            at_ms = day * DAY_MS + 13 * 3_600_000
            expected = datetime.fromtimestamp(at_ms / 1000 + offset_h * 3600, tz=UTC)
            assert zone_offsets(at_ms, zone) == f"0 {offset_h * 3_600_000}"
            names = (expected.date().isoformat(), expected.isoformat()[:13])
            assert names_of(at_ms, f"0 {offset_h * 3_600_000}") == names
