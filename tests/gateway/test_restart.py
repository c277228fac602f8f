"""A restart of the gateway: no request is refused, and its process stays the same."""

import asyncio
import json
import re
import signal
from typing import Literal

import pytest

from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.server import ARRIVE_S
from tests.support.doors import Answer, gateway_process, own_token
from tests.support.restarts import restart, starts, take_away
from tests.support.stack import Stack
from tests.support.turns import begin_turn, gateway, operator
from tests.support.up import command_line


async def addresses(stack: Stack) -> set[str | None]:
    """Return all published addresses of the gateway until it has restarted."""
    found: set[str | None] = set()
    while starts(stack) == 1:
        found.add(await stack.fleet.gateways.address(stack.home.host_id))
        await asyncio.sleep(0.01)
    return found


async def test_requests_during_a_gateway_restart_wait_and_are_answered(stack: Stack) -> None:
    """At any time of the restart, over new connections and over earlier ones. Simultaneous calls
    cause one restart.

    The address stays published, because a worker that finds none starts an agent without tools.
    """
    async with gateway_process(stack) as (door, process):
        reader, late = await asyncio.open_connection("127.0.0.1", door.port)
        watching = asyncio.create_task(addresses(stack))
        together = await asyncio.gather(*(restart(stack, door) for _ in range(3)))
        await asyncio.sleep(2 * ARRIVE_S)  # as for a client on a busy machine
        late.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        late.close()
        answers: list[Answer] = []
        while starts(stack) == 1 or len(answers) < 20:
            answers.append(await door.invoke(own_token(stack), "sessions_list"))
        assert "--alone" in command_line(process.pid)

    assert [one["status"] for one in together] == ["restarting"] * 3
    assert f"Only the gateway of {stack.home.host_id} restarts" in together[0]["detail"]
    assert await watching == {door.url}
    assert {answer.status for answer in answers} == {200}
    assert starts(stack) == 2
    log = (stack.home.logs / "gateway.log").read_text()
    assert len(set(re.findall(r"The gateway is at (\S+),", log))) == 1
    assert "Traceback" not in log


async def test_running_calls_finish_and_clients_are_notified_of_a_restart(stack: Stack) -> None:
    params = {"message": "hello", "channel": "test", "from": "ada"}
    async with gateway_process(stack) as (door, _), door.connected(own_token(stack)) as client:
        run_id = (await client.call("sessions.write", params))["runId"]
        waiting = await client.begin("outcomes.wait", {"runId": run_id, "timeout": 1.5})
        long = await client.begin("outcomes.wait", {"runId": run_id, "timeout": 60})
        restart_call = await client.begin("gateway.restart")
        restarted = await client.answer(restart_call)
        finished = await client.answer(waiting)
        cut = await client.answer(long)
        shutdown = await client.event("shutdown")
        code, _ = await client.closed()

    assert restarted["payload"]["status"] == "restarting"
    assert finished["payload"]["status"] == "accepted"
    assert cut["error"]["code"] == "UNAVAILABLE"
    assert cut["error"]["retryable"] is True
    assert shutdown == {"reason": "restarting"}
    assert code == 1012


async def test_sigterm_during_a_restart_ends_the_gateway(stack: Stack) -> None:
    params = {"message": "hello", "channel": "test", "from": "ada"}
    async with (
        gateway_process(stack) as (door, process),
        door.connected(own_token(stack)) as client,
    ):
        run_id = (await client.call("sessions.write", params))["runId"]
        await client.begin("outcomes.wait", {"runId": run_id, "timeout": 60})
        await client.call("gateway.restart")
        await client.event("shutdown")
        process.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(process.wait, 15) == 0
        assert list(stack.home.gateways.iterdir()) == []
    assert starts(stack) == 1


async def test_an_agents_restart_call_is_fenced_and_noted(stack: Stack) -> None:
    turn = await begin_turn(stack, {"gateway.restart": HANDLERS["gateway.restart"]})
    event = turn.gateway._restart = asyncio.Event()
    stack.configure(channels={"test": {"owners": ["alice"]}})
    await turn.call("gateway_restart", "one")
    assert event.is_set()
    event.clear()
    await turn.call("gateway_restart", "one")
    assert not event.is_set()  # a repeated call does nothing
    (noted,) = await stack.fleet.scripts.client.lrange(keys.side_effects(turn.agent.sid), 0, -1)
    await stack.fleet.sessions.stop(turn.agent.sid)
    with pytest.raises(CallRefused) as refusal:
        await turn.call("gateway_restart", "two")

    assert json.loads(noted)["type"] == "gateway_restarted"
    assert refusal.value.code == "TURN_OVER"
    assert not event.is_set()


@pytest.mark.parametrize("how", ["empty", "gone", "broken", "another Redis"])
async def test_a_gateway_that_could_not_come_back_unchanged_is_not_restarted(
    stack: Stack, how: Literal["empty", "gone", "broken", "another Redis"]
) -> None:
    """Not even by an operator: without its file, it would come back without restrictions."""
    handlers = {"gateway.restart": HANDLERS["gateway.restart"]}
    stack.configure(channels={"test": {"owners": ["alice"]}})
    file = stack.home.config_file
    turn = await begin_turn(stack, handlers)
    current = CurrentConfig(stack.home, load_config(file))
    turn.gateway = gateway(stack.fleet, stack.home, handlers, current_config=current)
    turn.gateway._restart = asyncio.Event()
    if how == "another Redis":
        file.write_text(file.read_text().replace(stack.redis.url, "redis://127.0.0.1:1/0"))
    else:
        take_away(file, how)
    for principal in (turn.agent, operator()):
        with pytest.raises(CallRefused, match=r"come back as it is|would use another Redis"):
            await turn.gateway.call(principal, "gateway.restart", {})

    assert not turn.gateway._restart.is_set()
