"""The commands `doctor` and `status`: running, missing and misconfigured parts."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from remoteclaw.config.model import Budget, Config, FleetConfig
from remoteclaw.fleet import keys
from remoteclaw.fleet.workers import WorkerView
from remoteclaw.messages import reference
from remoteclaw.up.doctor import zone_problem
from tests.support.cli import run, without_stack
from tests.support.doors import gateway_process
from tests.support.forwarding import ForwardProxy
from tests.support.leases import begun
from tests.support.stack import Stack


def test_without_an_installed_redis_the_bundled_server_is_used(directory: Path) -> None:
    result = without_stack(
        directory, "doctor", PATH="/nonexistent", REMOTECLAW__TERMINALS__MAX_LOAD="0"
    )

    assert re.search(r"ok  redis +Valkey \S+ would be started", result.stdout)
    assert re.search(r"ok  terminals +can be opened", result.stdout)


def test_doctor_says_that_this_host_has_too_little_room_for_a_terminal(directory: Path) -> None:
    result = without_stack(directory, "doctor", REMOTECLAW__TERMINALS__MIN_MEMORY_MB="1000000")

    assert re.search(r"--  terminals +This host has too ", result.stdout)


@pytest.mark.usefixtures("gateway")
async def test_a_missing_cli_is_reported_by_doctor_and_in_the_reply(stack: Stack) -> None:
    stack.configure({"runtime": "claude", "command": ["no-such-claude"]})
    await stack.start_worker()

    doctor = run(stack, "doctor")
    sent = run(stack, "send", "hello")

    assert doctor.returncode == 1
    assert "NO  agent main" in doctor.stdout
    assert "'no-such-claude' is not installed" in doctor.stdout
    assert sent.returncode == 1
    assert "main can't be started: 'no-such-claude' was not found: install it" in sent.stdout


def test_doctor_finds_the_cli_on_the_path_of_the_agent(directory: Path) -> None:
    """The PATH is that of the agent's `env`, which the bridge uses as well."""
    (directory / "bin").mkdir()
    (directory / "bin" / "my-claude").write_text("#!/bin/sh\necho '9.9 \x1b[2J'\n")
    (directory / "bin" / "my-claude").chmod(0o755)
    (directory / "remoteclaw.toml").write_text(
        "[agents.main]\nruntime = 'claude'\ncommand = ['my-claude']\n"
        f"env = {{ PATH = '{directory}/bin:/usr/bin:/bin' }}"
    )

    result = without_stack(directory, "doctor")

    assert re.search(r"^ok  agent main +claude 9.9 \(configured\)", result.stdout, re.MULTILINE)


def test_doctor_and_config_validate_check_hooks(directory: Path) -> None:
    (directory / "broken_hook.py").write_text("1 / 0")
    (directory / "fine_hook.py").write_text("def ended(event): pass")

    def checked(reference: str) -> list[str]:
        (directory / "remoteclaw.toml").write_text(
            f"gateway.port = 0\n[hooks]\nagent_end = ['{reference}']"
        )
        env = {"PYTHONPATH": str(directory), "REMOTECLAW__AGENTS__MAIN__RUNTIME": "demo"}
        validated = without_stack(directory, "config", "validate", **env)
        doctor = without_stack(directory, "doctor", **env)
        assert doctor.returncode == validated.returncode
        assert "Traceback" not in doctor.stderr + validated.stderr
        return [validated.stderr, doctor.stdout]

    for text in checked("nowhere:f"):
        assert "[hooks] agent_end names 'nowhere:f', which can't be imported" in text
    for text in checked("broken_hook:f"):
        assert "'broken_hook:f', which can't be imported: ZeroDivisionError: division" in text
    assert re.search(r"ok  hooks +all can be imported", checked("fine_hook:ended")[1])


def test_doctor_names_a_budget_about_which_nobody_is_asked(directory: Path) -> None:
    def checked(*lines: str) -> str:
        budget = ["[[budgets]]", "of = 'agent:main'", "tokens = 5", "per = 'day'"]
        (directory / "remoteclaw.toml").write_text("\n".join(["gateway.port = 0", *budget, *lines]))
        return without_stack(directory, "doctor", REMOTECLAW__AGENTS__MAIN__RUNTIME="demo").stdout

    telegram = ("[channels.telegram]", "token = '1:a'", "owners = ['7']")
    asking = ("[requests]", "chat = 'telegram:7'")
    assert "budget of" not in checked()  # the page asks whoever writes there
    assert re.search(
        r"budget of agent:main +at its limit, an owner is asked only in the terminal and on the "
        "page, if their own chat reaches it, because no channel has owners",
        checked(*telegram[:-1]),
    )
    assert re.search(
        r"budget of agent:main +at its limit, an owner is asked only", checked(*telegram)
    )
    assert "budget of" not in checked(*telegram, *asking)
    names_no_owner = "because `who` in [requests] names no owner"
    assert names_no_owner in checked(*telegram, *asking, "who = []")
    assert names_no_owner in checked(*telegram, *asking, "who = ['telegram:5']")
    assert "budget of" not in checked(*telegram, *asking, "who = ['telegram:5', 'telegram:7']")
    assert "budget of" not in checked("at_limit = 'stop'")


def test_doctor_asks_for_one_time_zone_of_budgets_on_several_hosts() -> None:
    def problem(*hosts: str, budgets: bool = True, timezone: str | None = None) -> str | None:
        workers = [WorkerView(host, 7, host, "idle", "", (), "boot") for host in hosts]
        tree = [Budget(of="tree", tokens=5)] if budgets else []
        return zone_problem(
            Config(budgets=tuple(tree), fleet=FleetConfig(timezone=timezone)), workers
        )

    assert (problem("b", "a", "b") or "").startswith("a, b each begin the days of budgets in their")
    assert problem("a", "a") is None
    assert problem("a", "b", timezone="Europe/Berlin") is None
    assert problem("a", "b", budgets=False) is None


def test_doctor_and_config_validate_name_overriding_variables(directory: Path) -> None:
    env = {"REMOTECLAW__AGENTS__MAIN__RUNTIME": "demo", "REMOTECLAW__FLEET__WORKERS": "2"}

    validated = without_stack(directory, "config", "validate", **env)
    doctor = without_stack(directory, "doctor", **env)

    names = "REMOTECLAW__AGENTS__MAIN__RUNTIME, REMOTECLAW__FLEET__WORKERS"
    assert f"Overridden by {names}.\n" in validated.stdout
    assert f"no file, all defaults; overridden by {names}\n" in doctor.stdout


async def test_status_shows_workers_and_running_sessions(stack: Stack) -> None:
    nothing = run(stack, "status")
    assert nothing.returncode == 1
    assert "No rq worker serves the queue" in nothing.stderr
    worker = await stack.start_worker()
    accepted = await stack.append("slow")
    await stack.reached(accepted, "output")

    result = run(stack, "status")

    assert result.returncode == 0
    assert f"busy      pid {worker.pid}" in result.stdout
    assert "turns     1 runs; 0 wait for a worker\n" in result.stdout
    assert "today     0 turns\n" in result.stdout
    assert "1 has work" in result.stdout
    assert f"running   {accepted.session.sid[:8]}" in result.stdout


async def test_doctor_reports_a_healthy_installation(stack: Stack) -> None:
    await stack.start_worker()
    await stack.fleet.sweeper.sweep()
    async with gateway_process(stack):
        result = run(stack, "doctor")

    assert result.returncode == 0, result.stdout
    assert all(line.startswith("ok ") for line in result.stdout.splitlines())
    assert "1 rq worker\n" in result.stdout


async def test_doctor_reports_a_port_used_by_another_program(stack: Stack, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        stopped = without_stack(directory, "doctor", REMOTECLAW__GATEWAY__PORT=port)
        running = run(stack, "doctor", REMOTECLAW__GATEWAY__PORT=port)
        gateway = stack.fleet.gateways.announced(stack.home.host_id, f"http://127.0.0.1:{port}")
        async with gateway:
            with_gateway = run(stack, "doctor", REMOTECLAW__GATEWAY__PORT=port)

    for result in (stopped, running):
        assert (
            f"NO  gateway          [gateway] can't listen on 127.0.0.1, port {port}"
            in result.stdout
        )
        assert "End it, or take any free port: `remoteclaw config set gateway.port 0`." in (
            result.stdout
        )
    assert f"ok  gateway          http://127.0.0.1:{port}" in with_gateway.stdout


async def test_doctor_calls_the_tools_with_each_agents_environment(stack: Stack) -> None:
    proxy = ForwardProxy()
    async with proxy.running():
        agents = {
            "main": {"runtime": "claude", "env": {"HTTP_PROXY": proxy.url, "NO_PROXY": "corp"}},
            "two": {"runtime": "codex", "env": {"http_proxy": proxy.url}},
        }
        stack.configure(agents=agents)
        async with gateway_process(stack):
            reached = await asyncio.to_thread(run, stack, "doctor")
        async with stack.fleet.gateways.announced(stack.home.host_id, proxy.url):
            refused = await asyncio.to_thread(run, stack, "doctor")

    assert re.search(r"^ok  tools of main +\d+ answer$", reached.stdout, re.MULTILINE)
    assert re.search(r"^ok  tools of two +\d+ answer$", reached.stdout, re.MULTILINE)
    assert f"{proxy.url} can't be called: the answer has status 502." in refused.stdout
    assert len(proxy.heads) == 2  # those of the second run, as the gateway
    assert await stack.fleet.tokens.list() == []


def test_doctor_reports_how_other_computers_reach_the_page(directory: Path) -> None:
    remote = {"REMOTECLAW__GATEWAY__ALLOW_REMOTE": "true", "REMOTECLAW__GATEWAY__PORT": "0"}
    any_address = {**remote, "REMOTECLAW__GATEWAY__HOST": "0.0.0.0"}
    named = {**any_address, "REMOTECLAW__GATEWAY__HOSTS": '["claw.example.org"]'}

    refused = without_stack(directory, "doctor", **any_address)
    allowed = without_stack(directory, "doctor", **named)
    local = without_stack(directory, "doctor", REMOTECLAW__GATEWAY__PORT="0")

    empty = (
        "[gateway] host is 0.0.0.0, any address, and hosts is empty: other computers are refused"
    )
    assert f"NO  page             {empty}" in refused.stdout
    assert "ok  page             over http:// from another computer, logins" in allowed.stdout
    assert " page " not in local.stdout


async def test_doctor_reports_an_agent_that_is_not_signed_in(stack: Stack, directory: Path) -> None:
    program = directory / "claude"
    program.write_text("#!/bin/sh\necho '{\"loggedIn\": false}'\nexit 1\n")
    program.chmod(0o755)
    stack.configure({"runtime": "claude", "command": [str(program)]})

    result = run(stack, "doctor")

    assert result.returncode == 1
    problem = "claude is not signed in: run `claude auth login`"
    assert f"NO  agent main       {problem}" in result.stdout


async def test_doctor_and_status_report_missing_and_foreign_processes(stack: Stack) -> None:
    for _ in range(3):
        lease, accepted = await begun(stack.fleet)
        error = {"category": "auth", "detail": "401: log in again"}
        await lease.turns.finish("failed", reply=[], error=error)
        await lease.close()
    await stack.start_worker()
    stranger = await stack.start_stranger()

    doctor, status = run(stack, "doctor"), run(stack, "status")

    assert doctor.returncode == 1
    assert "NO  sweeper          no sweeper runs" in doctor.stdout
    assert "NO  gateway          none on this host" in doctor.stdout
    assert f"process {stranger.pid} on" in doctor.stdout
    assert "it fails each hint that it takes from agents, and would run any" in doctor.stdout
    assert "1 rq worker\n" in doctor.stdout
    assert "sweeper   none" in status.stdout
    assert "gateway   none here" in status.stdout
    assert "not started as `remoteclaw worker`" in status.stdout
    trace = f"remoteclaw sessions trace {reference(accepted.session.sid, accepted.entry_id)}"
    assert "NO  turns of main    3 failed, with no answer between them (3 auth): " in doctor.stdout
    assert f"`{trace}` says why" in doctor.stdout
    assert "failed    main: the last 3 turns failed\n  3 auth, the newest 0 s ago on " in re.sub(
        r"\d+ s ago", "0 s ago", status.stdout
    )
    assert f"    401: log in again\n    {trace}, remoteclaw logs --session " in status.stdout


async def test_status_counts_every_session_that_has_work(stack: Stack) -> None:
    """Also a session that more than a thousand sessions with newer messages precede."""
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    await stack.append("waits", from_="cron", lane="background")
    client = stack.fleet.scripts.client
    await client.zadd(keys.SESSIONS, {f"{n:032x}": 9e15 for n in range(1100)})

    assert "sessions  1 has work" in run(stack, "status").stdout
