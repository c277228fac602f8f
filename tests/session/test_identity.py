"""The identity and the memory of an agent in its sessions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.messages import Entry, SessionKey, Turn
from remoteclaw.session.identity import SessionIdentity
from tests.support.bridges import agent_bridge
from tests.support.cli import run
from tests.support.conversations import answers, drain, dying, go, prompts, talk
from tests.support.stack import Stack, message

DIRECT: dict[str, Any] = {"channel_id": "alice"}


def write(home: Home, name: str, text: str) -> Path:
    file = home.agent_files("main") / name
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.fixture
def soul(stack: Stack) -> Path:
    stack.configure({**stack.agent, "identity": ["SOUL.md"]})
    return write(stack.home, "SOUL.md", "You are Marvin.")


async def identity(stack: Stack, *, is_direct: bool = True, home: Home | None = None) -> Any:
    config = load_config(stack.home.config_file, {})
    session = SessionKey.of(message("x", **DIRECT), agent="main")
    return await stack.fleet.identities.current(
        config, home or stack.home, session, is_direct=is_direct
    )


async def test_a_direct_chat_has_the_text_about_its_person_and_their_language(
    stack: Stack, soul: Path
) -> None:
    write(stack.home, "people/test-alice.md", "Alice likes tea.")
    direct, group = await identity(stack), await identity(stack, is_direct=False)
    with stack.home.config_file.open("a") as file:
        file.write("\n[people.ada]\nids = ['test:alice']\nlanguage = 'de'\n")
    write(stack.home, "people/ada.md", "Ada likes coffee.")
    named = await identity(stack)

    assert direct.files == {
        "SOUL.md": "You are Marvin.",
        "people/test-alice.md": "Alice likes tea.",
    }
    assert group.files == {"SOUL.md": "You are Marvin."}
    assert (named.files["people/ada.md"], named.language) == ("Ada likes coffee.", "de")
    assert "people/test-alice.md" not in named.files


@pytest.mark.parametrize(("name", "has_it"), [("claude", True), ("codex", False)])
async def test_no_command_line_of_a_terminal_has_the_identity(
    name: str, has_it: bool, stack: Stack, soul: Path
) -> None:
    """All users of the host can read codex' instructions; the next turn in the chat has them."""
    entry = await stack.append("hello")
    config = load_config(stack.home.config_file, {})
    async with dying(stack, entry) as lease:
        source = SessionIdentity(lease, config, stack.home)
        opened = agent_bridge(stack.home, name, command=("sh",), identity=source)
        async with opened as (bridge, *_):
            entries = (Entry(entry.entry_id, message("hello")),)
            prepared = await bridge.prepared(Turn(lease.session, entries))

    texts = prepared.spec.system_prompt, prepared.spec.plain_prompt
    assert ["You are Marvin." in prompt for prompt in texts] == [has_it, has_it]


async def test_a_file_that_got_unusable_counts_as_it_was(stack: Stack, soul: Path) -> None:
    """Also for a host that doesn't have it."""
    before = await identity(stack)
    elsewhere = Home(stack.home.path / "elsewhere")

    soul.write_bytes(b"x" * 1024 * 1024)
    too_large = await identity(stack)
    soul.unlink()
    gone = await identity(stack)
    other = await identity(stack, home=elsewhere)

    assert before == too_large == gone == other


async def test_an_agent_does_not_work_without_a_file_that_never_was_usable(
    stack: Stack, soul: Path
) -> None:
    soul.unlink()
    await stack.start_worker()

    answer = await stack.ask("hello")
    outcome = await stack.outcome(await stack.append("hello"))

    assert "main can't be started" in answer
    assert f"{soul} can't be used for the agent 'main': it is not there" in str(outcome.error)


async def test_status_and_sessions_show_name_a_file_that_has_changed(
    stack: Stack, soul: Path
) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello", **DIRECT)
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    before = run(stack, "sessions", "show", str(accepted.session)).stdout

    soul.write_text("You are Trillian.")
    write(stack.home, "people/test-alice.md", "Alice likes tea.")
    after = run(stack, "sessions", "show", str(accepted.session)).stdout

    assert "has changed" not in before
    assert "SOUL.md, people/test-alice.md have changed: from the next conversation on" in after


async def test_the_identity_outlives_the_conversation_that_has_it(stack: Stack, soul: Path) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello", **DIRECT)
    await stack.outcome(accepted)
    client: Any = stack.fleet.scripts.client

    kept = [name async for name in client.scan_iter(keys.identity("*"))]

    assert len(kept) == 1
    assert await client.pttl(kept[0]) > await client.pttl(keys.session_map(accepted.session.sid))


async def test_a_first_turn_that_was_cut_off_has_the_memory_again(agent: Stack) -> None:
    """Its agent is gone, and the next one has read nothing."""
    agent.configure({**agent.agent, "memory": True})
    write(agent.home, "MEMORY.md", "Alice likes tea.")
    first = await agent.append("wait", **DIRECT)
    cut_off = drain(agent, first)
    await agent.reached(first, "output")
    cut_off.cancel()
    await asyncio.wait((cut_off,))
    await agent.fleet.scripts.client.hset(keys.state(first.session.sid), "lease_until_ms", 1)
    told = prompts(agent).count("Alice likes tea.")

    go(agent)
    await drain(agent, first)
    await answers(agent, first)
    told_again = prompts(agent).count("Alice likes tea.")
    await talk(agent, "and more", **DIRECT)

    assert (told, told_again) == (1, 2)
    assert prompts(agent).count("Alice likes tea.") == 2


async def test_a_group_is_not_told_the_memory(agent: Stack) -> None:
    """Even if only owners write there now."""
    agent.configure({**agent.agent, "memory": True})
    write(agent.home, "MEMORY.md", "Alice likes tea.")

    await talk(agent, "one", channel_id="c1", is_shared=True)
    await talk(agent, "two", channel_id="c1", chat_kind="group")

    assert "Alice likes tea." not in prompts(agent)
    await talk(agent, "three", channel_id="d-17", chat_kind="direct")
    assert prompts(agent).count("Alice likes tea.") == 1
