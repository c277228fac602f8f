"""Hooks at the moments of a message, and the example of the documentation."""

import asyncio
import contextlib
import re
import sys
import tomllib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.hooks import (
    AgentEnd,
    MessageReceived,
    MessageSending,
    MessageSent,
    SendingOverride,
    SessionResumed,
    SpawnOverride,
)
from remoteclaw.channels.relay import relay
from remoteclaw.config.load import load_config
from remoteclaw.config.model import HooksConfig
from remoteclaw.errors import ConfigError
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Reply
from remoteclaw.session.drain import Drain
from tests.support.bridges import demo_bridge, script
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"

#: An agent that repeats what it is told.
PARROT = """
while True:
    say(type='text', text=turn()['prompt'].split('\\n\\n', 1)[1])
    say(type='done')
"""


class Chat:
    """A channel that keeps what was delivered."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken
        self.delivered: list[str] = []

    async def deliver(self, reply: Reply) -> None:
        if self.is_broken:
            raise ConnectionError("the platform is away")
        self.delivered.append(reply.text)


@contextlib.asynccontextmanager
async def relayed(stack: Stack, chat: Chat, hooks: Hooks) -> AsyncIterator["asyncio.Task[None]"]:
    reader = stack.fleet.replies.reader("test", "default")
    task = asyncio.create_task(relay(reader, chat, hooks))
    yield task
    task.cancel()
    await asyncio.wait((task,))


async def answered(stack: Stack, text: str, hooks: Hooks) -> Accepted:
    """Have a message answered here, as a work-horse would."""
    accepted = await stack.append(text)
    drain = Drain(stack.fleet, load_config(stack.home.config_file, {}), stack.home, hooks)
    await drain.run(accepted.session.sid)
    return accepted


@pytest.fixture
async def parrot(stack: Stack, directory: Path) -> Stack:
    stack.configure({"runtime": "demo", "command": list(script(directory, PARROT))})
    return stack


def sending(*results: SendingOverride | None) -> tuple[Hooks, list[MessageSending], list[Any]]:
    """Return hooks that give these results, what they were given, and what was sent."""
    hooks, seen = Hooks(), list[MessageSending]()
    sent: list[Any] = []
    for result in results:

        def hook(event: MessageSending, result: SendingOverride | None = result) -> Any:
            seen.append(event)
            return result

        hooks.register("message_sending", hook)
    hooks.register("message_sent", sent.append)
    return hooks, seen, sent


async def test_hooks_change_a_message_one_after_the_other(parrot: Stack) -> None:
    hooks, seen, sent = sending(SendingOverride(text="one"), None, SendingOverride(text="two"))
    accepted = await answered(parrot, "hello", hooks)
    chat = Chat()
    async with relayed(parrot, chat, hooks):
        await eventually(lambda: sent)

    assert chat.delivered == ["two"]
    assert [event.text for event in seen] == ["hello", "one", "one"]
    assert (seen[0].channel_id, seen[0].turn) == ("chat-1", accepted.entry_id)
    assert sent == [MessageSent(replace(seen[2], text="two"), success=True)]


async def test_a_hook_cancels_a_message_and_its_turn_is_over_all_the_same(parrot: Stack) -> None:
    hooks, _, sent = sending(SendingOverride(cancel=True), SendingOverride(text="never asked"))
    accepted = await answered(parrot, "hello", hooks)
    chat = Chat()
    async with relayed(parrot, chat, hooks):
        await parrot.reached(accepted, "delivered")

    assert chat.delivered == [""]
    assert sent == []


async def test_a_slow_delivery_keeps_its_stream(parrot: Stack) -> None:
    """Else a stand-by would deliver the same, and the receipt would be refused."""
    accepted = await answered(parrot, "hello", Hooks())
    client: Any = parrot.fleet.scripts.client
    claim = keys.reader("test", "default")

    class Slow(Chat):
        async def deliver(self, reply: Reply) -> None:
            await client.pexpire(claim, 4000)
            await eventually(lambda: is_renewed(4000))
            await super().deliver(reply)

    async def is_renewed(than_ms: int) -> bool:
        return int(await client.pttl(claim)) > than_ms

    chat = Slow()
    async with relayed(parrot, chat, Hooks()):
        await parrot.reached(accepted, "delivered")
    assert chat.delivered == ["hello"]


async def test_a_claim_that_ran_out_is_no_other_adapters(parrot: Stack) -> None:
    accepted = await answered(parrot, "hello", Hooks())

    class Frozen(Chat):
        async def deliver(self, reply: Reply) -> None:
            await super().deliver(reply)
            await parrot.fleet.scripts.client.delete(keys.reader("test", "default"))

    async with relayed(parrot, Frozen(), Hooks()):
        await parrot.reached(accepted, "delivered")


async def test_a_hook_that_fails_or_returns_nonsense_changes_nothing(
    parrot: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, _, sent = sending(None)

    def fails(_event: object) -> None:
        raise RuntimeError("somebody's mistake")

    hooks.register("message_sending", fails)
    hooks.register("message_sending", lambda _: "nonsense")
    await answered(parrot, "hello", hooks)
    chat = Chat()
    async with relayed(parrot, chat, hooks):
        await eventually(lambda: sent)

    assert chat.delivered == ["hello"]
    assert "fails failed" in caplog.text
    assert "returned str" in caplog.text


async def test_nothing_that_a_hook_does_ends_delivery(
    parrot: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, _, sent = sending(None)

    async def is_cancelled(_event: object) -> None:
        raise asyncio.CancelledError

    def leaves(_event: object) -> None:
        sys.exit(3)

    class Wrapped:
        async def __call__(self, _event: object) -> SendingOverride:
            return SendingOverride(text="wrapped")

    for hook in (is_cancelled, leaves, Wrapped(), lambda _: SendingOverride(text=123)):  # type: ignore[arg-type]
        hooks.register("message_sending", hook)
    await answered(parrot, "hello", hooks)
    chat = Chat()
    async with relayed(parrot, chat, hooks):
        await eventually(lambda: sent)

    assert chat.delivered == ["wrapped"]
    assert "is_cancelled was cancelled by something in it" in caplog.text
    assert "leaves failed" in caplog.text
    assert "returned SendingOverride" in caplog.text


async def test_a_spawn_hook_is_no_lost_conversation(
    stack: Stack,
) -> None:
    """It may choose another directory each time, so what is remembered under which is unknown."""
    hooks = Hooks()
    (stack.home.path / "elsewhere").mkdir()
    place = SpawnOverride(workspace=str(stack.home.path / "elsewhere"))
    hooks.register("before_runtime_spawn", lambda _: place)
    await answered(stack, "hello", hooks)

    second = await answered(stack, "memory", hooks)

    assert said(await stack.outcome(second)) == "You said before:\n\n- hello"


def test_a_module_that_can_not_be_imported_is_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "broken_hooks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(directory))

    with pytest.raises(ConfigError, match=r"broken_hooks:f.*division by zero"):
        Hooks.load(HooksConfig(agent_end=("broken_hooks:f",)))


async def test_a_message_that_can_not_be_sent_is_told_of(parrot: Stack) -> None:
    hooks, _, sent = sending()
    await answered(parrot, "hello", hooks)
    async with relayed(parrot, Chat(is_broken=True), hooks) as task:
        await asyncio.wait((task,))
        with pytest.raises(ConnectionError):
            task.result()

    ((failed,),) = [sent]
    assert (failed.success, failed.error, failed.message.text) == (
        False,
        "ConnectionError",
        "hello",
    )


@pytest.mark.parametrize("is_watched", [True, False])
async def test_what_a_hook_may_change_is_not_shown_before(parrot: Stack, is_watched: bool) -> None:
    """Neither text, nor the tools that run."""
    hooks = Hooks()
    if is_watched:
        hooks.register("message_sending", lambda _: None)
    body = (
        "while True:\n turn()\n say(type='tool_use', id='1', name='look', input={})\n"
        " say(type='text', text='sk-')\n time.sleep(0.5)\n say(type='done')"
    )
    parrot.configure({"runtime": "demo", "command": list(script(parrot.home.path, body))})
    shown = list[tuple[str, list[str]]]()

    async def follow(live: AsyncIterator[dict[str, Any]]) -> None:
        async for one in live:
            shown.append((one["text"], [tool["tool"] for tool in one["activity"]]))

    session = SessionKey.of(message("hello"), agent="main")
    following = asyncio.create_task(follow(parrot.fleet.replies.live(session.sid)))
    await answered(parrot, "hello", hooks)
    following.cancel()

    assert shown[-1:] == ([] if is_watched else [("sk-", ["look"])])


async def test_a_message_is_told_of_before_the_agent_gets_it(parrot: Stack) -> None:
    hooks, seen = Hooks(), list[Any]()
    hooks.register("message_received", seen.append)

    accepted = await answered(parrot, "hello", hooks)

    (event,) = seen
    assert isinstance(event, MessageReceived)
    assert (event.message.text, event.attempt) == ("hello", 1)
    assert event.session == accepted.session


async def test_a_conversation_that_another_process_goes_on_with_is_told_of(home: Any) -> None:
    hooks, seen = Hooks(), list[Any]()
    hooks.register("session_resumed", seen.append)
    async with demo_bridge(home, hooks=hooks) as (bridge, keeper, session_map):
        await bridge.handle(message("one"))
        await bridge.handle(message("two"))  # the same process
        await keeper.discard()
        await bridge.handle(message("three"))

    (event,) = seen
    assert isinstance(event, SessionResumed)
    assert event.session_id in session_map.values()


# -- where hooks come from ------------------------------------------------------------------------


async def test_the_example_of_the_documentation(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, config = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (directory / "our_hooks.py").write_text(code)
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.chdir(directory)
    hooks = Hooks.load(HooksConfig(**tomllib.loads(config)["hooks"]))
    stack.configure({"runtime": "demo", "command": list(script(directory, PARROT))})
    chat = Chat()

    accepted = await answered(stack, "The key is sk-abcdefgh1234.", hooks)
    async with relayed(stack, chat, hooks):
        await stack.reached(accepted, "delivered")

    assert chat.delivered == ["The key is (a key)."]
    assert accepted.entry_id in (directory / "turns.txt").read_text()
    assert "done" in (directory / "turns.txt").read_text()


def test_every_moment_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))

    assert documented == set(HooksConfig.model_fields)


async def test_nobody_waits_for_hooks_about_what_is_over(parrot: Stack) -> None:
    hooks, called = Hooks(), asyncio.Event()
    is_answered = asyncio.Event()

    async def slow(_event: AgentEnd) -> None:
        await is_answered.wait()
        called.set()

    hooks.register("agent_end", slow)
    accepted = await parrot.append("hello")
    config = load_config(parrot.home.config_file, {})
    serving = asyncio.create_task(
        Drain(parrot.fleet, config, parrot.home, hooks).run(accepted.session.sid)
    )

    assert said(await parrot.outcome(accepted)) == "hello"
    is_answered.set()
    await serving
    assert called.is_set()
