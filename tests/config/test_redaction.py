"""What is secret in the configuration is not shown, also in what is added to it later."""

import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from remoteclaw.config.model import Config
from remoteclaw.config.redact import HIDDEN, redacted

#: The texts that are no secrets; what is not here must not be shown. Whoever adds a field to the
#: configuration decides: is it one for this list?
SHOWN = {
    *(
        "AgentConfig.model",
        "AgentConfig.timezone",
        "AgentConfig.workspace",
        "AgentConfig.sends_to",
        "AgentConfig.spawns",
    ),
    *("McpServerSettings.command", "RedisConfig.maxmemory"),
    *("SessionsConfig.reset_triggers", "ResetConfig.daily", "ResetConfig.timezone"),
    *("GatewayConfig.host", "GatewayConfig.hosts", "GatewayConfig.origins"),
    *("ToolsConfig.allow", "ToolsConfig.deny", "ToolsConfig.also_allow", "ToolsConfig.confirm"),
    *("ChannelConfig.instructions", "ChannelConfig.formatting", "ChannelConfig.owners"),
    *("ChannelConfig.authorized_senders", "ChannelConfig.attachment_types"),
    *("HooksConfig.message_received", "HooksConfig.before_runtime_spawn"),
    *("HooksConfig.session_resumed", "HooksConfig.after_runtime_exit", "HooksConfig.agent_end"),
    *("HooksConfig.message_sending", "HooksConfig.message_sent"),
}
#: Of these, a part is shown.
PARTLY = {
    "RedisConfig.url": "redis://{}:{}@host/1?password={}",
    "McpServerSettings.url": "https://{}:{}@host/{}?key={}#{}",
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
        if origin is tuple and field == "AgentConfig.command":
            return ("program", self.text(field))
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
        if form := PARTLY.get(field):
            return form.format(*[canary] * form.count("{}"))
        return canary


def test_no_text_that_may_be_a_secret_is_shown() -> None:
    canaries = Canaries()
    text = orjson.dumps(redacted(canaries.model(Config))).decode()

    assert {field for field, canary in canaries.hidden.items() if canary in text} == set()
    assert {field for field, canary in canaries.shown.items() if canary not in text} == set()
    assert set(canaries.shown) == SHOWN
    assert {"AgentConfig.env", "McpServerSettings.env", "McpServerSettings.headers"} <= set(
        canaries.hidden
    )


def test_what_a_channel_will_need_is_hidden() -> None:
    class Later(BaseModel):
        token: str = "canary"
        bot_token: str | None = "canary"
        signing_secret: str = "canary"
        passwords: tuple[str, ...] = ("canary",)
        api_key: str = "canary"
        key: SecretStr = SecretStr("canary")
        home: str = "https://canary:canary@host/canary"
        database: str = "postgres://canary:canary@host"
        unset_token: str | None = None
        monkey: str = "banana"

    assert redacted(Later()) == {
        **dict.fromkeys(("token", "bot_token", "signing_secret", "api_key", "key"), HIDDEN),
        "passwords": [HIDDEN],
        "home": "https://host/***",
        "database": HIDDEN,
        "unset_token": None,
        "monkey": "banana",
    }


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
    assert shown["agents"]["secretary"]["command"] == ["/bin/agent", HIDDEN, HIDDEN]
    assert shown["channels"]["token"]["owners"] == ["ada"]
    assert "canary" not in str(shown)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://:canary@host:6379/2", "redis://host:6379/2"),
        ("redis://canary:canary@host", "redis://host"),
        ("rediss://host/0?username=canary&password=canary", "rediss://host/0"),
        ("unix://canary:canary@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("redis://host", "redis://host"),
        ("http://canary@host:8080", "http://host:8080/***"),
        ("https://host/canary/mcp?x=canary", "https://host/***"),
        ("https://a@canary@[::1]/", "https://[::1]/***"),
        ("https://[canary", HIDDEN),
        ("not an address: canary", HIDDEN),
    ],
)
def test_of_an_address_only_the_place_is_shown(url: str, told: str) -> None:
    config = Config.model_construct(redis=Config().redis.model_copy(update={"url": url}))

    assert redacted(config)["redis"]["url"] == told


@given(
    password=st.text(min_size=1).map(lambda text: quote(f"canary{text}", safe="")),
    scheme=st.sampled_from(["redis", "rediss"]),
)
def test_no_password_of_redis_is_shown(password: str, scheme: str) -> None:
    config = Config.model_validate({"redis": {"url": f"{scheme}://me:{password}@host/1"}})

    assert redacted(config)["redis"]["url"] == f"{scheme}://host/1"
