"""The commands of a chat, with each of the real agent CLIs."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.runtimes.past_conversations import past_conversations
from tests.conftest import THOROUGH, required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.doors import RpcClient, opened, own_token
from tests.support.kills import kill_all
from tests.support.processes import is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually

#: A model of each CLI that is not its default.
OTHERS = {
    "claude": "claude-haiku-4-5",
    "codex": "other",
    "gemini": "gemini-2.5-pro",
    "opencode": "scripted/other",
}
#: A model that does not exist.
WRONG = "no-such-model"


@dataclass
class Chat:
    """A chat with an agent, in a workspace of its own."""

    stack: Stack
    client: RpcClient
    cli: AgentCli
    workspace: Path
    session: str
    sid: str
    pid: int = 0
    """The process of the last turn's agent."""
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
        for step in outcome.steps:
            if step.name == "spawned" and step.detail:
                self.pid = int(step.detail.rpartition(" ")[2])
        return said(outcome)

    async def is_quiet(self) -> bool:
        """Whether all replies are delivered, which happens a moment after a turn's outcome."""
        return not await self.stack.fleet.replies.unsent(SessionKey.parse(self.session))

    def asked(self, text: str) -> str:
        """Return the body of the model's last request that contains `text`."""
        return [body for body in self.cli.model.bodies().splitlines() if text in body][-1]

    async def agent(self) -> tuple[int, dict[str, str]]:
        """Return the pid of the last turn's agent, and the id of its conversation."""
        view = await self.stack.fleet.sessions.view(self.sid)
        assert view is not None
        return self.pid, dict(view.session_ids)

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


@pytest.mark.thorough("opencode", "gemini")
async def test_resuming_a_conversation_and_the_clis_own_commands(
    chat: Chat,
) -> None:
    name = chat.cli.name
    if name != "gemini" or THOROUGH:
        await an_earlier_conversation(chat)
        await chat.say("/new")
    await own_commands(chat)


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

    async def has_size() -> bool:  # it is stored behind the answer
        return "\n- context 0 %\n" in await chat.say("/status")

    await eventually(has_size)
    assert "| this session | 1 | 100 |" in await chat.say("/usage")
    assert "| SAY:one | main |" in await chat.say("/sessions")
    running = await chat.send("DRIP:2000:50")
    await chat.until_it_writes(running)
    assert "Running for" in await chat.say("/status")
    await chat.send("/stop")
    assert "Stopped." in await chat.outcome(running)
    await eventually(chat.is_quiet)
    assert await chat.say("stop") == "Nothing runs here."

    await chat.say("//SAY:two")
    assert "/SAY:two" in chat.asked("SAY:two")
    assert "//SAY:two" not in chat.asked("SAY:two")
    assert await chat.say("/new") == "A new conversation."
    assert "SAY:one" not in await chat.say("RECALL")


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
        "codex": ("/context", "codex has none of its own"),
        "gemini": ("/about", "Gemini CLI Info"),
        "opencode": ("/init", "AGENTS.md"),
    }[chat.cli.name]

    assert (await chat.say("/nonsense")).startswith(unknown)
    assert answer in await chat.say(command)
    assert await chat.say("SAY:one") == "one"
    summarized = {
        "claude": "There is nothing to summarize",
        "codex": "Summarized: ",
        "gemini": "gemini can't summarize a conversation when it is asked",
        "opencode": "Summarized.",
    }[chat.cli.name]
    assert (await chat.say("/compact")).startswith(summarized)
    assert (await chat.say("/nonsense")).startswith(unknown)


# -- /model ---------------------------------------------------------------------------------------


@pytest.mark.thorough("opencode", "gemini")
async def test_another_model_answers_in_the_same_process(chat: Chat) -> None:
    """The conversation goes on, asides have the model, and a wrong name costs nothing."""
    name, other = chat.cli.name, OTHERS[chat.cli.name]
    with_default(chat)
    await chat.say("SAY:before my colour is green")
    before, agent = chat.model_of("my colour is green"), await chat.agent()

    assert f"the model is `{other}`, in new conversations too" in await chat.say(f"/model {other}")
    assert (await chat.say("SAY:after")).endswith("after")
    assert f"`{other}`, chosen for this session" in await chat.say("/model")
    assert other.endswith(chat.model_of("SAY:after"))
    assert "my colour is green" in chat.asked("SAY:after")
    assert other.endswith(await model_of_aside(chat))

    await chat.say(f"/model {WRONG}")
    failed = await chat.say("HTTP:404:model")
    assert f"can't use the model `{WRONG}`, which was chosen here with /model ({name}: `" in failed
    assert "`/model default` goes back to the usual one" in failed
    await chat.say(f"/model {other}")
    assert (await chat.say("SAY:corrected")).endswith("corrected")
    assert other.endswith(chat.model_of("SAY:corrected"))

    await chat.say("/model default")
    assert (await chat.say("SAY:again")).endswith("again")
    assert "my colour is green" in chat.asked("SAY:again")
    assert chat.model_of("SAY:again") == before
    assert await model_of_aside(chat) == before
    await chat.say(f"/model {other}")
    await chat.say("/compact")
    summaries = [each for each in chat.cli.model.requests() if each["is_summary"]]
    if create_cli_runtime(name).capabilities.compacts:
        assert other.endswith(summaries[-1]["model"])
    assert await chat.agent() == agent


@pytest.mark.thorough("opencode", "gemini", "claude")
async def test_a_model_outlives_the_agents_process(chat: Chat) -> None:
    """A conversation that began with a chosen model can go back to the default one, too."""
    other = OTHERS[chat.cli.name]
    with_default(chat)
    await chat.say("SAY:elsewhere")
    before = chat.model_of("SAY:elsewhere")
    await chat.say("/new")
    await chat.say(f"/model {other}")
    async with busy(chat, "SAY:first") as running:
        await kill_all(chat.stack)
    assert "first" in await chat.outcome(running)
    assert other.endswith(chat.model_of("SAY:first"))

    await chat.say("/model default")
    await restarted(chat)
    assert (await chat.say("SAY:again")).endswith("again")
    assert chat.model_of("SAY:again") == before
    if chat.cli.name != "gemini":
        assert "SAY:first" in chat.asked("SAY:again")
    await chat.say(f"/model {other}")
    await chat.say("SAY:other")
    await chat.say("/model default")
    await restarted(chat)
    assert (await chat.say("SAY:once more")).endswith("once more")
    assert chat.model_of("SAY:once more") == before


def with_default(chat: Chat) -> None:
    """Configure the agent without a model, so that the CLI chooses."""
    config = chat.cli.config(workspace=str(chat.workspace), permissions="auto") | {"model": None}
    given = {key: value for key, value in config.items() if value is not None}
    chat.stack.configure(given, queue={"mode": "aside", "debounce_ms": 0})


async def restarted(chat: Chat) -> None:
    """Kill the agent."""
    os.kill(chat.pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(chat.pid))


async def model_of_aside(chat: Chat) -> str:
    """Put a question to the agent during a turn; return the model that answers."""
    async with busy(chat) as running:
        assert (await chat.say("VERDICT:answered beside")).endswith("beside")
        model = [each["model"] for each in chat.cli.model.requests() if not each["is_aside"]][-1]
    await chat.outcome(running)
    return str(model)


@contextlib.asynccontextmanager
async def busy(chat: Chat, then: str = "") -> AsyncIterator[dict[str, Any]]:
    """Send a message whose turn waits in a tool until the end of the block."""
    began, ended = (chat.workspace.parent / uuid.uuid4().hex for _ in range(2))
    wait = f"touch '{began}'; until test -e '{ended}'; do sleep 0.05; done"
    running = await chat.send(f"SHELL:{wait}\n{then}")
    await eventually(began.exists)
    yield running
    ended.touch()
