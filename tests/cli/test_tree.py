"""`remoteclaw sessions tree`: the tasks and branches of a session, printed once or followed."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.messages import SessionKey
from tests.support.cli import refused, run
from tests.support.command import REMOTECLAW, start_program
from tests.support.stack import Stack
from tests.support.tasks import HANDLERS, call, may, take_up
from tests.support.turns import Turn, begin_turn
from tests.support.waiting import eventually


@pytest.fixture
async def parent(stack: Stack) -> Turn:
    """A turn whose agent may start tasks, which may start further tasks."""
    may(stack, sessions={"max_depth": 2})
    return await begin_turn(stack, HANDLERS)


async def started(stack: Stack, turn: Turn, label: str) -> Turn:
    result: Any = await call(stack, turn, "sessions_spawn", prompt="work", label=label)
    return await take_up(stack, SessionKey.parse(result.child_session_key))


async def test_sessions_tree_shows_tasks_and_their_progress(stack: Stack, parent: Turn) -> None:
    nothing = run(stack, "sessions", "tree", parent.lease.sid)
    links = await started(stack, parent, "links")
    await started(stack, parent, "other")
    await started(stack, links, "pages")
    doing = {"tool": "Bash", "argument": "make", "said": "Building."}
    await links.lease.progress.note(links.id, doing, is_first=True)
    await call(stack, links, "session_progress", progress="3 of 7")
    shown = run(stack, "sessions", "tree", parent.lease.sid).stdout.splitlines()
    as_json = json.loads(run(stack, "sessions", "tree", parent.lease.sid, "--json").stdout)

    assert nothing.stdout == "It has no tasks or branches.\n"
    assert shown[0].split() == ["TASK", "KIND", "STATE", "SINCE", "HOST", "DOING"]
    assert [line.split("task")[0].rstrip() for line in shown[1:]] == ["links", "└ pages", "other"]
    assert shown[1].endswith("3 of 7 · Bash: make")
    assert [item["label"] for item in as_json["work"]] == ["links", "other", "pages"]
    assert as_json["work"][0]["said"] == "Building."


async def test_sessions_tree_reports_an_unknown_session(stack: Stack) -> None:
    refused(run(stack, "sessions", "tree", "nobody"), "'nobody' is no session: ")


async def test_sessions_tree_follows_until_ctrl_c(
    stack: Stack, parent: Turn, directory: Path
) -> None:
    log = directory / "tree.log"
    argv = (REMOTECLAW, "sessions", "tree", parent.lease.sid, "--follow", "--json")
    links = await started(stack, parent, "links")
    following = start_program(argv, env=stack.env(), log=log)

    def items() -> list[dict[str, Any]]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line)["work"][0] for line in lines]

    await eventually(items)
    await links.finish()
    await eventually(lambda: items()[-1]["state"] == "done")
    following.send_signal(signal.SIGINT)

    assert following.wait() == 0
    assert [item["state"] for item in items()] == ["running", "done"]
