"""The command line: what people see, above all when something is wrong."""

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
async def test_a_failure_is_printed_with_how_to_trace_it(stack: Stack) -> None:
    await stack.start_worker()

    result = run(stack, "send", "fail", "--message-id", "7")
    outcome = json.loads(run(stack, "send", "fail", "--message-id", "7", "--json").stdout)

    assert result.returncode == 1
    assert "main failed and couldn't finish your message" in result.stdout
    told = re.fullmatch(
        r"remoteclaw: It failed: `remoteclaw (sessions trace \S+)` says why.\n", result.stderr
    )
    assert told
    assert "fatal: the demo fails when asked to" in run(stack, *told[1].split()).stdout
    assert (outcome["status"], outcome["duplicate"]) == ("failed", True)
    assert outcome["error"]["category"] == "fatal"
    assert outcome["reply"][1]["is_error"] is True


@pytest.mark.usefixtures("gateway")
async def test_send_gives_up_waiting_but_not_the_message(stack: Stack) -> None:
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
async def test_the_same_message_id_is_the_same_message(stack: Stack) -> None:
    command = ["send", "hello", "--wait", "0", "--message-id", "7", "--json"]
    results = [run(stack, *command) for _ in range(2)]
    first, second = (json.loads(result.stdout) for result in results)

    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["reference"] == second["reference"]
    assert second["status"] == "accepted"
    assert "accepted before" not in results[0].stderr
    told = "A message with this id was accepted before: this text was not used"
    assert told in results[1].stderr


@pytest.mark.usefixtures("gateway")
async def test_send_says_at_once_that_nobody_answers(stack: Stack) -> None:
    with started(stack, "send", "hello") as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline()

    assert said == (
        "remoteclaw: no rq worker is running yet, so there is no answer: "
        "start some with `remoteclaw worker`. The message waits.\n"
    )


@pytest.mark.usefixtures("gateway")
async def test_ctrl_c_while_waiting_says_how_to_find_and_stop_the_message(
    stack: Stack, directory: Path
) -> None:
    command = list(script(directory, "turn(); time.sleep(600)"))
    stack.configure({"runtime": "demo", "command": command})
    await stack.start_worker()
    with started(stack, "send", "hello") as waiting:
        eventually_sync(lambda: "running" in run(stack, "sessions", "list").stdout)
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=HANG_S)

    assert waiting.returncode == 130
    sid = (await stack.fleet.sessions.list(limit=1))[0].sid
    assert said.count("\n") == 1
    assert f"`remoteclaw sessions trace {sid[:8]}-" in said
    assert f"`remoteclaw stop {sid[:8]}`" in said


@pytest.mark.parametrize("wait", ["-1", "nan", "-inf", "soon"])
async def test_a_time_that_is_none_is_wrong_usage(stack: Stack, wait: str) -> None:
    result = run(stack, "send", "hello", "--wait", wait)

    assert result.returncode == 2
    assert "Invalid value for '--wait'" in result.stderr


@pytest.mark.usefixtures("gateway")
async def test_an_emoji_for_a_sender_is_fine(stack: Stack) -> None:
    assert run(stack, "send", "hello", "--wait", "0", "--from", "🦀").returncode == 0
    assert "%F0%9F%A6%80" in run(stack, "sessions", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        (["send", ""], b"", "text is empty"),
        (["send", "-"], b" \n", "text is empty"),
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
        (["stop", ""], b"", "'' is no session"),
        (["stop", "main/cli/default/bob:bob:_"], b"", "'main/cli/default/bob:bob:_' is no session"),
        (["sessions", "show", "0" * 32], b"", f"'{'0' * 32}' is no session"),
        (["sessions", "trace", "00000000-1-0"], b"", "'00000000' is no session"),
    ],
)
@pytest.mark.usefixtures("gateway")
async def test_bad_input_is_one_clear_line(
    stack: Stack, arguments: list[str], stdin: bytes, why: str
) -> None:
    refused(run(stack, *arguments, stdin=stdin), why)


async def test_wrong_usage_is_told_apart(stack: Stack) -> None:
    result = run(stack, "send")

    assert result.returncode == 2
    assert "Missing argument 'TEXT'" in result.stderr


# -- without what it needs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--version"], ["status"], ["nonsense"], ["sessions"], ["send", "-"]]
)
def test_a_command_of_these_tests_is_as_one_that_is_started(
    directory: Path, arguments: list[str]
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "REMOTECLAW_HOME": str(directory)}
    real = subprocess.run(
        [REMOTECLAW, *arguments], env=env, capture_output=True, text=True, input="", check=False
    )

    ours = run_command(*arguments, env=env)

    assert (ours.returncode, ours.stdout, ours.stderr) == (
        *(real.returncode, real.stdout, real.stderr),
    )


@pytest.mark.parametrize("command", [["send", "hi"], ["status"], ["worker"], ["sessions", "list"]])
def test_nothing_runs(directory: Path, command: list[str]) -> None:
    refused(
        without_stack(directory, *command),
        f"RemoteClaw isn't running in {directory}: start it with `remoteclaw up`",
    )


@pytest.mark.parametrize("command", [["up"], ["send", "hi"], ["doctor"]])
def test_a_state_directory_that_cannot_be(command: list[str]) -> None:
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
def test_looking_makes_no_state_directory(directory: Path, command: list[str]) -> None:
    without_stack(directory / "home", *command)

    assert not (directory / "home").exists()


def test_a_redis_that_is_not_there(directory: Path) -> None:
    url = "redis://127.0.0.1:1?password=hush"

    for command in ("up", "status", "worker"):
        result = without_stack(directory, command, REMOTECLAW__REDIS__URL=url)
        assert result.returncode == 1
        assert result.stderr == (
            "remoteclaw: The Redis at redis://127.0.0.1:1 can't be reached (Connection refused): "
            "start it, or correct [redis] url.\n"
        )


def test_a_redis_address_that_cannot_be_used(directory: Path) -> None:
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


def test_a_redis_that_is_loading_is_not_called_unfit(directory: Path) -> None:
    """While it loads, its INFO says aof_enabled:0."""
    with redis_on_a_port(directory) as (server, place), redis.Redis.from_url(server.url) as client:
        client.eval("for key = 1, 100000 do redis.call('SET', key, 'value') end", 0)
    command = server_command(server.program, directory, server.socket)
    # It answers after each 1024 commands that it loads: five times a second, for 20 seconds.
    slowly = ["--port", place.partition(":")[2], "--key-load-delay", "200"]
    with (
        (directory / "log").open("ab") as log,
        subprocess.Popen([*command, *slowly], stdout=log) as loading,
    ):
        eventually_sync(lambda: listens(place))
        result = without_stack(directory, "status", REMOTECLAW__REDIS__URL=f"redis://{place}")
        loading.kill()

    refused(result, f"The Redis at redis://{place} is still loading its data: try again soon.")


def test_an_unexpected_error_is_one_line_and_a_file(directory: Path) -> None:
    home = directory / ("x" * 200)
    (home / "up.lock").mkdir(parents=True)  # as nobody would expect
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
async def test_a_sweeper_says_that_it_runs_and_ends_quietly(
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


# -- looking --------------------------------------------------------------------------------------


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
def test_no_summary_is_cut(directory: Path, command: list[str]) -> None:
    result = without_stack(directory, *command, "--help", COLUMNS="80")

    summaries = result.stdout.partition("Commands:\n")[2]
    assert summaries
    assert "..." not in summaries


def test_help_loads_nothing_heavy() -> None:
    """`--help` and completion answer at once; what talks to Redis is imported by what needs it."""
    code = "import sys; import remoteclaw.cli; print(*sorted(sys.modules))"
    python = Path(REMOTECLAW).with_name("python")
    modules = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"redis", "rq", "pydantic", "prompt_toolkit", "orjson"} & set(modules)


def test_work_horses_fork_from_a_worker_that_knows_no_gateway() -> None:
    code = "import sys; import remoteclaw.session.drain; print(*sorted(sys.modules))"
    python = Path(REMOTECLAW).with_name("python")
    modules = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert not {"mcp", "starlette", "prompt_toolkit", "remoteclaw.cli"} & set(modules)


# -- what is decided about messages and replies ---------------------------------------------------


async def test_what_a_flood_left_on_a_full_redis_is_seen_and_dropped(stack: Stack) -> None:
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
    assert {each["session"] for each in listed} == sessions
    assert {(each["account"], each["is_read"]) for each in listed} == {("test/default", False)}
    count = sum(each["replies"] for each in listed)
    assert "Say whose" in run(stack, "replies", "drop", "--yes").stderr
    gone = run(stack, "replies", "drop", "other/default", "--yes")
    assert gone.stdout == "There is no such reply.\n"
    asked = run(stack, "replies", "drop", "test/default", stdin=b"n\n")
    assert asked.returncode == 1
    assert asked.stdout.startswith(f"Drop {count} of the replies, ")

    dropped = run(stack, "replies", "drop", "--session", str(accepted.session), "--yes")

    assert re.fullmatch(r"[1-9] dropped, \d+ bytes\.\n", dropped.stdout)
    trace = run(stack, "sessions", "trace", str(accepted.session)).stdout
    assert "undelivered" in trace
    assert "an operator has dropped it" in trace
    assert str(accepted.session) not in run(stack, "replies", "list").stdout
    assert run(stack, "replies", "drop", "test/default", stdin=b"y\n").returncode == 0
    assert run(stack, "replies", "list").stdout == "No reply waits to be delivered.\n"


async def test_a_dead_letter_is_listed_shown_and_tried_again(stack: Stack) -> None:
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


async def test_a_send_that_was_given_up_is_tried_again_in_its_lane(stack: Stack) -> None:
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
    assert state == b"background"  # people still go first


async def test_the_dashboard_is_rq_dashboards_own(stack: Stack) -> None:
    result = run(stack, "dashboard", "--help")

    assert "rq-dashboard" in result.stdout.lower() or "RQ Dashboard" in result.stdout
