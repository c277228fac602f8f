"""Usage and counters on the page."""

from typing import Any

from tests.support.doors import opened
from tests.support.pages import login, paged
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_usage_is_summed_for_every_login_that_may_read(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    for each in (accepted, await stack.append("hi", channel_id="chat-2")):
        await stack.outcome(each)
    await stack.outcome(await stack.append("once more"))
    async with opened(stack) as door:
        ada = await login(stack, door, scope="read")
        async with paged(door, ada) as page:
            (agent,) = (await page.call("usage"))["rows"]
            sessions = (await page.call("usage", {"by": "session", "days": 1}))["rows"]
            (day,) = (await page.call("usage", {"by": "day"}))["rows"]
            hours = await page.call("usage", {"by": "hour", "days": 1})

            async def free() -> dict[str, Any] | None:
                status: dict[str, Any] = await page.call("fleet.status")
                return status if status["freeWorkers"] else None

            status = await eventually(free)  # a worker ends its job after the outcome
        metrics = await door.get("/page/metrics", **ada.headers)
        foreign = await door.get("/page/metrics", Cookie=ada.cookie)

    assert (agent["name"], agent["turns"], agent["costUsd"]) == ("main", 3, None)
    assert agent["durationMs"] > 0
    assert {row["name"]: row["turns"] for row in sessions}[str(accepted.session)] == 2
    assert (day["turns"], len(day["name"])) == (3, len("2026-01-01"))
    assert status["today"] == {"turns": 3, "costUsd": None}
    assert (status["running"], status["waiting"], status["freeWorkers"]) == (0, 0, 1)
    assert sum(row["turns"] for row in hours["rows"]) == 3
    assert len(hours["periods"]) == 24
    assert {row["name"] for row in hours["rows"]} <= set(hours["periods"])
    for row in (day, *hours["rows"]):
        assert [share["agent"] for share in row["agents"]] == ["main"]
        assert 0 <= row["waitMs"] < 60_000
    assert "remoteclaw_gateway_calls_total" in metrics.body.decode()
    assert foreign.status == 403
