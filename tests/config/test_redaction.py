"""Secrets in the configuration are hidden, also those of settings that are added later."""

import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import orjson
import pytest
from pydantic import BaseModel, SecretStr

from remoteclaw.config.model import ChannelConfig, Config
from remoteclaw.config.model.channels import SecretsConfig
from remoteclaw.config.rights import BY_PEOPLE, declared, fields
from remoteclaw.config.secrets import HIDDEN, part, redacted
from remoteclaw.profiles import CHANNELS

#: The text fields that contain no secrets. All others must be hidden. Add a new field of the
#: configuration here only if its text can be shown to anybody.
SHOWN = {
    *(
        "AgentConfig.identity",
        "AgentConfig.runtime",
        "AgentConfig.allow",
        "AgentConfig.env_pass",
        "AgentConfig.fallbacks",
        "AgentConfig.model",
        "AgentConfig.task_model",
        "AgentConfig.timezone",
        "AgentConfig.workspace",
        "AgentConfig.sends_to",
        "AgentConfig.spawns",
    ),
    *("Budget.of", "PersonConfig.ids", "PersonConfig.language", "FleetConfig.timezone"),
    *("FleetConfig.host_name", "AgentConfig.runs_on"),
    *("Config.projects", "McpServerSettings.command", "RedisConfig.maxmemory"),
    *("ResetConfig.daily", "ResetConfig.timezone"),
    *("GatewayConfig.host", "GatewayConfig.hosts", "GatewayConfig.origins"),
    *("GroupConfig.agent", "JwtConfig.secret_file", "JwtConfig.agents"),
    *("RequestsConfig.chat", "RequestsConfig.thread"),
    *("ToolsConfig.allow", "ToolsConfig.deny", "ToolsConfig.also_allow", "ToolsConfig.approve"),
    *("ChannelConfig.instructions", "ChannelConfig.formatting", "ChannelConfig.owners"),
    *("ChannelConfig.authorized_senders", "ChannelConfig.attachment_types"),
    *("HooksConfig.before_runtime_spawn", "HooksConfig.session_resumed"),
    *("HooksConfig.after_runtime_exit", "HooksConfig.agent_end"),
}
#: The text fields that are hidden.
SECRET = {
    *("AgentConfig.command", "AgentConfig.env", "ChannelConfig.transcribe", "RedisConfig.url"),
    *("McpServerSettings.args", "McpServerSettings.env"),
    *("McpServerSettings.url", "McpServerSettings.headers"),
}


class Canaries:
    """Fills a configuration: every text is a unique canary, so that a search can find it."""

    def __init__(self) -> None:
        self.hidden: dict[str, str] = {}
        self.shown: dict[str, str] = {}

    def model(self, kind: type[BaseModel]) -> BaseModel:
        """Return a section with a value in every field. It need not be valid."""
        fields = {
            name: self.value(field.annotation, f"{kind.__name__}.{name}")
            for name, field in kind.model_fields.items()
        }
        section = kind.__new__(kind)  # without validation
        object.__setattr__(section, "__dict__", fields)
        return section

    def value(self, kind: Any, field: str) -> Any:
        """Return a value of the type `kind`."""
        origin, inner = get_origin(kind), get_args(kind)
        if origin is typing.Annotated:
            return self.value(inner[0], field)
        if origin in (types.UnionType, typing.Union):
            return self.value(next(each for each in inner if each is not type(None)), field)
        if origin is Literal:
            return inner[0]
        if origin is dict:
            return {"name": self.value(inner[1], field)}
        if origin is tuple:
            return (self.value(inner[0], field),)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self.model(kind)
        if kind is Path:
            return Path("/", self.text(field))
        if kind is str:
            return self.text(field)
        assert kind in (int, float, bool), f"{field} has a type that this test can't fill: {kind}"
        return kind(7)

    def text(self, field: str) -> str:
        """Return a canary for a text field."""
        canaries = self.shown if field in SHOWN else self.hidden
        canary = canaries[field] = f"canary{len(self.shown) + len(self.hidden)}of{id(self)}"
        return canary


def test_only_texts_known_to_be_harmless_are_shown() -> None:
    canaries = Canaries()
    text = orjson.dumps(redacted(canaries.model(Config))).decode()

    assert {field for field, canary in canaries.hidden.items() if canary in text} == set()
    assert {field for field, canary in canaries.shown.items() if canary not in text} == set()
    assert set(canaries.shown) == SHOWN
    assert set(canaries.hidden) == SECRET


@pytest.mark.parametrize("name", [name for name, each in CHANNELS.items() if each.settings])
def test_channel_settings_are_declared_and_tokens_are_hidden(name: str) -> None:
    model, canaries = ChannelConfig.named(name), Canaries()

    shown = orjson.dumps(redacted(canaries.model(model))).decode()

    assert [path for path, field in fields(model) if declared(field) is None] == []
    tokens = {canary for field, canary in canaries.hidden.items() if field.endswith("token")}
    assert bool(tokens) == issubclass(model, SecretsConfig)
    assert not any(canary in shown for canary in tokens)


def test_undeclared_settings_are_hidden() -> None:
    class Later(BaseModel):
        token: str = "canary"
        passwords: tuple[str, ...] = ("canary",)
        pin: int = 4711
        key: Annotated[SecretStr, BY_PEOPLE] = SecretStr("canary")
        unset: str | None = None
        monkey: Annotated[str, BY_PEOPLE] = "banana"

    assert redacted(Later()) == {
        **dict.fromkeys(("token", "pin", "key"), HIDDEN),
        "passwords": [HIDDEN],
        "unset": None,
        "monkey": "banana",
    }


def test_a_path_may_contain_names_with_dots() -> None:
    senders = {"@ada:example": "another", "@ada:example.org": {"tools": {"deny": ["cron_add"]}}}

    assert part({"senders": senders}, "senders.@ada:example.org.tools.deny") == ["cron_add"]


def test_table_names_are_shown_even_if_they_look_secret() -> None:
    config = Config.model_validate(
        {
            "agents": {
                "secretary": {
                    "model": "large",
                    "command": ["/bin/agent", "--key", "canary"],
                    "env": {"API_TOKEN": "canary", "EMPTY": ""},
                }
            },
            "channels": {"token": {"owners": ["ada"]}},
        }
    )

    shown = redacted(config)

    assert shown["agents"]["secretary"]["model"] == "large"
    assert shown["agents"]["secretary"]["env"] == {"API_TOKEN": HIDDEN, "EMPTY": HIDDEN}
    assert shown["agents"]["secretary"]["command"] == [HIDDEN, HIDDEN, HIDDEN]
    assert shown["channels"]["token"]["owners"] == ["ada"]
    assert "canary" not in str(shown)
