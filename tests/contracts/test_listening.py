"""What an agent's CLI listens on: other users of the machine can connect to each port."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from tests.support.bridged import Open
from tests.support.processes import everything


def ports_of(pids: list[int]) -> Iterator[int]:
    """Yield the TCP ports on which processes listen."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(descriptor))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                yield int(fields[1].rpartition(":")[2], 16)


async def test_no_program_of_an_agent_answers_other_users(opened: Open) -> None:
    """opencode's server runs commands for whoever may call it."""
    async with opened() as agent, aiohttp.ClientSession() as http:
        assert await agent.say("SAY:here") == "here"
        ports = [*ports_of(everything(agent.pid))]
        answers = {}
        for port in ports:
            async with http.get(f"http://127.0.0.1:{port}/session") as answer:
                answers[port] = answer.status

    assert set(answers.values()) <= {401}
