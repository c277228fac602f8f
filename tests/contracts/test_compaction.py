"""Compactions of the real CLIs: shown, recorded, told about and asked for."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.events import MAKES_ROOM, ContextSize
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.session.notices import (
    CONTEXT_LOST,
    MADE_ROOM,
    NOT_SUMMARIZED,
    NOTHING_TO_SUMMARIZE,
    SECOND_TRY,
)
from remoteclaw.session.record import read_lines
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.cli import run
from tests.support.kills import kill_all
from tests.support.model_server.charge import INPUT_TOKENS
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import eventually

#: How each CLI is told to summarize a conversation of 90,000 tokens.
EARLY: dict[str, dict[str, Any]] = {
    "claude": {"env": {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}},
    "codex": {"command": ["-c", "model_auto_compact_token_limit=90000"]},
    "opencode": {},
}
COMPACTING = [name for name in CLIS if create_cli_runtime(name).capabilities.compacts]
#: The sizes of a conversation of 61,000 tokens.
SIZES = {"claude": (61_000, 100_000), "codex": (61_007, 258_400), "opencode": (61_000, 100_000)}
#: The sentence in the record about a compaction whose size the CLI tells.
WITH_SIZES = r"The conversation was summarized \([\d,]+ → [\d,]+ tokens\)\."


@pytest.fixture
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


async def started(
    stack: Stack, cli: AgentCli, *, window: int = 0, warm_s: float = 600, **fleet: Any
) -> None:
    """Start a worker for a CLI that summarizes a conversation of 90,000 tokens unasked.

    With a `window`, it has room for more.
    """
    config = cli.config(permissions="auto", warm_s=warm_s)
    early = EARLY.get(cli.name, {})
    config["env"] |= early.get("env", {})
    if window and cli.name == "claude":
        config["env"]["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(window)
    elif not window:
        config["command"] += early.get("command", [])
    if cli.name == "opencode":
        models = json.loads(config["env"]["OPENCODE_CONFIG_CONTENT"])
        limit = {"context": window or 100_000, "output": 8_000}
        models["provider"]["scripted"]["models"]["scripted"]["limit"] = limit
        config["env"]["OPENCODE_CONFIG_CONTENT"] = json.dumps(models)
    stack.configure(config, **fleet)
    await stack.start_worker()


async def command(stack: Stack, text: str, **fields: Any) -> Accepted:
    sent = message(text, **fields)
    return await stack.fleet.inbound.append(sent, agent="main", is_command=True)


async def view_of(stack: Stack, accepted: Accepted) -> SessionView:
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    return view


async def record(stack: Stack, accepted: Accepted) -> list[dict[str, Any]]:
    return [*read_lines(await stack.fleet.records.of(accepted.session.sid))]


def texts(lines: list[dict[str, Any]], role: str) -> list[str]:
    return [line["text"] for line in lines if line["role"] == role]


@pytest.mark.thorough("opencode")
@pytest.mark.parametrize("cli", EARLY, indirect=True)
async def test_a_cli_that_summarizes_unasked_is_shown_recorded_and_told_about(
    stack: Stack, cli: AgentCli
) -> None:
    await started(stack, cli)
    await stack.ask("SAY:noted")

    with cli.model.limited(summary_s=1.5):
        long = await stack.append("USED:99000 LONG:40000")  # opencode summarizes behind it
        short = await stack.append("SAY:short")  # the others before this one

        async def activity() -> list[str]:
            live = await stack.fleet.scripts.client.get(keys.live(long.session.sid))
            shown = orjson.loads(live) if live else {}
            tools = [tool["tool"] for tool in shown.get("activity", ())]
            return tools if [call["tool"] for call in shown.get("tools", ())] == tools else []

        assert await eventually(activity) == [MAKES_ROOM]
        answers = [said(await stack.outcome(each)) for each in (long, short)]

    assert [answer.endswith(f"\n\n{MADE_ROOM}") for answer in answers].count(True) == 1
    assert answers[1].removesuffix(f"\n\n{MADE_ROOM}") == "short"
    lines = await record(stack, long)
    (notice,) = texts(lines, "notice")
    assert re.fullmatch(WITH_SIZES, notice) or cli.name == "opencode"
    summaries = texts(lines, "summary")
    assert len(summaries) == (cli.name != "codex")  # which does not report it
    assert all(text.endswith("Scripted summary") for text in summaries)
    assert await stack.ask("SAY:next") == "next"


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_a_quiet_chat_is_not_told_of_a_summary(stack: Stack, cli: AgentCli) -> None:
    await started(stack, cli)
    first = await stack.append("SAY:noted")
    await stack.outcome(first)
    await stack.fleet.sessions.quieten(first.session, is_quiet=True)
    await stack.ask("USED:99000 LONG:40000")

    assert await stack.ask("SAY:short") == "short"
    (notice,) = texts(await record(stack, first), "notice")
    assert re.fullmatch(WITH_SIZES, notice)


@pytest.mark.thorough("opencode", "claude")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
async def test_a_person_has_the_conversation_summarized(stack: Stack, cli: AgentCli) -> None:
    """It waits for the running turn; the conversation goes on in the same process."""
    await started(stack, cli)
    empty = await command(stack, "/compact")
    assert said(await stack.outcome(empty)) == NOTHING_TO_SUMMARIZE
    await stack.ask("SAY:noted")
    running = await stack.append("DRIP:20:50")
    asked = await command(stack, "/compact keep my colour")
    number = len(cli.model.requests())

    outcome = await stack.outcome(asked)

    assert (await stack.outcome_so_far(running)).status == "done"
    sizes = "" if cli.name == "opencode" else r": [\d,]+ → [\d,]+ tokens"
    assert re.fullmatch(rf"Summarized{sizes}\.", said(outcome))
    assert [each["is_summary"] for each in cli.model.requests()[number:]][-1]
    assert ("keep my colour" in cli.model.bodies().splitlines()[-1]) is (
        create_cli_runtime(cli.name).capabilities.keeps_on_request
    )
    assert outcome.usage is not None
    assert outcome.usage.read_tokens == INPUT_TOKENS
    assert await stack.ask("SAY:next") == "next"
    last = await stack.append("SAY:last")
    assert (await stack.reached(last, "spawned")).startswith("warm")


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
async def test_a_summary_that_the_model_refuses_leaves_the_conversation_as_it_is(
    stack: Stack, cli: AgentCli
) -> None:
    await started(stack, cli)
    await stack.ask("SAY:my colour is green")
    await stack.ask("LONG:2000")

    with cli.model.limited(summaries=99):
        refused = await stack.outcome(await command(stack, "/compact"))

    assert refused.status == "failed"
    assert said(refused) == NOT_SUMMARIZED.format(why="")
    assert "my colour is green" in await stack.ask("RECALL")


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
async def test_a_stop_ends_a_summary_on_request(stack: Stack, cli: AgentCli) -> None:
    await started(stack, cli)
    await stack.ask("SAY:my colour is green")
    await stack.ask("LONG:2000")
    number = len(cli.model.requests())

    with cli.model.limited(summary_s=600):
        asked = await command(stack, "/compact")
        await eventually(lambda: len(cli.model.requests()) > number)
        await stack.fleet.sessions.stop(asked.session.sid)
        outcome = await stack.outcome(asked)

    assert outcome.status == "stopped"
    assert "my colour is green" in await stack.ask("RECALL")


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", ["claude", "codex"], indirect=True)
async def test_a_worker_that_is_killed_in_a_summary_on_request_makes_it_again(
    stack: Stack, cli: AgentCli
) -> None:
    """The next worker first ends the agent that the first one has started for it."""
    await started(stack, cli, warm_s=0)
    await stack.ask("SAY:my colour is green")
    await stack.until_idle(long := await stack.append("LONG:2000"))
    number = len(cli.model.requests())

    with cli.model.limited(summary_s=600):
        asked = await command(stack, "/compact")
        await eventually(lambda: any(each["is_summary"] for each in cli.model.requests()[number:]))
        view = await view_of(stack, long)
        assert view.agent_path
        await kill_all(stack)
    await stack.start_worker()

    assert said(await stack.outcome(asked)).startswith(f"{SECOND_TRY}\n\nSummarized: ")


# -- the size -------------------------------------------------------------------------------------


@pytest.mark.thorough("opencode", "gemini", "claude")
@pytest.mark.parametrize("cli", CLIS, indirect=True)
async def test_the_size_of_the_conversation_is_known_after_a_turn(
    stack: Stack, cli: AgentCli
) -> None:
    await started(stack, cli)
    await stack.ask("SAY:zero")
    accepted = await stack.append("USED:61000 SAY:one")
    await stack.outcome(accepted)
    if cli.name == "gemini":  # it tells none
        await stack.until_idle(accepted)
        assert (await view_of(stack, accepted)).size is None
        return

    size = ContextSize(*SIZES[cli.name])

    async def is_known() -> bool:
        return (await view_of(stack, accepted)).size == size

    await eventually(is_known)
    shown = json.loads(run(stack, "sessions", "show", str(accepted.session), "--json").stdout)
    assert shown["context"] == {"used": size.used, "limit": size.limit, "percent": size.percent}
    facts = run(stack, "sessions", "show", str(accepted.session)).stdout
    assert re.search(rf"^context +{size.percent} %$", facts, re.MULTILINE)

    await stack.outcome(await command(stack, "/compact"))
    await stack.until_idle(accepted)
    after = (await view_of(stack, accepted)).size
    assert after is None if cli.name == "opencode" else after and after.used < size.used
    await stack.ask("/new")
    assert (await view_of(stack, accepted)).size is None


# -- while it is idle -----------------------------------------------------------------------------

IDLE = {"claude": "USED:151000", "codex": "USED:221000"}


async def summarized(stack: Stack, accepted: Accepted) -> None:
    """Wait until the conversation is summarized while it is idle."""

    async def has_notice() -> bool:
        return bool(texts(await record(stack, accepted), "notice"))

    await eventually(has_notice)


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", IDLE, indirect=True)
async def test_an_idle_conversation_is_summarized_before_anyone_waits_for_it(
    stack: Stack, cli: AgentCli
) -> None:
    """Its tokens count without a further turn, and its people are told with the next answer."""
    await started(stack, cli, window=200_000)
    await stack.ask("SAY:my colour is green")
    await stack.ask("LONG:2000")
    accepted = await stack.append(f"{IDLE[cli.name]} SAY:long")
    assert said(await stack.outcome(accepted)) == "long"

    await summarized(stack, accepted)
    await stack.until_idle(accepted)

    (used,) = (await stack.fleet.usage.agents()).values()
    assert used.read_tokens == 3 * INPUT_TOKENS + int(IDLE[cli.name].removeprefix("USED:"))
    assert used.turns == 3
    assert await stack.ask("SAY:next") == f"next\n\n{MADE_ROOM}"
    last = await stack.append("SAY:last")
    assert said(await stack.outcome(last)) == "last"
    assert (await stack.reached(last, "spawned")).startswith("warm")
    assert sum(each["is_summary"] for each in cli.model.requests()) >= 1


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", IDLE, indirect=True)
async def test_a_message_interrupts_the_summary_of_an_idle_conversation(
    stack: Stack, cli: AgentCli
) -> None:
    """After two of these, the next one follows once the conversation has grown by a tenth."""
    await started(stack, cli, window=200_000)
    await stack.ask("SAY:my colour is green")
    await stack.ask("LONG:2000")
    number = len(cli.model.requests())

    def summaries() -> int:
        return sum(each["is_summary"] for each in cli.model.requests()[number:])

    with cli.model.limited(summary_s=600):
        for count in (1, 2):
            await stack.ask(f"{IDLE[cli.name]} SAY:long {count}")
            await eventually(lambda: summaries() == count)  # noqa: B023 - it is awaited here
        recalled = await stack.append(f"RECALL {IDLE[cli.name]}")
        outcome = await stack.outcome(recalled)
        await stack.until_idle(recalled)

    assert "my colour is green" in said(outcome)
    assert MADE_ROOM not in said(outcome)
    assert (await stack.reached(recalled, "spawned")).startswith("warm")
    assert summaries() == 2
    assert texts(await record(stack, recalled), "notice") == []


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("cli", IDLE, indirect=True)
async def test_a_worker_that_is_killed_in_the_summary_of_an_idle_conversation_costs_nothing(
    stack: Stack, cli: AgentCli
) -> None:
    await started(stack, cli, window=200_000)
    await stack.ask("SAY:my colour is green")
    await stack.ask("LONG:2000")
    number = len(cli.model.requests())

    with cli.model.limited(summary_s=600):
        await stack.ask(f"{IDLE[cli.name]} SAY:long")
        await eventually(lambda: any(each["is_summary"] for each in cli.model.requests()[number:]))
        await kill_all(stack)
    await stack.start_worker()
    recalled = await stack.ask("RECALL")

    assert "my colour is green" in recalled
    assert MADE_ROOM not in recalled
    assert SECOND_TRY not in recalled


# -- what goes on behind it -----------------------------------------------------------------------


@pytest.mark.thorough("claude", "opencode", "gemini")
@pytest.mark.parametrize("cli", CLIS, indirect=True)
async def test_twenty_messages_are_answered_once_through_overflows_and_summaries(
    stack: Stack, cli: AgentCli
) -> None:
    """Three answers are too long for the next request, and a person asks for two summaries."""
    await started(stack, cli, window=400_000)
    before = len(cli.model.requests())
    await stack.ask("SAY:my colour is green")
    size = cli.model.requests()[before]["size"]
    answers: list[str] = []

    with cli.model.limited(size=size + 30_000):
        for number in range(1, 20):
            text = "LONG:40000" if number in (3, 9, 15) else f"SAY:m{number}"
            answers.append(await stack.ask(text))
            if number in (7, 13) and cli.name != "gemini":
                assert said(await stack.outcome(await command(stack, "/compact")))

    for number, answer in enumerate(answers, 1):
        expected = "END-OF-LONG" if number in (3, 9, 15) else f"m{number}"
        assert answer.count(expected) == 1
    sent: Any = await stack.fleet.scripts.client.xrange(REPLIES)
    replies = [orjson.loads(fields[b"reply"])["text"] for _, fields in sent]
    for number in range(1, 20):
        assert sum(text.split() == [f"m{number}"] for text in replies) == (number not in (3, 9, 15))
    body = cli.model.bodies().splitlines()[-1]
    assert "my colour is green" in body or "Scripted summary" in body
    assert "m18" in body


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", ["claude", "codex", "opencode"], indirect=True)
async def test_copies_of_a_summarized_conversation_have_the_summary(
    stack: Stack, cli: AgentCli, directory: Path
) -> None:
    """A fork behind a summary and one behind a turn that began with one, and a branch."""
    await started(stack, cli, queue={"mode": "aside", "debounce_ms": 0})
    await stack.start_worker()
    first = await stack.append("SAY:noted")
    await stack.outcome(first)
    await stack.ask("LONG:2000")
    assert said(await stack.outcome(await command(stack, "/compact"))).startswith("Summarized")
    copies = [await forked(stack, first, "behind")]

    if create_cli_runtime(cli.name).capabilities.has_points:
        began, go_on = directory / "began", directory / "go on"
        work = await stack.append(
            f"SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.05; done"
        )
        await eventually(began.exists)
        moved = await stack.append("SAY:from the branch\nVERDICT:branch On it.")
        copies.append(said(await stack.outcome(moved)))
        go_on.touch()
        await stack.outcome(work)

    await stack.ask("USED:99000 LONG:2000")
    await stack.ask("SAY:short")
    copies.append(await forked(stack, first, "again"))

    assert not any(CONTEXT_LOST in answer for answer in copies)
    bodies = [
        body for body in cli.model.bodies().splitlines() if f"copy of {first.entry_id}" in body
    ]
    assert len(bodies) == 2
    assert all("Scripted summary" in body for body in bodies)


@pytest.mark.thorough("claude", "opencode")
@pytest.mark.parametrize("cli", COMPACTING, indirect=True)
async def test_a_copy_that_has_not_begun_can_be_summarized(stack: Stack, cli: AgentCli) -> None:
    await started(stack, cli)
    first = await stack.append("SAY:my colour is green")
    await stack.outcome(first)
    await stack.ask("LONG:2000")
    fork = ("sessions", "fork", str(first.session), "--thread", "copy")
    await asyncio.to_thread(run, stack, *fork)

    asked = await command(stack, "/compact", thread_id="copy")
    assert said(await stack.outcome(asked)).startswith("Summarized")
    copied = await stack.ask("SAY:in the copy", thread_id="copy")

    assert copied == "in the copy"
    assert "Scripted summary" in cli.model.bodies().splitlines()[-1]
    assert "my colour is green" in await stack.ask("RECALL")


async def forked(stack: Stack, accepted: Accepted, thread: str) -> str:
    """Fork a conversation, and return the answer to a message in the copy."""
    fork = ("sessions", "fork", str(accepted.session), "--thread", thread)
    await asyncio.to_thread(run, stack, *fork)
    return await stack.ask(f"SAY:copy of {accepted.entry_id}", thread_id=thread)
