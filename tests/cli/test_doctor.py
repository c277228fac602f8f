"""The commands `doctor` and `status`: what runs, and what is missing."""

import re
import socket
from pathlib import Path

import pytest

from remoteclaw.fleet import keys
from tests.support.cli import run, without_stack
from tests.support.stack import Stack


def test_a_redis_server_that_is_not_installed_comes_with_us(directory: Path) -> None:
    result = without_stack(directory, "doctor", PATH="/nonexistent")

    assert re.search(r"ok  redis +Valkey \S+ would be started", result.stdout)
    assert re.search(r"ok  terminals +can be opened", result.stdout)


@pytest.mark.usefixtures("gateway")
async def test_a_missing_cli_is_said_by_doctor_and_in_the_chat(stack: Stack) -> None:
    stack.configure({"runtime": "claude", "command": ["no-such-claude"]})
    await stack.start_worker()

    doctor = run(stack, "doctor")
    sent = run(stack, "send", "hello")

    assert doctor.returncode == 1
    assert "NO  agent main" in doctor.stdout
    assert "'no-such-claude' is not installed" in doctor.stdout
    assert sent.returncode == 1
    assert "main can't be started: 'no-such-claude' was not found: install it" in sent.stdout


def test_a_reason_for_a_broken_cli_is_found_where_the_bridge_looks(directory: Path) -> None:
    """On the PATH of the agent's own environment."""
    (directory / "bin").mkdir()
    (directory / "bin" / "my-claude").write_text("#!/bin/sh\necho '9.9 \x1b[2J'\n")
    (directory / "bin" / "my-claude").chmod(0o755)
    (directory / "remoteclaw.toml").write_text(
        "[agents.main]\nruntime = 'claude'\ncommand = ['my-claude']\n"
        f"env = {{ PATH = '{directory}/bin:/usr/bin:/bin' }}"
    )

    result = without_stack(directory, "doctor")

    assert re.search(r"^ok  agent main +claude 9.9 \(configured\)", result.stdout, re.MULTILINE)


def test_hooks_are_checked(directory: Path) -> None:
    (directory / "broken_hook.py").write_text("1 / 0")
    (directory / "fine_hook.py").write_text("def ended(event): pass")

    def checked(reference: str) -> list[str]:
        (directory / "remoteclaw.toml").write_text(f"[hooks]\nagent_end = ['{reference}']")
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


def test_what_overrides_the_file_is_named(directory: Path) -> None:
    env = {"REMOTECLAW__AGENTS__MAIN__RUNTIME": "demo", "REMOTECLAW__FLEET__WORKERS": "2"}

    validated = without_stack(directory, "config", "validate", **env)
    doctor = without_stack(directory, "doctor", **env)

    names = "REMOTECLAW__AGENTS__MAIN__RUNTIME, REMOTECLAW__FLEET__WORKERS"
    assert f"Overridden by {names}.\n" in validated.stdout
    assert f"no file, all defaults; overridden by {names}\n" in doctor.stdout


async def test_status_says_what_runs(stack: Stack) -> None:
    nothing = run(stack, "status")
    assert nothing.returncode == 1
    assert "No rq worker serves the queue" in nothing.stderr
    worker = await stack.start_worker()
    accepted = await stack.append("slow")
    await stack.reached(accepted, "output")

    result = run(stack, "status")

    assert result.returncode == 0
    assert f"busy      pid {worker.pid}" in result.stdout
    assert "0 hints wait for a worker" in result.stdout
    assert "1 has work" in result.stdout
    assert f"running   {accepted.session.sid[:8]}" in result.stdout


async def test_doctor_finds_nothing_wrong(stack: Stack) -> None:
    await stack.start_worker()
    await stack.fleet.sweeper.sweep()
    async with stack.fleet.gateways.announced(stack.home.host_id, "http://127.0.0.1:1"):
        result = run(stack, "doctor")

    assert result.returncode == 0, result.stdout
    assert all(line.startswith("ok ") for line in result.stdout.splitlines())
    assert "1 rq worker\n" in result.stdout


async def test_doctor_names_a_port_that_another_program_has(stack: Stack, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        alone = without_stack(directory, "doctor", REMOTECLAW__GATEWAY__PORT=port)
        beside = run(stack, "doctor", REMOTECLAW__GATEWAY__PORT=port)
        here = stack.fleet.gateways.announced(stack.home.host_id, f"http://127.0.0.1:{port}")
        async with here:
            ours = run(stack, "doctor", REMOTECLAW__GATEWAY__PORT=port)

    for result in (alone, beside):
        assert (
            f"NO  gateway          [gateway] can't listen on 127.0.0.1, port {port}"
            in result.stdout
        )
    assert f"ok  gateway          http://127.0.0.1:{port}" in ours.stdout


def test_doctor_says_what_other_computers_meet_at_the_page(directory: Path) -> None:
    remote = {"REMOTECLAW__GATEWAY__ALLOW_REMOTE": "true", "REMOTECLAW__GATEWAY__PORT": "0"}
    anywhere = {**remote, "REMOTECLAW__GATEWAY__HOST": "0.0.0.0"}
    named = {**anywhere, "REMOTECLAW__GATEWAY__HOSTS": '["claw.example.org"]'}

    refused = without_stack(directory, "doctor", **anywhere)
    readable = without_stack(directory, "doctor", **named)
    here = without_stack(directory, "doctor", REMOTECLAW__GATEWAY__PORT="0")

    empty = (
        "[gateway] host is 0.0.0.0, any address, and hosts is empty: other computers are refused"
    )
    assert f"NO  page             {empty}" in refused.stdout
    assert "ok  page             over http:// from another computer, logins" in readable.stdout
    assert " page " not in here.stdout


async def test_doctor_names_an_agent_that_is_not_signed_in(stack: Stack, directory: Path) -> None:
    program = directory / "claude"
    program.write_text("#!/bin/sh\necho '{\"loggedIn\": false}'\nexit 1\n")
    program.chmod(0o755)
    stack.configure({"runtime": "claude", "command": [str(program)]})

    result = run(stack, "doctor")

    assert result.returncode == 1
    told = "claude is not signed in: run `claude auth login`"
    assert f"NO  agent main       {told}" in result.stdout


async def test_doctor_and_status_name_what_is_missing_or_strange(stack: Stack) -> None:
    await stack.start_worker()
    stranger = await stack.start_stranger()

    examined, looked = run(stack, "doctor"), run(stack, "status")

    assert examined.returncode == 1
    assert "NO  sweeper          none looks for lost hints" in examined.stdout
    assert "NO  gateway          none on this host" in examined.stdout
    assert f"process {stranger.pid} on" in examined.stdout
    assert "1 rq worker\n" in examined.stdout
    assert "sweeper   none" in looked.stdout
    assert "gateway   none here" in looked.stdout
    assert "not started as `remoteclaw worker`" in looked.stdout


async def test_status_counts_all_sessions_that_have_work(stack: Stack) -> None:
    """Also those behind a thousand with newer messages."""
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    await stack.append("waits", from_="cron", lane="background")
    client = stack.fleet.scripts.client
    await client.zadd(keys.SESSIONS, {f"{n:032x}": 9e15 for n in range(1100)})

    assert "sessions  1 has work" in run(stack, "status").stdout
