"""Two machines with one host id: neither ends, loses or repeats what the other one does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remoteclaw import clock
from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.holder.runs import remove_dead_runs, run_name
from remoteclaw.host import process
from remoteclaw.up.doctor import examine
from tests.support.bridges import script
from tests.support.processes import children
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually

#: An agent whose turn lasts until it is told to go on.
SLOW = """
turn()
while not os.path.exists('go'):
    time.sleep(0.01)
say(type='done')
"""
#: How a process sees the machine from another one: another boot, and a process that it can't see.
ELSEWHERE = """
mount --bind "$1" /proc/sys/kernel/random/boot_id && mount --bind "$2" "/proc/$3" || exit 77
shift 3; exec "$@"
"""


@pytest.fixture
def other_boot(directory: Path) -> Path:
    """A file with what another machine says of its boot."""
    file = directory / "boot_id"
    file.write_text("00000000-1111-2222-3333-444444444444\n")
    return file


async def sweeping_elsewhere(stack: Stack, boot: Path, unseen: int) -> subprocess.Popen[bytes]:
    """Start a sweeper as on a machine with our host id; skip where that takes more rights."""
    nothing = boot.parent / "nothing"
    nothing.mkdir()
    unshare = ["unshare", "-m" if os.getuid() == 0 else "-rm", "sh", "-c", ELSEWHERE, "sh"]
    sweep = [str(Path(sys.executable).with_name("remoteclaw")), "sweep"]
    with (stack.home.logs / "elsewhere.log").open("wb") as log:
        sweeper = subprocess.Popen(
            [*unshare, str(boot), str(nothing), str(unseen), *sweep],
            env=stack.env(),
            stdout=log,
            stderr=log,
        )
    client = stack.fleet.scripts.client
    # It has looked for dead workers twice by then: at first, and again after two seconds.
    for _ in range(4):
        await client.delete(keys.SWEEPER)

        async def has_looked() -> bool:
            return sweeper.poll() is not None or bool(await client.exists(keys.SWEEPER))

        await eventually(has_looked)
    said = (stack.home.logs / "elsewhere.log").read_text()
    if sweeper.poll() == 77 or "unshare:" in said:
        pytest.skip(f"mount namespaces are not allowed here: {said}")
    assert sweeper.poll() is None, said
    return sweeper


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
async def test_a_turn_is_begun_once_while_another_machine_sweeps(
    stack: Stack, directory: Path, other_boot: Path
) -> None:
    """Process ids and the number of the first namespace are the same ones on every machine."""
    stack.configure({"runtime": "demo", "command": list(script(directory, SLOW))})
    workers = [await stack.start_worker() for _ in range(2)]
    accepted = await stack.append("hello")
    await stack.reached(accepted, "spawned")
    (horse,) = [pid for worker in workers for pid in children(worker.pid)]

    sweeper = await sweeping_elsewhere(stack, other_boot, horse)
    (stack.home.path / "workspaces" / "main" / "go").touch()

    outcome = await stack.outcome(accepted)
    sweeper.terminate()
    sweeper.wait(HANG_S)
    assert outcome.status == "done"
    assert [step.attempt for step in outcome.steps if step.name == "begun"] == [1]


def test_of_another_boot_nothing_is_concluded(
    other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is an older one of this machine can't be told: a clone remembers the same."""
    mine = process.identity()
    dead = mine.replace(f"pid {os.getpid()} ", "pid 4194303 ")
    old = "pid 4194303 4026531836 999"
    assert process.is_alive(mine)
    assert not process.is_alive(dead)
    assert process.is_alive(old)

    monkeypatch.setattr(clock, "BOOT_ID", other_boot)

    assert process.is_alive(dead)
    assert process.identity() != mine


def test_a_kernel_that_has_no_boot_id_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "BOOT_ID", Path("/nonexistent"))

    assert process.is_alive(process.identity())


@pytest.fixture
async def worker(stack: Stack) -> int:
    return (await stack.start_worker()).pid


async def test_doctor_names_a_second_machine(
    stack: Stack, worker: int, other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = stack.home.host_id
    assert not [found async for found in examine() if "another machine" in found.text]

    monkeypatch.setattr(clock, "BOOT_ID", other_boot)

    (named,) = [found async for found in examine() if "another machine" in found.text]
    assert not named.ok
    assert f"rq worker {worker} on " in named.text
    assert host in named.text
    assert str(stack.home.path / "host-id") in named.text


async def test_each_machine_has_a_gateway_of_its_own(
    stack: Stack, other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address on loopback means another process on each."""
    gateways = stack.fleet.gateways
    async with gateways.announced("here", "http://127.0.0.1:18789"):
        assert await gateways.address("here")

        monkeypatch.setattr(clock, "BOOT_ID", other_boot)

        assert await gateways.address("here") is None


def test_run_directories_of_another_machine_are_left_alone(
    home: Home, other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holders can't be reached from here, also where the directory is shared."""
    ours = home.runs / run_name("up")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(clock, "BOOT_ID", other_boot)
        theirs, old = home.runs / run_name("up"), home.runs / run_name("")
    for run in (ours, theirs, old):
        run.mkdir()
    os.utime(old, (0, 0))

    remove_dead_runs(home.runs, older_than_s=0)

    assert [run.exists() for run in (ours, theirs, old)] == [False, True, False]
