"""Channels and runtimes of other packages that can't be used: the sentence about each fault."""

import sys
from pathlib import Path
from typing import Annotated

import pytest

from remoteclaw import __version__
from remoteclaw.channels.process import create_adapter
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import AccountConfig, ChannelConfig, Config, TokenConfig
from remoteclaw.config.rights import SECRET
from remoteclaw.config.secrets import redacted
from remoteclaw.errors import ConfigError
from remoteclaw.profiles import Channel
from remoteclaw.protocols import ChannelProfile
from remoteclaw.up.doctor import examine
from tests.support.extensions import look_again, register


class Undeclared(AccountConfig, ChannelConfig):
    """Settings of which one doesn't say who may change it."""

    password: str = ""


class Declared(AccountConfig, ChannelConfig):
    """Complete settings."""

    password: Annotated[str, SECRET] = ""


def channel(settings: str = "Declared", adapter: str = "") -> Channel:
    own = f"{__name__}:{settings}"
    return Channel(
        profile=ChannelProfile(), settings=own, adapter=adapter and f"{__name__}:{adapter}"
    )


class NoAccount(ChannelConfig):
    """Settings that define no account."""


class Silent:
    """An adapter without a call."""

    def __init__(self, settings: AccountConfig) -> None:
        """Ignore the settings."""


class Signed(TokenConfig, ChannelConfig):
    """Settings of an account that signs in."""


GOOD, UNDECLARED, NO_SETTINGS = channel(), channel("Undeclared"), channel("register")
NO_ACCOUNT, SIGNED = channel("NoAccount", "Silent"), channel("Signed", "Silent")
NO_ADAPTER = channel(adapter="Missing")


class Named:
    """No runtime."""

    name = "x"


def broken() -> Named:
    """Fail to make a runtime."""
    raise OSError("two\nlines.")


#: Entry points of the channel `x` and of the runtime `x`, and the sentence about each.
FAULTS = {
    ("channel", "nowhere:X"): "The channel 'x' of a-pack 1 can't be loaded from nowhere:X: "
    "ModuleNotFoundError: No module named 'nowhere'.",
    ("channel", f"{__name__}:Named"): f"The channel 'x' can't be used: <class '{__name__}.Named'> "
    "is no Channel.",
    ("channel", f"{__name__}:UNDECLARED"): "The class of settings of the channel 'x' can't be "
    f"loaded from {__name__}:Undeclared: TypeError: password does not declare who may change it: "
    "BY_PEOPLE, BY_AGENTS or SECRET.",
    ("channel", f"{__name__}:NO_SETTINGS"): "The class of settings of the channel 'x' can't be "
    f"loaded from {__name__}:register: TypeError: it is no subclass of ChannelConfig.",
    ("channel", f"{__name__}:NO_ACCOUNT"): "The class of settings of the channel 'x' can't be "
    f"loaded from {__name__}:NoAccount: TypeError: it is no subclass of AccountConfig.",
    ("runtime", "nowhere:X"): "The runtime 'x' of a-pack 1 can't be loaded from nowhere:X: "
    "ModuleNotFoundError: No module named 'nowhere'.",
    ("runtime", f"{__name__}:Named"): f"The runtime 'x' can't be used: <class '{__name__}.Named'> "
    "is no Runtime.",
    ("runtime", f"{__name__}:broken"): "The runtime 'x' can't be loaded from "
    f"{__name__}:broken: OSError: two lines.",
    ("runtime", "remoteclaw.runtimes.demo.runtime:DemoRuntime"): "The runtime 'x' can't be used: "
    "its class has the name 'demo'.",
}


@pytest.fixture
def packages(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which packages can be installed."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(directory / "packages")])
    monkeypatch.setenv("REMOTECLAW_HOME", str(directory))
    look_again(monkeypatch)
    return directory / "packages"


def load(directory: Path, text: str) -> Config:
    """Return the configuration with this text."""
    file = Home(directory).create().config_file
    file.write_text(text)
    return load_config(file, {})


async def findings() -> list[tuple[bool, str]]:
    """Return what doctor says about packages."""
    return [(each.ok, each.text) async for each in examine() if each.subject == "package"]


@pytest.mark.parametrize(("kind", "value"), FAULTS)
async def test_what_a_package_adds_in_vain_is_explained_once_it_is_configured(
    directory: Path, packages: Path, kind: str, value: str
) -> None:
    register(packages, "a-pack", f"[remoteclaw.{kind}s]\nx = {value}\n")
    configured = "[channels.x]" if kind == "channel" else "[agents.main]\nruntime = 'x'"

    load(directory, "")  # what is not configured is not imported
    with pytest.raises(ConfigError) as error:
        load(directory, configured)

    assert str(error.value) == FAULTS[kind, value]
    load(directory, "")
    assert await findings() == [(False, FAULTS[kind, value])]


async def test_an_adapter_that_cannot_be_imported_is_found_by_doctor(packages: Path) -> None:
    register(packages, "a-pack", f"[remoteclaw.channels]\nx = {__name__}:NO_ADAPTER\n")

    ((is_ok, text),) = await findings()

    assert not is_ok
    assert text.startswith(
        f"The adapter of the channel 'x' can't be loaded from {__name__}:Missing"
    )


async def test_an_account_that_can_never_run_is_named(directory: Path, packages: Path) -> None:
    register(packages, "a-pack", f"[remoteclaw.channels]\nharbor = {__name__}:SIGNED\n")

    load(directory, "[channels.harbor]\nowners = ['7']\n")

    assert [each.text async for each in examine() if each.subject == "channel harbor"] == [
        "[channels.harbor] has no account: set token_file or token_env."
    ]
    with pytest.raises(
        ConfigError,
        match="The adapter of the channel 'harbor' lacks aclose, connect, fetch, key_window_s, "
        "parts, poll, send, set_commands",
    ):
        create_adapter("harbor", Signed(token="t"))


async def test_packages_that_exclude_each_other_or_this_version_are_named(packages: Path) -> None:
    register(packages, "a-pack", f"[remoteclaw.channels]\nx = {__name__}:GOOD\n")
    register(packages, "b-pack", f"[remoteclaw.channels]\nx = {__name__}:GOOD\n")
    old = f"[remoteclaw.channels]\nold = {__name__}:GOOD\n"
    register(packages, "old-pack", old, "remoteclaw[push]<0.0.1", "other>9; extra == 'x'")
    register(packages, "proud-pack", f"[remoteclaw.runtimes]\nclaude = {__name__}:Named\n")
    fits = f"[remoteclaw.channels]\nfine = {__name__}:GOOD\n"
    other = "remoteclaw>9; python_version < '3'"
    register(packages, "fine-pack", fits, f"RemoteClaw~={__version__}", other, "no requirement!")

    ambiguous = (
        "The channel 'x' of a-pack 1 and b-pack 1 is ambiguous: uninstall one of these packages."
    )
    assert await findings() == [
        (False, ambiguous),
        (False, ambiguous),
        (True, "fine-pack 1: channel fine"),
        (
            False,
            f"The channel 'old' of old-pack 1 needs remoteclaw<0.0.1, and this is {__version__}: "
            "install versions that fit.",
        ),
        (
            False,
            "The runtime 'claude' of proud-pack 1 is never used, because RemoteClaw has one of "
            "that name: uninstall the package.",
        ),
    ]


def test_the_settings_of_a_packages_channel_are_checked_as_ours_are(
    directory: Path, packages: Path
) -> None:
    register(packages, "a-pack", f"[remoteclaw.channels]\nx = {__name__}:GOOD\n")

    config = load(directory, "[channels.x]\npassword = 'tell nobody'\n")

    assert redacted(config)["channels"]["x"]["password"] == "***"
    with pytest.raises(ConfigError, match=r"\[channels.x\] has no key 'pasword'; did you mean"):
        load(directory, "[channels.x]\npasword = 'y'\n")
    with pytest.raises(ConfigError, match="password is not valid"):
        load(directory, "[channels.x]\npassword = 7\n")
    with pytest.raises(ConfigError, match=r"There is no channel 'wehook'; did you mean 'webhook'"):
        load(directory, "[channels.wehook]\ntoken = 'y'\n")


def test_an_unknown_runtime_is_refused_with_the_names_of_all(
    directory: Path, packages: Path
) -> None:
    register(packages, "a-pack", "[remoteclaw.runtimes]\nother = nowhere:X\n")

    with pytest.raises(ConfigError) as error:
        load(directory, "[agents.main]\nruntime = 'x'\n")

    known = "claude, codex, gemini, opencode, acp, demo, other"
    assert f"[agents.main] runtime is not valid: 'x' is none of {known}." in str(error.value)
