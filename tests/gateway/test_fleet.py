"""The status of the fleet, as clients of operators read it."""

import os
from typing import Any

import pytest

from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.account_states import configured_accounts
from remoteclaw.fleet.replies.reader import DeliveryFailure
from remoteclaw.messages import reference
from tests.support.cli import give_up
from tests.support.doors import Refused, opened
from tests.support.leases import begun
from tests.support.pages import login, paged
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually


async def test_fleet_status_lists_busy_workers_and_warm_agents(stack: Stack) -> None:
    both, people_only = (
        await stack.start_worker(),
        await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1"),
    )
    async with opened(stack) as door, paged(door, await login(stack, door, scope="read")) as client:
        accepted = await stack.append("slow")
        key = str(accepted.session)

        async def find_busy() -> Any:
            found = await client.call("fleet.status")
            return found if any(one.get("sinceMs") for one in found["workers"]) else None

        busy = await eventually(find_busy)
        await stack.fleet.sessions.stop(accepted.session.sid)
        await stack.ask("hello")

        async def find_warm() -> Any:
            found = await client.call("fleet.status")
            return found if found["agents"] and not found["sessions"] else None

        idle = await eventually(find_warm)

    lanes = {one["pid"]: one["lanes"] for one in busy["workers"]}
    assert lanes == {both.pid: ["agents", "background"], people_only.pid: ["agents"]}
    assert [(one["name"], one["workers"]) for one in busy["lanes"]] == [
        ("agents", 2),
        ("background", 1),
    ]
    (session,) = busy["sessions"]
    assert (session["key"], session["state"], session["waiting"]) == (key, "running", 1)
    assert (busy["running"], busy["waiting"], busy["freeWorkers"]) == (1, 0, 1)
    busy_workers = [one for one in busy["workers"] if one["state"] == "busy"]
    assert [(one["sessionKey"], one["sinceMs"]) for one in busy_workers] == [
        (key, session["sinceMs"])
    ]
    assert {one["subject"] for one in busy["problems"]} == {"sweeper"}
    (agent,) = idle["agents"]
    assert agent["sessionKey"] == key
    assert busy["atMs"] <= agent["sinceMs"] + 1000 <= idle["atMs"] + 1000
    assert agent["memoryBytes"] > 1_000_000


async def test_fleet_status_lists_waiting_sessions_with_since_when_and_why(stack: Stack) -> None:
    async with opened(stack) as door, paged(door, await login(stack, door, scope="read")) as client:
        accepted = await stack.append("hello", lane="background")
        await stack.append("and more", lane="background")
        found = await client.call("fleet.status")

    (session,) = found["sessions"]
    assert (session["state"], session["waiting"], session["lane"]) == ("scheduled", 2, "background")
    assert session["sinceMs"] == int(accepted.entry_id.partition("-")[0])
    assert (found["waiting"], found["waitingSinceMs"]) == (1, session["sinceMs"])
    texts = {one["subject"]: one["text"] for one in found["problems"]}
    assert "`remoteclaw worker`" in texts["workers"]


async def test_running_sessions_are_listed_before_waiting_ones(stack: Stack) -> None:
    for number in range(3):
        await stack.append("hello", channel_id=f"chat-{number}")
    (*_, last) = listed = (await stack.fleet.sessions.busy(limit=3))[1]
    for place, view in enumerate(reversed(listed)):  # as sweeps do
        await stack.fleet.scripts.client.zadd(keys.ACTIVE, {view.sid: place})
    assert (await stack.fleet.sessions.busy(limit=3))[1] == listed
    assert await stack.fleet.leases.acquire(last.sid, worker="w", host="here")

    count, (first,) = await stack.fleet.sessions.busy(limit=1)

    assert (count, first.sid) == (3, last.sid)


async def test_fleet_status_lists_running_and_standby_adapters(stack: Stack) -> None:
    stack.configure(channels={"webhook": {"token": "secret"}})
    first, second = (stack.fleet.replies.reader("webhook", "default") for _ in range(2))
    async with opened(stack) as door, paged(door, await login(stack, door, scope="read")) as client:

        async def adapter() -> Any:
            found = await client.call("fleet.status")
            subjects = {one["subject"] for one in found["problems"]}
            (account,) = (one for one in found["adapters"] if one["account"] == "webhook/default")
            assert bool(account["problem"]) is ("channel webhook/default" in subjects)
            return account

        stopped = await adapter()
        assert await first.claim()
        assert not await second.claim()
        running = await adapter()
        (state,) = await configured_accounts(stack.fleet, load_config(stack.home.config_file))
        await stack.fleet.accounts.leave(first)
        assert await second.claim()
        after = await adapter()
        assert not await first.claim()
        await stack.fleet.accounts.leave(first)
        left = await adapter()

    assert (stopped["state"], stopped["standbys"]) == ("stopped", [])
    assert "`remoteclaw up`" in stopped["problem"]
    assert running["by"]["pid"] == os.getpid()
    assert [one["pid"] for one in running["standbys"]] == [os.getpid()]
    assert "1 stands by" in state.line
    assert (after["state"], after["standbys"]) == ("runs", [])
    assert left["standbys"] == []


async def test_a_dead_letter_of_a_message_is_retried_or_dropped(stack: Stack) -> None:
    accepted = await stack.append("hello " * 100)
    await give_up(stack, accepted, await stack.append("another", channel_id="chat-2"))
    async with opened(stack) as door, paged(door, await login(stack, door)) as client:
        found = await client.call("deadletters.list")
        letter, other = found["letters"]
        assert found["count"] == 2
        assert letter["sessionKey"] == str(accepted.session)
        assert letter["why"] == "It was tried 3 times, and cut off each time."
        assert letter["text"] == ("hello " * 100)[:300]
        again = await client.call("deadletters.retry", {"id": letter["id"]})
        answered = await client.call("outcomes.wait", {"runId": again["runId"]})
        assert "demo agent" in answered["reply"][0]["text"]
        with pytest.raises(Refused, match="tried again already"):
            await client.call("deadletters.retry", {"id": letter["id"]})

        await client.call("deadletters.drop", {"id": other["id"]})
        assert (await client.call("deadletters.list"))["letters"] == []
        with pytest.raises(Refused, match="no dead letter"):
            await client.call("deadletters.drop", {"id": other["id"]})


async def test_a_dead_letter_of_a_refused_reply_is_sent_again(stack: Stack) -> None:
    reader = stack.fleet.replies.reader("test", "default")
    await stack.put_reply("test", "default", "hi", chat="chat-1")
    reply = await anext(reader.replies())
    await reader.receipt(reply, failure=DeliveryFailure("refused", "You were blocked."))
    async with opened(stack) as door, paged(door, await login(stack, door)) as client:
        (letter,) = (await client.call("deadletters.list"))["letters"]
        again = await client.call("deadletters.retry", {"id": letter["id"]})

    assert (letter["account"], letter["text"]) == ("test/default", "hi")
    assert letter["why"] == "test/default refused it: You were blocked."
    assert again["account"] == "test/default"
    assert await stack.fleet.scripts.client.xlen(REPLIES) == 1


async def test_concurrent_doctor_calls_share_one_run_and_block_no_other_call(
    stack: Stack,
) -> None:
    stack.configure({"runtime": "claude", "command": ["/no/claude"]})
    async with opened(stack) as door:
        ada = await login(stack, door, scope="read")
        async with paged(door, ada) as first, paged(door, ada) as second:
            doctor_call = await first.begin("doctor")
            await first.call("health")
            other = await second.call("doctor")
            one = (await first.answer(doctor_call))["payload"]

    assert one == other
    (agent,) = (each for each in one["findings"] if each["subject"] == "agent main")
    assert not agent["ok"]
    assert "'/no/claude' is not installed" in agent["text"]


async def test_fleet_status_has_the_reason_of_a_failed_turn_without_secrets(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "env": {"MODEL_KEY": "a-secret-of-mine"}})
    lease, accepted = await begun(stack.fleet)
    error = {"category": "auth", "detail": "401: a-secret-of-mine is refused"}
    await lease.turns.finish("failed", reply=[], error=error)
    async with opened(stack) as door, paged(door, await login(stack, door, scope="read")) as client:
        (agent,) = (await client.call("fleet.status"))["failing"]

    assert agent["line"] == "the last turn failed"
    (failed,) = agent["categories"]
    assert failed["reason"] == "401: [secret] is refused"
    assert (failed["count"], failed["category"]) == (1, "auth")
    assert failed["sessionKey"] == str(accepted.session)
    assert failed["reference"] == reference(lease.sid, accepted.entry_id)
