"""The commands of a chat, with each of the real agent CLIs."""

import itertools
import os
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.runtimes import CLIS
from remoteclaw.runtimes.past_conversations import past_conversations
from tests.conftest import THOROUGH, required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.doors import RpcClient, opened, own_token
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually

#: A model of codex other than the configured one.
OTHER = "other"


@dataclass
class Chat:
    """A chat with an agent, in a workspace of its own."""

    stack: Stack
    client: RpcClient
    cli: AgentCli
    workspace: Path
    session: str
    sid: str
    _ids: Any = field(default_factory=itertools.count)

    async def send(self, text: str) -> dict[str, Any]:
        """Send a message; return the gateway's result."""
        params = {"sessionKey": self.session, "text": text, "messageId": f"m{next(self._ids)}"}
        sent: dict[str, Any] = await self.client.call("chat.send", params)
        return sent

    async def say(self, text: str) -> str:
        """Send a message; return the immediate answer, or else the reply of its turn."""
        sent = await self.send(text)
        if sent["entry"]:
            return await self.outcome(sent)
        return sent["reply"] or await self._reply(sent["id"])

    async def _reply(self, message_id: str) -> str:
        """Return the reply to a command, the chat's next message that belongs to no turn."""
        while (event := await self.client.event("chat.event"))["id"] != message_id:
            pass
        while (event := await self.client.event("chat.event")).get("turn", "none"):
            pass
        return str(event["text"])

    async def outcome(self, sent: dict[str, Any]) -> str:
        """Return the reply to a message."""
        outcome = await self.stack.fleet.outcomes.wait(self.sid, sent["entry"], timeout_s=HANG_S)
        assert outcome is not None, self.stack.worker_logs()
        return said(outcome)

    def asked(self, text: str) -> str:
        """Return the body of the model's last request that contains `text`."""
        return [body for body in self.cli.model.bodies().splitlines() if text in body][-1]

    def model_of(self, text: str) -> str:
        """Return the model of the last request that ends with `text`."""
        requests = [each for each in self.cli.model.requests() if not each["is_aside"]]
        return str([each["model"] for each in requests if each["end"].rstrip().endswith(text)][-1])

    async def until_it_writes(self, sent: dict[str, Any]) -> None:
        """Wait for the first output of the answer to a message."""

        async def writes() -> bool:
            outcome = await self.stack.fleet.outcomes.read(self.sid, sent["entry"])
            return outcome is not None and any(step.name == "output" for step in outcome.steps)

        await eventually(writes)

    def run_by_hand(self, text: str) -> None:
        """Run the CLI in the workspace, as a person would without RemoteClaw."""
        flags, stdin = {
            "claude": (["-p", text], ""),
            "codex": (["exec", "--skip-git-repo-check", "-m", "scripted", text], ""),
            "gemini": (["-m", "gemini-2.5-flash", "-p", text], ""),
            "opencode": (["run"], text),
        }[self.cli.name]
        own = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
        env = {name: os.environ[name] for name in ("HOME", "PATH")} | own | self.cli.env
        if self.cli.name == "gemini":  # without a terminal, it can't ask how to sign in
            settings = Path(os.environ["HOME"], ".gemini", "settings.json")
            settings.parent.mkdir()
            settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
        argv = [*self.cli.command, *flags]
        subprocess.run(
            argv, cwd=self.workspace, env=env, input=stdin, text=True, check=True, timeout=HANG_S
        )


@pytest.fixture(params=CLIS)
async def chat(
    request: pytest.FixtureRequest, stack: Stack, directory: Path, model_server: ModelServerProcess
) -> AsyncIterator[Chat]:
    """A chat with each of the CLIs in turn."""
    cli = required(request.param, model_server)
    workspace = directory / "work"
    workspace.mkdir()
    stack.configure(cli.config(workspace=str(workspace), permissions="auto"))
    await stack.start_worker()
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        opened_chat = await client.call("chat.open")
        yield Chat(stack, client, cli, workspace, opened_chat["sessionKey"], opened_chat["sid"])


@pytest.mark.thorough("opencode")
async def test_resuming_a_conversation_the_clis_own_commands_and_another_model(
    chat: Chat,
) -> None:
    name = chat.cli.name
    if name != "gemini" or THOROUGH:
        await an_earlier_conversation(chat)
        await chat.say("/new")
    await own_commands(chat)
    if name == "codex":  # the rest depends on no CLI, so the quickest one is enough
        await another_model(chat)


async def an_earlier_conversation(chat: Chat) -> None:
    """Resume a conversation of the CLI's own terminal, which stays unchanged, and one of ours."""
    chat.run_by_hand("my colour is green SAY:noted")
    env = {**os.environ, **chat.cli.env}

    def listed() -> Any:
        return past_conversations(chat.cli.name, str(chat.workspace), env, limit=9)

    (before,) = listed()
    assert await chat.say("SAY:apple") == "apple"
    shown = await chat.say("/resume")
    assert shown.startswith("1. `my colour is green SAY:noted`, ")
    assert "2." not in shown
    assert await chat.say("/resume 2") == "Choose a number from 1 to 1: /resume lists them."
    assert "Your next message continues" in await chat.say("/resume 1")
    assert (await chat.say("SAY:gone-on")).endswith("gone-on")
    asked = chat.asked("SAY:gone-on")
    assert "my colour is green" in asked
    assert "SAY:apple" not in asked
    (again,) = (each for each in listed() if each.id == before.id)
    assert (again.title, again.at) == (before.title, before.at)

    (number,) = re.findall(r"^(\d)\. `SAY:apple`, ", await chat.say("/resume"), re.MULTILINE)
    if chat.cli.name == "claude":  # which takes twice as long to start as codex
        return
    await chat.say(f"/resume {number}")
    assert (await chat.say("SAY:plum")).endswith("plum")
    asked = chat.asked("SAY:plum")
    assert "SAY:apple" in asked
    assert "SAY:gone-on" not in asked


@pytest.mark.parametrize("chat", ["codex"], indirect=True)
async def test_remoteclaws_own_commands_are_answered_without_the_agent(chat: Chat) -> None:
    """They are the same for every agent."""
    name = chat.cli.name
    assert "`/resume [NUMBER]`" in await chat.say("/help")
    assert "an owner: you may do everything" in await chat.say("/whoami")
    assert f"`main`, who answers here: {name} in `{chat.workspace}`" in await chat.say("/agent")
    assert "is in no git repository" in await chat.say("/diff")
    assert "The mode is `followup`" in await chat.say("/queue")
    assert "answered together" in await chat.say("/queue collect")
    status = await chat.say("/status")
    assert status.startswith(f"Idle.\n\n- agent: main ({name})")

    assert await chat.say("SAY:one") == "one"
    assert "| this session | 1 | 100 |" in await chat.say("/usage")
    assert "| SAY:one | main |" in await chat.say("/sessions")
    running = await chat.send("DRIP:2000:50")
    await chat.until_it_writes(running)
    assert "Running for" in await chat.say("/status")
    await chat.send("/stop")
    assert "Stopped." in await chat.outcome(running)
    assert await chat.say("stop") == "Nothing runs here."

    await chat.say("//SAY:two")
    assert "/SAY:two" in chat.asked("SAY:two")
    assert "//SAY:two" not in chat.asked("SAY:two")
    assert await chat.say("/new") == "A new conversation."
    assert "SAY:one" not in await chat.say("RECALL")


async def another_model(chat: Chat) -> None:
    await chat.say("SAY:before")
    assert f"the model is `{OTHER}`, in new conversations too" in await chat.say(f"/model {OTHER}")
    assert (await chat.say("SAY:after")).endswith("after")
    assert f"`{OTHER}`, chosen for this session" in await chat.say("/model")
    before, after = map(chat.model_of, ("SAY:before", "SAY:after"))
    assert before != after
    assert OTHER.endswith(after)
    assert after
    await a_wrong_model(chat)
    assert chat.model_of("SAY:again") == before


async def own_commands(chat: Chat) -> None:
    """An unknown command costs no model request, neither as the first message nor later."""
    unknown = {
        "claude": "Unknown command: /nonsense",
        "codex": "There is no command /nonsense, and codex has none of its own here.",
        "gemini": "gemini has no command /nonsense. It has /memory, ",
        "opencode": "opencode has no command /nonsense. It has ",
    }[chat.cli.name]
    command, answer = {
        "claude": ("/context", "Estimated usage by category"),
        "codex": ("/compact", "codex has none of its own"),
        "gemini": ("/about", "Gemini CLI Info"),
        "opencode": ("/init", "AGENTS.md"),
    }[chat.cli.name]

    assert (await chat.say("/nonsense")).startswith(unknown)
    assert answer in await chat.say(command)
    assert await chat.say("SAY:one") == "one"
    if chat.cli.name == "opencode":  # it does not name this one
        assert await chat.say("/compact") == "Done."
    assert (await chat.say("/nonsense")).startswith(unknown)


async def a_wrong_model(chat: Chat) -> None:
    """The reply names the wrong model and the remedy."""
    name, wrong = chat.cli.name, "no-such-model"
    assert f"the model is `{wrong}`" in await chat.say(f"/model {wrong}")
    failed = await chat.say("HTTP:404:model")
    assert f"can't use the model `{wrong}`, which was chosen here with /model ({name}: `" in failed
    assert "`/model default` goes back to the usual one" in failed
    await chat.say("/model default")
    assert (await chat.say("SAY:again")).endswith("again")
