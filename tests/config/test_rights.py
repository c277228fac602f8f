"""Declarations of settings: every setting has one, and agents may change only some settings."""

from collections.abc import Iterator
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.config.rights import BY_PEOPLE, declared, differences, fields
from tests.support.rows import for_each

#: The settings that agents may change for an owner. Add a setting only if it can't start a program,
#: contain a secret, grant rights, or instruct an agent.
FOR_AGENTS = {
    *("agents.*.model", "agents.*.task_model", "agents.*.timezone", "agents.*.warm_s"),
    *("channels", "channels.*.reactions", "channels.*.chunk_limit", "channels.*.chunk_unit"),
    "channels.*.code_file_lines",
    *("queue.mode", "queue.debounce_ms", "queue.cap", "queue.drop", "queue.channels"),
    *("queue.channels.*.mode", "queue.channels.*.debounce_ms"),
    *("queue.asides", "queue.aside_s"),
    *("queue.channels.*.cap", "queue.channels.*.drop", "queue.gather_ms", "queue.gather_most_ms"),
    *("queue.channels.*.gather_ms", "queue.channels.*.gather_most_ms"),
}
#: The settings that processes read only at their start.
AT_START = {
    *("redis.url", "redis.appendfsync", "redis.maxmemory", "fleet.lease_s", "fleet.workers"),
    *("fleet.stop_s", "fleet.host_name", "fleet.log_format"),
    *("gateway.host", "gateway.port", "gateway.allow_remote", "gateway.hosts", "gateway.origins"),
    *("hooks.before_runtime_spawn", "hooks.session_resumed"),
    *("hooks.after_runtime_exit", "hooks.agent_end"),
}


@for_each("path", [".".join(path) for path, _ in fields(Config)])
def test_every_setting_declares_who_may_change_it(path: str) -> None:
    field = {".".join(path): field for path, field in fields(Config)}[path]

    assert declared(field) is not None, (
        f"{path} has no declaration: write its type as Annotated[…, BY_PEOPLE] where it is defined "
        "(remoteclaw/config/model/), or as Annotated[…, by_people(restart=…)]"
        " if a process reads it only at its start; then add it to AT_START here. "
        "BY_AGENTS lets a model change it: add it to FOR_AGENTS here, whose comment has conditions"
    )


def test_agents_may_change_only_the_listed_settings() -> None:
    found = {
        ".".join(path)
        for path, field in fields(Config)
        if (declared(field) or BY_PEOPLE).agents_may
    }

    assert found == FOR_AGENTS


def test_every_numeric_setting_has_a_minimum_and_a_maximum() -> None:
    """A number beyond the range of JSON could not be shown or sent to Redis."""
    schema = Config.model_json_schema()

    def numbers(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(node, dict):
            if node.get("type") in ("integer", "number"):
                yield path, node
            for name, inner in node.items():
                yield from numbers(inner, f"{path}.{name}")
        elif isinstance(node, list):
            for inner in node:
                yield from numbers(inner, path)

    found = dict(numbers(schema, ""))
    assert len(found) > 20
    assert [path for path, schema in found.items() if "maximum" not in schema] == []
    assert [path for path, schema in found.items() if "minimum" not in schema] == []


def test_only_the_listed_settings_need_a_restart() -> None:
    found = {
        ".".join(path) for path, field in fields(Config) if (declared(field) or BY_PEOPLE).restart
    }

    assert found == AT_START


def test_the_schema_contains_the_declarations() -> None:
    section = Config.model_json_schema()["$defs"]["FleetConfig"]["properties"]["workers"]

    assert section["agentsMayChange"] is False
    assert section["needsRestart"] == "`remoteclaw up`"


@for_each(
    ("before", "after", "expected"),
    [
        ({}, {"queue": {"mode": "steer"}}, {"queue.mode": True}),
        ({"queue": {"mode": "steer"}}, {}, {"queue.mode": True}),
        ({}, {"channels": {"a": {}}}, {"channels.a": True}),
        ({}, {"channels": {"a": {"owners": []}}}, {"channels.a": True, "channels.a.owners": False}),
        ({}, {"agents": {"a": {}}}, {"agents.a": False}),
        (
            {"agents": {"a": {"model": "x"}}},
            {},
            {"agents.a": False, "agents.a.model": True},
        ),
        ({}, {"agents": {"a": {"mcp_servers": {}}}}, {"agents.a": False}),
        ({}, {"channels": {"a": {"reset": {}}}}, {"channels.a": True, "channels.a.reset": False}),
        ({"gateway": {}}, {"gateway": {"port": 1}}, {"gateway.port": False}),
        ({}, {"redis": {}}, {}),
        ({}, {"queue": 3}, {"queue": False}),
        ({}, {"queue": {"channels": 3}}, {"queue.channels": True}),
        ({}, {"nothing": 3}, {"nothing": False}),
        (
            {"agents": {"a": {"env": {"A": "1", "B.C": "2"}}}},
            {"agents": {"a": {"env": {"A": "1", "B.C": "3", "": "4"}}}},
            {'agents.a.env."B.C"': False, 'agents.a.env.""': False},
        ),
        ({"gateway": {"port": 1}}, {"gateway": {"port": True}}, {"gateway.port": False}),
        ({"fleet": {"lease_s": 1}}, {"fleet": {"lease_s": 1.0}}, {}),
        ({"agents": {"a": {"command": ["x"]}}}, {"agents": {"a": {"command": ["x"]}}}, {}),
    ],
)
def test_differences_name_each_setting_and_whether_agents_may_change_it(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, bool]
) -> None:
    found = {
        setting.name: bool(setting.declaration and setting.declaration.agents_may)
        for setting in differences(Config, before, after)
    }

    assert found == expected
