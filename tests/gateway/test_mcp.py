"""The door to MCP, opened by clients that we did not write."""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.client import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from remoteclaw.connector import connector_launch
from remoteclaw.gateway.doors.mcp import listing
from remoteclaw.gateway.methods.tasks import FOR_NOBODY
from remoteclaw.tools.catalog import TOOLS
from tests.conftest import REQUIRED
from tests.support.agents import BROUGHT
from tests.support.command import REMOTECLAW
from tests.support.cron import cron_of
from tests.support.doors import Door, calling, gateway_process, opened
from tests.support.mcp_client import agents_client, client
from tests.support.platform import Platform
from tests.support.stack import Stack

LISTED = set(TOOLS)


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def own(stack: Stack) -> str:
    """Return the gateway's own token."""
    return (stack.home.path / "gateway-token").read_text().strip()


def owner(stack: Stack) -> None:
    stack.configure(channels={"test": {"owners": ["alice"]}})


async def test_the_list_is_small_and_says_what_a_model_needs(stack: Stack) -> None:
    """Every conversation pays for it: 5,100 tokens of about four characters."""
    async with opened(stack) as door, client(door, own(stack)) as session:
        tools = (await session.list_tools()).tools

    for tool in tools:
        method = TOOLS[tool.name]
        assert tool.title == method.title
        assert tool.annotations is not None
        assert bool(tool.annotations.read_only_hint) == (method.effect == "none")
        assert bool(tool.annotations.destructive_hint) == method.destroys
        for schema in (tool.input_schema, tool.output_schema):
            assert schema is not None
            assert schema["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(schema)
    texts = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in tools]
    assert sum(map(len, texts)) < 20_400
    assert [tool.name for tool in tools] == list(TOOLS)
    for tool in tools:
        told, schema = str(tool.description), tool.input_schema
        for _, part in parameters(schema):
            assert part["description"], tool.name
            assert part["type"] in ("string", "integer", "number", "boolean", "array", "object")
        assert not {"$ref", "$defs", "anyOf", "title"} & set(words(schema))
        if schema["properties"] and tool.name != "gateway_config_apply":  # it has a hash
            example = json.loads(told.partition("Example: ")[2].removesuffix("."))
            jsonschema.validate(example, {**schema, "additionalProperties": False})
            TOOLS[tool.name].params.model_validate(example)
    for spoken in ("remind me", "every morning", "schedule"):
        assert spoken in str(TOOLS["cron_add"].description).lower()


def parameters(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each parameter, and what those are made of that are objects."""
    for name, part in schema.get("properties", {}).items():
        yield name, part
        yield from parameters(part)


def words(schema: Any) -> Iterator[str]:
    """Yield the keywords of a schema, which names of parameters are not."""
    for word, value in schema.items():
        yield word
        if word == "properties":
            for part in value.values():
                yield from words(part)
        elif word == "items":
            yield from words(value)


async def test_an_agent_is_told_of_what_it_may_use(stack: Stack) -> None:
    async with agents_client(stack, tools=["session_status"]) as (session, _):
        granted = {tool.name for tool in (await session.list_tools()).tools}
    owner(stack)
    async with agents_client(stack, from_="bob", channel_id="bob") as (session, _):
        strangers = {tool.name for tool in (await session.list_tools()).tools}
    async with agents_client(stack, from_="bob", channel_id="c2") as (session, agent):
        in_a_group = {tool.name for tool in (await session.list_tools()).tools}
        await agent.finish()
        between_turns = {tool.name for tool in (await session.list_tools()).tools}

    assert granted == {"session_status"}
    assert strangers == {name for name in LISTED if not name.startswith(("cron", "gateway"))}
    assert in_a_group == between_turns == set(LISTED)


async def test_tools_that_do_nothing_on_a_channel_are_not_listed(stack: Stack) -> None:
    """By what the channel is: no adapter is at work on either."""
    lacking = {"react", "delete", "pin", "read", "thread_reply"}
    async with agents_client(stack, provider="console", from_="owner") as (session, _):
        console = {tool.name for tool in (await session.list_tools()).tools}
    stack.configure(channels={"chats": {"owners": ["alice"]}})
    async with agents_client(stack, provider="chats") as (session, _):
        other = {tool.name for tool in (await session.list_tools()).tools}

    assert console == LISTED - {f"message_{name}" for name in lacking}
    assert other == LISTED


#: What each tool is called with, in this order; `$job` is the id of the job that cron_add made,
#: `$hash` and `$config` are what gateway_config_get returns.
CALLS: dict[str, dict[str, Any]] = {
    "sessions_list": {"filter": "test", "limit": 5},
    "sessions_history": {"sessionKey": "main/test/default/c2:bob:_"},
    "sessions_send": {"sessionKey": "main/test/default/c2:bob:_", "message": "hi", "timeout": 0},
    "sessions_spawn": {"prompt": "look", "label": "looking"},
    "session_status": {},
    "agents_list": {},
    "subagents": {"action": "status", "params": {"label": "looking"}},
    "session_progress": {"progress": "3 of 7"},
    "message_send": {"target": "c3", "message": "hi"},
    "message_reply": {"message": "hi", "replyToId": "m1"},
    "message_thread_reply": {"message": "hi", "threadId": "t1"},
    "message_broadcast": {"targets": ["c3", "c4"], "message": "hi"},
    "message_react": {"emoji": "👍", "messageId": "m1"},
    "message_send_attachment": {"target": "c3", "file": "note.txt"},
    "message_send_with_effect": {"target": "c3", "message": "hi", "effectId": "confetti"},
    "message_pin": {"messageId": "m1"},
    "message_read": {"limit": 3},
    "message_delete": {"messageId": "m1"},
    "cron_status": {},
    "cron_list": {},
    "cron_add": {"job": {"name": "tea", "schedule": {"cron": "0 9 * * *"}, "message": "tea"}},
    "cron_update": {"jobId": "$job", "updates": {"enabled": False}},
    "cron_run": {"jobId": "$job"},
    "cron_runs": {"jobId": "$job"},
    "cron_remove": {"jobId": "$job"},
    "gateway_config_get": {"key": "agents.main.model"},
    "gateway_config_schema": {},
    "gateway_config_patch": {"patches": {"queue": {"cap": 7}}},
    "gateway_config_apply": {"config": "$config", "baseHash": "$hash"},
    "gateway_restart": {},
}


async def test_every_tool_is_called_by_the_official_client(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """It refuses results that are not of the form that the tool announces. The list is the same in
    every process: a provider's cache of the prompt ends at the first byte that differs.
    """
    agent = {**stack.agent, "sees_sessions": "all", "workspace": str(directory / "work")}
    stack.configure(agent, channels={"test": {"owners": ["alice"]}})
    (directory / "work").mkdir()
    (directory / "work" / "note.txt").write_text("x")
    await stack.append("hello", from_="bob", channel_id="c2")
    assert platform.say("chat-1", "bo", "hi") == "m1"
    results: dict[str, Any] = {}
    async with (
        platform.served(stack.fleet),
        gateway_process(stack) as (door, _),
        calling(stack) as agents,
        client(door, agents.token) as session,
    ):
        listed = [tool.model_dump_json() for tool in (await session.list_tools()).tools]
        known: dict[str, Any] = {}
        for tool, params in CALLS.items():
            if tool == "gateway_config_apply":
                shown = (await session.call_tool("gateway_config_get", {})).structured_content or {}
                known |= {"$config": shown["config"], "$hash": shown["hash"]}
            results[tool] = await session.call_tool(
                tool, {n: known.get(str(v), v) for n, v in params.items()}
            )
            if tool == "cron_add":
                known["$job"] = results[tool].structured_content["job"]["id"]

    assert listed == [listing(name, has_session=True).model_dump_json() for name in TOOLS]
    told = {tool: text_of(result) for tool, result in results.items() if result.is_error}
    assert told == {"session_progress": FOR_NOBODY}
    assert set(results) == LISTED
    for result in results.values():
        if result.is_error:
            continue
        assert json.loads(text_of(result)) == result.structured_content


async def test_a_setting_that_is_not_set_is_null(stack: Stack) -> None:
    owner(stack)
    async with agents_client(stack) as (session, _):
        result = await session.call_tool("gateway_config_get", {"key": "agents.main.model"})

    assert result.structured_content is not None
    assert result.structured_content["config"] is None
    assert '"config": null' in text_of(result)


@pytest.mark.parametrize("how", ["argument", "environment"])
async def test_ones_own_cli_uses_the_tools_that_are_about_a_session(
    stack: Stack, platform: Platform, how: str
) -> None:
    """There is no current chat, so a person says which one is meant."""
    accepted = await stack.append("hello")
    post = platform.say("chat-1", "bo", "hi")
    calls = {
        "message_reply": {"message": "yes", "replyToId": post},
        "message_thread_reply": {"message": "here", "threadId": "t1"},
        "message_react": {"emoji": "👍", "messageId": post},
        "message_pin": {"messageId": post},
        "message_read": {},
        "message_delete": {"messageId": post},
        "sessions_spawn": {"prompt": "look"},
        "subagents": {},
    }
    key = str(accepted.session)
    named = {"sessionKey": key} if how == "argument" else {}
    program, *args = connector_launch()
    async with platform.served(stack.fleet), opened(stack) as door:
        env = {"REMOTECLAW_GATEWAY_URL": door.url, "REMOTECLAW_GATEWAY_TOKEN": own(stack)}
        env |= {} if named else {"REMOTECLAW_SESSION_KEY": key}
        server = StdioServerParameters(command=program, args=args, env=env)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            results = {
                tool: await session.call_tool(tool, {**params, **named})
                for tool, params in calls.items()
            }

    assert {tool: text_of(told) for tool, told in results.items() if told.is_error} == {}
    assert [one["text"] for one in platform.delivered] == ["yes", "here"]
    assert (results["subagents"].structured_content or {})["runs"]
    offered = {name for name, tool in listed.items() if named_in(tool)}
    assert set(calls) <= offered


def named_in(tool: Any) -> bool:
    return "sessionKey" in tool.input_schema["properties"]


async def test_an_agent_names_no_other_session_of_a_chat(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob", channel_id="c2")
    async with agents_client(stack) as (session, _):
        listed = {tool.name: tool for tool in (await session.list_tools()).tools}
        params = {"message": "hi", "sessionKey": str(bob.session)}
        result = await session.call_tool("message_reply", params)
        meta: Any = {"remoteclaw/sessionKey": str(bob.session)}
        status = await session.call_tool("session_status", {}, meta=meta)

    assert not named_in(listed["message_reply"])
    assert "sessionKey is no parameter" in text_of(result)
    assert "chat-1" in text_of(status)


async def test_a_refusal_is_a_tools_error_that_a_model_can_read(stack: Stack) -> None:
    stack.configure(channels={})  # alice is no owner
    async with agents_client(stack) as (session, agent):
        wrong = await session.call_tool("sessions_list", {"limt": 3})
        denied = await session.call_tool("cron_list", {})
        unknown = await session.call_tool("no_such_tool", {})
        await agent.finish()
        late = await session.call_tool("session_status", {})

    told = [text_of(result) for result in (wrong, denied, unknown, late)]
    assert all(result.is_error for result in (wrong, denied, unknown, late))
    assert told[0] == "sessions_list: limt is no parameter."
    assert told[1] == (
        "The policy doesn't allow cron_list here: it answers only to an owner, and this turn is "
        "not, or not only, an owner's. Say so in your answer."
    )
    assert "no_such_tool" in told[2]
    assert "No turn is running" in told[3]


async def test_the_same_call_again_is_not_done_again(stack: Stack) -> None:
    owner(stack)
    job = {"name": "tea", "schedule": {"every": 3600}, "message": "tea"}
    call = {"name": "cron_add", "arguments": {"job": job}, "_meta": {"remoteclaw/callId": "c1"}}
    async with opened(stack) as door, calling(stack) as agent:
        answers = [await post(door, agent.token, "tools/call", call) for _ in range(2)]
        jobs = await cron_of(stack.fleet).jobs()

    first, second = (answer["result"] for answer in answers)
    assert len(jobs) == 1
    assert first["structuredContent"] == second["structuredContent"]
    assert first["_meta"]["remoteclaw/sideEffects"][0]["type"] == "cron_added"


async def post(door: Door, token: str, method: str, params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    answer = await door.post("/mcp", token, json.dumps(body).encode(), **headers)
    return answer.json


async def test_no_token_no_answer(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        missing = await door.post("/mcp", None, b"{}")
        wrong = await door.post("/mcp", agent.token[:-1] + "x", b"{}")
        session = await door.post("/mcp", None, b"{}", **{"Mcp-Session-Id": agent.token})
        stream = await door.get("/mcp", agent.token)

    assert [missing.status, wrong.status, session.status] == [401, 401, 401]
    assert stream.status == 405  # nothing is said but answers


async def test_the_inspector_calls_what_is_listed(stack: Stack) -> None:
    """Over pipes, with `remoteclaw mcp`. It looks in the list for what it calls."""
    program = shutil.which("mcp-inspector", path=BROUGHT or os.environ["PATH"])
    if program is None:
        assert not REQUIRED, "the MCP inspector is not installed"
        pytest.skip("the MCP inspector is not installed")

    async with opened(stack) as door:
        told = {"REMOTECLAW_GATEWAY_URL": door.url, "REMOTECLAW_GATEWAY_TOKEN": own(stack)}
        process = await asyncio.create_subprocess_exec(
            *(program, "--cli", REMOTECLAW, "mcp"),
            *("--method", "tools/call", "--tool-name", "agents_list"),
            env={**stack.env(**told), "PATH": os.environ["PATH"]},
            cwd=Path(REMOTECLAW).parent,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()

    assert process.returncode == 0, errors
    assert json.loads(out)["structuredContent"]["agents"][0]["id"] == "main"
