"""`remoteclaw channel add telegram`, and the first messages to the bot."""

import asyncio
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from click.testing import CliRunner

from remoteclaw.cli import main
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig, Secret, SecretsConfig, TokenConfig
from remoteclaw.config.rights import BY_PEOPLE, SECRET
from remoteclaw.errors import ConfigError
from remoteclaw.host.packages import is_import_error
from remoteclaw.profiles import CHANNELS, Channel
from remoteclaw.protocols import AdapterState, ChannelProfile, Identity, PlatformAdapter
from tests.support.command import REMOTECLAW, Process, run_command, start_program
from tests.support.stack import Stack
from tests.support.telegram import Telegram, TelegramBot
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
def started(stack: Stack) -> Iterator[Callable[..., Process]]:
    processes = []

    def start(*arguments: str) -> Process:
        log = stack.home.logs / "channel.log"
        process = start_program([REMOTECLAW, *arguments], env=stack.env(), log=log)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def add(stack: Stack, *arguments: str, typed: str = "") -> str:
    done = run_command("channel", "add", *arguments, env=stack.env(), stdin=typed.encode())
    return done.stdout + done.stderr


def hides_input(terminal: Terminal) -> None:
    """Wait until the terminal shows no input any more."""
    until = time.monotonic() + HANG_S
    while terminal.is_sane:
        assert time.monotonic() < until


def configured(stack: Stack) -> Any:
    return tomllib.loads(stack.home.config_file.read_text())["channels"].get("telegram")


async def test_a_bot_is_added_with_its_owner_and_answers(
    stack: Stack, bot: TelegramBot, started: Callable[..., Process]
) -> None:
    bot.say("buy cheap watches", chat=8)
    bot.say("hello", chat=7)

    # The token is checked. Each person who has written is offered as owner; the first isn't it.
    output = add(stack, "telegram", "--api-url", bot.api_url, typed=f"{bot.token}\nn\ny\n")

    assert "Write /newbot to @BotFather" in output
    assert "Warning" not in output
    assert f"The token is that of @{bot.username}." in output
    assert "id 7 has written. Is that you?" in output
    assert bot.token not in output + stack.home.config_file.read_text()
    assert configured(stack)["owners"] == ["7"]
    token_file = Path(configured(stack)["token_file"])
    assert token_file.stat().st_mode & 0o777 == 0o600

    # Once it runs, the earlier messages are answered, and the stranger gets a code.
    await stack.start_worker()
    started("channel", "run")
    await eventually(lambda: any("RemoteClaw's demo agent" in text for text in bot.texts(7)))
    (pairing_text,) = await eventually(lambda: bot.texts(8))
    code, *_ = re.findall(r"[A-Z]{8}", pairing_text)
    bot.say(f"/pair {code}", chat=7)
    await eventually(lambda: any("You have access now" in text for text in bot.texts(8)))
    bot.say("hello", chat=8)
    await eventually(lambda: any("RemoteClaw's demo agent" in text for text in bot.texts(8)))
    assert {"command": "status", "description": "Show what the session does now."} in bot.commands()
    assert bot.token not in (stack.home.logs / "channel.log").read_text()


async def test_channel_add_needs_no_input_if_options_give_everything(
    stack: Stack, bot: TelegramBot
) -> None:
    file = stack.home.path / "my-token"
    file.write_text(bot.token)
    options = ("--api-url", bot.api_url, "--token-file", os.path.relpath(file), "--no-input")

    output = add(stack, "telegram", *options, "--owner", "7", "--account", "work")

    assert "telegram/work is in" in output
    assert configured(stack)["accounts"]["work"]["token_file"].startswith("/")
    assert configured(stack)["owners"] == ["7"]
    assert "is in" in add(stack, "telegram", *options, "--account", "work")


async def test_a_token_of_the_environment_is_named_where_up_needs_it(
    stack: Stack, bot: TelegramBot
) -> None:
    options = ("--api-url", bot.api_url, "--token-env", "TT", "--owner", "7", "--no-input")
    done = run_command("channel", "add", "telegram", *options, env=stack.env() | {"TT": bot.token})

    assert "Start `remoteclaw up`, with TT in its environment: then" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("signal",),
            "No account of 'signal' can be added: `remoteclaw channel add` supports matrix, "
            "slack, telegram.",
        ),
        (("webhook",), "can't add an account of 'webhook': write [channels.webhook] in "),
        (("telegram", "--no-input"), "Say where the token is: --token-file FILE, or --token-env"),
        (("telegram", "--no-input", "--token-env", "NOPE"), "There is no token: $NOPE is empty."),
    ],
)
async def test_channel_add_names_what_is_missing(
    stack: Stack, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in add(stack, *arguments)
    assert configured(stack) is None


async def test_a_token_that_is_refused_leaves_nothing_behind(
    stack: Stack, telegram: Telegram
) -> None:
    wrong = f"123:{'x' * 35}"
    output = add(stack, "telegram", "--api-url", telegram.url, typed=f"{wrong}\n")

    assert "token" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert configured(stack) is None
    assert not (stack.home.path / "tokens").exists()


async def test_of_two_that_add_an_account_at_once_one_succeeds_and_keeps_its_token(
    stack: Stack, bot: TelegramBot
) -> None:
    command = (REMOTECLAW, "channel", "add", "telegram", "--api-url", bot.api_url)
    with Terminal.running(*command, env=stack.env()) as late:
        await asyncio.to_thread(hides_input, late)
        late.type(f"{bot.token}\r")
        await asyncio.to_thread(late.see, "Now write a message")
        added = add(stack, *command[3:], "--owner", "7", typed=f"{bot.token}\n")
        bot.say("hello", chat=8)
        await asyncio.to_thread(late.see, "Is that you?")
        late.type("y\r")
        await asyncio.to_thread(late.see, "already: change it there")

    assert "telegram/default is in" in added
    assert configured(stack)["owners"] == ["7"]
    assert Path(configured(stack)["token_file"]).read_text() == f"{bot.token}\n"


async def test_an_account_whose_token_file_is_lost_gets_a_new_token(
    stack: Stack, bot: TelegramBot
) -> None:
    options = ("telegram", "--api-url", bot.api_url, "--owner", "7")
    add(stack, *options, typed=f"{bot.token}\n")
    (token_file := Path(configured(stack)["token_file"])).unlink()

    output = add(stack, "telegram", typed=f"{bot.token}\n")  # the owner and the address are known

    assert f"{token_file} can't be read: No such file or directory. Write the token into" in output
    assert token_file.read_text() == f"{bot.token}\n"
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert configured(stack)["owners"] == ["7"]
    assert "already: change it there" in add(stack, *options, typed=f"{bot.token}\n")


class DoorAccount(SecretsConfig):
    """An account with two secrets, which exists only in this file."""

    secrets: ClassVar[Mapping[str, Secret]] = {
        "bot_token": Secret(form="xoxb-.+", kind="a bot token: one looks like xoxb-…"),
        "app_token": Secret(
            form="xapp-.+",
            kind="an app token: one looks like xapp-…",
            how="Basic Information, App-Level Tokens, gives the app's token.",
        ),
    }

    bot_token: Annotated[str | None, SECRET] = None
    bot_token_env: Annotated[str | None, BY_PEOPLE] = None
    bot_token_file: Annotated[str | None, BY_PEOPLE] = None
    app_token: Annotated[str | None, SECRET] = None
    app_token_env: Annotated[str | None, BY_PEOPLE] = None
    app_token_file: Annotated[str | None, BY_PEOPLE] = None


class DoorConfig(DoorAccount, ChannelConfig):
    """The settings of the channel `door`."""


class Door(PlatformAdapter):
    """The platform's side: knows the secrets that it was given last, and resumes a session."""

    used: ClassVar[list[str]] = []

    def __init__(self, settings: DoorAccount) -> None:
        self.used[:] = [settings.read_secret(name) for name in settings.secrets]

    async def use_state(self, state: AdapterState) -> None:
        self._state = state

    async def connect(self) -> Identity:
        await self._state.write("session", b"1", is_secret=True)
        assert await self._state.read("session") == b"1"
        await self._state.write("session", None)
        assert await self._state.read("session") is None
        return Identity("@door")

    async def aclose(self) -> None:
        """Do nothing."""


def test_an_account_with_several_secrets_is_asked_for_each_and_only_for_lost_ones(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, settings = f"{__name__}:Door", f"{__name__}:DoorConfig"
    door = Channel(profile=ChannelProfile(), settings=settings, adapter=adapter, sign_up="Ask us.")
    monkeypatch.setitem(CHANNELS, "door", door)
    monkeypatch.setenv("REMOTECLAW_HOME", str(home.path))

    def added(*options: str, typed: str = "") -> str:
        arguments = ("channel", "add", "door", "--owner", "7", *options)
        return CliRunner().invoke(main, arguments, input=typed).output

    assert "This is not an app token" in added(typed="xoxb-1\nxoxb-1\n")
    assert not home.config_file.exists(), "nothing is written before all secrets are known"
    output = added(typed="xoxb-1\nxapp-1\n")
    assert output.index("Bot token") < output.index("gives the app's token") < output.index("App t")
    assert "The tokens are those of @door." in output
    assert "xoxb-1" not in home.config_file.read_text()
    written = tomllib.loads(home.config_file.read_text())["channels"]["door"]
    files = {name: Path(written[f"{name}_file"]) for name in DoorAccount.secrets}
    assert {name: file.read_text() for name, file in files.items()} == {
        "bot_token": "xoxb-1\n",
        "app_token": "xapp-1\n",
    }
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    files["app_token"].unlink()
    assert "door/default gets a new app token" in added(typed="xapp-2\n")
    assert Door.used == ["xoxb-1", "xapp-2"]
    other = ("--account", "b", "--no-input", "--token-file")
    half = added(*other, f"bot_token={files['bot_token']}")
    assert "Say where the app token is: --token-file app_token=FILE, or --token-env" in half
    wrong = added(*other, "bot=x")
    assert "--token-file bot=x: write NAME=PLACE, with the NAME bot_token or app_token." in wrong


@pytest.mark.parametrize("where", ["typed", "file"])
async def test_a_text_without_the_form_of_a_token_is_refused_before_the_platform_is_asked(
    stack: Stack, where: str
) -> None:
    (file := stack.home.path / "token").write_text("@my_bot\n")
    given = () if where == "typed" else ("--token-file", str(file), "--owner", "7")

    output = add(stack, "telegram", "--api-url", "http://127.0.0.1:1", *given, typed="@my_bot\n")

    last = output.splitlines()[-1]
    assert "a bot's token: one looks like 123456789:AAHd…, and @BotFather shows it." in last
    assert configured(stack) is None


async def test_a_token_that_is_pasted_before_the_prompt_counts_and_is_not_shown(
    stack: Stack, bot: TelegramBot
) -> None:
    """After a text that is no token, the prompt is repeated."""
    command = (REMOTECLAW, "channel", "add", "telegram", "--api-url", bot.api_url)
    with Terminal.running(*command, "--owner", "7", env=stack.env()) as terminal:
        await asyncio.to_thread(hides_input, terminal)
        terminal.type(f"@my_bot\r{bot.token}\r")
        shown = await asyncio.to_thread(terminal.see, "is in")
        assert terminal.is_sane

    assert "This is not a bot's token" in shown
    assert bot.token not in shown
    assert "my_bot" not in shown.replace("@BotFather", "")
    assert configured(stack)["owners"] == ["7"]


async def test_the_first_ctrl_c_at_the_prompt_ends_it(stack: Stack, bot: TelegramBot) -> None:
    command = (REMOTECLAW, "channel", "add", "telegram", "--api-url", bot.api_url)
    with Terminal.running(*command, env=stack.env()) as terminal:
        await asyncio.to_thread(terminal.see, "Token (it is not shown)")
        terminal.type("\x03")

        assert await asyncio.to_thread(terminal.leave) != 0
        assert terminal.is_sane
        assert "Traceback" not in terminal.shown()


async def test_a_missing_library_is_reported_with_the_command_that_installs_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    from remoteclaw.channels.process import LibraryMissing, create_adapter
    from remoteclaw.channels.telegram.settings import TelegramAccount

    known = CHANNELS["telegram"]
    lost = Channel(
        profile=known.profile, adapter="remoteclaw.channels.telegram.lost:It", extra="telegram"
    )
    monkeypatch.setitem(CHANNELS, "telegram", lost)

    with pytest.raises(LibraryMissing) as error:
        create_adapter("telegram", TelegramAccount(token="1:x"))

    assert "-m pip install --require-hashes -r " in str(error.value)
    assert is_import_error(error.value)
    named = str(error.value).rpartition("-r ")[2].rstrip("`.")
    assert "python-telegram-bot" in Path(named).read_text()


def test_a_lost_token_is_not_explained_by_packages_that_were_installed() -> None:
    with pytest.raises(ConfigError) as error:
        TokenConfig(token_file="/nowhere/t").read_secret("token")

    assert str(error.value).endswith("Write the token into it, with mode 600.")
    assert not is_import_error(error.value)
