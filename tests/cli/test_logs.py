"""The command `logs`."""

import json

import pytest

from tests.support.cli import run
from tests.support.command import REMOTECLAW, start_program
from tests.support.stack import Stack
from tests.support.waiting import eventually

WORKER = """\
09:00:01 Worker x: started
2026-11-27 10:00:00.001+00:00 INFO remoteclaw.session.turn: 8f3a2b1c-1-0: begins: main in test
2026-11-27 10:00:03.000+00:00 ERROR workers: session 8f3a2b1c: the drain failed: ValueError
  File "x.py", line 3
09:00:02 Worker x: done
"""
GATEWAY = {
    "at": "2026-11-27 11:00:02.000+01:00",
    "level": "INFO",
    "logger": "remoteclaw.fleet.replies.reader",
    "message": "aaaaaaaa-1-0: delivered to web/default",
    "event": "reply.delivered",
    "account": "web/default",
}


@pytest.fixture
def written(stack: Stack) -> Stack:
    """A stack with the logs of two processes, of which one has been rotated."""
    (stack.home.logs / "worker-1.log").write_text(WORKER)
    (stack.home.logs / "gateway.log").write_text(json.dumps(GATEWAY) + "\nunfinished")
    old = "2026-11-27 09:59:00.000+00:00 INFO remoteclaw: older"
    (stack.home.logs / "gateway.log.1").write_text(f"{old}\n")
    return stack


def test_the_logs_of_all_processes_are_printed_in_the_order_of_their_times(
    written: Stack,
) -> None:
    lines = run(written, "logs").stdout.splitlines()

    assert lines == [
        "worker-1: 09:00:01 Worker x: started",
        "gateway: 2026-11-27 09:59:00.000+00:00 INFO remoteclaw: older",
        "worker-1: 2026-11-27 10:00:00.001+00:00 INFO remoteclaw.session.turn: "
        "8f3a2b1c-1-0: begins: main in test",
        "gateway: 2026-11-27 11:00:02.000+01:00 INFO remoteclaw.fleet.replies.reader: "
        "aaaaaaaa-1-0: delivered to web/default",
        "worker-1: 2026-11-27 10:00:03.000+00:00 ERROR workers: "
        "session 8f3a2b1c: the drain failed: ValueError",
        '  File "x.py", line 3',
        "worker-1: 09:00:02 Worker x: done",
    ]


def test_logs_of_one_session_are_found_by_its_id_or_a_reference(written: Stack) -> None:
    by_id = run(written, "logs", "--session", "8f3a2b1c" + "0" * 24, "--json").stdout
    by_reference = run(written, "logs", "--session", "aaaaaaaa-1-0", "--json").stdout
    unknown = run(written, "logs", "--session", "the plan")
    nothing = run(written, "logs", "--since", "1s")

    begins, fails = map(json.loads, by_id.splitlines())
    assert (begins["process"], begins["level"]) == ("worker-1", "INFO")
    assert begins["message"] == "8f3a2b1c-1-0: begins: main in test"
    assert fails["error"] == '  File "x.py", line 3\n'
    assert json.loads(by_reference) == {"process": "gateway", **GATEWAY}
    assert "is no id, key or reference" in unknown.stderr
    assert "journalctl --user -u 'remoteclaw*'" in nothing.stderr


async def test_new_records_are_followed_across_a_rotation(written: Stack) -> None:
    shown, log = written.home.path / "shown", written.home.logs / "worker-1.log"
    follower = start_program([REMOTECLAW, "logs", "-f"], env=written.env(), log=shown)
    try:
        await eventually(lambda: "done" in shown.read_text())
        with log.open("a") as file:
            file.write("2026-11-27 10:00:04.000+00:00 INFO remoteclaw: next\n")
        await eventually(lambda: "remoteclaw: next" in shown.read_text())
        log.write_text("2026-11-27 10:00:05.000+00:00 INFO remoteclaw: rotated\n")
        await eventually(lambda: "remoteclaw: rotated" in shown.read_text())
    finally:
        follower.kill()
        follower.wait()

    assert shown.read_text().count("remoteclaw: next") == 1


async def test_processes_log_json_if_the_configuration_says_so(stack: Stack) -> None:
    stack.configure(log_format="json")
    await stack.start_worker()
    accepted = await stack.append("a confidential text")
    await stack.outcome(accepted)
    name = accepted.session.sid

    async def is_logged() -> bool:
        return "turn.ends" in run(stack, "logs", "--json", "--session", name).stdout

    await eventually(is_logged)
    output = run(stack, "logs", "--json", "--session", name).stdout

    begins, ends = (
        fields for each in output.splitlines() if (fields := json.loads(each)).get("event")
    )
    assert (begins["event"], begins["agent"], begins["attempt"]) == ("turn.begins", "main", 1)
    assert (ends["event"], ends["outcome"], ends["session"]) == ("turn.ends", "done", name)
    assert ends["seconds"] > 0
    assert "confidential" not in stack.worker_logs()
