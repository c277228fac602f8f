"""Messages of a group while its agent's real CLI starts: one request to the model."""

from pathlib import Path

import pytest

from remoteclaw.fleet.turns.inbound import Accepted
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.conversations import drain
from tests.support.stack import Stack, message
from tests.support.waiting import HANG_S, eventually

#: The times are longer than the test waits: only the twelfth message ends the gathering.
QUEUE = {"gather_ms": 60_000, "gather_most_ms": 60_000, "cap": 12}


@pytest.mark.thorough("claude", "gemini")
@pytest.mark.parametrize("name", ["codex", "claude", "gemini"])
async def test_a_burst_of_messages_while_the_cli_starts_is_one_model_request(
    stack: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    cli = required(name, model_server)
    workspace = directory / "work"
    workspace.mkdir()
    stack.configure(cli.config(workspace=str(workspace)), queue=QUEUE)

    async def say(number: int) -> Accepted:
        origin = {"from_": f"person-{number % 5}", "chat_kind": "group", "is_addressed": False}
        sent = message(f"number {number} for {name}", **origin)
        return await stack.fleet.inbound.append(sent, agent="main", is_shared=True)

    talk = [await say(number) for number in range(11)]
    task = drain(stack, talk[0])
    await eventually(lambda: any(stack.home.runs.glob("*")))
    talk.append(await say(11))
    outcomes = [await stack.outcome(each, within_s=HANG_S) for each in talk]
    await task

    assert {outcome.turn for outcome in outcomes} == {talk[0].entry_id}
    requests = [each for each in cli.model.requests() if not each["is_aside"]]
    assert len([each for each in requests if f"for {name}" in each["end"]]) == 1
