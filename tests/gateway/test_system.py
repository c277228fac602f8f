"""The tools that read the configuration: what they show, and that they mask secrets."""

import hashlib
from typing import Any

import pytest
import tomlkit

from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallError, CallRefused
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.methods.config import HANDLERS
from tests.support.hostile import HOSTILE
from tests.support.stack import Stack
from tests.support.turns import Turn, begin_turn, gateway

READER = Operator("test", "read", "c")
TOOLS = {"gateway_config_get": {"key": "redis.url"}, "gateway_config_schema": {}}


@pytest.fixture(autouse=True)
def configured(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTECLAW__FLEET__WORKERS", "7")
    tree = {
        "redis": {"url": "redis://me:canary@localhost:1/3"},
        "agents": {
            "main": {
                "runtime": "demo",
                "model": "large",
                "env": {"KEY": "canary"},
                "mcp_servers": {
                    "files": {"command": "mcp-files", "args": ["canary"], "env": {"T": "canary"}},
                    "web": {"url": "https://canary@mcp.example/canary", "headers": {"A": "canary"}},
                },
            }
        },
        "channels": {
            "test": {"owners": ["alice"]},
            "matrix": {"senders": {"@ada:example.org": {"tools": {"deny": ["message_send"]}}}},
        },
    }
    stack.home.config_file.write_text(tomlkit.dumps(tree))


async def call(stack: Stack, caller: Turn | Operator, tool: str, **params: Any) -> Any:
    principal = caller.agent if isinstance(caller, Turn) else caller
    config = load_config(stack.home.config_file)
    answer, effects = await gateway(stack.fleet, stack.home, HANDLERS, config=config).call(
        principal, tool, params
    )
    assert effects == []
    return answer


async def refused(stack: Stack, caller: Any, tool: str, **params: Any) -> tuple[CallError, str]:
    with pytest.raises(CallRefused) as refusal:
        await call(stack, caller, tool, **params)
    return refusal.value.code, str(refusal.value)


async def test_an_owners_agent_reads_the_effective_configuration_without_secrets(
    stack: Stack,
) -> None:
    caller = await begin_turn(stack, HANDLERS)
    answer = await call(stack, caller, "gateway_config_get")
    text = answer.model_dump_json()

    assert "canary" not in text
    assert answer.config["fleet"]["workers"] == 7  # from the environment
    assert answer.config["queue"]["mode"] == "aside"  # the default
    assert answer.config["redis"]["url"] == "***"
    main = answer.config["agents"]["main"]
    assert (main["model"], main["env"]) == ("large", {"KEY": "***"})
    assert main["mcp_servers"]["files"]["args"] == ["***"]
    assert main["mcp_servers"]["web"]["url"] == "***"


async def test_the_configurations_hash_changes_with_its_file(stack: Stack) -> None:
    file = stack.home.config_file
    before = (await call(stack, READER, "gateway_config_get")).hash
    again = (await call(stack, READER, "config.get", key="redis")).hash
    content = file.read_bytes()
    file.write_bytes(content + b"\n")
    after = (await call(stack, READER, "gateway_config_get")).hash
    config = load_config(file, {})
    file.unlink()
    answer, _ = await gateway(stack.fleet, stack.home, HANDLERS, config=config).call(
        READER, "config.get", {}
    )

    assert before == again == hashlib.sha256(content).hexdigest()
    assert after != before
    assert answer.model_dump()["hash"] == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agents.main.model", "large"),
        ("agents.main.env", {"KEY": "***"}),
        ("agents.main.env.KEY", "***"),
        ("redis.url", "***"),
        ("channels.test.owners", ["alice"]),
        (
            "redis",
            {"url": "***", "appendfsync": "everysec", "maxmemory": None},
        ),
    ],
)
async def test_a_key_selects_a_part_of_the_configuration(
    stack: Stack, key: str, value: Any
) -> None:
    assert (await call(stack, READER, "gateway_config_get", key=key)).config == value


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("agent", "The configuration has no key 'agent'; did you mean 'agents'?"),
        (
            "agents.mian.model",
            "'agents' in the configuration has no key 'mian.model'; did you mean 'main'?",
        ),
        (
            "agents.main.modle",
            "'agents.main' in the configuration has no key 'modle'; did you mean 'model'?",
        ),
        (
            "redis.x",
            "'redis' in the configuration has no key 'x'; it has "
            "'url', 'appendfsync', 'maxmemory'.",
        ),
        ("redis.url.x", "'redis.url' in the configuration has no keys: it is a value."),
        ("channels.test.owners.0", "'channels.test.owners' in the configuration has no keys"),
        ("...", "The configuration has no key '...'; it has "),
        ("__class__", "The configuration has no key '__class__'; it has "),
    ],
)
async def test_an_unknown_key_is_refused_with_a_suggestion(
    stack: Stack, key: str, why: str
) -> None:
    code, message = await refused(stack, READER, "gateway_config_get", key=key)

    assert code == "NOT_FOUND"
    assert message.startswith(why)
    assert message.endswith((".", "?"))


async def test_the_hash_belongs_to_the_configuration_that_is_shown_with_it(stack: Stack) -> None:
    """With the hash of a newer file, a change could undo what a person has saved since."""
    caller = await begin_turn(stack, HANDLERS)
    before = load_config(stack.home.config_file)
    text = stack.home.config_file.read_text() + "\n[queue]\nmode = 'interrupt'\n"
    stack.home.config_file.write_text(text)
    caller.gateway = gateway(stack.fleet, stack.home, HANDLERS, config=before)
    answer = await caller.call("gateway_config_get")

    assert answer["config"]["queue"]["mode"] == "interrupt"
    assert answer["hash"] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("text", ["", "[queue\n", "[tools]\ndeny = ['nothing_like_it']\n"])
async def test_a_configuration_file_that_is_not_in_effect_has_no_hash(
    stack: Stack, text: str
) -> None:
    caller = await begin_turn(stack, HANDLERS)
    current = CurrentConfig(stack.home, load_config(stack.home.config_file))
    stack.home.config_file.write_text(text)
    caller.gateway = gateway(stack.fleet, stack.home, HANDLERS, current_config=current)
    answer = await caller.call("gateway_config_get", key="agents.main.model")

    assert answer["config"] == "large"
    assert "hash" not in answer
    assert "A person has to correct the file" in answer["problem"]


def fields_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the descriptions of all settings, by the names of their sections."""
    return {
        name: {field: one.get("description") for field, one in section["properties"].items()}
        for name, section in {**schema["$defs"], "": schema}.items()
        if "properties" in section
    }


async def test_the_schema_is_that_of_the_configuration(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    answer = await call(stack, caller, "gateway_config_schema")

    schema = answer.model_dump()["schema"]
    assert fields_of(schema) == fields_of(Config.model_json_schema())
    assert len(answer.model_dump_json()) < 48_000  # claude shows no more than 50,000 characters
    assert "canary" not in answer.model_dump_json()


async def test_hostile_configuration_keys_are_refused(stack: Stack) -> None:
    for key in HOSTILE:
        code, message = await refused(stack, READER, "gateway_config_get", key=key)
        assert code in ("INVALID_REQUEST", "NOT_FOUND")
        assert "\n" not in message
        assert len(message) < 500
