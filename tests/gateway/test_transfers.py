"""The limit of files that a gateway holds in memory at the same time."""

import asyncio
from pathlib import Path

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway import limits, send
from remoteclaw.gateway.auth.principals import Agent
from remoteclaw.gateway.limits import MAX_FILES, Transfers
from remoteclaw.host import fetch as fetching
from remoteclaw.messages import MAX_ATTACHMENT_BYTES
from tests.support.stack import Stack
from tests.support.turns import Turn
from tests.support.waiting import eventually

AGENTS = [Agent(f"{number:032}", "digest") for number in range(8)]


async def test_the_number_of_files_held_at_once_is_limited() -> None:
    bounds, ends, held, max_held, sent = Transfers(), asyncio.Event(), 0, 0, 0

    async def send(agent: Agent) -> None:
        nonlocal held, max_held, sent
        async with bounds.slot(agent):
            held += 1
            max_held = max(max_held, held)
            await ends.wait()
            held -= 1
        sent += 1

    async with asyncio.TaskGroup() as tasks:
        for agent in AGENTS * 4:
            tasks.create_task(send(agent))
        await eventually(lambda: held == MAX_FILES)
        ends.set()

    assert (max_held, sent) == (MAX_FILES, len(AGENTS) * 4)
    assert MAX_FILES * MAX_ATTACHMENT_BYTES <= 128 * 1024 * 1024


async def test_one_agent_cannot_use_all_file_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAIT_S", 0.1)
    bounds = Transfers()

    async with bounds.slot(AGENTS[0]):
        with pytest.raises(CallRefused, match="Too many files"):
            async with bounds.slot(AGENTS[0]):
                pass
        async with bounds.slot(AGENTS[1]):
            pass


async def test_a_call_with_a_file_waits_for_a_file_slot(
    stack: Stack, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = stack.home.workspaces / "main"
    workspace.mkdir(parents=True)
    Path(workspace, "plan.txt").write_text("x")
    monkeypatch.setattr(limits, "WAIT_S", 0.1)
    params = {"target": "chat-2", "file": "plan.txt"}

    async with turn.gateway.transfers.slot(turn.agent):
        with pytest.raises(CallRefused, match="Too many files") as refusal:
            await turn.call("message_send_attachment", **params)
    await turn.call("message_send_attachment", **params)

    assert refusal.value.code == "UNAVAILABLE"
    assert len(await stack.fleet.scripts.client.keys(keys.blob("*", "*"))) == 1


def test_sending_a_file_is_faster_than_the_tool_timeouts_of_agent_clis() -> None:
    assert limits.PLACE_S + limits.WAIT_S + fetching.FETCH_S + send.RECEIPT_S < 60
