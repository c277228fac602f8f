"""The processes of a fleet, by host, and whether they are healthy."""

import subprocess

import orjson
import pytest

from remoteclaw.fleet import keys, processes
from remoteclaw.host.version import VERSION
from tests.support.command import REMOTECLAW, ROOT, run_command, start_program
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_two_hosts_of_one_name_are_told_apart_and_two_versions_are_a_problem(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = stack.home.host_id
    listed = stack.fleet.processes

    async def listing(count: int) -> None:
        async def is_listed() -> bool:
            return len(await listed.list()) == count

        await eventually(is_listed)

    async with listed.announced("gateway", own, "vm"):
        await listing(1)
        assert processes.version_problem(await listed.list(), own) is None
        monkeypatch.setattr(processes, "VERSION", "0.0.9")
        async with listed.announced("worker", "vm-12345678", "vm"):
            await listing(2)
            hosts = await listed.list()
            assert processes.shown_names(hosts) == {own: own, "vm-12345678": "vm-12345678"}
            text = f"2 versions run: 0.0.9 on vm-12345678; {VERSION} on {own}. "
            assert (processes.version_problem(hosts, own) or "").startswith(text)
            shown = run_command("status", env=stack.env()).stdout
            assert f"host      {own}: gateway; {VERSION}" in shown
            assert "versions  2 versions run" in shown
            text = f"{VERSION} is installed on this host, and 0.0.9 runs: restart RemoteClaw."
            assert (processes.version_problem(hosts, "vm-12345678") or "").endswith(text)
        await listing(1)
    await listing(0)


async def test_a_process_that_has_been_killed_is_not_listed_for_long(stack: Stack) -> None:
    worker = await stack.start_worker()
    (listed,) = await stack.fleet.processes.list()
    assert (listed.kind, listed.host_id, listed.pid) == ("worker", stack.home.host_id, worker.pid)
    client = stack.fleet.scripts.client
    worker.kill()
    worker.wait()
    now = await stack.fleet.scripts.now_ms()
    field = f"worker {listed.host_id} {worker.pid}"
    facts = orjson.loads(await client.hget(keys.PROCESSES, field) or b"")
    for silent_s, is_known in ((processes.GONE_S, True), (processes.FORGET_S, False)):
        long_ago = {"at_ms": now - int(silent_s * 1000) - 1}
        await client.hset(keys.PROCESSES, field, orjson.dumps({**facts, **long_ago}))
        assert await stack.fleet.processes.list() == []
        assert bool(await client.exists(keys.PROCESSES)) is is_known


async def test_a_killed_worker_is_forgotten_by_the_next_sweep_of_its_host(stack: Stack) -> None:
    worker = await stack.start_worker()
    log = stack.home.logs / "sweep.log"
    sweeper = start_program((REMOTECLAW, "sweep"), env=stack.env(), log=log)
    worker.kill()

    async def is_forgotten() -> bool:
        kinds = [each.kind for each in await stack.fleet.processes.list()]
        return kinds == ["sweeper"]

    await eventually(is_forgotten)
    sweeper.terminate()
    sweeper.wait()
    assert await stack.fleet.processes.list() == []


async def test_the_exit_status_of_a_check_tells_whether_a_part_is_healthy(stack: Stack) -> None:
    def check(part: str) -> tuple[int, str]:
        checked = run_command("status", f"--check{part}", env=stack.env())
        return checked.returncode, checked.stdout

    status, problems = check("")
    assert status == 1
    assert "workers: no worker runs" in problems
    assert check("=worker") == (1, "worker: none runs on this host.\n")
    await stack.start_worker()
    assert check("=worker") == (0, "")
    await stack.fleet.sweeper.sweep()
    assert check("") == (0, "")
    stack.redis.kill()
    unreachable = run_command("status", "--check=worker", env=stack.env())
    assert unreachable.returncode == 1
    assert "can't be reached" in unreachable.stderr


def test_the_version_of_a_checkout_names_its_commit() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert head.returncode or VERSION.endswith(f"+g{head.stdout.strip()}")
