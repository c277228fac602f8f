"""Many simultaneous openings, and all ways in which terminals are ended from outside."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.conversation_agent import agent_of
from tests.support.doors import Door, Refused, RpcClient, own_token
from tests.support.stack import Stack
from tests.support.terminal_kills import Walk, Watchman
from tests.support.waiting import eventually

MANY = {"max": 64, "max_per_person": 64, "opens_per_minute": 600}


async def states(client: RpcClient) -> dict[str, str]:
    """Return the state of each terminal, by its conversation's name."""
    listed = await client.call("terminals.list")
    return {each["name"]: each["state"] for each in listed["terminals"]}


async def test_thirteen_openings_of_nine_conversations_start_nine_programs_and_all_end(
    stack: Stack, directory: Path
) -> None:
    walk, watchman = Walk(stack, directory), Watchman(directory)
    stack.configure(agent_of(directory), terminals=MANY)
    await asyncio.gather(walk.start_gateway(), walk.start_worker(), walk.start_worker())
    sweeping = asyncio.create_task(walk.sweep())
    names = [f"c{number % 9}" for number in range(13)]
    async with aiohttp.ClientSession() as http:
        door = Door(walk.url, http)
        async with door.connected(own_token(stack)) as client:

            async def are(wanted: dict[str, str]) -> bool:
                return await states(client) == wanted

            async def open_over(number: int, name: str) -> bool:
                """Open a terminal over HTTP or RPC, and retry if the limit refuses it (429)."""
                about = {"agent": "main", "name": name}
                while True:
                    if number % 2:
                        status, _ = await walk.ask("POST", "", about)
                    else:
                        status = await over_rpc(about)
                    if status != 429:
                        return status in (201, 202)

            async def over_rpc(about: dict[str, str]) -> int:
                async with door.connected(own_token(stack)) as other:
                    try:
                        opened = await other.call("terminals.open", about)
                    except Refused as refused:
                        return 429 if refused.code == "TOO_MANY" else 500
                    return 201 if opened["created"] else 200

            openings = [open_over(number, name) for number, name in enumerate(names)]
            created = await asyncio.gather(*openings)

            assert sum(created) == 9
            expected = dict.fromkeys(names, "live")
            await eventually(lambda: are(expected))
            programs = watchman.programs()
            files = {Path(f"/proc/{pid}/cmdline").read_bytes() for pid in programs}
            assert (len(programs), len(files)) == (9, 9)

            by_name: dict[str, Any] = {
                each["name"]: each for each in (await client.call("terminals.list"))["terminals"]
            }
            await client.call("sessions.stop", {"sessionKey": by_name["c0"]["sessionKey"]})
            try:
                await client.call("sessions.reset", {"sessionKey": by_name["c1"]["sessionKey"]})
            except Refused as refused:  # on a busy machine, the reset runs later
                assert "UNAVAILABLE" in str(refused)  # noqa: PT017
            expected |= {"c0": "parked", "c1": "parked"}
            await eventually(lambda: are(expected))

            async def has_ended() -> bool:
                view = await stack.fleet.sessions.view(by_name["c1"]["sid"])
                return view is not None and not view.session_ids

            await eventually(has_ended)
            assert len(watchman.programs()) == 7

            await client.call("terminals.end", {"sid": by_name["c2"]["sid"]})
            again = await client.call("terminals.open", {"session": by_name["c2"]["sid"]})
            assert again["created"], "the terminal that is ending must not be returned"
            await eventually(lambda: are(expected))

            opened = await client.call("terminals.open", {"agent": "main", "name": "last"})

            async def is_starting() -> bool:
                last = await stack.fleet.sessions.view(opened["terminal"]["sid"])
                return last is not None and last.terminal is not None

            await eventually(is_starting)
            for worker in stack.workers:  # one of them is opening the terminal
                os.kill(worker.pid, signal.SIGTERM)
            assert [worker.wait() for worker in stack.workers] == [0, 0]
            expected["last"] = "live"
            await eventually(lambda: are(expected))
            assert len(watchman.programs()) == 8

            await stack.end_processes()  # as at the end of `up`
            stack.open_lifeline()
            await walk.start_worker()
            await eventually(lambda: are(dict.fromkeys(expected, "parked")))
    sweeping.cancel()
    await asyncio.wait((sweeping,))
    assert walk.gateway is not None
    walk.gateway.kill()
    walk.gateway.wait()
