"""Two hosts under load, one of which is stopped in each of the ways that RemoteClaw ships."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ROOT
from tests.support.earlier import earlier_version
from tests.support.processes import children, is_alive
from tests.support.stack import Stack
from tests.support.stops import WORKERS, Host, grace_of_compose
from tests.support.systemd import UserManager, user_manager
from tests.support.traffic import LONGEST_S, Traffic
from tests.support.waiting import HANG_S, eventually

#: How many chats write at the same time: fewer than there are workers on the other host, so that no
#: message waits only because all of them are busy.
CHATS = 5
#: What a host may take to end after its last turn, in seconds, and how long its warm agents stay.
END_S, LEAVE_S = 10.0, 1.0
#: How long honcho waits before it kills its processes, in seconds.
HONCHO_S = 5.0

#: What imports nothing else of RemoteClaw, because it is started as a program of its own.
STARTED_ALONE = ("remoteclaw.holder", "remoteclaw.connector", "remoteclaw.runtimes.demo.agent")

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


class Show:
    """Two hosts with traffic. The second one goes on while a test stops the first."""

    def __init__(self, host: Host, traffic: Traffic) -> None:
        self.host = host
        self.traffic = traffic

    async def turn_runs(self) -> None:
        """Wait until the first host has begun a turn that outlasts what honcho waits."""
        await self.traffic.long_turn(self.host.stack.home)

    async def run(self, *arguments: str) -> str:
        """Run `remoteclaw` on the first host while messages come; return its output."""
        return await asyncio.to_thread(self.host.run, *arguments)

    async def ends(self, process: "subprocess.Popen[bytes]", within_s: float) -> None:
        """Wait for the end of a program of the first host."""
        await asyncio.to_thread(process.wait, within_s)

    async def is_gone(self, within_s: float = LEAVE_S + END_S) -> None:
        """Wait until nothing of the first host runs."""
        await eventually(lambda: not self.host.processes(), within_s=within_s)

    async def works_again(self) -> None:
        """Wait until the first host has workers and begins turns again."""
        await self.host.has_workers()
        await self.traffic.next_turn(self.host.stack.home)


Beginning = Callable[..., contextlib.AbstractAsyncContextManager[Show]]


@pytest.fixture
def begin(stack: Stack, other: Stack, directory: Path) -> Beginning:
    """A function that starts both hosts and the traffic, and finally looks for faults."""

    @contextlib.asynccontextmanager
    async def begun(start: Callable[[Host], object], code: Path = ROOT) -> AsyncIterator[Show]:
        traffic = Traffic(stack, directory)
        settings: dict[str, Any] = {"leave_s": LEAVE_S, "workers": WORKERS}
        stack.configure(traffic.agent, **settings)
        other.configure(traffic.agent, redis_url=stack.redis.url, **settings)
        host, second = Host(stack, code), Host(other)
        second.env["REMOTECLAW__FLEET__WORKERS"] = str(CHATS + 1)
        try:
            second.start_up()
            await asyncio.to_thread(start, host)
            await host.has_workers()
            async with asyncio.TaskGroup() as tasks:
                for number in range(CHATS):
                    tasks.create_task(traffic.write(number))
                yield Show(host, traffic)
                await traffic.finish(more=2 * CHATS)
            assert await traffic.faults() == [], host.log.read_text()
        finally:
            host.kill()
            second.kill()

    return begun


@pytest.fixture
async def manager(directory: Path, stack: Stack) -> AsyncIterator[UserManager]:
    with user_manager(directory) as running:
        yield running


async def test_up_is_stopped_with_sigterm(begin: Beginning) -> None:
    async with begin(Host.start_up) as show:
        await show.turn_runs()
        (up,) = show.host.running

        up.terminate()

        await show.ends(up, LONGEST_S + END_S)
        assert not show.host.processes()


async def test_the_parts_are_stopped_with_sigterm(begin: Beginning) -> None:
    """Stock `rq worker`s, a gateway and a sweeper, all at once."""
    async with begin(Host.start_parts) as show:
        await show.turn_runs()

        for process in show.host.running:
            process.terminate()

        for process in show.host.running:
            await show.ends(process, LONGEST_S + END_S)
        await show.is_gone()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
async def test_honcho_is_stopped(begin: Beginning, stop: signal.Signals) -> None:
    """It kills its processes before the turn ends, which the worker survives."""
    async with begin(Host.start_honcho) as show:
        await show.turn_runs()
        (honcho,) = show.host.running
        since = time.monotonic()

        os.killpg(honcho.pid, stop) if stop is signal.SIGINT else honcho.terminate()

        await show.ends(honcho, HONCHO_S + END_S)
        assert time.monotonic() - since >= HONCHO_S - 1
        await show.is_gone(LONGEST_S + LEAVE_S + END_S)


async def test_a_container_is_stopped(begin: Beginning) -> None:
    """Docker sends SIGTERM to the first process, and kills all after the grace period."""
    grace_s = grace_of_compose()
    async with begin(Host.start_container) as show:
        await show.turn_runs()
        (unshare,) = show.host.running
        (first,) = children(unshare.pid)
        assert Path(f"/proc/{first}/comm").read_text() == "tini\n"

        os.kill(first, signal.SIGTERM)

        await show.ends(unshare, min(grace_s, LONGEST_S + END_S))
        assert not show.host.processes()


@pytest.mark.parametrize("verb", ["stop", "restart"])
@pytest.mark.parametrize("parts", [["up"], ["gateway", "sweep", "worker"]], ids=["up", "parts"])
async def test_services_are_stopped(
    begin: Beginning, manager: UserManager, verb: str, parts: list[str]
) -> None:
    """With the units that `service install` has written, of `up` or of its parts."""

    def install(host: Host) -> None:
        host.env |= manager.environment
        for part in parts:
            count = ["--count", "2"] if part == "worker" else []
            host.run("service", "install", part, *count, "--secrets")

    async with begin(install) as show:
        await show.turn_runs()
        command = ["systemctl", "--user", verb, "remoteclaw*"]

        stopping = show.host.start(*command)

        await show.ends(stopping, LONGEST_S + END_S + HANG_S * (verb == "restart"))
        assert stopping.returncode == 0
        if verb == "restart":
            await show.works_again()
            await show.run("service", "uninstall")
        await show.is_gone()


async def test_a_drained_host_is_killed(begin: Beginning) -> None:
    """After `drain`, its processes can be ended in any way."""
    async with begin(Host.start_up) as show:
        await show.turn_runs()
        (up,) = show.host.running

        assert "no turn runs there" in await show.run("drain")
        up.kill()

        await show.is_gone()
        show.host.start_up()
        await show.works_again()
        assert "this host was drained" in show.host.log.read_text()


@pytest.mark.parametrize("to", ["this", "newer"])
async def test_code_is_pulled_under_a_running_host(
    begin: Beginning, directory: Path, to: str
) -> None:
    """Its processes go on, also one that `up` starts again, until they are restarted.

    From an earlier version to this one, and from this one to one whose modules need each other.
    """
    code = directory / "code"

    def git(*arguments: str) -> None:
        subprocess.run(("git", "-C", str(code), *arguments), check=True)

    subprocess.run(("git", "clone", "-q", str(ROOT), str(code)), check=True)
    if to == "this":
        git("reset", "-q", "--hard", earlier_version())

    def update() -> None:
        if to == "this":
            git("pull", "-q", "--ff-only", str(ROOT), "HEAD")
            return
        change_all_modules(code)
        identity = ("-c", "user.name=me", "-c", "user.email=me@localhost")
        git(*identity, "commit", "-qam", "newer")

    async with begin(Host.start_up, code) as show:
        host = show.host
        await show.turn_runs()
        (up,) = host.running

        await asyncio.to_thread(update)

        await works_on(show)
        if to == "newer":
            assert "is installed on this host" in await show.run("status")
        views = await host.stack.fleet.workers.list()
        worker = next(view for view in views if view.host_id == host.stack.home.host_id)
        os.kill(worker.pid, signal.SIGTERM)
        await eventually(lambda: not is_alive(worker.pid))
        await works_on(show)
        up.terminate()
        await show.ends(up, LONGEST_S + END_S)
        assert not host.processes()
        host.start_up()
        await show.works_again()


async def works_on(show: Show) -> None:
    """Wait until the first host has all its workers and has begun more turns than it has those."""
    for _ in range(WORKERS + 1):
        await show.works_again()


def change_all_modules(code: Path) -> None:
    """Replace the files of an installation by a version whose modules need each other."""
    for file in (*code.glob("remoteclaw/**/*.py"), *code.glob("workers/*.py")):
        name = ".".join(file.relative_to(code).with_suffix("").parts).removesuffix(".__init__")
        text = file.read_text()
        if name == "remoteclaw":
            text += "NEWER = True\n"
        elif not name.startswith(STARTED_ALONE):
            text += "from remoteclaw import NEWER as _newer  # noqa\n"
        file.write_text(text)
