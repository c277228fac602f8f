"""Fallbacks with the real claude and the real codex."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remoteclaw.bridge import Hooks
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.drain import Drain
from tests.conftest import required, shifted
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.limits import HOUR_MS, Chat, subscribed
from tests.support.stack import Stack, said

#: The beginning of notes of a conversation in the body of a request.
BEFORE = '\\"conversation_before\\":['


class Counted(Chat):
    """A chat whose agents ask a model server that counts their requests."""

    model: ModelServerProcess
    before: int
    """How many requests the model server had before this test."""

    async def say(self, text: str, **fields: Any) -> Accepted:
        accepted = await self.append(f"{text} {uuid.uuid4().hex}", **fields)
        await self.hints()  # nobody else waits, so the drain lingers if it may
        await self.drain(accepted)
        return accepted

    def requests(self, *, to: str) -> list[str]:
        """Return the ends of the people's messages that an API, or a model, was asked about."""
        return [
            each["end"]
            for each in self.model.requests()[self.before :]
            if to in (each["api"], each["model"]) and not each["is_aside"]
        ]


@pytest_asyncio.fixture
async def chat(stack: Stack, claude: AgentCli) -> AsyncIterator[Counted]:
    await stack.fleet.aclose()
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    stack.fleet = Fleet.open(stack.redis.url, scripts=scripts)
    chat = Counted(stack)
    chat.model, chat.before = claude.model, len(claude.model.requests())
    yield chat


async def test_codex_answers_during_claudes_limit_and_each_knows_what_the_other_said(
    chat: Counted, claude: AgentCli, codex: AgentCli, directory: Path
) -> None:
    workspace = str(directory / "work")
    Path(workspace).mkdir()
    main = {**subscribed(claude), "fallbacks": ["agent:codex"], "workspace": workspace}
    chat.stack.configure(main, agents={"codex": codex.config()})
    await chat.say("my colour is green SAY:noted")
    before = len(chat.requests(to="anthropic"))

    with chat.model.limited(away="anthropic"):
        await chat.say("SAY:I-think-of-violet")
        asked = len(chat.requests(to="anthropic"))
        await chat.say("SAY:still-here")
        config = load_config(chat.stack.home.config_file, {})
        elsewhere = Home(directory / "elsewhere").create()
        other = await chat.append("SAY:hello-bob", from_="bob")
        await Drain(chat.stack.fleet, config, elsewhere, Hooks()).run(other.session.sid)
        assert asked > before
        assert len(chat.requests(to="anthropic")) == asked, "claude was asked during its limit"
    of_codex = [body for body in chat.model.bodies().splitlines() if "I-think-of-violet" in body]
    assert "my colour is green" in of_codex[-1]
    await chat.let_pass(HOUR_MS + 60_000)
    await chat.say("SAY:back-again")
    await chat.say("SAY:as-ever")

    last = chat.model.bodies().splitlines()[-1]
    assert '\\"agent\\":\\"codex\\",\\"wrote\\":\\"I-think-of-violet' in last
    assert last.count("SAY:I-think-of-violet") == 1, "it has the refused message, too"
    first, switch, *texts = await chat.texts()
    assert first.startswith("noted")
    assert switch.startswith("(main's plan is used up until ")
    back = "(main answers again, and knows what was said meanwhile.)"
    assert [text.split()[0] if text != back else back for text in texts] == [
        *("I-think-of-violet", "still-here", back, "back-again", "as-ever")
    ]
    assert len(await chat.texts("bob")) == 2


async def test_a_model_that_is_back_in_three_seconds_is_waited_for(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    main = {**claude.config(), "fallbacks": ["agent:codex"]}
    chat.stack.configure(main, agents={"codex": codex.config()})
    accepted = await chat.say("RETRYAFTER:3 HTTP:429*2 SAY:answered")

    outcome = await chat.stack.outcome(accepted)
    assert "postponed" in [step.name for step in outcome.steps]
    assert not chat.requests(to="responses")
    assert [text.split()[0] for text in await chat.texts()] == ["answered"]


@pytest.mark.thorough
async def test_another_model_of_claude_answers_in_the_same_conversation(
    chat: Counted, claude: AgentCli
) -> None:
    own = {**subscribed(claude), "model": "claude-opus-4-8"}
    chat.stack.configure({**own, "fallbacks": ["claude-haiku-4-5"]})
    await chat.say("my colour is green SAY:noted")
    with chat.model.limited(away="claude-opus"):
        await chat.say("SAY:by-haiku")
        asked = len(chat.requests(to="claude-opus-4-8"))
        accepted = await chat.say("SAY:by-haiku-too")
    assert len(chat.requests(to="claude-opus-4-8")) == asked
    last = chat.model.bodies().splitlines()[-1]
    assert "my colour is green" in last
    assert BEFORE not in last
    assert last.count("SAY:by-haiku ") == 1
    await chat.let_pass(HOUR_MS + 60_000)
    await chat.say("SAY:by-opus")

    assert len(chat.requests(to="claude-opus-4-8")) == asked + 1
    outcome = await chat.stack.outcome(accepted)
    assert any("warm claude" in step.detail for step in outcome.steps)
    notices = [text for text in await chat.texts() if text.startswith("(")]
    assert [text.partition("; ")[2] or text for text in notices] == [
        "it answers with `claude-haiku-4-5` meanwhile.)",
        "(main answers with its usual model again.)",
    ]


async def test_codex_may_not_do_more_than_the_agent_in_whose_place_it_answers(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    """Its own permissions count for its own sessions only."""
    main = {**subscribed(claude), "fallbacks": ["agent:codex"], "permissions": "deny"}
    chat.stack.configure(main, agents={"codex": codex.config(permissions="auto")})
    with chat.model.limited(away="anthropic"):
        await chat.say("SHELL:touch made.txt")

    assert chat.requests(to="responses")
    assert not (chat.workspace / "made.txt").exists()


async def test_codex_sees_and_answers_a_message_beside_its_work_in_claudes_place(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    main = {**subscribed(claude), "fallbacks": ["agent:codex"], "permissions": "auto"}
    queue = {"mode": "aside", "debounce_ms": 0}
    chat.stack.configure(main, agents={"codex": codex.config()}, queue=queue)
    with chat.model.limited(away="anthropic"):
        working = await chat.append(f"{uuid.uuid4().hex} SHELL:sleep 600")
        turn = asyncio.create_task(chat.drain(working))
        await chat.stack.reached(working, "tool")
        beside = await chat.append("what is new? VERDICT:answered beside")
        outcome = await chat.stack.outcome(beside)
        await chat.append("/stop")
        await turn

    assert said(outcome) == "beside"
    assert (await chat.stack.outcome(working)).status == "stopped"
    usage = await chat.stack.fleet.usage.agents()
    assert (usage["codex"].asides, usage["codex"].turns) == (1, 1)


async def test_codex_has_the_identity_and_the_memory_of_the_agent_in_whose_place_it_answers(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    files = chat.stack.home.agent_files("main")
    files.mkdir(parents=True)
    for name, text in (("SOUL.md", "You are Marvin."), ("MEMORY.md", "Alice likes tea.")):
        (files / name).write_text(text)
    main = {**subscribed(claude), "fallbacks": ["agent:codex"], "identity": ["SOUL.md"]}
    chat.stack.configure({**main, "memory": True}, agents={"codex": codex.config()})
    await chat.say("SAY:noted", channel_id="alice")

    with chat.model.limited(away="anthropic"):
        await chat.say("SAY:in-its-place", channel_id="alice")

    of_codex = [body for body in chat.model.bodies().splitlines() if "in-its-place" in body][-1]
    assert "You are Marvin." in of_codex
    assert of_codex.count("Alice likes tea.") == 1


async def test_a_long_conversation_is_not_summarized_by_an_agent_that_cannot_answer(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    """It would be refused, and codex' process would have to end for it."""
    main = {**subscribed(claude), "fallbacks": ["agent:codex"]}
    main["env"]["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = "200000"
    chat.stack.configure({**main, "compact_at": 0}, agents={"codex": codex.config()})
    await chat.say("USED:151000 SAY:long")
    chat.stack.configure(main, agents={"codex": codex.config()}, linger_s=0.3)
    with chat.model.limited(away="anthropic"):
        accepted = await chat.say("SAY:by-codex")
        asked = len(chat.requests(to="anthropic"))
        later = await chat.say("SAY:by-codex-too")

    assert len(chat.requests(to="anthropic")) == asked == 2
    view = await chat.stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.context is not None, "it is not as long as it has to be"
    assert (await chat.stack.reached(later, "spawned")).startswith("warm codex")


@pytest.mark.thorough("opencode", "gemini")
@pytest.mark.parametrize(("name", "api"), [("opencode", "chat"), ("gemini", "gemini")])
async def test_each_cli_works_in_the_place_of_claude_and_the_other_way_round(
    chat: Counted, claude: AgentCli, name: str, api: str
) -> None:
    other = required(name, claude.model)
    chat.stack.configure(
        {**other.config(), "fallbacks": ["agent:claude"]}, agents={"claude": claude.config()}
    )
    await chat.say("my colour is green SAY:noted")
    with chat.model.limited(away=api):
        await chat.say("my animal is a mole SAY:by-claude")
    assert "my colour is green" in chat.model.bodies().splitlines()[-1]
    await chat.let_pass(HOUR_MS + 60_000)
    await chat.say("SAY:back-again")

    bodies = [body for body in chat.model.bodies().splitlines() if "SAY:back-again" in body]
    assert "my animal is a mole" in bodies[-1]
    assert "my colour is green" in bodies[-1]
    texts = await chat.texts()
    assert [text.split()[0] for text in texts if text[0] != "("] == [
        *("noted", "by-claude", "back-again")
    ]
    assert len([text for text in texts if "answers" in text]) == 2


@pytest.mark.thorough
async def test_a_fallback_that_is_busy_for_a_moment_has_the_notes(
    chat: Counted, claude: AgentCli, codex: AgentCli
) -> None:
    """Claude cuts its refused first message off, and the notes with it."""
    main = {**codex.config(), "fallbacks": ["agent:claude"]}
    chat.stack.configure(main, agents={"claude": claude.config()})
    await chat.say("my colour is green SAY:noted")
    with chat.model.limited(away="responses"):
        await chat.say("RETRYAFTER:3 HTTP:429*2 SAY:by-claude")

    bodies = [body for body in chat.model.bodies().splitlines() if "SAY:by-claude" in body]
    assert (await chat.texts())[-1].startswith("by-claude")
    assert "my colour is green" in bodies[-1]


async def test_an_agent_that_begins_again_and_is_busy_for_a_moment_has_the_notes(
    chat: Counted, claude: AgentCli
) -> None:
    chat.stack.configure(claude.config())
    accepted = await chat.say("my colour is green SAY:noted")
    await chat.stack.fleet.scripts.client.delete(keys.session_map(accepted.session.sid))
    await chat.say("RETRYAFTER:3 HTTP:429*2 SAY:again")

    bodies = [body for body in chat.model.bodies().splitlines() if "SAY:again" in body]
    assert "my colour is green" in bodies[-1]
