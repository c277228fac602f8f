"""Requests to people while a worker, an adapter, a gateway or Redis is killed, at every step.

Each case stops a process (a stock `rq worker`, `remoteclaw channel run` or a gateway) at one step,
with a proxy before Redis or at a call of its platform. Then the process or Redis is killed. At the
end, the person was asked once for each decision, no command ran without an answer or twice for
one answer, and every request shows its result.
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
from remoteclaw.fleet.requests.request import Request
from remoteclaw.host import process
from remoteclaw.host.terminal import login_name
from tests.support.bridges import acp_script
from tests.support.channel import TestChannel
from tests.support.command import Process
from tests.support.doors import gateway_process, own_token
from tests.support.failpoints import Failpoint, Proxy, Side
from tests.support.processes import is_alive
from tests.support.requests import BODY, sooner
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONCE, DENY = "1", "3"


@dataclass
class Lab:
    """Workers and an adapter that reach Redis through a proxy, shared by all cases."""

    stack: Stack
    proxy: Proxy
    channel: TestChannel
    adapter: Process | None = None
    word: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The thread of a case, and a word in the command that its agent asks for."""

    @property
    def client(self) -> Any:
        return self.stack.fleet.scripts.client

    async def keep_workers(self) -> None:
        """Keep one worker running: RQ's workers may exit at any time after Redis was down."""
        while True:
            self.stack.workers = [w for w in self.stack.workers if w.poll() is None]
            if not self.stack.workers:
                with contextlib.suppress(AssertionError):  # Redis may be down
                    await self.stack.start_worker(REMOTECLAW__REDIS__URL=self.proxy.url)
            await asyncio.sleep(0.05)

    def begin(self) -> None:
        """Begin a case in a new thread, with a running adapter."""
        self.word = uuid.uuid4().hex
        self.adapter = self.adapter or self.channel.start(url=self.proxy.url)

    # Actions of the owner.

    def say(self, text: str) -> None:
        """Send a message of the owner."""
        self.channel.platform.say("alice", "alice", text, thread=self.word)

    async def requests(self) -> list[Request]:
        """Return the case's requests, oldest first."""
        requests = await self.stack.fleet.requests.all()
        return [request for request in requests if request.session.thread == self.word]

    async def card(self, number: int = 1) -> Request:
        """Wait until `number` requests exist and the last one is shown and waits; return it."""

        async def last_shown() -> Request | None:
            with contextlib.suppress(ConnectionError):  # Redis may be down
                requests = await self.requests()
                if len(requests) == number and requests[-1].shown and requests[-1].is_waiting:
                    return requests[-1]
            return None

        request: Request = await eventually(last_shown)
        return request

    async def ask(self) -> Request:
        """Let the agent make a request, and wait until it is shown; return it."""
        self.say(f"touch {self.word}")
        return await self.card()

    async def ends(self, with_: str) -> None:
        """Wait until the agent has reported the answer `with_` and all replies are delivered."""

        async def is_over() -> bool:
            with contextlib.suppress(ConnectionError):
                requests = await self.requests()
                view = await self.stack.fleet.sessions.view(requests[0].session.sid)
                is_idle = view is not None and view.status == "idle"
                is_posted = any(f"touch {self.word} {with_}" in text for text in self.posts())
                return is_idle and is_posted and not await self.client.xlen(REPLIES)
            return False

        await eventually(is_over)

    # The state at the end.

    def posts(self) -> list[str]:
        """Return the agent's messages in the case's thread."""
        posts = self.channel.platform.chat("alice")
        return [post.text for post in posts if post.thread == self.word and post.by == "agent"]

    def cards(self) -> list[str]:
        return [text for text in self.posts() if f"touch {self.word}\n" in text]

    def runs(self) -> int:
        """Return how often the agent ran the command."""
        runs = self.stack.home.path / "workspaces" / "main" / "runs"
        return runs.read_text().count(self.word) if runs.exists() else 0

    # Failures.

    async def second_take(self, side: Side) -> Failpoint:
        """Hold the worker at its second check for an answer, when the request is shown."""
        first = self.proxy.arm("take", side)
        self.say(f"touch {self.word}")
        await first.wait()
        second = self.proxy.arm("take", side)
        first.release()
        await self.card()
        return second

    async def kill_worker(self, failpoint: Failpoint) -> None:
        """Kill the work-horse, and let a sweeper of its host notice it."""
        os.kill(await failpoint.wait(), 9)
        await eventually(lambda: not is_alive(failpoint.pid))
        failpoint.cut()
        fleet = self.stack.fleet
        await fleet.sweeper.release_dead(self.stack.home.host_id, process.is_alive)
        await fleet.sweeper.sweep()

    def kill_adapter(self) -> None:
        """Kill the channel's process, and start it again at once."""
        assert self.adapter
        self.adapter.kill()
        self.adapter.wait()
        self.adapter = self.channel.start(url=self.proxy.url)

    async def end_redis(self, failpoint: Failpoint) -> None:
        """Kill Redis, and start it again at once."""
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
    """The next attempt adopts the request, although its worker never learned that it is stored."""
    failpoint = lab.proxy.arm("request", "after")
    lab.say(f"touch {lab.word}")
    await lab.kill_worker(failpoint)
    await lab.card()
    lab.say(ONCE)
    await lab.ends("yes")


async def worker_does_not_know_the_answer(lab: Lab) -> None:
    """The next attempt takes the answer and does not ask again."""
    failpoint = await lab.second_take("before")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.ends("yes")


async def worker_knows_the_answer(lab: Lab) -> None:
    """The command may have run, so it is asked for again, and runs only on the second answer."""
    failpoint = await lab.second_take("after")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(ONCE)
    await lab.ends("yes")


async def worker_has_run_the_command(lab: Lab) -> None:
    """The next attempt does not run the command again on the same answer."""
    await lab.ask()
    failpoint = lab.proxy.arm("finish", "before")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(DENY)
    await lab.ends("no")


async def worker_has_used_a_late_answer(lab: Lab) -> None:
    """An attempt that may have run the command uses up a late grant."""
    await sooner(lab.stack, await lab.ask())
    await eventually(lambda: any("I wait for an answer" in text for text in lab.posts()))
    failpoint = lab.proxy.arm("request", "after")
    lab.say(ONCE)
    await lab.kill_worker(failpoint)
    await lab.card(2)
    lab.say(DENY)
    await lab.ends("no")


async def adapter_has_shown_the_card(lab: Lab) -> None:
    """The platform's id of the first card is lost, so a second card is shown."""
    failpoint = lab.proxy.arm("receipt", "before")
    lab.say(f"touch {lab.word}")
    await failpoint.wait()
    while not lab.cards():  # this receipt is of an earlier message
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
        """The number is read again and counts as the same answer."""
        await lab.ask()
        failpoint = lab.proxy.arm("answer", side)
        lab.say(ONCE)
        await failpoint.wait()
        lab.kill_adapter()
        failpoint.cut()
        await lab.ends("yes")

    return story


async def adapter_has_shown_the_result(lab: Lab) -> None:
    """The result of a request is shown once."""
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
        asking = asyncio.create_task(client.call("requests.answer", answer))
        await failpoint.wait()
        gateway.kill()
        failpoint.cut()
        await asyncio.wait((asking,))
        assert asking.exception()

        door, _ = await running.enter_async_context(gateway_process(lab.stack, **at))
        client = await running.enter_async_context(door.connected(own_token(lab.stack)))
        assert (await client.call("requests.answer", answer))["counts"]
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
    # the story, the number of cards, how often the command ran, and the states of the requests
    (worker_has_asked, 1, 1, ["given"]),
    (worker_does_not_know_the_answer, 1, 1, ["given"]),
    (worker_knows_the_answer, 2, 1, ["given", "given"]),
    (worker_has_run_the_command, 2, 1, ["given", "given"]),
    (worker_has_used_a_late_answer, 2, 0, ["used", "given"]),
    (adapter_has_shown_the_card, 2, 1, ["given"]),
    (adapter_answers("before"), 1, 1, ["given"]),
    (adapter_answers("after"), 1, 1, ["given"]),
    (adapter_has_shown_the_result, 1, 1, ["given"]),
    (gateway_answers, 1, 1, ["given"]),
    (redis_has_the_answer, 1, 1, ["given"]),
    (redis_has_given_the_answer, 1, 1, ["given"]),
]
IDS = [
    "worker_has_asked",
    "worker_does_not_know_the_answer",
    "worker_knows_the_answer",
    "worker_has_run_the_command",
    "worker_has_used_a_late_answer",
    "adapter_has_shown_the_card",
    "adapter_answers",
    "adapter_has_answered",
    "adapter_has_shown_the_result",
    "gateway_answers",
    "redis_has_the_answer",
    "redis_has_given_the_answer",
]


@pytest.mark.parametrize(("story", "cards", "runs", "states"), CASES, ids=IDS)
async def test_each_request_is_decided_once_if_a_process_is_killed_when(
    lab: Lab, story: Story, cards: int, runs: int, states: list[str]
) -> None:
    lab.begin()
    await story(lab)

    requests = await lab.requests()
    assert [request.state for request in requests] == states
    assert (len(lab.cards()), lab.runs()) == (cards, runs)
    said = "by alice at", f"by {login_name()} at"
    closed = [text for text in lab.cards() if any(each in text for each in said)]
    assert len(closed) == len(requests)
    warnings = ["may have been done already" in text for text in closed]
    assert warnings == [False, True][: len(requests)]
