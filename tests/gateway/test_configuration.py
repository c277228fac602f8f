"""The tools that change the configuration: who may change what, once, and nothing besides."""

import asyncio
import json
import tomllib
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import tomlkit

from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.load import load_config
from remoteclaw.config.merge_patch import merged
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.config.rights import declared, fields
from remoteclaw.errors import CallError, CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.configuration import HANDLERS
from tests.support.restarts import BROKEN, take_away
from tests.support.stack import Stack
from tests.support.turns import Turn, begin_turn, gateway, operator

#: Everything that a file can have, so that each value is changed and not only added.
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
#: Names that stand for `*` in the paths of settings.
NAMES = {
    "agents": "main",
    "channels": "test",
    "mcp_servers": "files",
    "senders": "bob",
    "groups": "g",
    "reset_by_kind": "direct",
}


def other(annotation: Any) -> Any:
    """Return another valid value for a setting that is open to agents."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[-1]
    if origin is dict:
        return {"fresh": {}}
    if arguments:
        return other(next(one for one in arguments if one is not type(None)))
    return {int: 90, float: 70.0, str: "UTC"}[annotation]


def every_change() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each setting, a patch that changes it, and whether agents may."""
    for parts, field in fields(Config):
        named = [
            NAMES.get(parts[number - 1], "test") if part == "*" else part
            for number, part in enumerate(parts)
        ]
        setting = declared(field)
        assert setting is not None
        # What is closed is refused before anything is said of the value.
        value: Any = other(field.annotation) if setting.agents_may else "other"
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


async def test_an_agent_changes_what_is_open_and_nothing_else(
    stack: Stack, configured: str
) -> None:
    """Each setting there is, one after the other."""
    turn = await begin_turn(stack, HANDLERS)
    file, changes = stack.home.config_file, list(every_change())
    for name, change, is_open in changes:
        file.write_text(configured)
        if is_open:
            answer = await turn.call("gateway_config_patch", patches=change)
            assert "canary" not in json.dumps(answer)
            assert answer["status"] == "applied", name
            assert answer["changed"][0].startswith(name), name
            assert tomllib.loads(file.read_text()) == merged(FULL, change), name
            assert file.read_text().startswith("# ours\n"), name
        else:
            code, told = await refused(turn, "gateway_config_patch", patches=change)
            assert code == "FORBIDDEN", (name, told)
            assert f"agents may not change {name}" in told.replace('"', ""), (name, told)
            assert "canary" not in told
            assert file.read_text() == configured, name

    assert len(changes) > 85
    assert 10 < sum(is_open for *_, is_open in changes) < 30
    assert not list(stack.home.path.glob(".*.new"))


async def test_an_agent_takes_nothing_away_either(stack: Stack, configured: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for name in ("redis", "gateway", "agents", "channels", "tools", "hooks", "fleet"):
        if FULL.get(name):
            code, _ = await refused(turn, "gateway_config_patch", patches={name: None})
            assert code == "FORBIDDEN"
    owners = {"channels": {"test": {"owners": None}}}
    assert (await refused(turn, "gateway_config_patch", patches=owners))[0] == "FORBIDDEN"
    main = {"agents": {"main": None}}
    _, told = await refused(turn, "gateway_config_patch", patches=main)

    assert "agents.main, " in told
    assert stack.home.config_file.read_text() == configured


#: Changes of which a part is wrong, and what is said of it.
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
    # A right guess changes nothing, and is refused as a wrong one is.
    (
        {"agents": {"main": {"env": {"KEY": "canary"}}}},
        "FORBIDDEN",
        "may not change agents.main.env.KEY:",
    ),
    ({"queue": {"mode": "loud"}}, "INVALID_REQUEST", "[queue] mode is not valid"),
    ({"queue": {"mod": "steer"}}, "INVALID_REQUEST", "did you mean 'mode'?"),
    ({"agents": {"main": {"model": "-c"}}}, "INVALID_REQUEST", "must be a model's name"),
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


async def test_one_wrong_part_and_nothing_is_done(stack: Stack, configured: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    for change, code, why in WRONG:
        found, told = await refused(turn, "gateway_config_patch", patches=change)
        assert (found, why in told) == (code, True), (change, told)
        assert stack.home.config_file.read_text() == configured


async def test_a_channel_may_be_named_for_what_is_open(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    fresh = {"channels": {"fresh": {"reactions": "minimal"}}}
    await turn.call("gateway_config_patch", patches=fresh)
    await turn.call("gateway_config_patch", patches={"channels": {"fresh": None}})
    fresh["channels"]["fresh"]["owners"] = "mallory"
    _, told = await refused(turn, "gateway_config_patch", patches=fresh)

    assert "may not change channels.fresh.owners" in told


async def test_no_channel_takes_what_a_variable_says_of_another(
    stack: Stack, configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of variables have no case; those of channels have."""
    monkeypatch.setenv("REMOTECLAW__CHANNELS__MATRIX__TOOLS__DENY", '["*"]')
    monkeypatch.setenv("REMOTECLAW__CHANNELS__CONSOLE__OWNERS", '["ada"]')
    turn = await begin_turn(stack, HANDLERS)
    matrix = {"channels": {"Matrix": {"chunk_limit": 100}}}
    code, told = await refused(turn, "gateway_config_patch", patches=matrix)
    assert code == "INVALID_REQUEST"
    assert "Matrix" in told
    console = {"channels": {"CONSOLE": {"chunk_limit": 100}}}
    code, told = await refused(turn, "gateway_config_patch", patches=console)

    assert code in ("FORBIDDEN", "INVALID_REQUEST")
    assert stack.home.config_file.read_text() == configured
    assert load_config(stack.home.config_file).channel("matrix").tools.deny == ("*",)


# -- a whole configuration ------------------------------------------------------------------------


async def test_what_get_shows_can_be_applied_with_a_change(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    wanted = shown["config"]
    same = await turn.call("gateway_config_apply", config=wanted, baseHash=shown["hash"])
    wanted["queue"]["mode"] = "steer"
    done = await turn.call("gateway_config_apply", config=wanted, baseHash=shown["hash"])

    assert (same["status"], same["hash"]) == ("unchanged", shown["hash"])
    assert (done["status"], done["changed"]) == ("applied", ["queue.mode"])
    change = {"queue": {"mode": "steer"}}
    assert tomllib.loads(stack.home.config_file.read_text()) == merged(FULL, change)


async def test_a_configuration_that_changes_more_is_refused_as_a_whole(
    stack: Stack, configured: str
) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    wanted = shown["config"]
    wanted["queue"]["mode"] = "steer"
    wanted["channels"]["test"]["owners"].append("mallory")
    wanted["agents"]["main"]["env"]["KEY"] = "x"
    del wanted["redis"]
    _, told = await refused(turn, "gateway_config_apply", config=wanted, baseHash=shown["hash"])

    for name in ("redis.url", "channels.test.owners", "agents.main.env.KEY"):
        assert name in told
    assert stack.home.config_file.read_text() == configured


@pytest.mark.parametrize("tool", ["gateway_config_apply", "gateway_config_patch"])
async def test_a_file_that_has_changed_since_is_left_alone(stack: Stack, tool: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    shown = await turn.call("gateway_config_get")
    text = stack.home.config_file.read_text() + "# by hand\n"
    stack.home.config_file.write_text(text)
    what = {"config": shown["config"]} if tool.endswith("apply") else {"patches": {"queue": {}}}
    code, told = await refused(turn, tool, baseHash=shown["hash"], **what)

    assert code == "INVALID_REQUEST"
    assert "has changed since its hash was read" in told
    assert stack.home.config_file.read_text() == text


# -- once, and only in its turn -------------------------------------------------------------------


async def test_the_same_call_again_does_nothing_again(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS)
    change = {"queue": {"mode": "steer"}}
    first = await turn.call("gateway_config_patch", "one", patches=change)
    inode = stack.home.config_file.stat().st_ino
    again = await turn.call("gateway_config_patch", "one", patches=change)
    (noted,) = await stack.fleet.scripts.client.lrange(keys.side_effects(turn.agent.sid), 0, -1)
    assert first == again
    assert stack.home.config_file.stat().st_ino == inode
    assert json.loads(noted)["changed"] == ["queue.mode"]


async def test_what_was_noted_and_not_written_is_done_when_it_is_asked_again(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that is killed between the two."""
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


async def test_a_turn_that_is_over_changes_nothing(stack: Stack, configured: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    await stack.fleet.sessions.stop(turn.agent.sid)
    code, _ = await refused(turn, "gateway_config_patch", patches={"queue": {"mode": "steer"}})

    assert code == "TURN_OVER"
    assert stack.home.config_file.read_text() == configured


async def test_two_agents_at_once_lose_nothing(stack: Stack) -> None:
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
async def test_while_the_file_is_not_valid_an_agent_changes_nothing(
    stack: Stack, how: Literal["empty", "gone", "broken"]
) -> None:
    """Some editors leave it like that for a moment: then nothing that it forbids may be lost."""
    file = stack.home.config_file
    turn = await begin_turn(stack, HANDLERS)
    current = CurrentConfig(stack.home, load_config(file))
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, current_config=current)
    config = (await turn.call("gateway_config_get"))["config"]
    take_away(file, how)
    before = current()
    patch = await refused(turn, "gateway_config_patch", patches={"queue": {"mode": "steer"}})
    base = ConfigFile(file).read().hash
    whole = await refused(turn, "gateway_config_apply", config=config, baseHash=base)

    for code, told in (patch, whole):
        assert code == "UNAVAILABLE"
        assert "is gone, empty or has a mistake in it" in told
        assert "canary" not in told
    assert not file.exists() or file.read_text() == {"empty": "", "broken": BROKEN}[how]
    assert current() == before
    assert before.agents["main"].tools.deny == ("sessions_spawn",)


async def test_without_a_file_from_the_start_an_agent_makes_one(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.home.config_file.unlink()
    monkeypatch.setenv("REMOTECLAW__CHANNELS__TEST__OWNERS", '["alice"]')
    turn = await begin_turn(stack, HANDLERS)
    current = CurrentConfig(stack.home, load_config(stack.home.config_file))
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, current_config=current)
    told = await turn.call("gateway_config_patch", patches={"queue": {"mode": "steer"}})

    assert told["status"] == "applied"
    assert current().queue.mode == "steer"


# -- operators ------------------------------------------------------------------------------------


async def operate(stack: Stack, method: str, **params: Any) -> dict[str, Any]:
    door = gateway(stack.fleet, stack.home, HANDLERS)
    answer, _ = await door.call(operator(), method, params)
    return answer.model_dump(mode="json", exclude_none=True)


async def test_an_operator_changes_everything(stack: Stack) -> None:
    change = {"fleet": {"workers": 3}, "agents": {"other": {"permissions": "auto"}}}
    answer = await operate(stack, "config.patch", patches=change)

    assert answer["needsRestart"] == ["fleet.workers: restart `remoteclaw up`"]
    assert tomllib.loads(stack.home.config_file.read_text()) == merged(FULL, change)


async def test_what_the_environment_hides_is_told(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTECLAW__QUEUE__MODE", "collect")
    answer = await operate(stack, "config.patch", patches={"queue": {"mode": "steer", "cap": 1}})

    assert answer["overriddenBy"] == ["REMOTECLAW__QUEUE__MODE"]
