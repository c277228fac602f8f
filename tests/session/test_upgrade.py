"""A rolling upgrade of two hosts while turns run, and the way back (docs/operations.md).

The earlier version runs on this environment's packages.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.up.supervisor import WORKER
from tests.support.bridges import script
from tests.support.command import ROOT
from tests.support.earlier import earlier_version
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import HANG_S, eventually

#: An agent that repeats the last word after a moment.
AGENT = """
while True:
    word = turn()['prompt'].split()[-1]
    say(type='text', text='heard ' + word)
    time.sleep(0.2)
    say(type='done')
"""
CHATS = [f"chat-{number}" for number in range(4)]


@pytest.fixture
def earlier(directory: Path) -> Path:
    """A checkout of an earlier version."""
    name = earlier_version()
    checkout = directory / "earlier"
    checkout.mkdir()
    archive = subprocess.run(("git", "archive", name), cwd=ROOT, check=True, capture_output=True)
    subprocess.run(("tar", "-x", "-C", str(checkout)), input=archive.stdout, check=True)
    return checkout


class Host:
    """A host with one worker and a sweeper, of one version of the code at a time."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.code = ROOT
        self._running: list[subprocess.Popen[bytes]] = []

    async def start(self, code: Path) -> None:
        """Start the processes of a version, and wait until its worker serves the host."""
        self.code = code
        worker = self._start("rq.cli", *WORKER)
        self._start("remoteclaw.cli", "sweep")

        async def is_ready() -> bool:
            assert worker.poll() is None, self.log()
            return any(each.pid == worker.pid for each in await self.stack.fleet.workers.list())

        await eventually(is_ready)

    async def stop(self) -> None:
        """Drain the host, as docs/operations.md says, and end its processes."""
        worker, sweeper = self._running
        assert await asyncio.to_thread(self._run("drain").wait, HANG_S) == 0, self.log()
        assert await asyncio.to_thread(worker.wait, HANG_S) == 0, self.log()
        sweeper.terminate()
        await asyncio.to_thread(sweeper.wait, HANG_S)
        self._running.clear()
        assert await asyncio.to_thread(self._run("drain", "--undo").wait, HANG_S) == 0, self.log()

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def log(self) -> str:
        return (self.stack.home.logs / "host.log").read_text()

    def _start(self, *command: str) -> "subprocess.Popen[bytes]":
        self._running.append(self._run(*command, module=""))
        return self._running[-1]

    def _run(self, *command: str, module: str = "remoteclaw.cli") -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", *([module] if module else []), *command]
        env = self.stack.env(PYTHONPATH=str(self.code))
        with (self.stack.home.logs / "host.log").open("ab") as log:
            return subprocess.Popen(argv, env=env, cwd=self.code, stdout=log, stderr=log)


@pytest.fixture
async def hosts(stack: Stack, other: Stack, directory: Path) -> AsyncIterator[tuple[Host, Host]]:
    agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(agent)
    other.configure(agent, redis_url=stack.redis.url)
    both = Host(stack), Host(other)
    yield both
    for host in both:
        host.end()


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_two_hosts_are_upgraded_one_after_the_other_while_turns_run(
    stack: Stack, hosts: tuple[Host, Host], earlier: Path
) -> None:
    """Each message has one answer, in order and without a failed attempt; then back again."""
    for host in hosts:
        await host.start(earlier)
    goes_on, sent = True, dict.fromkeys(CHATS, 0)

    async def write(chat: str) -> None:
        while goes_on:
            sent[chat] += 1
            accepted = await stack.fleet.inbound.append(
                message(f"{chat}-{sent[chat]}", channel_id=chat), agent="main"
            )
            outcome = await stack.outcome(accepted)
            assert said(outcome).endswith(f"heard {chat}-{sent[chat]}")
            assert {step.attempt for step in outcome.steps if step.attempt} == {1}

    async with asyncio.TaskGroup() as tasks:
        for chat in CHATS:
            tasks.create_task(write(chat))
        for host in hosts:
            await host.stop()
            await host.start(ROOT)
        await hosts[0].stop()
        await hosts[0].start(earlier)
        goes_on = False

    replies: Any = await stack.fleet.scripts.client.xrange(REPLIES)
    texts = [fields[b"reply"].decode() for _, fields in replies if b"reply" in fields]
    for chat in CHATS:
        heard = [f"heard {chat}-{number}" for number in range(1, sent[chat] + 1)]
        assert len(heard) > 4
        assert [one for one in heard if sum(f'{one}"' in text for text in texts) != 1] == []
