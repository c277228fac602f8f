"""The questions of agents: only people answer them."""

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
from tests.support.bridges import claude_script
from tests.support.conversations import drain
from tests.support.requests import (
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
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent has all permissions, and asks two questions."""
    command = list(claude_script(directory, QUESTIONS))
    stack.agent = {"runtime": "claude", "command": command, "permissions": "auto"}
    stack.configure(stack.agent)
    return stack


def ask(*questions: dict[str, Any]) -> str:
    return f"TOOL:AskUserQuestion:{json.dumps({'questions': questions})}"


async def test_the_real_claude_receives_a_chosen_option_and_free_text(
    stack: Stack, claude: AgentCli
) -> None:
    stack.configure(claude.config(permissions="auto"))
    await stack.start_worker()
    accepted = await stack.append(ask(DATABASE, COLOURS))
    first = await open_request(stack)

    assert first.what == "DB: Which DB?\n1. Postgres – a server\n2. SQLite – a file"
    assert await write(stack, accepted, "2") == ""  # no reply: the card shows the answer
    second = await next_request(stack, first)
    await stack.fleet.scripts.client.hset(keys.request(second.id), "shown", "card")
    assert await write(stack, accepted, "like the sea", reply_to="another") is None
    assert await write(stack, accepted, "like the sea", reply_to="card") == ""

    reply = said(await stack.outcome(accepted))
    assert '"Which DB?"="SQLite"' in reply
    assert '"Which colours?"="like the sea"' in reply


async def test_the_real_codex_receives_a_chosen_option_and_free_text(
    stack: Stack, model_server: ModelServerProcess
) -> None:
    stack.configure(required("codex", model_server).config(permissions="auto"))
    await stack.start_worker()
    questions = [{"id": "db", **DATABASE}, {"id": "look", **COLOURS}]
    for question in questions:
        del question["multiSelect"]
    accepted = await stack.append(f"TOOL:request_user_input:{json.dumps({'questions': questions})}")
    first = await open_request(stack)

    assert await write(stack, accepted, "2") == ""
    await answered(stack, await next_request(stack, first), "words", words="like the sea")

    reply = said(await stack.outcome(accepted))
    assert json.loads(reply[reply.index("{") :])["answers"] == {
        "db": {"answers": ["SQLite"]},
        "look": {"answers": ["like the sea"]},
    }

    accepted = await stack.append(f"TOOL:request_user_input:{json.dumps({'questions': questions})}")
    await answered(stack, await open_request(stack), "deny", words="guess")
    reply = said(await stack.outcome(accepted))
    assert "(No answer, says RemoteClaw: alice does not answer this question: Which DB?" in reply
    assert "They say: guess" in reply
    assert "guess" not in said(await stack.outcome(await stack.append("ECHO")))


async def test_the_real_claude_learns_that_no_person_can_answer(
    stack: Stack, claude: AgentCli
) -> None:
    stack.configure(claude.config(permissions="auto"), channels={})
    await stack.start_worker()

    assert NOBODY_TO_ANSWER in await stack.ask(ask(DATABASE))
    assert await stack.fleet.requests.waiting() == []


async def test_a_crash_between_two_questions_loses_no_answer(agent: Stack) -> None:
    accepted, task, first = await asking(agent, "go")
    await answered(agent, first, "words", words="SQLite")
    second = await next_request(agent, first)
    await cut_off(agent, accepted, task)

    assert await write(agent, accepted, f"/answer {second.id} 1, 3") == ""
    async with asyncio.timeout(HANG_S):
        await drain(agent, accepted)

    reply = said(await agent.outcome(accepted))
    assert json.loads(reply[reply.index("{") :]) == {
        "Which DB?": "SQLite",
        "Which colours?": "red, blue",
    }
    cards = [text async for text in shown(agent) if "** asks:" in text]
    assert [("Answered by" in text) for text in cards] == [False, True, False, True]


async def test_a_late_answer_wakes_the_agent_with_the_earlier_answers(agent: Stack) -> None:
    agent.configure(agent.agent, requests={"hold_s": 5})
    accepted, task, first = await asking(agent, "go")
    await answered(agent, first, "words", words="SQLite")
    second = await next_request(agent, first)
    await sooner(agent, second)
    await task

    reply = await answered(agent, second, "words", words="mauve")
    assert reply.endswith("The agent continues.")
    await drain(agent, accepted)

    woken = said(await newest(agent, accepted))
    assert "Which DB?\n→ SQLite" in woken
    assert woken.index("→ SQLite") < woken.index("Which colours?") < woken.index("→ mauve")


async def test_a_person_can_decline_to_answer_a_question(agent: Stack) -> None:
    accepted, task, first = await asking(agent, "go")
    for wrong in ("/allow", "/answer", "/allow always"):
        assert "That is a question" in str(await write(agent, accepted, wrong)), wrong
    assert await write(agent, accepted, "1, 2") is None  # this question takes one option only
    await write(agent, accepted, "1")
    second = await next_request(agent, first)

    assert await write(agent, accepted, "4") == ""
    await task

    reply = said(await agent.outcome(accepted))
    assert "alice does not answer this question: Which colours?" in reply
    assert "Which DB?\n→ Postgres" in reply
    late = await answered(agent, second, "words", words="red")
    assert late.startswith("It was answered before: Not answered")


async def test_a_question_shows_its_hidden_characters(stack: Stack, directory: Path) -> None:
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
async def test_a_word_that_looks_like_a_request_id_is_part_of_the_answer(
    stack: Stack, text: str, words: str
) -> None:
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what="Which?", choices=("red",))
    assert await write(stack, accepted, "/deny k7m2q9xa no") == GONE
    assert await write(stack, accepted, text) == ""

    answered_request = await stack.fleet.requests.named(request.id)
    assert answered_request.answer is not None
    assert answered_request.answer.words == words
