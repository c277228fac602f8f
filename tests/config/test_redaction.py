"""What is secret in the configuration is not shown, also in what is added to it later."""

import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import orjson
import pytest
from pydantic import BaseModel, SecretStr

from remoteclaw.config.model import ChannelConfig, Config
from remoteclaw.config.model.channels import TokenConfig
from remoteclaw.config.rights import BY_PEOPLE, declared, fields
from remoteclaw.config.secrets import HIDDEN, part, redacted
from remoteclaw.profiles import CHANNELS

#: The texts that are no secrets; what is not here must not be shown. Whoever adds a field to the
#: configuration decides: is it one for this list?
SHOWN = {
    *(
        "AgentConfig.allow",
        "AgentConfig.model",
        "AgentConfig.timezone",
        "AgentConfig.workspace",
        "AgentConfig.sends_to",
        "AgentConfig.spawns",
    ),
    *("Config.projects", "McpServerSettings.command", "RedisConfig.maxmemory"),
    *("ResetConfig.daily", "ResetConfig.timezone"),
    *("GatewayConfig.host", "GatewayConfig.hosts", "GatewayConfig.origins"),
    *("JwtConfig.secret_file", "JwtConfig.agents"),
    *("ApprovalsConfig.chat", "ApprovalsConfig.thread"),
    *("ToolsConfig.allow", "ToolsConfig.deny", "ToolsConfig.also_allow", "ToolsConfig.approve"),
    *("ChannelConfig.instructions", "ChannelConfig.formatting", "ChannelConfig.owners"),
    *("ChannelConfig.authorized_senders", "ChannelConfig.attachment_types"),
    *("HooksConfig.before_runtime_spawn", "HooksConfig.session_resumed"),
    *("HooksConfig.after_runtime_exit", "HooksConfig.agent_end"),
}
#: All that is hidden.
SECRET = {
    *("AgentConfig.command", "AgentConfig.env", "ChannelConfig.transcribe", "RedisConfig.url"),
    *("McpServerSettings.args", "McpServerSettings.env"),
    *("McpServerSettings.url", "McpServerSettings.headers"),
}


class Canaries:
    """Fills a configuration: every text is a name that can be found again."""

    def __init__(self) -> None:
        self.hidden: dict[str, str] = {}
        self.shown: dict[str, str] = {}

    def model(self, kind: type[BaseModel]) -> BaseModel:
        """Return a section with something in every field. It need not be valid."""
        fields = {
            name: self.value(field.annotation, f"{kind.__name__}.{name}")
            for name, field in kind.model_fields.items()
        }
        made = kind.__new__(kind)  # nothing may look whether it is valid
        object.__setattr__(made, "__dict__", fields)
        return made

    def value(self, kind: Any, field: str) -> Any:
        """Return a value of a field's type."""
        origin, inner = get_origin(kind), get_args(kind)
        if origin is typing.Annotated:
            return self.value(inner[0], field)
        if origin in (types.UnionType, typing.Union):
            return self.value(next(one for one in inner if one is not type(None)), field)
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
        assert kind in (int, float, bool), f"{field} is of a kind that is new here: {kind}"
        return kind(7)

    def text(self, field: str) -> str:
        """Return the text of a field."""
        kept = self.shown if field in SHOWN else self.hidden
        canary = kept[field] = f"canary{len(self.shown) + len(self.hidden)}of{id(self)}"
        return canary


def test_no_text_that_may_be_a_secret_is_shown() -> None:
    canaries = Canaries()
    text = orjson.dumps(redacted(canaries.model(Config))).decode()

    assert {field for field, canary in canaries.hidden.items() if canary in text} == set()
    assert {field for field, canary in canaries.shown.items() if canary not in text} == set()
    assert set(canaries.shown) == SHOWN
    assert set(canaries.hidden) == SECRET


@pytest.mark.parametrize("name", [name for name, each in CHANNELS.items() if each.settings])
def test_what_a_channel_brings_is_declared_and_its_token_is_hidden(name: str) -> None:
    model, canaries = ChannelConfig.named(name), Canaries()

    shown = orjson.dumps(redacted(canaries.model(model))).decode()

    assert [path for path, field in fields(model) if declared(field) is None] == []
    tokens = {canary for field, canary in canaries.hidden.items() if field.endswith(".token")}
    assert bool(tokens) == issubclass(model, TokenConfig)
    assert not any(canary in shown for canary in tokens)


def test_what_is_not_declared_is_hidden() -> None:
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


def test_a_name_with_dots_is_found() -> None:
    senders = {"@ada:example": "another", "@ada:example.org": {"tools": {"deny": ["cron_add"]}}}

    assert part({"senders": senders}, "senders.@ada:example.org.tools.deny") == ["cron_add"]


def test_names_are_shown_and_hide_nothing_else() -> None:
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
