"""Two machines with the same host id: neither ends, loses or repeats the other's work."""

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

#: An agent whose turn lasts until the file `go` exists.
SLOW = """
turn()
while not os.path.exists('go'):
    time.sleep(0.01)
say(type='done')
"""
#: Runs a program as on another machine: with another boot id, and without sight of a process.
ELSEWHERE = """
mount --bind "$1" /proc/sys/kernel/random/boot_id && mount --bind "$2" "/proc/$3" || exit 77
shift 3; exec "$@"
"""


@pytest.fixture
def other_boot(directory: Path) -> Path:
    """A file with another machine's boot id."""
    file = directory / "boot_id"
    file.write_text("00000000-1111-2222-3333-444444444444\n")
    return file


async def sweeping_elsewhere(stack: Stack, boot: Path, unseen: int) -> subprocess.Popen[bytes]:
    """Start a sweeper as on another machine with our host id; skip the test without the rights."""
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
    # By then it has checked for dead workers twice: at its start, and after two seconds.
    for _ in range(4):
        await client.delete(keys.SWEEPER)

        async def has_checked() -> bool:
            return sweeper.poll() is not None or bool(await client.exists(keys.SWEEPER))

        await eventually(has_checked)
    log_text = (stack.home.logs / "elsewhere.log").read_text()
    if sweeper.poll() == 77 or "unshare:" in log_text:
        pytest.skip(f"mount namespaces are not allowed here: {log_text}")
    assert sweeper.poll() is None, log_text
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


def test_processes_of_another_boot_are_assumed_to_be_alive(
    other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier boot of this machine looks the same as another machine's, such as a clone's."""
    mine = process.identity()
    dead = mine.replace(f"pid {os.getpid()} ", "pid 4194303 ")
    old = "pid 4194303 4026531836 999"
    assert process.is_alive(mine)
    assert not process.is_alive(dead)
    assert process.is_alive(old)

    monkeypatch.setattr(clock, "BOOT_ID", other_boot)

    assert process.is_alive(dead)
    assert process.identity() != mine


def test_a_process_is_identified_on_a_kernel_without_a_boot_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


async def test_each_machine_has_its_own_gateway_address(
    stack: Stack, other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loopback address means another process on each machine."""
    gateways = stack.fleet.gateways
    async with gateways.announced("here", "http://127.0.0.1:18789"):
        assert await gateways.address("here")

        monkeypatch.setattr(clock, "BOOT_ID", other_boot)

        assert await gateways.address("here") is None


def test_run_directories_of_another_machine_are_left_alone(
    home: Home, other_boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holders can't be reached from here, even if the directory is shared."""
    ours = home.runs / run_name("up")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(clock, "BOOT_ID", other_boot)
        theirs, old = home.runs / run_name("up"), home.runs / run_name("")
    for run in (ours, theirs, old):
        run.mkdir()
    os.utime(old, (0, 0))

    remove_dead_runs(home.runs, older_than_s=0)

    assert [run.exists() for run in (ours, theirs, old)] == [False, True, False]
