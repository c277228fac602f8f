"""People's reactions to an agent's messages: answers to its requests, and what it hears of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.commands.answers import NOT_YOURS
from remoteclaw.protocols import CHOICE_EMOJI, Card
from tests.support.bridges import acp_script
from tests.support.channel import TestChannel
from tests.support.requests import BODY, open_request
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.fixture
async def channel(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestChannel]:
    """A group whose agent asks for permission to run each message as a command."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    channel = TestChannel.installed(
        monkeypatch, stack, groups={"team": {}}, buttons="reactions", shows_state=False
    )
    yield channel
    channel.end()
    assert "Traceback" not in channel.log_file.read_text()


def react(channel: TestChannel, emoji: str, to: str, by: str = "alice", **more: object) -> None:
    channel.platform.say("team", by, "", reaction=emoji, reply_to=to, **more)


async def card(channel: TestChannel) -> str:
    """Wait for the message that asks for permission; return its id."""

    def found() -> list[str]:
        posts = channel.platform.chat("team")
        return [post.id for post in posts if "answer with the number" in post.text]

    (first, *_) = await eventually(found)
    return str(first)


async def test_a_reaction_to_the_card_answers_the_request_as_its_choice(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("team", "alice", "touch x")
    request = await open_request(stack)
    shown = await card(channel)

    (post,) = [post for post in channel.platform.chat("team") if post.id == shown]
    assert "1 ✅ Allow once · 2 ♾️ Allow for this conversation · 3 ❌ Deny: react" in post.text
    (offered,) = channel.platform.did("offered")
    assert offered["emoji"] == ["✅", "♾️", "❌"]
    react(channel, "😂", shown)  # no choice, as the next one
    react(channel, "❌", shown, is_removed=True)
    react(channel, "❌", shown, by="bo")
    react(channel, "❌", shown, by="bo")
    react(channel, "❌", shown, by="robo", is_bot=True)
    await eventually(lambda: NOT_YOURS in channel.texts("team"))
    assert (await open_request(stack)).id == request.id
    react(channel, "✅", shown)

    await eventually(lambda: any("Allowed once by alice" in text for text in channel.texts("team")))
    workspace = stack.home.path / "workspaces" / "main"
    await eventually((workspace / "runs").exists)
    assert channel.texts("team").count(NOT_YOURS) == 1, "bo was told more than once"


async def test_the_answer_of_a_command_in_a_group_is_shown_to_its_sender_alone(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("team", "bo", "/whoami")
    channel.platform.say("alice", "alice", "/whoami")
    await eventually(lambda: channel.texts("team") and channel.texts("alice"))

    sent = {each["chat"]: each["to_person"] for each in channel.platform.delivered}
    assert sent == {"team": "bo", "alice": None}
    known = await stack.fleet.history.read("test", "default", "team", thread=None, limit=9)
    assert [each["text"] for each in known] == ["/whoami"], "others can have the agent read it"


@pytest.mark.thorough
async def test_words_and_numbers_answer_a_request_that_reactions_can_answer(
    stack: Stack, channel: TestChannel
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("team", "alice", "touch y")
    await open_request(stack)

    channel.platform.say("team", "alice", "3", reply_to=await card(channel))

    await eventually(lambda: any("Denied by alice" in text for text in channel.texts("team")))


def test_the_emoji_of_a_card_are_those_of_its_choices() -> None:
    card = Card("abc", (("1", "Postgres"), ("12", "Other"), ("deny", "No answer")))

    assert card.emoji == (CHOICE_EMOJI["1"], CHOICE_EMOJI["deny"])
    assert card.verdict_of("1\N{COMBINING ENCLOSING KEYCAP}") == "1"  # without the selector
    assert card.verdict_of(CHOICE_EMOJI["2"]) is None
    assert card.with_choices("Which?", by_reaction=True) == (
        "Which?\n\n1️⃣ Postgres · 2 Other · 3 ❌ No answer: react, or answer with the number."
    )
