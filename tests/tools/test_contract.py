"""The tool contract: the promised tools and no others, and refusal of hostile parameters."""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.doors.mcp import listing
from remoteclaw.tools.base import Method, NoParams, Result, Tool
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.agents import ROOT
from tests.support.promised import PROMISED, good_params, schema_of
from tests.support.rows import for_each
from tests.support.schemas import VALUES, kinds
from tests.support.stack import Stack

#: Subjects that must have no tools here, because the CLIs have their own.
NOT_EXPOSED = re.compile("web|browser|image|tts|canvas|node")
ADMIN = Operator("test", "admin", "c")


def bad_calls() -> Iterator[Any]:
    """Yield each tool with each kind of wrong parameters."""
    for name, method in TOOLS.items():
        schema = schema_of(method)
        good = good_params(method)
        for key in good:
            yield pytest.param(
                name, {k: v for k, v in good.items() if k != key}, id=f"{name}-no-{key}"
            )
        yield pytest.param(name, {**good, "extra": 1}, id=f"{name}-extra")
        yield pytest.param(name, {**good, "__proto__": {}}, id=f"{name}-proto")
        for key, part in schema.get("properties", {}).items():
            takes = kinds(part, schema)
            for kind in VALUES.keys() - takes:
                yield pytest.param(name, {**good, key: VALUES[kind]}, id=f"{name}-{key}-{kind}")
            if "string" in takes:
                yield pytest.param(name, {**good, key: "x" * 1_000_000}, id=f"{name}-{key}-huge")
            if key.endswith("Id") or key in ("target", "sessionKey"):
                for bad in ("", "a\nb", "a\x00b", "\ud800", "a\u202eb"):
                    yield pytest.param(name, {**good, key: bad}, id=f"{name}-{key}-{bad!r}")
            if takes & {"integer", "number"}:
                for number in (-1, 10**9, float("nan"), float("inf")):
                    yield pytest.param(name, {**good, key: number}, id=f"{name}-{key}-{number}")


def test_methods_and_tools_are_the_promised_ones() -> None:
    assert {name: row.tool for name, row in PROMISED.items()} == {
        name: method.tool for name, method in METHODS.items()
    }
    assert set(TOOLS) == {row.tool for row in PROMISED.values() if row.tool}
    for name, row in PROMISED.items():
        schema = schema_of(METHODS[name])
        required = set(schema.get("required", []))
        parameters = {key if key in required else f"{key}?" for key in schema.get("properties", {})}
        for_agents, _, for_operators = row.parameters.partition("|")
        assert parameters == {*for_agents.split(), *for_operators.split()}, name
        if row.tool:
            listed = listing(row.tool, has_session=True).input_schema["properties"]
            assert {*listed} == {each.rstrip("?") for each in for_agents.split()}, name
        assert not NOT_EXPOSED.search(row.tool or ""), name


@for_each("name", TOOLS)
def test_every_tool_has_a_title_a_description_and_schemas(name: str) -> None:
    method = TOOLS[name]
    schema = schema_of(method)

    assert method.title
    assert method.description.endswith(".")
    assert schema["additionalProperties"] is False
    assert method.result.model_json_schema(mode="serialization")["type"] == "object"


def unread_config() -> Config:
    """Fail: a refused call must not read the configuration."""
    raise AssertionError("the configuration was read")


@pytest.fixture
async def door(stack: Stack) -> Dispatcher:
    async def unreached(call: Call, params: Any) -> Any:
        raise AssertionError(f"{call.method.name} was reached with {params!r:.200}")

    return Dispatcher(
        stack.fleet,
        stack.home,
        unread_config,
        dict.fromkeys(METHODS, unreached),
    )


def test_bad_calls_yields_enough_cases() -> None:
    assert len(list(bad_calls())) > 250


async def test_bad_parameters_are_refused_in_a_sentence(door: Dispatcher) -> None:
    for case in bad_calls():
        tool, params = case.values
        with pytest.raises(CallRefused) as refusal:
            await door.call(ADMIN, tool, params)
        message = str(refusal.value)
        assert refusal.value.code == "INVALID_REQUEST", case.id
        assert message.startswith(f"{tool}: "), case.id
        assert message.endswith("."), case.id
        assert "\n" not in message, case.id
        assert len(message) < 1500, case.id


@pytest.mark.parametrize(
    ("tool", "params", "message"),
    [
        (
            "cron_add",
            {"job": {"name": "n", "message": "m", "schedule": {"every": 60, "zone": "UTC"}}},
            "cron_add: job.schedule.zone is no parameter.",
        ),
        (
            "subagents",
            {"params": {"id": "1"}},
            "subagents: params.id is no parameter.",
        ),
        ("message_broadcast", {"targets": "a", "message": "m"}, "targets must be a list."),
        ("cron_update", {"jobId": "0" * 16, "updates": "x"}, "updates must be an object."),
        ("message_react", {"messageId": "m", "emoji": "x\n"}, "\\P{Cc}*$'."),
        ("sessions_list", {"limit": "5"}, "sessions_list: limit must be a valid integer."),
    ],
)
async def test_a_refusal_names_the_wrong_parameter_and_its_place(
    door: Dispatcher, tool: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(CallRefused) as refusal:
        await door.call(ADMIN, tool, params)

    assert str(refusal.value).endswith(message)


async def test_an_unknown_tool_is_not_found(door: Dispatcher) -> None:
    for name in ("sessions.spoon", "no_such_tool", ""):
        with pytest.raises(CallRefused) as refusal:
            await door.call(ADMIN, name, {})
        assert refusal.value.code == "NOT_FOUND"


def test_a_method_without_a_handler_is_refused_at_the_start(stack: Stack, home: Home) -> None:
    with pytest.raises(RuntimeError, match=r"without a handler: .*health"):
        Dispatcher(stack.fleet, home, unread_config, {})


def test_a_handler_without_a_method_is_refused_at_the_start(stack: Stack, home: Home) -> None:
    async def handler(call: Call, params: Any) -> Any:
        raise NotImplementedError

    with pytest.raises(RuntimeError, match="without a method: made"):
        Dispatcher(stack.fleet, home, unread_config, {"made.up": handler}, methods={})


METHOD: dict[str, Any] = {
    "name": "weather.get",
    "tool": "weather",
    "description": "Show the weather.",
    "params": NoParams,
    "result": Result,
    "scope": "read",
}
POLICY: dict[str, Any] = {
    "title": "Show the weather",
    "effect": "none",
    "groups": ("weather",),
    "owner_only": False,
    "approvable": False,
}


@pytest.mark.parametrize("missing", ["effect", "groups", "owner_only", "approvable"])
def test_a_tool_without_policy_facts_is_refused_at_the_start(missing: str) -> None:
    facts = {name: value for name, value in POLICY.items() if name != missing}

    with pytest.raises(
        TypeError, match=rf"^Tool\.__init__\(\) missing 1 .* argument: '{missing}'$"
    ):
        Tool(**METHOD, **facts)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: Method(**METHOD),
            "weather is a tool: declare it as a Tool, which says its groups",
        ),
        (lambda: Tool(**METHOD, **POLICY | {"groups": ()}), "weather is in no group"),
        (lambda: Tool(**METHOD | {"scope": "owner"}, **POLICY), "weather.get has no scope"),
    ],
)
def test_an_incomplete_method_declaration_is_refused_at_the_start(
    declare: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        declare()


def test_each_noun_is_declared_in_one_module_and_handled_in_the_one_of_its_name() -> None:
    """A module may have small nouns of its subject, too, such as `deadletters` of the fleet."""
    declared = {
        method.name: path.stem
        for path in (ROOT / "remoteclaw" / "tools").glob("*.py")
        for method in getattr(
            importlib.import_module(f"remoteclaw.tools.{path.stem}"), "METHODS", ()
        )
        if path.stem != "catalog"
    }
    handled = {
        name: path.stem
        for path in (ROOT / "remoteclaw" / "gateway" / "methods").glob("[a-z]*.py")
        for name in getattr(
            importlib.import_module(f"remoteclaw.gateway.methods.{path.stem}"), "HANDLERS", ()
        )
    }
    modules: dict[str, set[str]] = {}
    for name, module in declared.items():
        modules.setdefault(name.partition(".")[0], set()).add(module)

    assert handled == declared
    assert {noun: names for noun, names in modules.items() if len(names) > 1} == {}


def test_json_has_one_spelling() -> None:
    """Names are in camel case, in parameters and in results, at every depth."""
    spelled = re.compile(r"[a-z]+([A-Z][a-z0-9]*)*")
    wrong = [
        f"{method.name}: {name}"
        for method in METHODS.values()
        for schema in (schema_of(method), method.result.model_json_schema(mode="serialization"))
        for part in (schema, *schema.get("$defs", {}).values())
        for name in part.get("properties", {})
        if not spelled.fullmatch(name)
    ]

    assert wrong == []
    assert all(map(spelled.fullmatch, Usage().plain()))
