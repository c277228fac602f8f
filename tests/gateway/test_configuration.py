"""The tools that change the configuration: rights, refusals and repeated calls."""

import asyncio
import json
import tomllib
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import tomlkit

from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.load import load_config
from remoteclaw.config.merge_patch import apply_patch
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.config.rights import declared, fields
from remoteclaw.errors import CallError, CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.config import HANDLERS
from tests.support.restarts import BROKEN, take_away
from tests.support.stack import Stack
from tests.support.turns import Turn, ask, begin_turn, gateway, operator

#: Every setting, so that the tests change existing values instead of adding them.
FULL: dict[str, Any] = {
    "redis": {"url": "redis://me:canary@localhost:1/3", "appendfsync": "everysec"},
    "gateway": {"host": "127.0.0.1", "port": 0, "hosts": ["claw.example"]},
    "fleet": {"lease_s": 20, "workers": 2, "linger_s": 1, "max_agents": 3, "reserve_mb": 1},
    "agents": {
        "main": {
            **{"runtime": "demo", "command": ["canary", "canary"], "workspace": "/srv"},
            **{"model": "large", "env": {"KEY": "canary"}, "timezone": "Asia/Tokyo", "warm_s": 60},
            "mcp_servers": {
                "files": {"command": "mcp-files", "args": ["canary"], "env": {"T": "canary"}},
                "web": {"url": "https://canary@mcp.example/canary", "headers": {"A": "canary"}},
            },
            "tools": {"deny": ["sessions_spawn"]},
        }
    },
    "channels": {
        "test": {
            "owners": ["alice"],
            "instructions": "be kind",
            "chunk_limit": 300,
            "reset": {"idle_minutes": 60},
            "senders": {"bob": {"tools": {"deny": ["message_send"]}}},
            "groups": {"g": {"senders": {"bob": {"tools": {"profile": "limited"}}}}},
        }
    },
    "queue": {"mode": "followup", "channels": {"test": {"mode": "steer"}}},
    "sessions": {
        "reset": {"idle_minutes": 60},
        "reset_by_kind": {"direct": {"idle_minutes": 60}},
    },
    "hooks": {},
}
#: The names that replace `*` in the paths of settings.
NAMES = {
    "agents": "main",
    "channels": "test",
    "mcp_servers": "files",
    "senders": "bob",
    "groups": "g",
    "reset_by_kind": "direct",
}


def other_value(annotation: Any) -> Any:
    """Return another valid value for a setting that is open to agents."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[-1]
    if origin is dict:
        return {"fresh": {}}
    if arguments:
        return other_value(next(one for one in arguments if one is not type(None)))
    return {int: 90, float: 70.0, str: "UTC"}[annotation]


def every_change() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each setting, a patch that changes it, and whether agents may change it."""
    for parts, field in fields(Config):
        named = [
            NAMES.get(parts[number - 1], "test") if part == "*" else part
            for number, part in enumerate(parts)
        ]
        setting = declared(field)
        assert setting is not None
        # A protected setting is refused before its value is checked.
        value: Any = other_value(field.annotation) if setting.agents_may else "other"
        for name in reversed(named):
            value = {name: value}
        yield ".".join(named), value, setting.agents_may


@pytest.fixture(autouse=True)
def configured(stack: Stack) -> str:
    text = "# ours\n" + tomlkit.dumps(FULL)
    stack.home.config_file.write_text(text)
    return text


async def refused(
    turn: Turn, tool: str, call_id: str | None = None, **params: Any
) -> tuple[CallError, str]:
    with pytest.raises(CallRefused) as refusal:
        await turn.call(tool, call_id, **params)
    return refusal.value.code, str(refusal.value)


# -- what an agent may change ---------------------------------------------------------------------


async def test_an_agent_changes_only_the_settings_that_are_open_to_agents(
    stack: Stack, configured: str
) -> None:
    """Each setting is tried separately."""
    turn = await begin_turn(stack, HANDLERS)
    file, changes = stack.home.config_file, list(every_change())
    for name, change, is_open in changes:
        file.write_text(configured)
        if is_open:
            answer = await turn.call("gateway_config_patch", patches=change)
            assert "canary" not in json.dumps(answer)
            assert answer["status"] == "applied", name
            assert answer["changed"][0].startswith(name), name
            assert tomllib.loads(file.read_text()) == apply_patch(FULL, change), name
            assert file.read_text().startswith("# ours\n"), name
        else:
            code, why = await refused(turn, "gateway_config_patch", patches=change)
            assert code == "FORBIDDEN", (name, why)
            assert f"agents may not change {name}" in why.replace('"', ""), (name, why)
            assert "canary" not in why
            assert file.read_text() == configured, name

    assert len(changes) > 85
    assert 10 < sum(is_open for *_, is_open in changes) < 30
    assert not list(stack.home.path.glob(".*.new"))


async def test_a_patch_takes_the_dotted_keys_that_the_configuration_is_read_with(
    stack: Stack,
) -> None:
    stack.configure(channels={"test": {"owners": ["alice"], "senders": {"admin.ada": {}}}})
    operators = gateway(stack.fleet, stack.home, HANDLERS)

    async def patched(change: dict[str, Any]) -> Any:
        await ask(operators, operator(), "gateway_config_patch", patches=change)
        return tomllib.loads(stack.home.config_file.read_text())

    tree = await patched({"queue.mode": "steer", "queue": {"cap": 7}, "queue.debounce_ms": 5})
    assert tree["queue"] == {"mode": "steer", "cap": 7, "debounce_ms": 5}
    tree = await patched({"agents": {"main.tools": {"deny": ["cron_add"]}}, "queue.cap": None})
    assert tree["agents"]["main"]["tools"] == {"deny": ["cron_add"]}
    assert "cap" not in tree["queue"]
    tree = await patched({"agents.new.runtime": "demo", "agents.new.warm_s": 5})
    assert tree["agents"]["new"] == {"runtime": "demo", "warm_s": 5}
    allow = ["message_send"]
    tree = await patched({"channels.test.senders.admin.ada.tools.allow": allow})
    assert tree["channels"]["test"]["senders"]["admin.ada"]["tools"]["allow"] == allow
    tree = await patched({"channels": {"test": {"senders": {"admin.bob": {"tools": {}}}}}})
    assert set(tree["channels"]["test"]["senders"]) == {"admin.ada", "admin.bob"}
    with pytest.raises(CallRefused, match="mod"):
        await patched({"queue.mod": "steer"})


async def test_an_agent_cannot_change_a_protected_setting_by_a_dotted_key(
    stack: Stack, configured: str
) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for change in ({"channels.test.owners": ["eve"]}, {"channels": {"test.owners": ["eve"]}}):
        code, why = await refused(turn, "gateway_config_patch", patches=change)
        assert (code, "agents may not change channels.test.owners" in why) == ("FORBIDDEN", True)


async def test_an_agent_cannot_remove_protected_settings(stack: Stack, configured: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for name in ("redis", "gateway", "agents", "channels", "tools", "hooks", "fleet"):
        if FULL.get(name):
            code, _ = await refused(turn, "gateway_config_patch", patches={name: None})
            assert code == "FORBIDDEN"
    owners = {"channels": {"test": {"owners": None}}}
    assert (await refused(turn, "gateway_config_patch", patches=owners))[0] == "FORBIDDEN"
    main = {"agents": {"main": None}}
    _, why = await refused(turn, "gateway_config_patch", patches=main)

    assert "agents.main, " in why
    assert stack.home.config_file.read_text() == configured


#: Patches with an invalid part, the code of the refusal, and a part of its message.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"agents": {"fresh": {"model": "x"}}}, "FORBIDDEN", "may not change agents.fresh:"),
    ({"agents": {"fresh": {}}}, "FORBIDDEN", "may not change agents.fresh:"),
    (
        {"queue": {"mode": "steer"}, "agents": {"main": {"env": {"A B": "1"}}}},
        "FORBIDDEN",
        'may not change agents.main.env."A B":',
    ),
    ({"hooks": {"agent_end": ["os:abort"]}}, "FORBIDDEN", "may not change hooks.agent_end"),
    ({"redis": 3}, "FORBIDDEN", "may not change redis, redis.url"),
    # A correct guess of a secret is refused like a wrong one.
    (
        {"agents": {"main": {"env": {"KEY": "canary"}}}},
        "FORBIDDEN",
        "may not change agents.main.env.KEY:",
    ),
    ({"queue": {"mode": "loud"}}, "INVALID_REQUEST", "[queue] mode is not valid"),
    ({"queue": {"mod": "steer"}}, "INVALID_REQUEST", "did you mean 'mode'?"),
    ({"agents": {"main": {"model": "-c"}}}, "INVALID_REQUEST", "must be a model's name"),
    ({"agents": {"main": {"task_model": "-c"}}}, "INVALID_REQUEST", "must be a model's name"),
    ({"agents": {"main": {"timezone": "../../etc/passwd"}}}, "INVALID_REQUEST", "a time zone"),
    ({"queue": {"channels": {"x": [None]}}}, "INVALID_REQUEST", "has a null in it"),
    ({"channels": {"Console": {}}}, "INVALID_REQUEST", "has the channel 'Console'"),
    ({"channels": {"TEST": {}}}, "INVALID_REQUEST", "has the channel 'TEST'"),
    ({"queue": {"channels": {"Test": {}}}}, "INVALID_REQUEST", "has the channel 'Test'"),
    ({"channels": {"a\u202e": {}}}, "INVALID_REQUEST", "has the channel 'a\\u202e'"),
    ({"queue": {"channels": {"\u200b": {}}}}, "INVALID_REQUEST", "has the channel '\\u200b'"),
    *(
        ({"agents": {"main": {"model": name}}}, "INVALID_REQUEST", "must be a model's name")
        for name in ("\0x", "\x1b[2J", "\x7f", "\u202ex", "", " x")
    ),
    ({"queue": {"cap": 2**70}}, "INVALID_REQUEST", "64-bit range"),
    ({"channels": {"test": {"chunk_limit": 1e300}}}, "INVALID_REQUEST", "chunk_limit"),
]


async def test_a_patch_with_one_invalid_part_changes_nothing(stack: Stack, configured: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for change, code, why in WRONG:
        found, message = await refused(turn, "gateway_config_patch", patches=change)
        assert (found, why in message) == (code, True), (change, message)
        assert stack.home.config_file.read_text() == configured


async def test_an_agent_may_add_a_channel_with_open_settings_only(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    fresh = {"channels": {"fresh": {"reactions": "minimal"}}}
    await turn.call("gateway_config_patch", patches=fresh)
    await turn.call("gateway_config_patch", patches={"channels": {"fresh": None}})
    fresh["channels"]["fresh"]["owners"] = "mallory"
    _, why = await refused(turn, "gateway_config_patch", patches=fresh)

    assert "may not change channels.fresh.owners" in why


async def test_a_channel_name_that_differs_only_in_case_is_refused(
    stack: Stack, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of environment variables ignore case, names of channels do not."""
    monkeypatch.setenv("REMOTECLAW__CHANNELS__MATRIX__TOOLS__DENY", '["*"]')
    monkeypatch.setenv("REMOTECLAW__CHANNELS__WEB__OWNERS", '["ada"]')
    turn = await begin_turn(stack, HANDLERS)
    matrix = {"channels": {"Matrix": {"chunk_limit": 100}}}
    code, why = await refused(turn, "gateway_config_patch", patches=matrix)
    assert code == "INVALID_REQUEST"
    assert "Matrix" in why
    page = {"channels": {"WEB": {"chunk_limit": 100}}}
    code, why = await refused(turn, "gateway_config_patch", patches=page)

    assert code in ("FORBIDDEN", "INVALID_REQUEST")
    assert stack.home.config_file.read_text() == configured
    assert load_config(stack.home.config_file).channel("matrix").tools.deny == ("*",)


# -- a whole configuration ------------------------------------------------------------------------


async def test_the_configuration_from_get_can_be_changed_and_applied(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    wanted = shown["config"]
    same = await turn.call("gateway_config_apply", config=wanted, baseHash=shown["hash"])
    wanted["queue"]["mode"] = "steer"
    done = await turn.call("gateway_config_apply", config=wanted, baseHash=shown["hash"])

    assert (same["status"], same["hash"]) == ("unchanged", shown["hash"])
    assert (done["status"], done["changed"]) == ("applied", ["queue.mode"])
    change = {"queue": {"mode": "steer"}}
    assert tomllib.loads(stack.home.config_file.read_text()) == apply_patch(FULL, change)


async def test_a_configuration_that_changes_protected_settings_is_refused_entirely(
    stack: Stack, configured: str
) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    wanted = shown["config"]
    wanted["queue"]["mode"] = "steer"
    wanted["channels"]["test"]["owners"].append("mallory")
    wanted["agents"]["main"]["env"]["KEY"] = "x"
    del wanted["redis"]
    _, why = await refused(turn, "gateway_config_apply", config=wanted, baseHash=shown["hash"])

    for name in ("redis.url", "channels.test.owners", "agents.main.env.KEY"):
        assert name in why
    assert stack.home.config_file.read_text() == configured


@pytest.mark.parametrize("tool", ["gateway_config_apply", "gateway_config_patch"])
async def test_a_change_with_an_outdated_base_hash_is_refused(stack: Stack, tool: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    text = stack.home.config_file.read_text() + "# by hand\n"
    stack.home.config_file.write_text(text)
    params = {"config": shown["config"]} if tool.endswith("apply") else {"patches": {"queue": {}}}
    code, why = await refused(turn, tool, baseHash=shown["hash"], **params)

    assert code == "INVALID_REQUEST"
    assert "has changed since its hash was read" in why
    assert stack.home.config_file.read_text() == text


# -- once, and only in its turn -------------------------------------------------------------------


async def test_a_repeated_patch_does_nothing_and_returns_the_same_result(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    change = {"queue": {"mode": "steer"}}
    first = await turn.call("gateway_config_patch", "one", patches=change)
    inode = stack.home.config_file.stat().st_ino
    again = await turn.call("gateway_config_patch", "one", patches=change)
    (noted,) = await stack.fleet.scripts.client.lrange(keys.side_effects(turn.agent.sid), 0, -1)
    assert first == again
    assert stack.home.config_file.stat().st_ino == inode
    assert json.loads(noted)["changed"] == ["queue.mode"]


async def test_a_change_that_was_noted_but_not_written_is_written_by_a_retry(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a gateway that was killed between the note and the write."""
    turn = await begin_turn(stack, HANDLERS)
    change = {"queue": {"mode": "steer"}}

    async def killed(self: ConfigFile, plan: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(ConfigFile, "write", killed)
        with pytest.raises(asyncio.CancelledError):
            await turn.call("gateway_config_patch", "one", patches=change)
    assert load_config(stack.home.config_file, {}).queue.mode == "followup"
    answer = await turn.call("gateway_config_patch", "one", patches=change)

    assert answer["status"] == "applied"
    assert load_config(stack.home.config_file, {}).queue.mode == "steer"


async def test_a_stopped_turn_cannot_change_the_configuration(
    stack: Stack, configured: str
) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await stack.fleet.sessions.stop(turn.agent.sid)
    code, _ = await refused(turn, "gateway_config_patch", patches={"queue": {"mode": "steer"}})

    assert code == "TURN_OVER"
    assert stack.home.config_file.read_text() == configured


async def test_concurrent_changes_by_several_agents_are_all_kept(stack: Stack) -> None:
    stack.home.config_file.write_text("[channels.test]\nowners = ['alice']\n")
    turns = [await begin_turn(stack, HANDLERS, channel_id=f"chat-{n}") for n in range(3)]
    changes = [{"queue": {"channels": {f"c{number}": {"cap": 1}}}} for number in range(3)]
    await asyncio.gather(
        *(
            turn.call("gateway_config_patch", patches=change)
            for turn, change in zip(turns, changes, strict=True)
        )
    )

    assert set(load_config(stack.home.config_file, {}).queue.channels) == {"c0", "c1", "c2"}


@pytest.mark.parametrize("how", ["empty", "gone", "broken"])
async def test_an_agent_changes_nothing_while_the_configuration_file_is_invalid(
    stack: Stack, how: Literal["empty", "gone", "broken"]
) -> None:
    """Some editors leave the file in this state for a moment; its restrictions stay in effect."""
    file = stack.home.config_file
    turn = await begin_turn(stack, HANDLERS)
    current = CurrentConfig(stack.home, load_config(file))
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, current_config=current)
    config = (await turn.call("gateway_config_get"))["config"]
    take_away(file, how)
    before = current()
    patch = await refused(turn, "gateway_config_patch", patches={"queue": {"mode": "steer"}})
    base = ConfigFile(file).read().hash
    apply = await refused(turn, "gateway_config_apply", config=config, baseHash=base)

    for code, why in (patch, apply):
        assert code == "UNAVAILABLE"
        assert "is gone, empty or has a mistake in it" in why
        assert "canary" not in why
    assert not file.exists() or file.read_text() == {"empty": "", "broken": BROKEN}[how]
    assert current() == before
    assert before.agents["main"].tools.deny == ("sessions_spawn",)


async def test_an_agents_change_creates_a_configuration_file_if_none_existed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.home.config_file.unlink()
    monkeypatch.setenv("REMOTECLAW__CHANNELS__TEST__OWNERS", '["alice"]')
    turn = await begin_turn(stack, HANDLERS)
    current = CurrentConfig(stack.home, load_config(stack.home.config_file))
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, current_config=current)
    answer = await turn.call("gateway_config_patch", patches={"queue": {"mode": "steer"}})

    assert answer["status"] == "applied"
    assert current().queue.mode == "steer"


# -- operators ------------------------------------------------------------------------------------


async def operate(stack: Stack, method: str, **params: Any) -> dict[str, Any]:
    door = gateway(stack.fleet, stack.home, HANDLERS)
    answer, _ = await door.call(operator(), method, params)
    return answer.model_dump(mode="json", exclude_none=True)


async def test_an_operator_may_change_every_setting(stack: Stack) -> None:
    change = {"fleet": {"workers": 3}, "agents": {"other": {"permissions": "auto"}}}
    answer = await operate(stack, "config.patch", patches=change)

    assert answer["needsRestart"] == ["fleet.workers: restart `remoteclaw up`"]
    assert tomllib.loads(stack.home.config_file.read_text()) == apply_patch(FULL, change)


async def test_settings_that_the_environment_overrides_are_reported(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTECLAW__QUEUE__MODE", "collect")
    answer = await operate(stack, "config.patch", patches={"queue": {"mode": "steer", "cap": 1}})

    assert answer["overriddenBy"] == ["REMOTECLAW__QUEUE__MODE"]
