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
from typing import get_args

import click
import pytest
import redis

from remoteclaw.cli import main
from remoteclaw.cli.sessions import HEADS, queue_of_session
from remoteclaw.config.model import DropPolicy, QueueMode
from remoteclaw.fleet import keys
from remoteclaw.up.embedded import server_command
from remoteclaw.up.supervisor import worker_command
from tests.support.bridges import script
from tests.support.cli import give_up, refused, run
from tests.support.command import REMOTECLAW, run_command
from tests.support.leases import started_task
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import HANG_S, eventually, eventually_sync


@contextlib.contextmanager
def started(stack: Stack, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Have a command running; it is killed at the end if it still runs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [REMOTECLAW, *arguments], env=stack.env(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


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


async def test_a_session_has_a_label(stack: Stack) -> None:
    alice = (await stack.append("hello")).session
    bob = (await stack.append("hello", from_="bob")).session

    assert run(stack, "sessions", "label", alice.sid[:8], "plan").returncode == 0
    refused(run(stack, "sessions", "label", bob.sid, "plan"), "is called 'plan' already: choose")
    (row,) = [
        line for line in run(stack, "sessions", "list").stdout.split("\n") if str(alice) in line
    ]
    assert row.split()[:2] == [alice.sid[:8], "plan"]
    assert "label         plan" in run(stack, "sessions", "show", str(alice)).stdout
    assert run(stack, "sessions", "label", alice.sid, "--remove").returncode == 0
    assert run(stack, "sessions", "label", bob.sid, "plan").returncode == 0
    assert "label's NAME or --remove" in run(stack, "sessions", "label", bob.sid).stderr
    assert "1 to 64 characters" in run(stack, "sessions", "label", bob.sid, "a\nb").stderr


@pytest.mark.usefixtures("gateway")
async def test_a_session_has_the_model_that_was_chosen_for_it(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "model": "haiku"})
    alice = (await stack.append("hello")).session
    bob = (await stack.append("hello", from_="bob")).session
    await stack.fleet.sessions.choose_model(bob, "opus")

    listed = json.loads(run(stack, "sessions", "list", "--json").stdout)
    assert {each["key"]: each["model"] for each in listed} == {
        str(alice): "haiku",
        str(bob): "opus",
    }
    (row,) = [
        line for line in run(stack, "sessions", "list").stdout.split("\n") if str(bob) in line
    ]
    assert " opus " in row
    assert "opus" in run(stack, "sessions", "show", bob.sid).stdout
    told = run(stack, "send", "/sessions").stdout
    assert ("| opus |" in told, "| haiku |" in told) == (True, True)


async def test_a_session_shows_what_it_has_started(stack: Stack) -> None:
    alice = (await stack.append("hello")).session
    child, _ = await started_task(stack.fleet, alice, message("look"), call="call")

    above, below = (run(stack, "sessions", "show", key.sid).stdout for key in (alice, child))
    assert f"has started   {child.sid[:8]} (scheduled)" in above
    assert f"started by    {alice}" in below


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


def without_stack(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        *arguments,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "REMOTECLAW_HOME": str(home),
            **env,
        },
    )


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


@pytest.mark.parametrize(
    "command",
    [
        *(["doctor"], ["status"], ["send", "hi"], ["stop", "a"], ["worker"], ["sweep"]),
        ["config", "validate"],
    ],
    ids=" ".join,
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


async def test_sessions_are_listed_shown_and_traced(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid

    listed = run(stack, "sessions", "list").stdout
    shown = run(stack, "sessions", "show", sid[:8]).stdout
    traced = run(stack, "sessions", "trace", str(accepted.session)).stdout

    assert listed.split("\n")[0].split() == [*HEADS]
    assert re.search(rf"\n{sid[:8]}  hello +main +idle +0 +0 +\d+ s  main/test/default/", listed)
    assert re.search(rf"^id +{sid}$", shown, re.MULTILINE)
    values = [re.search(r"(?<=  )\S", line) for line in shown.splitlines()]
    assert len({value.start() for value in values if value}) == 1, shown
    assert re.search(r"^conversation +[0-9a-f-]{36} of demo in /", shown, re.MULTILINE)
    assert re.search(r"^lane +agents$", shown, re.MULTILINE)
    assert traced.startswith(
        f"{sid[:8]}-{accepted.entry_id}  done  main/test/default/chat-1:alice:_"
    )
    names = re.findall(r"^ .* ms  (\w+)", traced, re.MULTILINE)
    assert names == ["accepted", "begun", "spawned", "tool", "output", "finished"]
    assert run(stack, "sessions", "trace", f"{sid[:8]}-{accepted.entry_id}").stdout == traced


async def test_the_start_of_an_id_names_a_session(stack: Stack) -> None:
    sids = [(await stack.append("hello", from_=f"user-{n}")).session.sid for n in range(17)]
    shared = next(sid[0] for sid in sids if sum(other[0] == sid[0] for other in sids) > 1)
    count = sum(sid[0] == shared for sid in sids)

    refused(
        run(stack, "sessions", "show", shared),
        f"'{shared}' fits {count} sessions: give more of its id",
    )
    for length in range(1, 33):
        if sum(sid[:length] == sids[0][:length] for sid in sids) == 1:
            assert sids[0] in run(stack, "sessions", "show", sids[0][:length]).stdout
            break


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


async def test_a_record_outlives_its_sessions_state(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid
    await stack.fleet.scripts.client.delete(keys.state(sid), keys.SESSIONS)

    exported = run(stack, "sessions", "export", str(accepted.session)).stdout

    assert [json.loads(line)["role"] for line in exported.splitlines()] == ["user", "tool", "agent"]
    refused(run(stack, "sessions", "export", "a" * 32), "is no session")


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


@pytest.mark.parametrize(
    "command",
    [[], *([name] for name, command in main.commands.items() if isinstance(command, click.Group))],
    ids=" ".join,
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


# -- what is decided about messages and sessions --------------------------------------------------


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


async def test_a_session_gets_queue_settings_of_its_own(stack: Stack) -> None:
    accepted = await stack.append("hello")
    sid = accepted.session.sid[:8]

    shown = run(stack, "sessions", "queue", sid, "--mode", "interrupt", "--cap", "3").stdout

    assert re.search("mode +interrupt .the session's own.", shown)
    assert "debounce_ms    0\n" in shown
    again = run(stack, "sessions", "queue", sid).stdout
    assert again == shown
    assert "own" not in run(stack, "sessions", "queue", sid, "--reset").stdout


@pytest.mark.usefixtures("gateway")
async def test_the_background_waits_behind_people(stack: Stack) -> None:
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")

    behind = run(stack, "send", "hello", "--from", "cron", "--background", "--wait", "1")

    assert behind.returncode == 3
    assert run(stack, "send", "hello").returncode == 0


async def test_the_dashboard_is_rq_dashboards_own(stack: Stack) -> None:
    result = run(stack, "dashboard", "--help")

    assert "rq-dashboard" in result.stdout.lower() or "RQ Dashboard" in result.stdout


def test_the_choices_of_a_sessions_queue_are_the_configurations() -> None:
    """They are written twice, because `--help` must not load the configuration."""
    choices = {p.name: getattr(p.type, "choices", None) for p in queue_of_session.params}

    assert tuple(choices["mode"] or ()) == get_args(QueueMode)
    assert tuple(choices["drop"] or ()) == get_args(DropPolicy)


# -- agents ---------------------------------------------------------------------------------------


def test_agents_lists_what_is_installed_and_warns_of_what_nobody_tried(directory: Path) -> None:
    for name, version in (("codex", "codex-cli 0.169.3"), ("gemini", "9.0.0")):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)

    result = without_stack(directory, "agents", PATH=f"{directory}:/usr/bin:/bin")

    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert [*rows] == ["AGENT", "codex", "gemini"]
    assert rows["codex"][1:3] == ["0.169.3", "yes"]
    assert rows["gemini"][1:3] == ["9.0.0", "no"]
    assert result.stderr == (
        "remoteclaw: gemini: tested with 0.61.0, so look at what it does first.\n"
    )


def test_agents_says_which_of_them_have_no_tools(directory: Path) -> None:
    program = directory / "gemini"
    program.write_text("#!/bin/sh\necho 0.61.0\n")
    program.chmod(0o755)
    work = directory / "work"
    work.mkdir()
    (work / ".gemini").mkdir()
    (directory / "remoteclaw.toml").write_text(
        f'[agents.main]\nruntime = "gemini"\nworkspace = "{work}"\n'
    )

    result = without_stack(directory, "agents", PATH=f"{directory}:/usr/bin:/bin")

    assert result.stderr.startswith(f"remoteclaw: main has no tools: {work / '.gemini'} would")
    assert result.stderr.count("\n") == 1


def test_without_any_agent_the_demo_is_named(directory: Path) -> None:
    result = without_stack(directory, "agents", PATH="/usr/bin:/bin")

    assert result.stdout.startswith("No agent CLI is installed, so the demo answers")


def test_agents_that_only_the_configuration_knows_are_listed_too(directory: Path) -> None:
    program = directory / "own"
    program.write_text("#!/bin/sh\necho 3.2.1\n")
    program.chmod(0o755)
    (directory / "remoteclaw.toml").write_text(
        f'[agents.main]\nruntime = "acp"\ncommand = ["{program}"]\n'
    )

    listed = without_stack(directory, "agents", PATH="/usr/bin:/bin")
    examined = without_stack(directory, "doctor", PATH="/usr/bin:/bin")
    program.unlink()
    missing = without_stack(directory, "agents", PATH="/usr/bin:/bin")

    assert listed.stdout.splitlines()[1].split()[:4] == ["main", "(acp)", "3.2.1", "no"]
    assert listed.stderr == ""
    assert f"acp 3.2.1 (configured), works in {directory}" in examined.stdout
    assert "tested with" not in examined.stdout
    assert missing.stdout == "No agent CLI is installed: see `remoteclaw doctor`.\n"
