"""Settings that a channel defines, and its accounts."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from remoteclaw.config.chats import ChatFacts, agent_of
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import ChannelConfig, Config, Secret, TokenConfig
from remoteclaw.config.rights import BY_PEOPLE, differences
from remoteclaw.config.secrets import redacted
from remoteclaw.errors import ConfigError
from remoteclaw.messages import ChatPlace
from remoteclaw.profiles import CHANNELS, Channel
from remoteclaw.protocols import ChannelProfile
from tests.support.rows import for_each


class ChatAccount(TokenConfig):
    """An account of the channel `chat`, which exists only in this file."""

    api_url: Annotated[str, BY_PEOPLE] = "https://chat.example"


class ChatConfig(ChannelConfig, ChatAccount):
    """The settings of the channel `chat`."""

    accounts: Annotated[dict[str, ChatAccount], BY_PEOPLE] = Field(default_factory=dict)


CHAT = Channel(
    profile=ChannelProfile(id_form="[0-9]+", container_form="guild:[0-9]+"),
    settings=f"{__name__}:ChatConfig",
)


@pytest.fixture(autouse=True)
def chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANNELS, "chat", CHAT)


def load(home: Home, text: str) -> Config:
    home.config_file.write_text(text)
    return load_config(home.config_file, {})


def test_a_channel_defines_the_model_of_its_settings(home: Home) -> None:
    config = load(
        home,
        "[channels.chat]\ntoken = 'x'\nowners = ['1']\nchunk_limit = 99\n"
        "[channels.chat.accounts.work]\ntoken_env = 'T'\napi_url = 'https://other.example'\n",
    )

    assert isinstance(config.channel("chat"), ChatConfig)
    assert config.channel("chat").chunk_limit == 99
    assert [*config.accounts()] == [("chat", "default"), ("chat", "work")]
    assert redacted(config)["channels"]["chat"]["token"] == "***"


def test_a_channel_without_a_token_has_only_its_named_accounts(home: Home) -> None:
    config = load(home, "[channels.chat.accounts.work]\ntoken = 'x'\n[channels.web]\n")

    assert [*config.accounts()] == [("chat", "work")]


@for_each(
    ("text", "problem"),
    [
        (
            "[channels.chat]\ntokens = 'x'",
            "[channels.chat] has no key 'tokens'; did you mean 'token'?",
        ),
        ("[channels.chat.accounts.a]\ntoken_fil = 'x'", "did you mean 'token_file'?"),
        ("[channels.test]\ntoken = 'x'", "[channels.test] has no key 'token'"),
        ("[channels.chat]\ntoken = 'x'\nallow = ['*']", "has '*': name each person"),
        ("[channels.chat]\ntoken = 'x'\nallow = ['ada']", "chat has 'ada', which is no id there"),
        ("[channels.chat]\ntoken = 'x'\ntoken_env = 'Y'", "more than one of token, token_env and"),
        ("[channels.chat.accounts.default]\ntoken = 'x'", "accounts.default, which is the account"),
        ("[channels.chat]\ntoken = 'x'\nagent = 'max'", "has the agent 'max': there are 'main'"),
        ("[channels.chat.groups.1]\nagent = 'max'", "has the agent 'max': there are 'main'"),
        ("[channels.chat.groups.1]\nrequire_mention = 'no'", "is 'no': write true, false or"),
        ("[channels.chat.groups.'guild:1'.senders.'guild:2']", "'guild:2', which is no id there"),
        ("[channels.chat.groups.'server:1']", "'server:1', which is no group there"),
        ("[channels.chat]\ntoken = 7", "[channels.chat] token is not valid"),
    ],
)
def test_a_mistake_in_channel_settings_is_reported_in_one_line(
    home: Home, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(home, text)

    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_differences_in_channel_settings_use_the_channel_s_model() -> None:
    (place,) = differences(
        Config,
        {"channels": {"chat": {"token": "x", "accounts": {"a": {"token": "y"}}}}},
        {"channels": {"chat": {"token": "x", "accounts": {"a": {"token": "z"}}}}},
    )

    assert place.name == "channels.chat.accounts.a.token"
    assert place.declaration is not None
    assert place.declaration.secret
    assert not place.declaration.agents_may


def test_a_token_is_read_from_the_setting_a_variable_or_a_file(directory: Path) -> None:
    file = directory / "token"
    file.write_text("from-file\n")

    assert TokenConfig(token="here").read_secret("token", {}) == "here"
    assert TokenConfig(token_env="T").read_secret("token", {"T": " from-env "}) == "from-env"
    assert TokenConfig(token_file=str(file)).read_secret("token", {}) == "from-file"


@pytest.mark.parametrize(
    ("account", "problem"),
    [
        (TokenConfig(token_env="T"), "There is no token: $T is empty."),
        (TokenConfig(token_file="/nowhere/t"), "/nowhere/t can't be read: No such file"),
        (
            TokenConfig(token="two words"),
            "token doesn't contain a token: a token is printable ASCII, without spaces.",
        ),
    ],
)
def test_an_unusable_token_is_reported_without_showing_it(
    account: TokenConfig, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        account.read_secret("token", {})

    assert problem in str(error.value)
    assert "two words" not in str(error.value)


@for_each("name", ["cli", "console"])
@for_each("key", ["", "owners = ['ada']", "token = 1", "[channels.NAME.accounts.a]\nallow = []"])
def test_channels_without_settings_are_refused_with_what_to_do(
    home: Home, name: str, key: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(home, f"[channels.{name}]\n{key.replace('NAME', name)}\n")

    problem = f"{home.config_file}: [channels.{name}] has no settings: your chat in a terminal"
    assert str(refusal.value).startswith(problem)
    assert "Move what you need to [channels.web]" in str(refusal.value)


def test_such_a_channel_in_a_variable_is_refused_by_the_variables_name(home: Home) -> None:
    variable = "REMOTECLAW__CHANNELS__CONSOLE__INSTRUCTIONS"

    with pytest.raises(ConfigError, match=f"^{variable}: \\[channels.console\\] has no settings"):
        load_config(home.config_file, {variable: "Be brief."})


@for_each("name", ["", " ", "Ada Lovelace", "a/b", "\x1b", "x" * 65])
def test_the_persons_name_must_be_one_that_owners_can_list(home: Home, name: str) -> None:
    with pytest.raises(ConfigError, match=r"\[channels.web\] person is not valid: has .*: write"):
        load(home, f"[channels.web]\nperson = {json.dumps(name)}\n")


@for_each(
    ("sender", "is_admitted"),
    [("admin.ada", True), ("user.ada", False), ("admin.bob", False), ("user.bob", True)],
)
def test_the_person_of_the_token_file_is_admitted_and_nobody_else(
    home: Home, sender: str, is_admitted: bool
) -> None:
    config = load(
        home, "[channels.web]\nperson = 'ada'\nowners = ['admin.x']\nallow = ['user.bob']"
    )
    account = config.account("web", "default")

    assert account is not None
    assert account.admits(sender) is is_admitted


def test_a_class_that_lacks_the_fields_of_a_secret_is_refused() -> None:
    with pytest.raises(TypeError, match="lacks the fields key, key_env, key_file"):
        type("Lacking", (TokenConfig,), {"secrets": {"key": Secret()}})


OTHER, WIDE, NEAR, OWN = "groups.'*'", "groups.'guild:1'", "groups.'guild:2'", "groups.5"
WITHIN = ("guild:2", "guild:1")


@for_each(
    ("tables", "facts", "agent"),
    [
        ([OTHER, WIDE, NEAR, OWN], ChatFacts("paired", WITHIN), OWN),
        ([OTHER, WIDE, NEAR], ChatFacts("paired", WITHIN), "paired"),
        ([OTHER, WIDE, NEAR], ChatFacts(None, WITHIN), NEAR),
        ([OTHER, WIDE], ChatFacts(None, WITHIN), WIDE),
        ([OTHER, WIDE], ChatFacts(), OTHER),
        ([WIDE], ChatFacts(), "account"),
        ([WIDE], ChatFacts("gone"), "gone"),
    ],
)
def test_the_narrowest_source_that_names_an_agent_decides(
    home: Home, tables: list[str], facts: ChatFacts, agent: str
) -> None:
    names = {OTHER: "other", WIDE: "wide", NEAR: "near", OWN: "own"}
    agents = ("main", "account", *names.values())
    text = "".join(f"[agents.{name}]\n" for name in agents)
    text += "[channels.chat]\ntoken = 'x'\nagent = 'account'\n"
    text += "".join(
        f"[channels.chat.{table}]\n" + (f"agent = '{names[table]}'\n" if table in tables else "")
        for table in names
    )
    config, place = load(home, text), ChatPlace("chat", "default", "5")

    assert agent_of(config, place, facts, is_group=True) == names.get(agent, agent)
    assert agent_of(config, place, facts, is_group=False) == "account", "it is no group"
