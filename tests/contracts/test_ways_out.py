"""Ways out of a refusal that the model repeats: a conversation too long, or invalid for its API."""

import asyncio
import os
import signal
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.host import process
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Conversation
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.session.notices import CONTEXT_LOST, MADE_ROOM, SECOND_TRY, SUMMARIZED
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.failpoints import Side
from tests.support.processes import is_alive
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

#: An answer that makes the conversation longer than the limit; codex keeps the texts of people.
LONG = "LONG:40000"
COMPACTING = [name for name in CLIS if create_cli_runtime(name).capabilities.compacts]
#: A part of the sentence that names the way out.
NEW = "/new begins an empty"


@pytest.fixture
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


async def started(stack: Stack, cli: AgentCli, **fleet: Any) -> int:
    """Start the CLI, and have it write a long answer; return the size of its first request."""
    stack.configure(cli.config(permissions="auto"), **fleet)
    await stack.start_worker()
    before = len(cli.model.requests())
    assert "green" in await stack.ask("SAY:my colour is green")
    size = cli.model.requests()[before]["size"]
    assert "END-OF-LONG" in await stack.ask(LONG)
    return int(size)


async def conversation(stack: Stack) -> str:
    """Return the CLI's id of the conversation."""
    client: Any = stack.fleet.scripts.client
    sid = SessionKey.of(message("x"), agent="main").sid
    (value,) = await client.hvals(keys.session_map(sid))
    return Conversation.decode(value.decode()).id


def untold(answer: str) -> str:
    """Return an answer without the notice that the conversation was summarized."""
    return answer.removesuffix(f"\n\n{MADE_ROOM}")


def refused(cli: AgentCli, since: int) -> list[dict[str, Any]]:
    """Return the requests since a number of them that the model has refused."""
    return [request for request in cli.model.requests()[since:] if request["status"] != 200]


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
@pytest.mark.parametrize(
    "limit",
    [{}, {"in_stream": True}, {"summaries": 1}],
    ids=["http", "in-stream", "once"],
)
async def test_a_conversation_that_is_too_long_is_summarized_and_continues(
    stack: Stack, cli: AgentCli, limit: dict[str, Any]
) -> None:
    size = await started(stack, cli)
    before = await conversation(stack)

    with cli.model.limited(size=size + 20_000, **limit):
        answers = [await stack.ask(f"SAY:short {number}") for number in range(4)]

    assert sum(MADE_ROOM in answer for answer in answers) <= 1
    assert [untold(answer).split("\n\n")[-1] for answer in answers] == [
        f"short {n}" for n in range(4)
    ]
    assert sum(SUMMARIZED in answer for answer in answers) <= 1
    if cli.name == "codex":  # the others may summarize the conversation without our help
        assert answers[0].startswith(SUMMARIZED)
    assert not any(CONTEXT_LOST in answer for answer in answers)
    assert await conversation(stack) == before


async def test_a_model_that_is_too_busy_for_a_summary_costs_no_memory(
    stack: Stack, codex: AgentCli
) -> None:
    """The message is asked again later; then codex itself begins with a summary."""
    size = await started(stack, codex)
    before = await conversation(stack)

    with codex.model.limited(size=size + 20_000, busy=2):  # codex itself repeats it once
        accepted = await stack.append("SAY:short")
        outcome = await stack.outcome(accepted)

    assert said(outcome) == f"short\n\n{MADE_ROOM}"
    assert "postponed" in [step.name for step in outcome.steps]
    assert await conversation(stack) == before


@pytest.mark.thorough("before")
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_worker_that_dies_after_a_compaction_costs_no_message(
    stack: Stack, codex: AgentCli, side: Side
) -> None:
    """The retry finds the conversation summarized, so nothing is refused any more."""
    proxy = await stack.proxied()
    size = await started(stack, codex, redis_url=proxy.url)
    before, number = await conversation(stack), len(codex.model.requests())
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())

    with codex.model.limited(size=size + 20_000):
        failpoint = proxy.arm("remember", side)
        accepted = await stack.append("SAY:short")
        os.kill(await failpoint.wait(), signal.SIGKILL)
        await eventually(lambda: not is_alive(failpoint.pid))
        failpoint.cut()
        await stack.fleet.sweeper.release_dead(stack.home.host_id, process.is_alive)
        outcome = await stack.outcome(accepted)
    sweeping.cancel()

    assert said(outcome).split("\n\n") == [SECOND_TRY, "short"]
    assert len(refused(codex, number)) == 1
    assert await conversation(stack) == before


@pytest.mark.thorough("claude", "gemini", "opencode")
@pytest.mark.parametrize("cli", CLIS, indirect=True)
@pytest.mark.parametrize("limit", [{}, {"in_stream": True}], ids=["http", "in-stream"])
async def test_a_conversation_that_cannot_be_summarized_continues_from_notes(
    stack: Stack, cli: AgentCli, limit: dict[str, Any]
) -> None:
    if cli.name == "gemini" and limit:
        pytest.skip("Google's API checks the size before it begins a stream")
    size = await started(stack, cli)
    before, number = await conversation(stack), len(cli.model.requests())

    with cli.model.limited(size=size + 36_000, summaries=99, **limit):
        answers = [await stack.ask(f"SAY:short {number}") for number in range(4)]

    assert answers == [f"{CONTEXT_LOST}\n\nshort 0", "short 1", "short 2", "short 3"]
    large = [each for each in refused(cli, number) if not each["is_summary"]]
    is_streamed_twice = cli.name == "claude" and limit  # claude repeats it without a stream
    assert len(large) <= (2 if is_streamed_twice else 1)
    assert await conversation(stack) != before
    assert "my colour is green" in str(cli.model.bodies().splitlines()[-1])


@pytest.mark.thorough("gemini", "claude")
@pytest.mark.parametrize("cli", ["claude", "codex", "gemini"], indirect=True)
async def test_a_message_that_is_too_long_is_refused_and_the_conversation_goes_on(
    stack: Stack, cli: AgentCli
) -> None:
    """Opencode answers a summary of the message instead."""
    size = await started(stack, cli)
    before = await conversation(stack)

    with cli.model.limited(size=size + 60_000):
        failed = await stack.ask("x" * 80_000)
        assert "short" in await stack.ask("SAY:short")
        assert "again" in await stack.ask("SAY:again")

    assert failed.startswith("Your message is too long for main's model. Send it again in parts.")
    assert (await conversation(stack) == before) is (cli.name == "claude")


@pytest.mark.thorough("claude", "opencode", "gemini")
@pytest.mark.parametrize("cli", CLIS, indirect=True)
async def test_a_turn_that_breaks_off_because_it_is_too_long_can_be_continued(
    stack: Stack, cli: AgentCli
) -> None:
    size = await started(stack, cli)

    with cli.model.limited(size=size + 50_000):
        long = "SHELL:touch done; head -c 30000 /dev/zero | tr '\\0' x"
        failed = await stack.ask(long)
        number = len(cli.model.requests())
        answer = await stack.ask("SAY:went on")

    assert untold(answer) == "went on"
    if cli.name in ("codex", "gemini"):  # the others summarize the conversation by themselves
        assert refused(cli, number) == []
        assert "main broke off: this conversation has become too long" in failed
        assert 'write "go on" to continue' in failed
        assert (CONTEXT_LOST in failed) is (cli.name == "gemini")


@pytest.mark.thorough("gemini", "opencode", "in-stream-codex", "in-stream-claude", "claude")
@pytest.mark.parametrize("cli", CLIS, indirect=True)
@pytest.mark.parametrize(
    "limit",
    [{"about": ""}, {"about": "image"}, {"about": "", "in_stream": True}],
    ids=["invalid", "image", "in-stream"],
)
async def test_a_conversation_that_the_api_refuses_continues_from_notes(
    stack: Stack, cli: AgentCli, limit: dict[str, Any]
) -> None:
    if cli.name == "gemini" and "in_stream" in limit:
        pytest.skip("Google's API checks a request before it begins a stream")
    await started(stack, cli)
    before, number = await conversation(stack), len(cli.model.requests())

    with cli.model.limited(users=2, **limit):
        answers = [await stack.ask(f"SAY:short {number}") for number in range(2)]

    if limit["about"] == "image" and cli.name == "claude":  # it removes pictures by itself
        assert [untold(answer) for answer in answers] == ["short 0", "short 1"]
        return
    assert answers == [f"{CONTEXT_LOST}\n\nshort 0", "short 1"]
    assert len({each["end"] for each in refused(cli, number)}) == 1
    assert await conversation(stack) != before
    assert "my colour is green" in str(cli.model.bodies().splitlines()[-1])


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
async def test_a_conversation_is_kept_if_the_api_refuses_a_new_one_as_well(
    stack: Stack, cli: AgentCli
) -> None:
    """So a filter or a wrong schema costs no memory. The third message is asked only once.

    Gemini can't keep it: its conversation ends with its process.
    """
    await started(stack, cli)
    before = await conversation(stack)
    failed, asked = [], []

    with cli.model.limited(size=1, about=""):
        for attempt in range(3):
            number = len(cli.model.requests())
            failed.append(await stack.ask(f"SAY:{attempt}"))
            asked.append(len(refused(cli, number)))
    answer = await stack.ask("RECALL")

    assert all(NEW in text and CONTEXT_LOST not in text for text in failed)
    assert all(text.startswith("main's model refuses this conversation,") for text in failed)
    assert asked == [2, 2, 1]
    assert "my colour is green" in answer
    assert CONTEXT_LOST not in answer
    assert await conversation(stack) == before
    with cli.model.limited(users=3, about=""):  # the answer has ended the refusals in a row
        assert "heals" in await stack.ask("SAY:heals")


async def test_a_new_conversation_that_the_api_refuses_is_not_asked_twice(
    stack: Stack, codex: AgentCli
) -> None:
    stack.configure(codex.config())
    await stack.start_worker()
    number = len(codex.model.requests())

    with codex.model.limited(size=1, about=""):
        failed = await stack.ask("SAY:first")

    assert NEW in failed
    assert len(refused(codex, number)) == 1
    assert said(await stack.outcome(await stack.append("SAY:second"))).endswith("second")
