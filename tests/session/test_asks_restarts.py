"""At every step of a request to a person, the worst that can happen there.

Each case stops a process at one step, by a proxy before Redis or at a call of its platform: a stock
`rq worker`, `remoteclaw channel run` or a gateway. There it is killed, or Redis is. In the end the
person was asked once for each thing that they had to decide, nothing was done without their answer
or twice on one, and every request says what became of it.
"""

import asyncio
import contextlib
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.exceptions import ConnectionError

from remoteclaw.config.home import Home
from remoteclaw.fleet.request import Request
from remoteclaw.host import process
from tests.support.asks import BODY, sooner
from tests.support.bridges import acp_script
from tests.support.channel import TestChannel
from tests.support.command import Process
from tests.support.doors import gateway_process, own_token
from tests.support.failpoints import Failpoint, Proxy, Side
from tests.support.processes import is_alive
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONCE, DENY = "1", "3"


@dataclass
class Lab:
    """Workers and a channel's process behind a proxy, for all cases of this module."""

    stack: Stack
    proxy: Proxy
    channel: TestChannel
    adapter: Process | None = None
    word: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The thread of a case, and what its agent asks about."""

    @property
    def client(self) -> Any:
        return self.stack.fleet.scripts.client

    async def keep_workers(self) -> None:
        """Have a worker, always: RQ's own end at any time after Redis was away."""
        while True:
            self.stack.workers = [one for one in self.stack.workers if one.poll() is None]
            if not self.stack.workers:
                with contextlib.suppress(AssertionError):  # Redis may be away just now
                    await self.stack.start_worker(REMOTECLAW__REDIS__URL=self.proxy.url)
            await asyncio.sleep(0.05)

    def begin(self) -> None:
        """Have the processes at work, and a case begun."""
        self.word = uuid.uuid4().hex
        self.adapter = self.adapter or self.channel.start(url=self.proxy.url)

    # What people do.

    def say(self, text: str) -> None:
        """Have the owner write."""
        self.channel.platform.say("alice", "alice", text, thread=self.word)

    async def asked(self) -> list[Request]:
        """Return the case's requests, oldest first."""
        found = await self.stack.fleet.asks.all()
        return [one for one in found if one.session.thread == self.word]

    async def card(self, number: int = 1) -> Request:
        """Wait until so many requests were made, and the last one is shown and waits."""

        async def is_there() -> Request | None:
            with contextlib.suppress(ConnectionError):  # Redis may be away
                asked = await self.asked()
                if len(asked) == number and asked[-1].shown and asked[-1].is_waiting:
                    return asked[-1]
            return None

        request: Request = await eventually(is_there)
        return request

    async def ask(self) -> Request:
        """Have the agent ask, and wait until that is shown."""
        self.say(f"touch {self.word}")
        return await self.card()

    async def ends(self, with_: str) -> None:
        """Wait until the agent has said its last words and nothing is on its way."""

        async def is_over() -> bool:
            with contextlib.suppress(ConnectionError):
                asked = await self.asked()
                view = await self.stack.fleet.sessions.view(asked[0].session.sid)
                is_idle = view is not None and view.status == "idle"
                is_said = any(f"touch {self.word} {with_}" in text for text in self.posts())
                return is_idle and is_said and not await self.client.xlen(REPLIES)
            return False

        await eventually(is_over)

    # What is there in the end.

    def posts(self) -> list[str]:
        """Return what the agent has said."""
        posts = self.channel.platform.chat("alice")
        return [one.text for one in posts if one.thread == self.word and one.by == "agent"]

    def cards(self) -> list[str]:
        return [text for text in self.posts() if f"touch {self.word}\n" in text]

    def runs(self) -> int:
        """Return how often the agent did it."""
        runs = self.stack.home.path / "workspaces" / "main" / "runs"
        return runs.read_text().count(self.word) if runs.exists() else 0

    # What happens.

    async def second_take(self, side: Side) -> Failpoint:
        """Hold the worker as it looks for an answer once there may be one."""
        first = self.proxy.arm("take", side)
        self.say(f"touch {self.word}")
        await first.wait()
        second = self.proxy.arm("take", side)
        first.release()
        await self.card()
        return second

    async def kill_worker(self, failpoint: Failpoint) -> None:
        """The work-horse is killed; a sweeper of its host sees that."""
        os.kill(await failpoint.wait(), 9)
        await eventually(lambda: not is_alive(failpoint.pid))
        failpoint.cut()
        fleet = self.stack.fleet
        await fleet.sweeper.release_dead(self.stack.home.host_id, process.is_alive)
        await fleet.sweeper.sweep()

    def kill_adapter(self) -> None:
        """The channel's process is killed, and is back at once."""
        assert self.adapter
        self.adapter.kill()
        self.adapter.wait()
        self.adapter = self.channel.start(url=self.proxy.url)

    async def end_redis(self, failpoint: Failpoint) -> None:
        """Redis is killed, and is back at once."""
        self.stack.redis.kill()
        await asyncio.to_thread(self.stack.redis.start)
        failpoint.cut()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    with (
        tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        directory = Path(name)
        stack = Stack(Home(directory / "home").create())
        stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
        await stack.start()
        proxy = await stack.proxied()
        channel = TestChannel.installed(monkeypatch, stack)
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        lab = Lab(stack, proxy, channel)
        keeping = asyncio.create_task(lab.keep_workers())
        try:
            yield lab
        finally:
            keeping.cancel()
            sweeping.cancel()
            channel.end()
            await stack.stop()


Story = Callable[[Lab], Awaitable[None]]


async def worker_has_asked(lab: Lab) -> None:
    """The next attempt adopts the request that nobody knows to be made."""
    failpoint = lab.proxy.arm("ask", "after")
    lab.say(f"touch {lab.word}")
    await lab.kill_worker(failpoint)
    await lab.card()
    lab.say(ONCE)
    await lab.ends("yes")


async def worker_does_not_know_the_answer(lab: Lab) -> None:
    """The next attempt takes the answer, and nobody is asked again."""
    failpoint = await lab.second_take("before")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.ends("yes")


async def worker_knows_the_answer(lab: Lab) -> None:
    """It may have been done: it is asked anew, and done on the second answer alone."""
    failpoint = await lab.second_take("after")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(ONCE)
    await lab.ends("yes")


async def worker_has_done_it(lab: Lab) -> None:
    """The next attempt does not do it again on the same answer."""
    await lab.ask()
    failpoint = lab.proxy.arm("finish", "before")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(DENY)
    await lab.ends("no")


async def worker_has_used_a_late_answer(lab: Lab) -> None:
    """What was granted late is used up by an attempt that may have done it."""
    await sooner(lab.stack, await lab.ask())
    await eventually(lambda: any("I wait for an answer" in text for text in lab.posts()))
    failpoint = lab.proxy.arm("ask", "after")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(DENY)
    await lab.ends("no")


async def adapter_has_shown_it(lab: Lab) -> None:
    """Nobody knows what the platform calls the first message: there is a second one."""
    failpoint = lab.proxy.arm("receipt", "before")
    lab.say(f"touch {lab.word}")
    await failpoint.wait()
    while not lab.cards():  # it is of what was said before
        following = lab.proxy.arm("receipt", "before")
        failpoint.release()
        failpoint = following
        await failpoint.wait()
    lab.kill_adapter()
    failpoint.cut()
    await lab.card()
    lab.say(ONCE)
    await lab.ends("yes")


def adapter_answers(side: Side) -> Story:
    async def story(lab: Lab) -> None:
        """The number is read again, and is an answer again."""
        await lab.ask()
        failpoint = lab.proxy.arm("answer", side)
        lab.say(ONCE)
        await failpoint.wait()
        lab.kill_adapter()
        failpoint.cut()
        await lab.ends("yes")

    return story


async def adapter_has_told_it(lab: Lab) -> None:
    """What became of a request stands there once."""
    await lab.ask()
    failpoint = lab.proxy.arm("answer", "before")
    platform = lab.channel.platform
    lab.say(ONCE)
    await failpoint.wait()
    held = len(platform.did("held"))
    platform.tell(stops="replace after")
    failpoint.release()
    await eventually(lambda: len(platform.did("held")) > held)
    lab.kill_adapter()
    platform.tell()
    await lab.ends("yes")


async def gateway_answers(lab: Lab) -> None:
    """The call is made again, and counts as the same answer."""
    request = await lab.ask()
    answer = {"id": request.id, "verdict": "once"}
    failpoint = lab.proxy.arm("answer", "after")
    at = {"REMOTECLAW__REDIS__URL": lab.proxy.url}
    async with contextlib.AsyncExitStack() as running:
        door, gateway = await running.enter_async_context(gateway_process(lab.stack, **at))
        client = await running.enter_async_context(door.connected(own_token(lab.stack)))
        asking = asyncio.create_task(client.call("asks.answer", answer))
        await failpoint.wait()
        gateway.kill()
        failpoint.cut()
        await asyncio.wait((asking,))
        assert asking.exception()

        door, _ = await running.enter_async_context(gateway_process(lab.stack, **at))
        client = await running.enter_async_context(door.connected(own_token(lab.stack)))
        assert (await client.call("asks.answer", answer))["counts"]
    await lab.ends("yes")


async def redis_has_the_answer(lab: Lab) -> None:
    await lab.ask()
    failpoint = lab.proxy.arm("answer", "after")
    lab.say(ONCE)
    await failpoint.wait()
    await lab.end_redis(failpoint)
    await lab.ends("yes")


async def redis_has_given_the_answer(lab: Lab) -> None:
    failpoint = await lab.second_take("after")
    lab.say(ONCE)
    await failpoint.wait()
    await lab.end_redis(failpoint)
    await lab.ends("yes")


CASES = [
    # what happens, how often it is shown, how often it is done, and what became of the requests
    (worker_has_asked, 1, 1, ["given"]),
    (worker_does_not_know_the_answer, 1, 1, ["given"]),
    (worker_knows_the_answer, 2, 1, ["given", "given"]),
    (worker_has_done_it, 2, 1, ["given", "given"]),
    (worker_has_used_a_late_answer, 2, 0, ["used", "given"]),
    (adapter_has_shown_it, 2, 1, ["given"]),
    (adapter_answers("before"), 1, 1, ["given"]),
    (adapter_answers("after"), 1, 1, ["given"]),
    (adapter_has_told_it, 1, 1, ["given"]),
    (gateway_answers, 1, 1, ["given"]),
    (redis_has_the_answer, 1, 1, ["given"]),
    (redis_has_given_the_answer, 1, 1, ["given"]),
]
IDS = [
    "worker_has_asked",
    "worker_does_not_know_the_answer",
    "worker_knows_the_answer",
    "worker_has_done_it",
    "worker_has_used_a_late_answer",
    "adapter_has_shown_it",
    "adapter_answers",
    "adapter_has_answered",
    "adapter_has_told_it",
    "gateway_answers",
    "redis_has_the_answer",
    "redis_has_given_the_answer",
]


@pytest.mark.parametrize(("story", "shown", "done", "states"), CASES, ids=IDS)
async def test_killed_when(
    lab: Lab, story: Story, shown: int, done: int, states: list[str]
) -> None:
    lab.begin()
    await story(lab)

    asked = await lab.asked()
    assert [one.state for one in asked] == states
    assert (len(lab.cards()), lab.runs()) == (shown, done)
    closed = [text for text in lab.cards() if "by alice at" in text or "by the operator" in text]
    assert len(closed) == len(asked)
    again = ["may have been done already" in text for text in closed]
    assert again == [False, True][: len(asked)]
