"""The command line: what people see, above all when something is wrong."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.terminal import REMOTECLAW


def run(
    stack: Stack, *arguments: str, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [REMOTECLAW, *arguments],
        env=stack.env(**env),
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(), result.stderr.decode()
    )


def refused(result: subprocess.CompletedProcess[str], why: str, *, code: int = 1) -> None:
    """See that a command failed with one line that says why."""
    assert result.returncode == code
    assert result.stderr.startswith("remoteclaw: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert why in result.stderr
    assert result.stdout == ""


# -- send -----------------------------------------------------------------------------------------


async def test_send_prints_the_reply(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "hello", "--channel", "test", "--from", "alice")

    assert result.returncode == 0
    assert "RemoteClaw's demo agent" in result.stdout
    assert await stack.fleet.scripts.client.xlen("rc:out:test:default") == 0


async def test_send_reads_standard_input(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "-", stdin=b"x" * 200_000)

    assert "You wrote 200000 characters" in result.stdout


async def test_send_prints_json(stack: Stack) -> None:
    await stack.start_worker()

    outcome = json.loads(run(stack, "send", "fail", "--json").stdout)

    assert outcome["status"] == "failed"
    assert outcome["error"]["category"] == "fatal"
    assert outcome["reply"][1]["is_error"] is True


async def test_send_reports_an_error_outcome(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "fail")

    assert result.returncode == 1
    assert "main failed and couldn't finish your message" in result.stdout


async def test_send_gives_up_waiting_but_not_the_message(stack: Stack) -> None:
    result = run(stack, "send", "hello", "--wait", "0.1")

    refused(result, "No outcome within 0.1 s; the message is not lost.", code=3)
    await stack.start_worker()
    reference = re.search(r"sessions trace (\S+)`", result.stderr)
    assert reference is not None
    sid = (await stack.fleet.sessions.list(limit=1))[0].sid
    entry = reference[1].partition("-")[2]
    outcome = await stack.fleet.outcomes.wait(sid, entry, timeout_s=20)
    assert outcome is not None
    assert outcome.status == "done"


async def test_send_without_waiting_prints_the_reference(stack: Stack) -> None:
    result = run(stack, "send", "hello", "--wait", "0")

    assert result.returncode == 0
    assert re.fullmatch(r"[0-9a-f]{8}-\d+-\d+\n", result.stdout)


async def test_the_same_message_id_is_the_same_message(stack: Stack) -> None:
    first = run(stack, "send", "hello", "--wait", "0", "--message-id", "7")
    second = run(stack, "send", "hello", "--wait", "0", "--message-id", "7")

    assert first.stdout == second.stdout


async def test_an_emoji_for_a_sender_is_fine(stack: Stack) -> None:
    assert run(stack, "send", "hello", "--wait", "0", "--from", "🦀").returncode == 0
    assert "%F0%9F%A6%80" in run(stack, "sessions", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        (["send", ""], b"", "text is empty"),
        (["send", "-"], b" \n", "text is empty"),
        (["send", "-"], b"x" * 2**20, "text has 1,048,576 bytes; the limit is 524,288"),
        (["send", "hi", "--from", "a\nb"], b"", "from contains U+000A"),
        (["send", "hi", "--message-id", "\x7f"], b"", "id contains U+007F"),
        (["send", "hi", "--agent", "nobody"], b"", "There is no agent 'nobody'"),
        (["stop", "abcd"], b"", "'abcd' is no session"),
        (["stop", "a/b"], b"", "'a/b' is no session"),
        (["sessions", "show", "zzz"], b"", "'zzz' is no session"),
        (["sessions", "trace", "0" * 32], b"", "Nothing is known of"),
        (["sessions", "trace", "00000000-1-0"], b"", "'00000000' is no session"),
    ],
)
async def test_bad_input_is_one_clear_line(
    stack: Stack, arguments: list[str], stdin: bytes, why: str
) -> None:
    refused(run(stack, *arguments, stdin=stdin), why)


async def test_wrong_usage_is_told_apart(stack: Stack) -> None:
    result = run(stack, "send")

    assert result.returncode == 2
    assert "Missing argument 'TEXT'" in result.stderr


# -- without what it needs ------------------------------------------------------------------------


def without_stack(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REMOTECLAW, *arguments],
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "REMOTECLAW_HOME": str(home),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [["send", "hi"], ["status"], ["worker"], ["sessions", "list"]])
def test_nothing_runs(directory: Path, command: list[str]) -> None:
    refused(
        without_stack(directory, *command),
        f"RemoteClaw isn't running in {directory}: start it with `remoteclaw up`",
    )


@pytest.mark.parametrize("command", [["up"], ["send", "hi"], ["doctor"], ["config", "validate"]])
def test_a_state_directory_without_permission(command: list[str]) -> None:
    result = without_stack(Path("/proc/remoteclaw"), *command)

    assert result.returncode == 1
    assert "The state directory /proc/remoteclaw can't be used" in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


def test_an_unknown_key(directory: Path) -> None:
    (directory / "remoteclaw.toml").write_text("[fleet]\nworker = 1")

    for command in (["up"], ["send", "hi"], ["config", "validate"]):
        refused(without_stack(directory, *command), "did you mean 'workers'?")


def test_a_redis_that_is_not_there(directory: Path) -> None:
    url = "redis://127.0.0.1:1"

    for command in (["up"], ["send", "hi"], ["status"]):
        result = without_stack(directory, *command, REMOTECLAW__REDIS__URL=url)
        refused(result, f"The Redis at {url} can't be reached")


def test_a_redis_server_that_is_not_installed_comes_with_us(directory: Path) -> None:
    result = without_stack(directory, "doctor", PATH="/nonexistent")

    assert re.search(r"ok  redis +Valkey \S+ would be started", result.stdout)


async def test_a_missing_cli_is_said_by_doctor_and_in_the_chat(stack: Stack) -> None:
    stack.configure({"runtime": "claude", "command": ["no-such-claude"]})
    await stack.start_worker()

    doctor = run(stack, "doctor")
    sent = run(stack, "send", "hello")

    assert doctor.returncode == 1
    assert "NO  agent main" in doctor.stdout
    assert "'no-such-claude' is not installed" in doctor.stdout
    assert sent.returncode == 1
    assert "main can't be started on its computer" in sent.stdout


def test_an_unexpected_error_is_one_line_and_a_file(directory: Path) -> None:
    (directory / "host-id").mkdir()  # as nobody would expect

    result = without_stack(directory, "up", REMOTECLAW__AGENTS__MAIN__RUNTIME="demo")

    refused(result, "An unexpected error, IsADirectoryError")
    assert "Traceback" in (directory / "logs" / "crash.log").read_text()


# -- looking --------------------------------------------------------------------------------------


async def test_sessions_are_listed_shown_and_traced(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid

    listed = run(stack, "sessions", "list").stdout
    shown = run(stack, "sessions", "show", sid[:8]).stdout
    traced = run(stack, "sessions", "trace", str(accepted.session)).stdout

    assert re.search(rf"^{sid[:8]}  idle +0 waiting  \d{{4}}-.*main/test/default/", listed)
    assert re.search(rf"^id +{sid}$", shown, re.MULTILINE)
    assert re.search(r"^demo\|\S+ session +[0-9a-f-]{36}$", shown, re.MULTILINE)
    assert traced.startswith(
        f"{sid[:8]}-{accepted.entry_id}  done  main/test/default/chat-1:alice:_"
    )
    names = re.findall(r"^ .* ms  (\w+)", traced, re.MULTILINE)
    assert names == ["accepted", "begun", "spawned", "tool", "output", "finished"]
    assert run(stack, "sessions", "trace", f"{sid[:8]}-{accepted.entry_id}").stdout == traced


async def test_a_failed_message_is_traced_with_what_the_cli_said(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("fail")
    await stack.outcome(accepted)

    traced = run(stack, "sessions", "trace", accepted.session.sid).stdout

    assert "fatal: the demo fails when asked to" in traced


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
    assert f"running   {accepted.session.sid[:8]}" in result.stdout


async def test_stop_stops_a_session(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("slow")
    await stack.reached(accepted, "output")

    result = run(stack, "stop", accepted.session.sid[:8])

    assert result.stdout == "Stopping 1 message.\n"
    assert (await stack.outcome(accepted)).status == "stopped"
    assert run(stack, "stop", accepted.session.sid[:8]).stdout == "There was nothing to stop.\n"


async def test_doctor_finds_nothing_wrong(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "doctor")

    assert result.returncode == 0, result.stdout
    assert all(line.startswith("ok ") for line in result.stdout.splitlines())


async def test_the_configuration_is_validated_and_described(stack: Stack) -> None:
    validated = run(stack, "config", "validate")
    schema = json.loads(run(stack, "config", "schema").stdout)

    assert validated.stdout == f"{stack.home.config_file} is valid.\n"
    fleet = schema["$defs"]["FleetConfig"]["properties"]
    assert fleet["workers"]["description"].startswith("How many `rq worker` processes")


async def test_the_worker_command_prints_and_becomes_rq(stack: Stack) -> None:
    with subprocess.Popen(
        [REMOTECLAW, "worker"],
        env=stack.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        printed = worker.stdout.readline()
        until = time.monotonic() + 20
        while not any(view.pid == worker.pid for view in await stack.fleet.workers.list()):
            assert time.monotonic() < until
        worker.terminate()

    assert printed == "+ rq worker -c workers.settings -j workers.jobs.DrainJob\n"


def test_help_loads_nothing_heavy() -> None:
    """`--help` and completion answer at once; what talks to Redis is imported by what needs it."""
    code = "import sys; import remoteclaw.cli; print(*sorted(sys.modules))"
    python = Path(REMOTECLAW).with_name("python")
    modules = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"redis", "rq", "pydantic", "prompt_toolkit", "orjson"} & set(modules)


def test_work_horses_fork_from_a_worker_that_knows_no_gateway() -> None:
    code = "import sys; import remoteclaw.drain; print(*sorted(sys.modules))"
    python = Path(REMOTECLAW).with_name("python")
    modules = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"mcp", "starlette", "prompt_toolkit", "remoteclaw.cli"} & set(modules)
