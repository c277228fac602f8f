"""The command line: output, errors and exit statuses."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import redis

from remoteclaw.cli import main
from remoteclaw.fleet import keys
from remoteclaw.up.embedded import server_command
from remoteclaw.up.supervisor import worker_command
from tests.support.bridges import script
from tests.support.cli import give_up, refused, run, started, without_stack
from tests.support.command import REMOTECLAW, run_command
from tests.support.rows import for_each
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import HANG_S, eventually, eventually_sync

# -- send -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gateway")
async def test_send_prints_the_reply(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "hello", "--channel", "test", "--from", "alice")

    assert result.returncode == 0
    assert "RemoteClaw's demo agent" in result.stdout
    assert await stack.fleet.scripts.client.xlen(REPLIES) == 0


@pytest.mark.usefixtures("gateway")
async def test_send_reads_standard_input(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "-", stdin=b"x" * 200_000)

    assert "You wrote 200000 characters" in result.stdout


@pytest.mark.usefixtures("gateway")
async def test_send_prints_a_failure_and_the_command_that_traces_it(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "fail", "--message-id", "7")
    outcome = json.loads(run(stack, "send", "fail", "--message-id", "7", "--json").stdout)

    assert result.returncode == 1
    assert "main failed and couldn't finish your message" in result.stdout
    hint = re.fullmatch(
        r"remoteclaw: The turn failed: `remoteclaw (sessions trace \S+)` says why.\n", result.stderr
    )
    assert hint
    assert "fatal: the demo fails when asked to" in run(stack, *hint[1].split()).stdout
    assert (outcome["status"], outcome["duplicate"]) == ("failed", True)
    assert outcome["error"]["category"] == "fatal"
    assert outcome["reply"][1]["isError"] is True


@pytest.mark.usefixtures("gateway")
async def test_send_stops_waiting_but_keeps_the_message(stack: Stack) -> None:
    result = run(stack, "send", "hello", "--wait", "0.1")

    assert result.returncode == 3
    assert "No outcome within 0.1 s; the message is not lost." in result.stderr
    assert result.stdout == ""
    await stack.start_worker()
    reference = re.search(r"sessions trace (\S+)`", result.stderr)
    assert reference is not None
    sid = (await stack.fleet.sessions.list(limit=1))[0].sid
    entry = reference[1].partition("-")[2]
    outcome = await stack.fleet.outcomes.wait(sid, entry, timeout_s=HANG_S)
    assert outcome is not None
    assert outcome.status == "done"


@pytest.mark.usefixtures("gateway")
async def test_send_without_waiting_prints_the_reference(stack: Stack) -> None:
    result = run(stack, "send", "hello", "--wait", "0")

    assert result.returncode == 0
    assert re.fullmatch(r"[0-9a-f]{8}-\d+-\d+\n", result.stdout)


@pytest.mark.usefixtures("gateway")
async def test_send_with_the_same_message_id_sends_one_message(stack: Stack) -> None:
    command = ["send", "hello", "--wait", "0", "--message-id", "7", "--json"]
    results = [run(stack, *command) for _ in range(2)]
    first, second = (json.loads(result.stdout) for result in results)

    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["reference"] == second["reference"]
    assert second["status"] == "accepted"
    assert "accepted before" not in results[0].stderr
    warning = "A message with this id was accepted before: this text was not used"
    assert warning in results[1].stderr


@pytest.mark.usefixtures("gateway")
async def test_send_reports_soon_that_no_worker_is_running(stack: Stack) -> None:
    with started(stack, "send", "hello") as waiting:
        assert waiting.stderr is not None
        line = waiting.stderr.readline()

    assert line == (
        "remoteclaw: no rq worker is running yet, so there is no answer: "
        "start some with `remoteclaw worker`. The message waits.\n"
    )

    await stack.fleet.drains.drain(stack.home.host_id)
    with started(stack, "send", "hello") as waiting:
        assert waiting.stderr is not None
        line = waiting.stderr.readline()

    assert line == (
        "remoteclaw: no worker runs, so the message waits. This host is drained: "
        "`remoteclaw drain --undo` undoes it.\n"
    )
    for command in (("status",), ("status", "--check"), ("doctor",)):
        shown = run_command(*command, env=stack.env())
        assert shown.returncode == 1
        assert "`remoteclaw drain --undo` undoes it" in shown.stdout
        assert "`remoteclaw worker`" not in shown.stdout + shown.stderr


@pytest.mark.usefixtures("gateway")
async def test_ctrl_c_during_send_prints_how_to_trace_and_stop_the_message(
    stack: Stack, directory: Path
) -> None:
    command = list(script(directory, "turn(); time.sleep(600)"))
    stack.configure({"runtime": "demo", "command": command})
    await stack.start_worker()
    with started(stack, "send", "hello") as waiting:
        eventually_sync(lambda: "running" in run(stack, "sessions", "list").stdout)
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=HANG_S)

    assert waiting.returncode == 130
    sid = (await stack.fleet.sessions.list(limit=1))[0].sid
    assert errors.count("\n") == 1
    assert f"`remoteclaw sessions trace {sid[:8]}-" in errors
    assert f"`remoteclaw stop {sid[:8]}`" in errors


@pytest.mark.parametrize("wait", ["-1", "nan", "-inf", "soon"])
async def test_an_invalid_wait_time_is_wrong_usage(stack: Stack, wait: str) -> None:
    result = run(stack, "send", "hello", "--wait", wait)

    assert result.returncode == 2
    assert "Invalid value for '--wait'" in result.stderr


@pytest.mark.usefixtures("gateway")
async def test_a_sender_may_be_an_emoji(stack: Stack) -> None:
    assert run(stack, "send", "hello", "--wait", "0", "--from", "🦀").returncode == 0
    assert "%F0%9F%A6%80" in run(stack, "sessions", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        (["send", ""], b"", "The message is empty"),
        (["send", "-"], b" \n", "The message is empty"),
        (["send", "-"], b"x" * 2**20, "text has 1,048,576 bytes; the limit is 524,288"),
        (["send", "hi", "--from", "a\nb"], b"", "sender.from contains a character that no id may"),
        (
            ["send", "hi", "--message-id", "\x7f"],
            b"",
            "messageId contains a character that no id may",
        ),
        (["send", "hi", "--agent", "nobody"], b"", "There is no agent 'nobody'"),
        (["stop", "abcd"], b"", "'abcd' is no session"),
        (["stop", "a/b"], b"", "'a/b' is no session"),
        (["stop", ""], b"", "sessionKey must have at least 1 "),
        (["stop", "main/cli/default/bob:bob:_"], b"", "'main/cli/default/bob:bob:_' is no session"),
        (["sessions", "show", "0" * 32], b"", f"'{'0' * 32}' is no session"),
        (["sessions", "trace", "00000000-1-0"], b"", "'00000000' is no session"),
    ],
)
@pytest.mark.usefixtures("gateway")
async def test_bad_input_is_reported_in_one_line(
    stack: Stack, arguments: list[str], stdin: bytes, why: str
) -> None:
    refused(run(stack, *arguments, stdin=stdin), why)


async def test_wrong_usage_has_its_own_exit_status(stack: Stack) -> None:
    result = run(stack, "send")

    assert result.returncode == 2
    assert "Missing argument 'TEXT'" in result.stderr


# -- missing parts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--version"], ["status"], ["nonsense"], ["sessions"], ["send", "-"]]
)
def test_forked_commands_of_these_tests_behave_like_started_ones(
    directory: Path, arguments: list[str]
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/proc/nobody", "REMOTECLAW_HOME": str(directory)}
    executed = subprocess.run(
        [REMOTECLAW, *arguments], env=env, capture_output=True, text=True, input="", check=False
    )

    forked = run_command(*arguments, env=env)

    assert (forked.returncode, forked.stdout, forked.stderr) == (
        *(executed.returncode, executed.stdout, executed.stderr),
    )


@pytest.mark.parametrize("command", [["send", "hi"], ["status"], ["worker"], ["sessions", "list"]])
def test_a_command_says_that_remoteclaw_is_not_running(directory: Path, command: list[str]) -> None:
    refused(
        without_stack(directory, *command),
        f"RemoteClaw isn't running in {directory}: start it with `remoteclaw up`",
    )


@pytest.mark.parametrize("command", [["up"], ["send", "hi"], ["doctor"]])
def test_an_impossible_state_directory_is_reported(command: list[str]) -> None:
    result = without_stack(Path("/dev/null/remoteclaw"), *command)

    assert result.returncode == 1
    assert "The state directory /dev/null/remoteclaw can't be used" in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


@for_each(
    "command",
    [
        *(["doctor"], ["status"], ["send", "hi"], ["stop", "a"], ["worker"], ["sweep"]),
        ["config", "validate"],
    ],
)
def test_reading_commands_do_not_create_a_state_directory(
    directory: Path, command: list[str]
) -> None:
    without_stack(directory / "home", *command)

    assert not (directory / "home").exists()


def test_an_unreachable_redis_is_reported_without_its_password(directory: Path) -> None:
    env = {"REMOTECLAW__REDIS__URL": "redis://127.0.0.1:1?password=hush"}
    env["REMOTECLAW__GATEWAY__PORT"] = "0"

    for command in ("up", "status", "worker"):
        result = without_stack(directory, command, **env)
        assert result.returncode == 1
        assert result.stderr == (
            "remoteclaw: The Redis at redis://127.0.0.1:1 can't be reached (Connection refused): "
            "start it, or correct [redis] url.\n"
        )


def test_an_invalid_redis_url_is_refused_without_showing_its_password(directory: Path) -> None:
    result = without_stack(directory, "up", REMOTECLAW__REDIS__URL="redis://127.0.0.1:hush")

    refused(result, "REMOTECLAW__REDIS__URL: [redis] url is not valid: must ")
    assert "hush" not in result.stderr


@contextlib.contextmanager
def redis_on_a_port(directory: Path, *options: str) -> Iterator[tuple[Server, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    with running_server(installed_servers()[0], directory, "--port", port, *options) as server:
        yield server, f"127.0.0.1:{port}"


def listens(place: str) -> bool:
    host, _, port = place.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


def test_a_redis_that_is_loading_its_data_is_reported_as_loading(directory: Path) -> None:
    """A Redis that is loading its data reports aof_enabled:0, like one without a file."""
    with redis_on_a_port(directory) as (server, place), redis.Redis.from_url(server.url) as client:
        client.eval("for key = 1, 100000 do redis.call('SET', key, 'value') end", 0)
    command = server_command(server.program, directory, server.socket)
    # It answers after every 1024 loaded commands, which is five times a second for 20 seconds.
    slowly = ["--port", place.partition(":")[2], "--key-load-delay", "200"]
    with (
        (directory / "log").open("ab") as log,
        subprocess.Popen([*command, *slowly], stdout=log) as loading,
    ):
        eventually_sync(lambda: listens(place))
        result = without_stack(directory, "status", REMOTECLAW__REDIS__URL=f"redis://{place}")
        loading.kill()

    refused(result, f"The Redis at redis://{place} is still loading its data: try again soon.")


def test_an_unexpected_error_prints_one_line_and_writes_a_crash_log(directory: Path) -> None:
    home = directory / ("x" * 200)
    (home / "up.lock").mkdir(parents=True)  # a directory instead of a file
    home.chmod(0o700)

    result = without_stack(home, "up", REMOTECLAW__AGENTS__MAIN__RUNTIME="demo")

    assert result.returncode == 1
    assert "An unexpected error, IsADirectoryError" in result.stderr
    assert len(result.stderr.replace(str(home / "logs" / "crash.log"), "")) <= 300
    log = (home / "logs" / "crash.log").read_text()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} remoteclaw up\n", log)
    assert "Traceback" in log


# -- running --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sweep_says_that_it_runs_and_ends_without_output(
    stack: Stack, number: signal.Signals
) -> None:
    with started(stack, "sweep") as sweeper:
        assert sweeper.stdout is not None
        printed = sweeper.stdout.readline()
        sweeper.send_signal(number)
        rest = sweeper.communicate(timeout=HANG_S)

    assert printed == "Sweeping every second, until Ctrl-C or SIGTERM.\n"
    assert rest == ("", "")
    assert sweeper.returncode == 0


# -- configuration, workers and help --------------------------------------------------------------


async def test_config_validate_accepts_the_file_and_config_schema_describes_it(
    stack: Stack,
) -> None:
    validated = run(stack, "config", "validate")
    schema = json.loads(run(stack, "config", "schema").stdout)

    assert validated.stdout == f"{stack.home.config_file} is valid.\n"
    fleet = schema["$defs"]["FleetConfig"]["properties"]
    assert fleet["workers"]["description"].startswith("The number of `rq worker` processes")


async def test_worker_prints_and_executes_the_rq_command(stack: Stack) -> None:
    with subprocess.Popen(
        [REMOTECLAW, "worker"],
        env=stack.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        printed = worker.stdout.readline()

        async def is_ready() -> bool:
            return any(view.pid == worker.pid for view in await stack.fleet.workers.list())

        await eventually(is_ready)
        worker.terminate()

    assert printed == f"+ rq {' '.join(worker_command()[1:])}\n"
    assert printed.startswith("+ rq worker -c workers.settings -j workers.jobs.DrainJob")


@for_each(
    "command",
    [[], *([name] for name, command in main.commands.items() if isinstance(command, click.Group))],
)
def test_command_summaries_fit_into_80_columns(directory: Path, command: list[str]) -> None:
    result = without_stack(directory, *command, "--help", COLUMNS="80")

    summaries = result.stdout.partition("Commands:\n")[2]
    assert summaries
    assert "..." not in summaries


def test_workers_do_not_import_the_gateway() -> None:
    code = "import sys; import remoteclaw.session.drain; print(*sorted(sys.modules))"
    python = Path(REMOTECLAW).with_name("python")
    modules = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"mcp", "starlette", "prompt_toolkit", "remoteclaw.cli"} & set(modules)


# -- undelivered replies and dead letters ---------------------------------------------------------


async def test_undelivered_replies_on_a_full_redis_are_listed_and_dropped(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.fleet.inbound.append(message("hello"), agent="main")
    other = await stack.fleet.inbound.append(message("hi", from_="bob"), agent="main")
    for each in (accepted, other):
        await stack.fleet.outcomes.wait(each.session.sid, each.entry_id, timeout_s=HANG_S)
    await stack.fleet.scripts.client.config_set("maxmemory", 1)

    shown = run(stack, "replies", "list").stdout.splitlines()
    listed = json.loads(run(stack, "replies", "list", "--json").stdout)

    assert shown[0].split() == ["ACCOUNT", "REPLIES", "SIZE", "OLDEST", "READ", "SESSION"]
    assert all(line.startswith("test/default  ") for line in shown[1:])
    assert all("  by no adapter  " in line for line in shown[1:])
    sessions = {str(each.session) for each in (accepted, other)}
    assert {line.split()[-1] for line in shown[1:]} == sessions
    assert {each["sessionKey"] for each in listed} == sessions
    assert {(each["account"], each["isRead"]) for each in listed} == {("test/default", False)}
    count = sum(each["replies"] for each in listed)
    assert "Say which replies" in run(stack, "replies", "drop", "--yes").stderr
    gone = run(stack, "replies", "drop", "other/default", "--yes")
    assert gone.stdout == "There is no such reply.\n"
    declined = run(stack, "replies", "drop", "test/default", stdin=b"n\n")
    assert declined.returncode == 1
    assert declined.stdout.startswith(f"Drop {count} of the replies, ")

    dropped = run(stack, "replies", "drop", "--session", str(accepted.session), "--yes")

    assert re.fullmatch(r"[1-9] dropped, \d+ (bytes|KB)\.\n", dropped.stdout)
    trace = run(stack, "sessions", "trace", str(accepted.session)).stdout
    assert "undelivered" in trace
    assert "an operator has dropped it" in trace
    assert str(accepted.session) not in run(stack, "replies", "list").stdout
    assert run(stack, "replies", "drop", "test/default", stdin=b"y\n").returncode == 0
    assert run(stack, "replies", "list").stdout == "No reply waits to be delivered.\n"


async def test_a_dead_letter_is_listed_shown_and_retried(stack: Stack) -> None:
    accepted = await stack.append("a\x1b]0;title\x07 message that kills")
    await give_up(stack, accepted)

    listed = run(stack, "deadletters", "list").stdout
    letter = listed.splitlines()[1].split()[0]
    assert "interrupted" in listed
    assert (
        r"a\u001b]0;title\u0007 message that kills"
        in run(stack, "deadletters", "show", letter).stdout
    )
    assert "dead      1: see" in run(stack, "status").stdout
    assert run(stack, "deadletters", "retry", letter).stdout.startswith("It is tried again as ")
    refused(run(stack, "deadletters", "drop", letter), "was tried again already: as message")
    refused(run(stack, "deadletters", "drop", "1-1"), "There is no dead letter '1-1'")
    refused(run(stack, "deadletters", "show", "nonsense"), "There is no dead letter")


async def test_a_retried_dead_letter_stays_in_its_lane(stack: Stack) -> None:
    accepted = await stack.fleet.inbound.append(
        message("hello"), agent="main", deliver="caller", lane="background"
    )
    await give_up(stack, accepted)
    (letter,) = await stack.fleet.dead_letters.list()

    result = run(stack, "deadletters", "retry", letter.id)

    entry = result.stdout.rpartition("-")[0].rpartition("-")[2] + "-0"
    assert result.stdout == f"It is tried again as {accepted.session.sid[:8]}-{entry}.\n"
    outcome = await stack.fleet.outcomes.wait(accepted.session.sid, entry, timeout_s=HANG_S)
    assert outcome is not None
    assert "demo agent" in said(outcome)
    state = await stack.fleet.scripts.client.hget(keys.state(accepted.session.sid), "lane")
    assert state == b"background"  # messages of people still have priority


def test_the_help_of_an_answer_says_what_it_means_for_a_budget(directory: Path) -> None:
    result = without_stack(directory, "requests", "answer", "--help")

    assert (
        "For a budget, `once` allows half as much again, `conversation` lifts the limit until its "
        "period ends, and `deny` refuses messages until then."
    ) in " ".join(result.stdout.split())


async def test_dashboard_runs_rq_dashboard(stack: Stack) -> None:
    result = run(stack, "dashboard", "--help")

    assert "rq-dashboard" in result.stdout.lower() or "RQ Dashboard" in result.stdout
