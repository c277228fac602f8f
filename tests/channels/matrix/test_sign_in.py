"""`remoteclaw channel add matrix`, in a terminal, and the first words with the account."""

import asyncio
import contextlib
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.matrix.api import Homeserver as Api
from remoteclaw.channels.process import Channels
from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet.account_states import configured_accounts
from tests.support.command import REMOTECLAW, run_command
from tests.support.matrix import Faults, Homeserver, Login, Person, Second
from tests.support.stack import Stack
from tests.support.terminal import Terminal
from tests.support.waiting import eventually


@contextlib.contextmanager
def adding(stack: Stack, *options: str) -> Iterator[Terminal]:
    """Run `channel add matrix`, and check that it shows no traceback."""
    command = (REMOTECLAW, "channel", "add", "matrix", *options)
    with Terminal.running(*command, env=stack.env(), columns=160) as terminal:
        yield terminal
        assert "Traceback" not in terminal.shown()


async def answered(terminal: Terminal, question: str, answer: str) -> None:
    """Wait for a question behind the answers so far, and answer it."""
    await asyncio.to_thread(terminal.see_match, question + r"[^\n]*:\s*\Z")
    terminal.type(f"{answer}\r")


@contextlib.asynccontextmanager
async def running(stack: Stack) -> AsyncIterator[None]:
    """Run the configured accounts."""
    config = CurrentConfig(stack.home, load_config(stack.home.config_file))
    channels = asyncio.create_task(Channels(stack.fleet, stack.home, config).run())
    yield
    channels.cancel()
    await asyncio.wait((channels,))


def section(stack: Stack) -> Any:
    return tomllib.loads(stack.home.config_file.read_text())["channels"].get("matrix")


async def reports(stack: Stack, problem: str) -> bool:
    """Whether the account has a problem."""
    (account,) = await configured_accounts(stack.fleet, load_config(stack.home.config_file))
    return problem in account.problem


async def is_in_state(stack: Stack, state: str) -> bool:
    """Whether the account is in a state, without a problem if it runs."""
    (account,) = await configured_accounts(stack.fleet, load_config(stack.home.config_file))
    return account.state == state and bool(account.problem) == (state != "runs")


def token_of(stack: Stack) -> str:
    return Path(section(stack)["token_file"]).read_text().strip()


async def log_in(terminal: Terminal, bot: Login, *, url: str = "") -> None:
    if url:
        await answered(terminal, "Homeserver, such as matrix.org", url)
        await answered(terminal, "User, such as bot", bot.user)
    await answered(terminal, "Password of", bot.password)


async def test_an_account_is_added_with_its_owner_and_answers_in_an_encrypted_room(
    stack: Stack, homeserver: Homeserver, second: Second
) -> None:
    """Her client gives keys to signed devices only. She writes before the account has joined."""
    bot = await homeserver.register("bot")
    async with Person.registered(homeserver, "ann") as ann:
        await second.open(homeserver.url, ann.login, signed_only=True)
        with adding(stack) as terminal:
            await answered(terminal, "Homeserver", "http://127.0.0.1:1")
            await asyncio.to_thread(terminal.see_words, "There is no Matrix homeserver at")
            await answered(terminal, "Homeserver", homeserver.url)
            await answered(terminal, "User", bot.user.split(":")[0][1:])
            await answered(terminal, "Password", "wrong")
            await asyncio.to_thread(terminal.see, "The login is wrong.")
            await answered(terminal, "User", bot.user)
            await answered(terminal, "Password", bot.password)
            await answered(terminal, "Make a recovery key", "y")
            await asyncio.to_thread(terminal.see, f"Now invite {bot.user} to a chat")
            room = await second.create(ann.id, bot.user)
            await second.say(ann.id, room, "hello")
            await answered(terminal, f"{ann.id} has invited it. Is that you", "y")
            shown = await asyncio.to_thread(terminal.see, "answers.")
        assert bot.password not in shown
        assert section(stack)["owners"] == [ann.id]
        everything = "".join(
            path.read_text(errors="replace")
            for path in stack.home.path.rglob("*")
            if path.is_file()
        )
        assert bot.password not in everything
        recovery = shown.partition("Recovery key: ")[2].splitlines()[0].strip()
        assert len(recovery.split()) == 12
        assert recovery not in everything
        kept = stack.home.kept_state("matrix", "default")
        assert kept.stat().st_mode & 0o777 == 0o600

        # The account's process takes the keys over, accepts the invitation and answers.
        await stack.start_worker()
        async with running(stack):

            async def is_answered() -> bool:
                texts = await second.texts(ann.id, room)
                return any("demo agent" in text for who, text in texts if who == bot.user)

            await eventually(is_answered)
        assert not kept.exists()
        about = {"user": ann.id, "of": bot.user, "device": section(stack)["device"]}
        assert await second.do("isSigned", **about)


async def test_an_interrupted_command_goes_on_with_the_same_device_and_identity(
    stack: Stack, homeserver: Homeserver
) -> None:
    """Otherwise the identity, which the homeserver has already, would be lost."""
    bot = await homeserver.register("bot")
    with adding(stack) as terminal:
        await log_in(terminal, bot, url=homeserver.url)
        await asyncio.to_thread(terminal.see, "Make a recovery key")  # and it is killed
    with adding(stack, "--owner", "@ann:localhost") as terminal:
        await log_in(terminal, bot, url=homeserver.url)
        await answered(terminal, "Make a recovery key", "n")  # so its device is signed
        await asyncio.to_thread(terminal.see, "answers.")

    api = Api(homeserver.url, bot.token)
    known = await api.get("devices")
    await api.aclose()
    devices = {each["device_id"] for each in known["devices"]}
    assert devices == {bot.device, section(stack)["device"]}


@pytest.mark.thorough
async def test_an_account_whose_login_has_ended_logs_in_again_with_the_same_device(
    stack: Stack, homeserver: Homeserver
) -> None:
    bot = await homeserver.register("bot")
    with adding(stack, "--owner", "@ann:localhost") as terminal:
        await log_in(terminal, bot, url=homeserver.url)
        await answered(terminal, "Make a recovery key", "n")
        await asyncio.to_thread(terminal.see, "answers.")
    before, token = section(stack), token_of(stack)
    async with running(stack):
        await eventually(lambda: is_in_state(stack, "runs"))
        with adding(stack) as terminal:
            await answered(terminal, "needs a new device", "n")
            await asyncio.to_thread(terminal.see, "is logged in and configured already")
        api = Api(homeserver.url, token)
        await api.post("logout", body={})
        await api.aclose()
        await eventually(lambda: is_in_state(stack, "refused"))
        assert await reports(stack, "run `remoteclaw channel add matrix` again")

    with adding(stack) as terminal:
        await asyncio.to_thread(terminal.see_words, "doesn't know the token")
        await log_in(terminal, bot)
        await asyncio.to_thread(terminal.see, "answers.")

    assert section(stack) == before
    assert token_of(stack) != token
    assert not stack.home.kept_state("matrix", "default").exists(), "its keys stay"
    async with running(stack):
        await eventually(lambda: is_in_state(stack, "runs"))


async def test_bad_logins_are_explained_in_a_sentence(stack: Stack, homeserver: Homeserver) -> None:
    bot = await homeserver.register("bot")
    (file := stack.home.path / "token").write_text(bot.token)
    (wrong := stack.home.path / "wrong").write_text("syt_wrong_token")

    def added(url: str, *options: str) -> str:
        arguments = ("channel", "add", "matrix", "--api-url", url, "--no-input", *options)
        return run_command(*arguments, env=stack.env()).stderr.strip()

    async with Faults.before(homeserver.url) as faults:
        given = ("--token-file", str(file), "--owner", "@ann:localhost")
        assert "There is no Matrix homeserver at" in await asyncio.to_thread(
            added, faults.url + "/x"
        )
        missing = await asyncio.to_thread(added, faults.url)
        assert "Say where the token is: --token-file FILE" in missing
        unknown = await asyncio.to_thread(added, faults.url, "--token-file", str(wrong))
        assert unknown.endswith("doesn't know the token: it is revoked, or another homeserver's.")
        assert "syt_wrong_token" not in unknown
        faults.refuse("POST .*/login", 429, after_s=30)
        with adding(stack, "--api-url", faults.url) as terminal:
            await answered(terminal, "User", bot.user)
            await answered(terminal, "Password", bot.password)
            await asyncio.to_thread(terminal.see, "allows no login for 30 s")
        faults.end()
        assert "matrix" not in stack.home.config_file.read_text()
        assert await asyncio.to_thread(added, faults.url, *given) == ""
    assert section(stack)["token_file"] == str(file)
    assert section(stack)["device"] == bot.device


@pytest.mark.thorough
async def test_a_running_account_takes_over_the_identity_that_another_client_has_made(
    stack: Stack, homeserver: Homeserver, second: Second
) -> None:
    bot = await homeserver.register("bot")
    await second.open(homeserver.url, bot)
    key = await second.do("makeRecoveryKey", user=bot.user)
    with adding(stack, "--owner", "@ann:localhost") as terminal:
        await log_in(terminal, bot, url=homeserver.url)
        await asyncio.to_thread(terminal.see_words, "the account's identity was made in another")
        await answered(terminal, "Recovery key", "")
        await asyncio.to_thread(terminal.see, "answers.")
    async with running(stack):
        await eventually(lambda: reports(stack, "--recovery-key"))

        with adding(stack, "--recovery-key") as terminal:
            await answered(terminal, "Recovery key", "EsTc wron gkey")
            await asyncio.to_thread(terminal.see_words, "not the account's recovery key")
            await answered(terminal, "Recovery key", key)
            await asyncio.to_thread(terminal.see, "answers.")
        assert key not in terminal.shown()

        await eventually(lambda: is_in_state(stack, "runs"))
    about = {"user": bot.user, "of": bot.user, "device": section(stack)["device"]}
    await eventually(lambda: second.do("isSigned", **about))
