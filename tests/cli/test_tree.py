"""`remoteclaw sessions tree`: what works for a session, once and for as long as one looks."""

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
    """A turn whose agent starts tasks, which start some, too."""
    may(stack, sessions={"max_depth": 2})
    return await begin_turn(stack, HANDLERS)


async def started(stack: Stack, turn: Turn, label: str) -> Turn:
    told: Any = await call(stack, turn, "sessions_spawn", prompt="work", label=label)
    return await take_up(stack, SessionKey.parse(told.child_session_key))


async def test_the_tree_of_a_session(stack: Stack, parent: Turn) -> None:
    nothing = run(stack, "sessions", "tree", parent.lease.sid)
    links = await started(stack, parent, "links")
    await started(stack, parent, "other")
    await started(stack, links, "pages")
    doing = {"tool": "Bash", "argument": "make", "said": "Building."}
    await links.lease.work.note(links.id, doing, is_first=True)
    await call(stack, links, "session_progress", progress="3 of 7")
    shown = run(stack, "sessions", "tree", parent.lease.sid).stdout.splitlines()
    as_json = json.loads(run(stack, "sessions", "tree", parent.lease.sid, "--json").stdout)

    assert nothing.stdout == "Nothing works for it.\n"
    assert shown[0].split() == ["WORK", "KIND", "STATE", "SINCE", "HOST", "DOING"]
    assert [line.split("task")[0].rstrip() for line in shown[1:]] == ["links", "└ pages", "other"]
    assert shown[1].endswith("3 of 7 · Bash: make")
    assert [item["label"] for item in as_json["work"]] == ["links", "other", "pages"]
    assert as_json["work"][0]["said"] == "Building."


async def test_a_session_that_is_not_there(stack: Stack) -> None:
    refused(run(stack, "sessions", "tree", "nobody"), "'nobody' is no session: ")


async def test_it_is_followed_until_ctrl_c(stack: Stack, parent: Turn, directory: Path) -> None:
    log = directory / "tree.log"
    argv = (REMOTECLAW, "sessions", "tree", parent.lease.sid, "--follow", "--json")
    links = await started(stack, parent, "links")
    following = start_program(argv, env=stack.env(), log=log)

    def told() -> list[dict[str, Any]]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [json.loads(line)["work"][0] for line in lines]

    await eventually(told)
    await links.finish()
    await eventually(lambda: told()[-1]["state"] == "done")
    following.send_signal(signal.SIGINT)

    assert following.wait() == 0
    assert [one["state"] for one in told()] == ["running", "done"]
