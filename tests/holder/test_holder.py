"""The holder: it keeps an agent warm for clients with its key, and never beyond its deadline."""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from remoteclaw.clock import boot_id, boottime
from remoteclaw.holder.client import HolderClient, HolderLaunch
from remoteclaw.holder.runs import remove_dead_runs
from remoteclaw.holder.wire import LaunchFailed
from remoteclaw.host.process import end_orphans, end_strays
from tests.support.holders import TREE
from tests.support.processes import children, is_alive, parent
from tests.support.waiting import HANG_S, eventually

FAR = 3600.0
PROGRAM = Path(__file__).parents[2] / "remoteclaw" / "holder"


def launch(directory: Path, *argv: str, lifeline: str = "") -> HolderLaunch:
    run_dir = directory / "run"
    run_dir.mkdir(mode=0o700, exist_ok=True)
    return HolderLaunch(
        argv=argv,
        env={"PATH": os.environ["PATH"], "NAME": "value"},
        cwd=str(directory),
        run_dir=run_dir,
        key="the-key",
        lifeline=lifeline,
    )


async def start(directory: Path, *argv: str, epoch: int = 1, lifeline: str = "") -> HolderClient:
    return await HolderClient.start(
        launch(directory, *argv, lifeline=lifeline), epoch=epoch, deadline=boottime() + FAR
    )


async def attach(
    holder: HolderClient, *, epoch: int = 2, key: str = "the-key"
) -> HolderClient | None:
    return await HolderClient.attach(holder.path, key=key, epoch=epoch, deadline=boottime() + FAR)


class Pipes:
    """The ends of a CLI's pipes, with blocking reads and writes."""

    def __init__(self, holder: HolderClient) -> None:
        self.stdin, self.stdout, self.stderr = holder.take_pipes()

    def ask(self, line: str) -> str:
        os.write(self.stdin, line.encode() + b"\n")
        return self.read()

    def read(self) -> str:
        assert select.select([self.stdout], [], [], 10)[0], "the program writes nothing"
        return os.read(self.stdout, 65536).decode().strip()

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


async def tree_of(holder: HolderClient) -> list[int]:
    """Wait until TREE has started everything; return all of its processes."""
    pipes = Pipes(holder)
    assert pipes.read() == "ready"
    pipes.close()

    def everything() -> list[int]:
        found, queue = [], [holder.pid]
        while queue:
            found.append(queue[0])
            queue += children(queue.pop(0))
        return found if len(found) >= 3 else []

    return list(await eventually(everything))


async def until_dead(processes: list[int]) -> None:
    await eventually(lambda: not [pid for pid in processes if is_alive(pid)])


async def test_the_holder_hands_over_a_running_program(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", 'read x; echo "$x from $NAME in $PWD"')

    assert Pipes(holder).ask("hello") == f"hello from value in {directory}"
    assert await holder.gone() == 0
    assert not holder.path.parent.exists()


async def test_the_program_gets_only_the_given_environment_variables(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    holder = await start(directory, "/bin/sh", "-c", "read x; env")

    names = {line.partition("=")[0] for line in Pipes(holder).ask("").splitlines()}

    assert names <= {"PATH", "NAME", "REMOTECLAW_HOLDER", "PWD", "SHLVL", "_", "OLDPWD"}
    await holder.gone()


async def test_the_kernel_kills_the_program_before_its_holder_if_memory_is_full(
    directory: Path,
) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    holder = await start(directory, "/bin/sh", "-c", "read x; cat /proc/self/oom_score_adj; cat")
    pipes = Pipes(holder)

    assert pipes.ask("") == "500"  # a child of the program
    assert Path(f"/proc/{parent(holder.pid)}/oom_score_adj").read_text() == before  # the holder
    await holder.end()
    pipes.close()


@pytest.mark.parametrize(
    ("argv", "reason"),
    [(("/nonexistent/claude",), "No such file"), (("/etc/passwd",), "Permission denied")],
)
async def test_a_program_that_cannot_be_executed_is_a_launch_failure(
    directory: Path, argv: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(LaunchFailed, match=reason):
        await start(directory, *argv)


async def test_a_parked_program_is_taken_over_by_another_client(directory: Path) -> None:
    holder = await start(directory, "/bin/cat")
    pipes = Pipes(holder)
    assert pipes.ask("one") == "one"
    pipes.close()
    assert await holder.park(epoch=1, warm_s=3600, state=b'{"turn": 1}')

    second = await attach(holder)

    assert second is not None
    assert (second.pid, second.state) == (holder.pid, b'{"turn": 1}')
    assert Pipes(second).ask("two") == "two"
    await second.end()


async def test_the_output_of_a_parked_program_is_kept(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", "read x; echo late >&1; cat")
    pipes = Pipes(holder)
    os.write(pipes.stdin, b"\n")
    pipes.close()
    await holder.park(epoch=1, warm_s=3600, state=b"")

    async def attached() -> HolderClient | None:
        second = await attach(holder)
        if second and not second.output:
            Pipes(second).close()
            await second.park(epoch=2, warm_s=3600, state=b"")
            return None
        return second

    second = await eventually(attached)
    assert second.output == b"late\n"
    await second.end()


async def test_a_parked_program_with_too_much_output_is_ended(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", "read x; exec yes")
    pipes = Pipes(holder)
    pid = holder.pid
    os.write(pipes.stdin, b"\n")
    pipes.close()
    await holder.park(epoch=1, warm_s=3600, state=b"")

    await until_dead([pid])


async def test_a_parked_program_ends_after_its_warm_time(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)

    await holder.park(epoch=1, warm_s=0.2, state=b"")

    await until_dead(processes)
    await eventually(lambda: not holder.path.parent.exists())


async def test_a_client_without_the_key_cannot_attach(directory: Path) -> None:
    holder = await start(directory, "/bin/cat")
    Pipes(holder).close()
    await holder.park(epoch=1, warm_s=3600, state=b"")

    assert await attach(holder, key="another") is None
    assert await attach(holder, epoch=0) is None  # an older lease

    second = await attach(holder)
    assert second is not None
    await second.end()


async def test_invalid_messages_from_other_clients_change_nothing(directory: Path) -> None:
    holder = await start(directory, "/bin/cat")
    lines = (b"", b"ATTACH", b"ATTACH 1 x the-key y", b"ATTACH 1 2 key", b"\xff" * 9000)
    for garbage in (line + b"\n" for line in lines):
        _reader, writer = await asyncio.open_unix_connection(str(holder.path))
        writer.write(garbage)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    pipes = Pipes(holder)
    assert pipes.ask("still here") == "still here"
    pipes.close()
    assert await holder.park(epoch=1, warm_s=3600, state=b"")
    again = await attach(holder, epoch=2)
    assert again is not None
    await again.end()


async def test_a_newer_lease_ends_an_agent_that_is_still_attached(directory: Path) -> None:
    """The older client may be frozen with the pipes open, and they can't be taken back."""
    frozen = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(frozen)

    assert await attach(frozen, epoch=2) is None

    await until_dead(processes)
    await frozen.gone()


async def test_ending_a_holder_leaves_no_process_and_no_directory(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)

    await holder.end()

    assert not [pid for pid in processes if is_alive(pid)]
    assert not holder.path.parent.exists()


async def test_a_program_that_ignores_signals_is_killed(directory: Path) -> None:
    stubborn = "trap '' TERM INT HUP; echo ready; while :; do sleep 1 & wait; done"
    holder = await start(directory, "/bin/sh", "-c", stubborn)
    pipes = Pipes(holder)
    assert pipes.read() == "ready"
    pipes.close()

    await holder.end()

    assert not is_alive(holder.pid)


async def test_a_process_tree_that_forks_as_fast_as_it_can_is_ended(directory: Path) -> None:
    # The number of seconds identifies this test's processes.
    seconds = str(10_000 + os.getpid())
    fork = f"f() {{ setsid sh -c 'sleep {seconds}' & }}; for i in $(seq 200); do f; done"
    holder = await start(directory, "/bin/sh", "-c", f"echo ready; {fork}; wait")
    pipes = Pipes(holder)
    assert pipes.read() == "ready"
    pipes.close()

    await holder.end()

    assert not children(holder.pid)
    command = f"sleep\0{seconds}".encode()
    assert not [p for p in os.listdir("/proc") if _runs(p, command)]


def _runs(pid: str, command: bytes) -> bool:
    with contextlib.suppress(OSError):
        return command in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


async def test_the_process_tree_ends_when_the_client_disconnects(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)

    holder.drop()

    await until_dead(processes)


async def test_the_process_tree_ends_when_beats_stop(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)
    holder.beat(boottime() + FAR)

    holder.beat(boottime() + 0.2)

    await until_dead(processes)
    await holder.gone()


async def test_beats_keep_the_program_alive(directory: Path) -> None:
    first = boottime() + 2
    holder = await HolderClient.start(launch(directory, "/bin/cat"), epoch=1, deadline=first)
    holder.beat(boottime() + FAR)
    pipes = Pipes(holder)

    await asyncio.sleep(first + 0.2 - boottime())  # time itself is what is tested

    assert pipes.ask("alive") == "alive"
    await holder.end()


async def test_the_process_tree_ends_when_the_lifeline_closes(directory: Path) -> None:
    os.mkfifo(directory / "lifeline")
    keeper = os.open(directory / "lifeline", os.O_RDWR | os.O_NONBLOCK)
    holder = await start(directory, "/bin/sh", "-c", TREE, lifeline=str(directory / "lifeline"))
    processes = await tree_of(holder)
    await holder.park(epoch=1, warm_s=3600, state=b"")

    os.close(keeper)

    await until_dead(processes)


async def test_a_parked_program_outlives_its_lifeline_for_a_while(directory: Path) -> None:
    """Workers of a host may be restarted one after the other, and all at once."""
    os.mkfifo(directory / "lifeline")
    keeper = os.open(directory / "lifeline", os.O_RDWR | os.O_NONBLOCK)
    data = replace(launch(directory, "/bin/cat", lifeline=str(directory / "lifeline")), leave_s=FAR)
    holder = await HolderClient.start(data, epoch=1, deadline=boottime() + FAR)
    await holder.park(epoch=1, warm_s=3600, state=b"")

    os.close(keeper)

    attached = await attach(holder)
    assert attached
    await attached.end()


async def test_an_attached_program_ends_with_its_client_and_not_with_the_lifeline(
    directory: Path,
) -> None:
    """Otherwise its client would tell the person that the agent has died."""
    os.mkfifo(directory / "lifeline")
    keeper = os.open(directory / "lifeline", os.O_RDWR | os.O_NONBLOCK)
    holder = await start(directory, "/bin/cat", lifeline=str(directory / "lifeline"))
    pipes = Pipes(holder)

    os.close(keeper)

    assert pipes.ask("alive") == "alive"
    pipes.close()
    if await holder.park(
        epoch=1, warm_s=3600, state=b""
    ):  # the holder may notice the lifeline before it can answer
        await until_dead([holder.pid])


async def test_the_holder_does_not_start_if_its_lifeline_is_closed(directory: Path) -> None:
    os.mkfifo(directory / "lifeline")

    with pytest.raises(EOFError):
        await start(directory, "/bin/cat", lifeline=str(directory / "lifeline"))


async def test_the_program_dies_with_a_holder_that_is_killed(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)

    os.kill(parent(holder.pid), signal.SIGKILL)

    assert await holder.gone() is None
    await until_dead([holder.pid])
    # Processes in sessions of their own survive; they are found by their environment variable.
    end_strays()
    await until_dead(processes)


async def test_a_holder_that_is_asked_to_end_ends_its_process_tree(directory: Path) -> None:
    holder = await start(directory, "/bin/sh", "-c", TREE)
    processes = await tree_of(holder)

    os.kill(parent(holder.pid), signal.SIGTERM)

    await until_dead(processes)
    await holder.gone()


async def test_processes_of_living_holders_are_not_ended_as_strays(directory: Path) -> None:
    holder = await start(directory, "/bin/cat")

    end_strays()

    assert Pipes(holder).ask("alive") == "alive"
    await holder.end()


async def test_an_attached_agent_is_not_ended_to_make_room(directory: Path) -> None:
    """A client may have attached since the agent was chosen, so the holder itself decides."""
    holder = await start(directory, "/bin/cat")
    pipes = Pipes(holder)

    os.kill(parent(holder.pid), signal.SIGUSR1)
    assert await attach(holder, key="nobody's") is None  # it has answered, so it has processed both

    assert pipes.ask("alive") == "alive"
    pipes.close()
    assert await holder.park(epoch=1, warm_s=3600, state=b"")
    os.kill(parent(holder.pid), signal.SIGUSR1)
    await until_dead([holder.pid])


async def test_strays_of_another_pid_namespace_are_not_ended() -> None:
    """A host sees the processes of its containers, which have other process ids inside."""
    theirs = {"PATH": os.defpath, "REMOTECLAW_HOLDER": "4194303:1:1"}
    ours = {**theirs, "REMOTECLAW_HOLDER": f"4194303:1:{namespace()}"}
    with (
        subprocess.Popen(["sleep", "60"], env=theirs) as spared,
        subprocess.Popen(["sleep", "60"], env=ours) as stray,  # started later, so it is found later
    ):
        # The kernel shows a program's environment a moment after it was executed.
        environment = Path(f"/proc/{stray.pid}/environ")
        await eventually(lambda: b"REMOTECLAW_HOLDER" in environment.read_bytes())
        end_strays()

        assert stray.wait(HANG_S) == -signal.SIGKILL
        assert spared.poll() is None
        spared.kill()


async def test_strays_are_found_even_if_a_process_has_an_unusual_name(directory: Path) -> None:
    name = os.fsencode(directory) + b"/a\xff) Z 1"
    shutil.copy(b"/bin/sleep", name)
    with subprocess.Popen([name, "60"]) as odd:
        stray = {"PATH": os.defpath, "REMOTECLAW_HOLDER": f"{odd.pid}:1:{namespace()}"}
        with subprocess.Popen(["sleep", "60"], env=stray) as sleeper:
            end_strays()

            assert sleeper.wait(HANG_S) == -signal.SIGKILL
        odd.kill()


def namespace() -> str:
    return f"{boot_id()}/{os.stat('/proc/self/ns/pid').st_ino}"


async def test_a_frozen_holder_does_not_block_the_cleanup(directory: Path) -> None:
    runs = directory / "runs"
    runs.mkdir()
    holder = await start(runs, "/bin/cat")
    assert await holder.park(epoch=1, warm_s=3600, state=b"")
    frozen = parent(holder.pid)
    os.kill(frozen, signal.SIGSTOP)

    for _ in range(30):  # more connections than the holder's socket queues
        remove_dead_runs(runs, older_than_s=0)

    assert holder.path.exists()
    end_orphans(holder.path.parent)
    await until_dead([frozen, holder.pid])


async def test_only_the_holder_of_a_run_directory_is_ended(directory: Path) -> None:
    """Other processes may name the directory, too, such as an agent's tool."""
    first, second = directory / "first", directory / "second"
    for each in (first, second):
        each.mkdir()
    one, other = await start(first, "/bin/cat"), await start(second, "/bin/cat")
    with subprocess.Popen(["tail", "-f", "/dev/null", str(one.path.parent)]) as tool:
        assert end_orphans(one.path.parent, one.pid) == 1

        assert await one.gone() is None
        assert tool.poll() is None
        tool.kill()
    assert Pipes(other).ask("alive") == "alive"
    await other.end()


async def test_the_program_starts_without_ignored_signals(directory: Path) -> None:
    """A work-horse of RQ ignores SIGINT, and its child processes would inherit that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = "read x; while read a b; do [ $a = SigIgn: ] && echo $b; done < /proc/$$/status"
        holder = await start(directory, "/bin/sh", "-c", status)
    finally:
        signal.signal(signal.SIGINT, before)

    standard = (1 << 31) - 1  # 32 and 33 are the C library's own
    assert int(Pipes(holder).ask(""), 16) & standard == 0
    await holder.gone()


async def test_other_users_cannot_reach_the_socket(directory: Path) -> None:
    holder = await start(directory, "/bin/cat")

    assert holder.path.stat().st_mode & 0o777 == 0o600
    assert holder.path.parent.stat().st_mode & 0o777 == 0o700
    await holder.end()


def test_the_holders_program_imports_few_modules(directory: Path) -> None:
    """Each module slows down every cold start."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import pipes; print(*sorted(sys.modules))"
    argv = [sys.executable, "-I", "-S", "-c", code, str(PROGRAM)]
    modules = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()

    assert not {"socket", "json", "subprocess", "signal", "asyncio", "selectors"} & set(modules)


def test_clocks_include_the_time_that_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROGRAM)
    program = import_module("program")
    clocks = {time.CLOCK_BOOTTIME: 5.0, time.CLOCK_MONOTONIC: 1.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)

    assert boottime() == 5.0
    assert program.now() == 5.0
