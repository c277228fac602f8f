"""Requests of agents in the chat of a terminal."""

from pathlib import Path

import pytest

from tests.support.bridges import acp_script, claude_script
from tests.support.chat import chatting
from tests.support.requests import BODY, QUESTIONS
from tests.support.stack import Stack

WAITS = "waits for your answer"


@pytest.mark.thorough("colour")
@pytest.mark.parametrize(
    ("columns", "colour"), [(80, {}), (40, {"NO_COLOR": "1"})], ids=["colour", "plain"]
)
async def test_a_user_answers_a_permission_request_in_the_chat(
    stack: Stack, directory: Path, columns: int, colour: dict[str, str]
) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    async with chatting(stack, agent, colour=colour, columns=columns) as (screen, _):
        screen.type("touch x\r")
        screen.see("─\ntouch x\n─")
        screen.see("1 Allow once · 2 Allow for this")
        screen.see(WAITS)
        screen.type("1\r")
        screen.see_words("Allowed once by")
        screen.see("touch x yes")
        screen.see_gone(WAITS)

        screen.type("touch v\r")
        screen.see("─\ntouch v\n─")
        screen.see(WAITS)
        screen.type("2\r")
        screen.see("touch v yes")
        screen.type("/status\r")
        screen.see_words("allowed by")
        screen.see_words("a tool touch v")
        screen.type("/allow none\r")
        screen.see_words("is revoked: the agent asks again.")
        screen.type("touch v\r")
        screen.see_so_often("^touch v$", 2)
        screen.see(WAITS)
        screen.type("3\r")
        screen.see("touch v no")

        screen.type("touch y\r")
        screen.see("─\ntouch y\n─")
        screen.see(WAITS)
        screen.type("/deny not now\r")
        screen.see_words("“not now”")
        screen.see("touch y no")

        screen.type("touch z\r")
        screen.see("─\ntouch z\n─")
        screen.see(WAITS)
        screen.type("/stop\r")
        screen.see_gone(WAITS)
        screen.see_words("It was stopped.")
        assert "no person can give" not in " ".join(screen.shown().split())


async def test_a_user_answers_questions_of_an_agent_in_the_chat(
    stack: Stack, directory: Path
) -> None:
    agent = {"runtime": "claude", "command": list(claude_script(directory, QUESTIONS))}
    async with chatting(stack, agent, columns=80) as (screen, _):
        screen.type("go\r")
        screen.see("1 Postgres · 2 SQLite · 3 No answer")
        screen.see(WAITS)
        screen.type("/answer something else\r")
        screen.see("1 red · 2 green · 3 blue · 4 No answer")
        screen.see(WAITS)
        screen.type("1, 3\r")
        screen.see_words('{"Which DB?": "something else", "Which colours?": "red, blue"}')
        screen.see_gone(WAITS)
