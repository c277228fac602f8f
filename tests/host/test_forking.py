"""The fork server: it forks independent programs, and none of them outlives its owner."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from remoteclaw.host.forking import ForkedProcess, ForkServer
from remoteclaw.up.supervisor import PRELOADED
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
forks.fork_first()

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
        pass  # the owner has not yet noticed the end of the server
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


async def run(forks: ForkServer, directory: Path, program: str, **env: str) -> ForkedProcess:
    """Fork `program`, with its output in the file `log`."""
    name = f"program_{len(list(directory.iterdir()))}"
    (directory / f"{name}.py").write_text(program)
    env = {**env, "PYTHONPATH": str(directory)}
    return await forks.fork(name, "a", "b c", env=env, log=directory / "log")


async def test_a_forked_program_has_its_own_arguments_environment_and_group(
    directory: Path,
) -> None:
    async with server(directory) as forks:
        forked = await run(forks, directory, REPORT, WHO="me")

        assert await forked.wait() == 3

    assert (directory / "log").read_text() == f"['a', 'b c'] me False {Path.cwd()}\n"
    assert (directory / "log").stat().st_mode & 0o777 == 0o600
    assert (directory / "server.log").read_text() == ""


async def test_a_fork_server_with_a_low_priority_logs_no_warning(directory: Path) -> None:
    """From Python 3.12 on, `os.fork()` would read the nice value as a number of threads."""
    async with server(directory) as forks:
        first = await run(forks, directory, "import time; time.sleep(600)")
        assert first.pid is not None
        os.setpriority(os.PRIO_PROCESS, parent(first.pid), 19)
        assert await (await run(forks, directory, "pass")).wait() == 0

    assert (directory / "server.log").read_text() == ""


async def test_a_signal_ends_only_the_forked_program_that_gets_it(directory: Path) -> None:
    async with server(directory) as forks:
        first = await run(forks, directory, "import time; time.sleep(600)")
        second = await run(forks, directory, "import time; time.sleep(600)")

        first.send_signal(signal.SIGTERM)

        assert await first.wait() == -signal.SIGTERM
        assert second.pid is not None
        assert is_alive(second.pid)


async def test_forked_programs_end_with_a_killed_fork_server_and_another_one_starts(
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

        await eventually(again)  # the first fork may fail, before the end is noticed


async def test_a_fork_server_ends_with_its_owner_and_ignores_sigterm(directory: Path) -> None:
    async with server(directory) as forks:
        forked = await run(forks, directory, "import time; time.sleep(600)")
        assert forked.pid is not None
        owner = parent(forked.pid)
        os.kill(owner, signal.SIGTERM)
        assert await (await run(forks, directory, "pass")).wait() == 0
        assert parent(forked.pid) == owner

    assert not is_alive(owner)
    await eventually(lambda: not is_alive(forked.pid or 0))


async def test_the_first_fork_server_can_be_a_fork_of_its_owner(directory: Path) -> None:
    """It has the modules that its owner has loaded, but not its open files or its import path.

    After it is killed, no zombie is left, and another server makes the next fork.
    """
    (directory / "owner.py").write_text(OWNER)
    (directory / "log").touch()

    owner = await asyncio.create_subprocess_exec(sys.executable, directory / "owner.py")

    assert await owner.wait() == 0
    assert (directory / "log").read_text() == "of the owner, [0, 1, 2, 3], report, None\n"


async def test_a_forked_worker_loads_nothing_but_its_own_modules(
    stack: Stack, directory: Path
) -> None:
    """The fork server has no threads, because a fork does not copy them."""
    program = (
        "import os, sys, pathlib\nbefore = set(sys.modules)\nimport workers.jobs\n"
        "print(*set(sys.modules) - before)\n"
        "print(pathlib.Path(f'/proc/{os.getppid()}/status').read_text().partition('Threads:')[2].split()[0])"
    )
    async with server(directory, *PRELOADED) as forks:
        forked = await run(forks, directory, program, **stack.env())
        assert await asyncio.wait_for(forked.wait(), 60) == 0

    loaded, threads = (directory / "log").read_text().splitlines()
    foreign = {
        name for name in loaded.split() if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert foreign == {"workers", "workers.jobs", "workers.settings"}
    assert threads == "1"
