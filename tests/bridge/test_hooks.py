"""Hooks during a turn, and the example in their documentation."""

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.hooks import AgentEnd, SessionResumed, SpawnOverride
from remoteclaw.config.load import load_config
from remoteclaw.config.model import HooksConfig
from remoteclaw.errors import ConfigError
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.drain import Drain
from tests.support.bridges import demo_bridge
from tests.support.stack import Stack, message, said

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


async def answered(stack: Stack, text: str, hooks: Hooks) -> Accepted:
    """Append a message and run its session here, like a work-horse."""
    accepted = await stack.append(text)
    drain = Drain(stack.fleet, load_config(stack.home.config_file, {}), stack.home, hooks)
    await drain.run(accepted.session.sid)
    return accepted


async def test_a_spawn_hook_does_not_cause_a_notice_about_a_lost_conversation(
    stack: Stack,
) -> None:
    """The hook may choose another directory each time, so no lost conversation can be detected."""
    hooks = Hooks()
    (stack.home.path / "elsewhere").mkdir()
    place = SpawnOverride(workspace=str(stack.home.path / "elsewhere"))
    hooks.register("before_runtime_spawn", lambda _: place)
    await answered(stack, "hello", hooks)

    second = await answered(stack, "memory", hooks)

    assert said(await stack.outcome(second)) == "You said before:\n\n- hello"


def test_a_hook_module_that_cannot_be_imported_is_a_config_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "broken_hooks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(directory))

    with pytest.raises(ConfigError, match=r"broken_hooks:f.*division by zero"):
        Hooks.load(HooksConfig(agent_end=("broken_hooks:f",)))


async def test_a_hook_is_called_when_another_process_resumes_the_conversation(home: Any) -> None:
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


# -- the documentation, and the end of a turn -----------------------------------------------------


async def test_the_example_in_the_hooks_documentation_works(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, config = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (directory / "our_hooks.py").write_text(code)
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.chdir(directory)
    hooks = Hooks.load(HooksConfig(**tomllib.loads(config)["hooks"]))

    accepted = await answered(stack, "hello", hooks)

    assert said(await stack.outcome(accepted))
    assert (directory / "turns.txt").read_text().endswith(f"-{accepted.entry_id} done\n")


def test_every_hook_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))

    assert documented == set(HooksConfig.model_fields)


async def test_a_reply_does_not_wait_for_hooks_at_the_end_of_the_turn(stack: Stack) -> None:
    hooks, is_called = Hooks(), asyncio.Event()
    is_answered = asyncio.Event()

    async def slow(_event: AgentEnd) -> None:
        await is_answered.wait()
        is_called.set()

    hooks.register("agent_end", slow)
    accepted = await stack.append("hello")
    config = load_config(stack.home.config_file, {})
    serving = asyncio.create_task(
        Drain(stack.fleet, config, stack.home, hooks).run(accepted.session.sid)
    )

    assert said(await stack.outcome(accepted))
    is_answered.set()
    await serving
    assert is_called.is_set()
