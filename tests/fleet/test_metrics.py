"""The counters and histograms that scripts keep in Redis."""

from typing import Any

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.metrics import BUCKETS_S
from remoteclaw.fleet.replies.reader import DeliveryFailure
from remoteclaw.fleet.sessions.usage import Usage
from tests.support.leases import answered, begun
from tests.support.stack import REPLIES

TURN = Usage(turns=1)


async def test_a_repeated_finish_counts_its_turn_once_with_its_durations(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    outcome, batch = keys.outcome(lease.sid, accepted.entry_id), lease.turns._batch
    sent_ms = int(accepted.entry_id.partition("-")[0])
    # The turn began 70 s ago, 3 s after its message; the agent wrote its first text 400 ms later.
    begun_ms = await fleet.scripts.now_ms() - 70_000
    times: Any = {"begun.1": sent_ms + 3000, "output.1": f"{sent_ms + 3400} text"}
    await fleet.scripts.client.hset(outcome, mapping=times)
    await lease.turns.finish("done", reply=[], usage=TURN)
    lease.turns._batch = batch  # the reply was lost: the caller repeats it
    await lease.turns.finish("done", reply=[], usage=TURN)
    await lease.close()
    lease, accepted = await begun(fleet)
    await fleet.scripts.client.hset(keys.outcome(lease.sid, accepted.entry_id), "begun.1", begun_ms)
    await lease.turns.finish("failed", reply=[], error={"category": "auth"}, usage=TURN)

    counts = await fleet.metrics.read()

    assert counts.turns == {("main", "done", ""): 1, ("main", "failed", "auth"): 1}
    of = {name: by_label.get("main") for name, by_label in counts.histograms.items()}
    waits, firsts, durations = of["wait"], of["first_text"], of["duration"]
    assert waits
    assert waits.counts[BUCKETS_S.index(5)] == 1
    assert waits.sum_ms == 3000  # a wait below nothing, after the clock was set back, counts as 0
    assert firsts
    assert (firsts.counts[BUCKETS_S.index(0.5)], sum(firsts.counts), firsts.sum_ms) == (1, 1, 400)
    assert durations
    assert (durations.counts[BUCKETS_S.index(120)], sum(durations.counts)) == (1, 2)
    assert 70_000 <= durations.sum_ms < 120_000


async def test_a_turn_that_asked_no_agent_has_no_duration(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    await lease.turns.finish("dropped", reply=[])

    counts = await fleet.metrics.read()

    assert counts.turns == {("main", "dropped", ""): 1}
    assert not any(counts.histograms.values())


async def test_a_delivery_counts_with_its_lag_and_a_refused_one_does_not(fleet: Fleet) -> None:
    for text in ("late", "refused"):
        await answered(fleet, text)
    client: Any = fleet.scripts.client
    late, refused = await client.xrange(REPLIES)
    hours_ago = f"{int(late[0].partition(b'-')[0]) - 7_200_000}-0"
    await client.delete(REPLIES)
    await client.xadd(REPLIES, late[1], id=hours_ago)
    await client.xadd(REPLIES, refused[1], id=refused[0])
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    await reader.receipt(await anext(replies))
    await reader.receipt(await anext(replies), failure=DeliveryFailure("refused", "No."))
    await replies.aclose()

    (lag,) = (await fleet.metrics.read()).histograms["delivery"].values()

    assert lag.counts == [0] * len(BUCKETS_S) + [1]
    assert 7_200_000 <= lag.sum_ms < 7_400_000


async def test_a_field_of_a_newer_version_is_left_out(fleet: Fleet) -> None:
    fields: Any = {"turns/main/done/": 2, "wait/main/7": 1, "other/main/sum": 4, "turns/x": 1}
    await fleet.scripts.client.hset(keys.METRICS, mapping=fields)

    counts = await fleet.metrics.read()

    assert counts.turns == {("main", "done", ""): 2}
    assert sum(counts.histograms["wait"]["main"].counts) == 0
