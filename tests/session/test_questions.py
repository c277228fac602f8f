"""What an agent asks people itself: they answer, and nothing does so in their name."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.conduct import NOBODY_TO_ANSWER
from remoteclaw.commands.answers import GONE
from remoteclaw.fleet import keys
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.asks import (
    COLOURS,
    DATABASE,
    QUESTIONS,
    answered,
    asking,
    cut_off,
    newest,
    next_request,
    open_request,
    put_request,
    shown,
    sooner,
    write,
)
from tests.support.bridges import claude_script
from tests.support.conversations import drain
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent may do everything, and asks two questions."""
    command = list(claude_script(directory, QUESTIONS))
    stack.agent = {"runtime": "claude", "command": command, "permissions": "auto"}
    stack.configure(stack.agent)
    return stack


def ask(*questions: dict[str, Any]) -> str:
    return f"TOOL:AskUserQuestion:{json.dumps({'questions': questions})}"


async def test_the_real_claude_hears_a_number_and_own_words(stack: Stack, claude: AgentCli) -> None:
    stack.configure(claude.config(permissions="auto"))
    await stack.start_worker()
    accepted = await stack.append(ask(DATABASE, COLOURS))
    first = await open_request(stack)

    assert first.what == "DB: Which DB?\n1. Postgres – a server\n2. SQLite – a file"
    assert await write(stack, accepted, "2") == ""  # the card says so
    second = await next_request(stack, first)
    await stack.fleet.scripts.client.hset(keys.ask(second.id), "shown", "card")
    assert await write(stack, accepted, "like the sea", reply_to="another") is None
    assert await write(stack, accepted, "like the sea", reply_to="card") == ""

    told = said(await stack.outcome(accepted))
    assert '"Which DB?"="SQLite"' in told
    assert '"Which colours?"="like the sea"' in told


async def test_the_real_codex_hears_a_number_and_own_words(
    stack: Stack, model_server: ModelServerProcess
) -> None:
    stack.configure(required("codex", model_server).config(permissions="auto"))
    await stack.start_worker()
    asked = [{"id": "db", **DATABASE}, {"id": "look", **COLOURS}]
    for question in asked:
        del question["multiSelect"]
    accepted = await stack.append(f"TOOL:request_user_input:{json.dumps({'questions': asked})}")
    first = await open_request(stack)

    assert await write(stack, accepted, "2") == ""
    await answered(stack, await next_request(stack, first), "words", words="like the sea")

    told = said(await stack.outcome(accepted))
    assert json.loads(told[told.index("{") :])["answers"] == {
        "db": {"answers": ["SQLite"]},
        "look": {"answers": ["like the sea"]},
    }

    accepted = await stack.append(f"TOOL:request_user_input:{json.dumps({'questions': asked})}")
    await answered(stack, await open_request(stack), "deny", words="guess")
    told = said(await stack.outcome(accepted))
    assert "(No answer, says RemoteClaw: alice does not answer this question: Which DB?" in told
    assert "They say: guess" in told
    assert "guess" not in said(await stack.outcome(await stack.append("ECHO")))


async def test_the_real_claude_is_told_where_nobody_can_be_asked(
    stack: Stack, claude: AgentCli
) -> None:
    stack.configure(claude.config(permissions="auto"), channels={})
    await stack.start_worker()

    assert NOBODY_TO_ANSWER in await stack.ask(ask(DATABASE))
    assert await stack.fleet.asks.waiting() == []


async def test_a_crash_between_two_questions_loses_no_answer(agent: Stack) -> None:
    accepted, task, first = await asking(agent, "go")
    await answered(agent, first, "words", words="SQLite")
    second = await next_request(agent, first)
    await cut_off(agent, accepted, task)

    assert await write(agent, accepted, f"/answer {second.id} 1, 3") == ""
    async with asyncio.timeout(HANG_S):
        await drain(agent, accepted)

    told = said(await agent.outcome(accepted))
    assert json.loads(told[told.index("{") :]) == {
        "Which DB?": "SQLite",
        "Which colours?": "red, blue",
    }
    cards = [text async for text in shown(agent) if "** asks:" in text]
    assert [("Answered by" in text) for text in cards] == [False, True, False, True]


async def test_a_later_answer_wakes_the_agent_with_the_earlier_ones(agent: Stack) -> None:
    agent.configure(agent.agent, approvals={"hold_s": 5})
    accepted, task, first = await asking(agent, "go")
    await answered(agent, first, "words", words="SQLite")
    second = await next_request(agent, first)
    await sooner(agent, second)
    await task

    told = await answered(agent, second, "words", words="mauve")
    assert told.endswith("The agent is told to go on.")
    await drain(agent, accepted)

    woken = said(await newest(agent, accepted))
    assert "Which DB?\n→ SQLite" in woken
    assert woken.index("→ SQLite") < woken.index("Which colours?") < woken.index("→ mauve")


async def test_who_does_not_answer_leaves_the_question_open(agent: Stack) -> None:
    accepted, task, first = await asking(agent, "go")
    for wrong in ("/allow", "/answer", "/allow always"):
        assert "That is a question" in str(await write(agent, accepted, wrong)), wrong
    assert await write(agent, accepted, "1, 2") is None  # only one can be chosen
    await write(agent, accepted, "1")
    second = await next_request(agent, first)

    assert await write(agent, accepted, "4") == ""
    await task

    told = said(await agent.outcome(accepted))
    assert "alice does not answer this question: Which colours?" in told
    assert "Which DB?\n→ Postgres" in told
    late = await answered(agent, second, "words", words="red")
    assert late.startswith("It was answered before: Not answered")


async def test_a_question_shows_what_it_hides(stack: Stack, directory: Path) -> None:
    hidden = {**DATABASE, "question": "Drop \u202ethe table?"}
    body = QUESTIONS.replace(repr(DATABASE), repr(hidden))
    command = list(claude_script(directory, body))
    stack.configure({"runtime": "claude", "command": command})
    accepted = await stack.append("go")
    task = drain(stack, accepted)

    request = await open_request(stack)
    assert "Drop \\u202ethe table?" in request.what
    await answered(stack, request, "deny")
    await task


@pytest.mark.parametrize(
    ("text", "words"),
    [("/answer database three", "database three"), ("/deny tomorrow", "tomorrow")],
)
async def test_a_word_that_looks_like_a_request_is_one_of_the_answer(
    stack: Stack, text: str, words: str
) -> None:
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what="Which?", choices=("red",))
    assert await write(stack, accepted, "/deny k7m2q9xa no") == GONE
    assert await write(stack, accepted, text) == ""

    found = await stack.fleet.asks.named(request.id)
    assert found.answer is not None
    assert found.answer.words == words
