"""The commands `sessions`: labels, models, queues, traces and records."""

import json
import re
from typing import get_args

import pytest

from remoteclaw.cli.sessions import HEADERS, queue_of_session
from remoteclaw.config.model import DropPolicy, QueueMode
from remoteclaw.fleet import keys
from tests.support.cli import refused, run
from tests.support.leases import started_task
from tests.support.stack import REPLIES, Stack, message


async def test_a_session_can_be_labelled(stack: Stack) -> None:
    alice = (await stack.append("hello")).session
    bob = (await stack.append("hello", from_="bob")).session

    assert run(stack, "sessions", "label", alice.sid[:8], "plan").returncode == 0
    refused(
        run(stack, "sessions", "label", bob.sid, "plan"), "already has the label 'plan': choose"
    )
    (row,) = [
        line for line in run(stack, "sessions", "list").stdout.split("\n") if str(alice) in line
    ]
    assert row.split()[:2] == [alice.sid[:8], "plan"]
    assert "label         plan" in run(stack, "sessions", "show", str(alice)).stdout
    assert run(stack, "sessions", "label", alice.sid, "--remove").returncode == 0
    assert run(stack, "sessions", "label", bob.sid, "plan").returncode == 0
    assert "label's NAME or --remove" in run(stack, "sessions", "label", bob.sid).stderr
    refused(run(stack, "sessions", "label", bob.sid, "a\nb"), "label contains a character that no")


@pytest.mark.usefixtures("gateway")
async def test_lists_show_the_model_chosen_for_a_session(stack: Stack) -> None:
    stack.configure({"runtime": "demo", "model": "haiku"})
    alice = (await stack.append("hello")).session
    bob = (await stack.append("hello", from_="bob")).session
    await stack.fleet.sessions.choose_model(bob, "opus")

    listed = json.loads(run(stack, "sessions", "list", "--json").stdout)["sessions"]
    assert {each["key"]: each["model"] for each in listed} == {
        str(alice): "haiku",
        str(bob): "opus",
    }
    (row,) = [
        line for line in run(stack, "sessions", "list").stdout.split("\n") if str(bob) in line
    ]
    assert " opus " in row
    assert "opus" in run(stack, "sessions", "show", bob.sid).stdout
    table = run(stack, "send", "/sessions").stdout
    assert ("| opus |" in table, "| haiku |" in table) == (True, True)


async def test_sessions_show_names_parent_and_tasks(stack: Stack) -> None:
    alice = (await stack.append("hello")).session
    child, _ = await started_task(stack.fleet, alice, message("look"), call="call")

    of_parent, of_child = (run(stack, "sessions", "show", key.sid).stdout for key in (alice, child))
    assert f"has started   {child.sid[:8]} (scheduled)" in of_parent
    assert f"started by    {alice}" in of_child


async def test_sessions_are_listed_shown_and_traced(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid

    listed = run(stack, "sessions", "list").stdout
    shown = run(stack, "sessions", "show", sid[:8]).stdout
    traced = run(stack, "sessions", "trace", str(accepted.session)).stdout

    assert listed.split("\n")[0].split() == [*HEADERS]
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


async def test_an_unambiguous_prefix_of_an_id_names_a_session(stack: Stack) -> None:
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


async def test_stop_ends_the_turn_of_a_session(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("slow")
    await stack.reached(accepted, "output")

    result = run(stack, "stop", accepted.session.sid[:8])

    assert result.stdout == "Stopping 1 message.\n"
    assert (await stack.outcome(accepted)).status == "stopped"
    # No adapter has sent its text, and the sentence that it was stopped.
    assert run(stack, "stop", accepted.session.sid[:8]).stdout == (
        "Dropping 2 messages of the answer, not sent yet.\n"
    )
    await stack.fleet.scripts.client.delete(REPLIES)
    assert run(stack, "stop", accepted.session.sid[:8]).stdout == "There was nothing to stop.\n"


async def test_a_record_can_be_exported_after_its_session_state_is_gone(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid
    await stack.fleet.scripts.client.delete(keys.state(sid), keys.SESSIONS)

    exported = run(stack, "sessions", "export", str(accepted.session)).stdout

    assert [json.loads(line)["role"] for line in exported.splitlines()] == ["user", "tool", "agent"]
    refused(run(stack, "sessions", "export", "a" * 32), "is no session")


async def test_sessions_queue_changes_the_settings_of_one_session(stack: Stack) -> None:
    accepted = await stack.append("hello")
    sid = accepted.session.sid[:8]

    shown = run(stack, "sessions", "queue", sid, "--mode", "interrupt", "--cap", "3").stdout

    assert re.search("mode +interrupt .the session's own.", shown)
    assert "debounce_ms    0\n" in shown
    again = run(stack, "sessions", "queue", sid).stdout
    assert again == shown
    assert "own" not in run(stack, "sessions", "queue", sid, "--reset").stdout


@pytest.mark.usefixtures("gateway")
async def test_background_messages_wait_for_messages_of_people(stack: Stack) -> None:
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")

    background = run(stack, "send", "hello", "--from", "cron", "--background", "--wait", "1")

    assert background.returncode == 3
    assert run(stack, "send", "hello").returncode == 0


def test_the_choices_of_sessions_queue_match_the_configuration() -> None:
    """The code has them twice, because `--help` must not load the configuration."""
    choices = {p.name: getattr(p.type, "choices", None) for p in queue_of_session.params}

    assert tuple(choices["mode"] or ()) == get_args(QueueMode)
    assert tuple(choices["drop"] or ()) == get_args(DropPolicy)
