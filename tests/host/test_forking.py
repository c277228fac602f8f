"""The fork server: what it forks is a program of its own, and nothing of it outlives its owner."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from remoteclaw.host.forking import Forked, ForkServer
from remoteclaw.up.supervisor import LOADED
from tests.support.processes import is_alive, parent
from tests.support.stack import Stack
from tests.support.waiting import eventually

REPORT = """
import os, sys
print(sys.argv[1:], os.environ["WHO"], "HOME" in os.environ, os.getcwd())
assert os.getpgid(0) == os.getpid()
sys.exit(3)
"""

OWNER = """
import asyncio, colorsys, os, sys
from pathlib import Path
from remoteclaw.host.forking import ForkServer

here = Path(__file__).parent
(here / "more").mkdir()
(here / "more/report.py").write_text(
    "import colorsys, importlib.util, os, pathlib\\n"
    "given = [fd for fd in range(99) if os.path.exists(f'/proc/self/fd/{fd}')]\\n"
    "name = pathlib.Path('/proc/self/comm').read_text().strip()\\n"
    "print(colorsys.owner, given, name, importlib.util.find_spec('owner'), sep=', ')"
)
colorsys.owner = "of the owner"
forks = ForkServer("colorsys", log=here / "log")
forks.begin()

async def fork():
    env = {"PYTHONPATH": str(here / "more")}
    with open(__file__) as file:
        forked = await forks.fork("report", "report", env=env, log=here / "log", sockets=[file])
    assert await forked.wait() == 0
    first = int(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
    os.kill(first, 9)
    while Path(f"/proc/{first}").exists():
        await asyncio.sleep(0.01)
    while await (await forks.fork("colorsys", env=env, log=here / "log")).wait():
        pass  # it is not known yet that the server has ended
    await forks.end()

asyncio.run(fork())
"""


@contextlib.asynccontextmanager
async def server(directory: Path, *modules: str) -> AsyncIterator[ForkServer]:
    forks = ForkServer(*modules, log=directory / "server.log")
    try:
        yield forks
    finally:
        await forks.end()


async def run(forks: ForkServer, directory: Path, program: str, **env: str) -> Forked:
    """Fork a program; what it prints is in `log`."""
    name = f"program_{len(list(directory.iterdir()))}"
    (directory / f"{name}.py").write_text(program)
    env = {**env, "PYTHONPATH": str(directory)}
    return await forks.fork(name, "a", "b c", env=env, log=directory / "log")


async def test_what_is_forked_is_a_program_of_its_own(directory: Path) -> None:
    async with server(directory) as forks:
        forked = await run(forks, directory, REPORT, WHO="me")

        assert await forked.wait() == 3

    assert (directory / "log").read_text() == f"['a', 'b c'] me False {Path.cwd()}\n"
    assert (directory / "log").stat().st_mode & 0o777 == 0o600
    assert (directory / "server.log").read_text() == ""


async def test_a_signal_ends_a_forked_program_alone(directory: Path) -> None:
    async with server(directory) as forks:
        first = await run(forks, directory, "import time; time.sleep(600)")
        second = await run(forks, directory, "import time; time.sleep(600)")

        first.send_signal(signal.SIGTERM)

        assert await first.wait() == -signal.SIGTERM
        assert second.pid is not None
        assert is_alive(second.pid)


async def test_what_was_forked_ends_with_a_server_that_is_killed_and_another_one_is_started(
    directory: Path,
) -> None:
    async with server(directory) as forks:
        forked = await run(forks, directory, "import time; time.sleep(600)")
        assert forked.pid is not None

        os.kill(parent(forked.pid), signal.SIGKILL)

        assert await forked.wait() == -signal.SIGKILL
        await eventually(lambda: not is_alive(forked.pid or 0))

        async def again() -> bool:
            return await (await run(forks, directory, "pass")).wait() == 0

        await eventually(again)  # a fork may be asked for before the end is noticed


async def test_a_server_ends_with_its_owner_and_ignores_other_signals(directory: Path) -> None:
    async with server(directory) as forks:
        forked = await run(forks, directory, "import time; time.sleep(600)")
        assert forked.pid is not None
        owner = parent(forked.pid)
        os.kill(owner, signal.SIGTERM)
        assert await (await run(forks, directory, "pass")).wait() == 0
        assert parent(forked.pid) == owner

    assert not is_alive(owner)
    await eventually(lambda: not is_alive(forked.pid or 0))


async def test_the_first_server_may_be_a_fork_of_its_owner(directory: Path) -> None:
    """It has what its owner has loaded, but no file of it and none of its directory's modules.

    When it was killed, nothing is left of it, and another one does what is asked for next.
    """
    (directory / "owner.py").write_text(OWNER)
    (directory / "log").touch()

    owner = await asyncio.create_subprocess_exec(sys.executable, directory / "owner.py")

    assert await owner.wait() == 0
    assert (directory / "log").read_text() == "of the owner, [0, 1, 2, 3], report, None\n"


async def test_a_forked_worker_loads_nothing_but_its_own_modules(
    stack: Stack, directory: Path
) -> None:
    """And what forks it has no threads, which a fork would leave behind."""
    program = (
        "import os, sys, pathlib\nbefore = set(sys.modules)\nimport workers.jobs\n"
        "print(*set(sys.modules) - before)\n"
        "print(pathlib.Path(f'/proc/{os.getppid()}/status').read_text().partition('Threads:')[2].split()[0])"
    )
    async with server(directory, *LOADED) as forks:
        forked = await run(forks, directory, program, **stack.env())
        assert await asyncio.wait_for(forked.wait(), 60) == 0

    loaded, threads = (directory / "log").read_text().splitlines()
    ours = {
        name for name in loaded.split() if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert ours == {"workers", "workers.jobs", "workers.settings"}
    assert threads == "1"
