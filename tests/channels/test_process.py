"""Accounts as their process runs them, and as operators see them."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.support.channel import TestChannel
from tests.support.command import REMOTECLAW, run_command, start_program
from tests.support.extensions import install_example
from tests.support.platform import Platform
from tests.support.plaza import BOT_TOKEN, FEED_TOKEN, PlazaServer
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack)
    yield channel
    channel.end()


def output_of(stack: Stack, *arguments: str) -> str:
    done = run_command(*arguments, env=stack.env())
    return done.stdout + done.stderr


async def test_a_refused_account_is_reported_and_works_again_once_accepted(
    stack: Stack, channel: TestChannel
) -> None:
    channel.platform.tell(revoked="The token was revoked: ask for a new one.")
    channel.start()

    def is_shown() -> bool:
        return "revoked" in output_of(stack, "channel", "list")

    await eventually(is_shown)
    (account,) = orjson.loads(output_of(stack, "channel", "list", "--json"))
    assert account["state"] == "refused"
    assert "channel   test/default refused: The token was revoked" in output_of(stack, "status")
    assert "The token was revoked: ask for a new one." in output_of(stack, "doctor")
    assert channel.pollers() == []

    channel.platform.tell(breaks=True)
    channel.configure(allow=["al"])
    await eventually(
        lambda: "test/default waits: The platform is away." in output_of(stack, "status")
    )

    channel.platform.tell()
    channel.configure(allow=["bo"])  # a changed account restarts at once, without a pause of 30 s
    await eventually(channel.pollers)
    await eventually(lambda: "runs as the_bot" in output_of(stack, "status"))


async def test_an_account_restarts_when_its_settings_change(
    stack: Stack, channel: TestChannel, directory: Path
) -> None:
    other = Platform(directory / "other")
    channel.start()
    await eventually(channel.pollers)

    channel.configure(directory=str(directory / "other"))

    await eventually(lambda: other.did("polled"))
    polls = len(channel.pollers())
    other.say("alice", "alice", "/whoami")
    await eventually(lambda: any("an owner" in text for text in other.texts))
    assert len(channel.pollers()) == polls


async def test_status_names_an_account_that_no_process_runs(
    stack: Stack, channel: TestChannel
) -> None:
    assert "test/default stopped: No process runs it: start `remoteclaw up`" in output_of(
        stack, "status"
    )


async def test_a_process_waits_until_an_account_is_configured(
    stack: Stack, channel: TestChannel
) -> None:
    stack.configure(channels={"telegram": {"owners": ["7"]}})
    channel.start()
    await eventually(lambda: "No account on a chat platform" in channel.log_file.read_text())
    assert "[channels.telegram] has no account: set token_file or token_env." in output_of(
        stack, "channel", "list"
    )

    channel.configure()

    await eventually(channel.pollers)


async def test_channel_run_refuses_an_unknown_account(stack: Stack, channel: TestChannel) -> None:
    assert "There is no account 'tset' in the configuration" in output_of(
        stack, "channel", "run", "tset"
    )


async def test_the_cli_grants_and_removes_a_strangers_access(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    channel.platform.say("bo", "bo", "hello", sender_name="Bo\x1b[31m")
    await eventually(lambda: "Your code is" in "".join(channel.texts("bo")))
    (request,) = orjson.loads(output_of(stack, "pairing", "list", "--json"))["pairings"]
    assert request["state"] == "asks"

    approval = output_of(stack, "pairing", "approve", request["code"])

    assert "bo on test/default, may write from now on." in approval
    assert "\x1b" not in approval + output_of(stack, "pairing", "list")
    channel.platform.say("bo", "bo", "/whoami")
    await eventually(lambda: "no owner" in "".join(channel.texts("bo")))
    assert "bo on test/default may not write any more." in output_of(
        stack, "pairing", "remove", "bo"
    )
    assert "Nobody with the id 'bo'" in output_of(stack, "pairing", "remove", "bo")
    assert "There is no such code" in output_of(stack, "pairing", "approve", "ABCDEFGH")


@pytest.mark.parametrize("name", ["folder", "live-folder"])
async def test_a_package_of_others_brings_a_channel_and_the_agent_that_answers_there(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    install_example(directory / "packages")
    monkeypatch.setenv("PYTHONPATH", str(directory / "packages"))
    chats = directory / "chats"
    (chats / "ada").mkdir(parents=True)
    channels = {name: {"directory": str(chats), "owners": ["ada"]}}
    stack.configure({"runtime": "calculator"}, channels=channels)
    await stack.start_worker()

    log = stack.home.logs / "channel.log"
    process = start_program([REMOTECLAW, "channel", "run"], env=stack.env(), log=log)
    (chats / "ada" / "1-ada.in").write_text("What are 2 and 40?")

    def answers() -> str:
        return "".join(file.read_text() for file in (chats / "ada").glob("*.txt"))

    await eventually(lambda: "The sum is 42." in answers())
    found = output_of(stack, "doctor")
    added = "channel folder, channel live-folder, channel plaza, runtime calculator"
    assert re.search(rf"^ok  package +remoteclaw-folder 1.0: {added}$", found, re.MULTILINE)
    assert re.search(r"^ok  agent main +calculator .*\(configured\), works in", found, re.MULTILINE)
    process.terminate()
    assert process.wait() == 0


async def test_the_examples_platform_that_pushes_is_answered(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(directory / "packages")
    monkeypatch.setenv("PYTHONPATH", str(directory / "packages"))
    platform = Platform(directory / "plaza")
    async with PlazaServer(directory / "plaza").serving() as url:
        tokens = {"token": BOT_TOKEN, "feed_token": FEED_TOKEN}
        stack.configure(
            {"runtime": "calculator"}, channels={"plaza": {"url": url, "owners": ["ada"], **tokens}}
        )
        await stack.start_worker()
        log = stack.home.logs / "channel.log"
        process = start_program([REMOTECLAW, "channel", "run"], env=stack.env(), log=log)
        await eventually(lambda: platform.did("followed"))
        platform.say("ada", "ada", "What are 2 and 40?")

        await eventually(lambda: "The sum is 42." in "".join(platform.texts))
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0


async def test_a_channel_process_waits_for_a_platform_that_is_down_at_its_start(
    stack: Stack, channel: TestChannel
) -> None:
    channel.platform.tell(breaks=True)
    channel.start()
    await eventually(lambda: "The platform is away." in channel.log_file.read_text())

    channel.platform.tell()
    channel.platform.say("alice", "alice", "/whoami")

    await eventually(lambda: any("an owner" in text for text in channel.texts("alice")))
    assert channel.log_file.read_text().count("The platform is away.") == 1
