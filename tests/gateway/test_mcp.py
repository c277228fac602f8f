"""The gateway's MCP endpoint, used by independent MCP clients."""

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
from remoteclaw.gateway.methods.tasks import NO_PARENT
from remoteclaw.tools.catalog import TOOLS
from tests.support.agents import BROUGHT
from tests.support.command import REMOTECLAW
from tests.support.cron import cron_of
from tests.support.doors import Door, calling, gateway_process, opened
from tests.support.installed import missing
from tests.support.mcp_client import agents_client, client
from tests.support.platform import Platform
from tests.support.stack import Stack

#: The tools of an agent without a memory.
LISTED = set(TOOLS) - {"memory_write"}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def own(stack: Stack) -> str:
    """Return the gateway's own token."""
    return (stack.home.path / "gateway-token").read_text().strip()


def configure_owner(stack: Stack) -> None:
    stack.configure(channels={"test": {"owners": ["alice"]}})


async def test_the_mcp_tool_list_is_small_and_fully_described(stack: Stack) -> None:
    """Each conversation contains the list: at most 5,300 tokens of about four characters."""
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
    assert sum(map(len, texts)) < 21_300
    assert [tool.name for tool in tools] == list(TOOLS)
    for tool in tools:
        description, schema = str(tool.description), tool.input_schema
        for _, part in parameters(schema):
            assert part["description"], tool.name
            assert part["type"] in ("string", "integer", "number", "boolean", "array", "object")
        assert not {"$ref", "$defs", "anyOf", "title"} & set(keywords_of(schema))
        if schema["properties"] and tool.name != "gateway_config_apply":  # needs a current hash
            example = json.loads(description.partition("Example: ")[2].removesuffix("."))
            jsonschema.validate(example, {**schema, "additionalProperties": False})
            TOOLS[tool.name].params.model_validate(example)
    for phrase in ("remind me", "every morning", "schedule"):
        assert phrase in str(TOOLS["cron_add"].description).lower()


def parameters(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each parameter and, recursively, the properties of object parameters."""
    for name, part in schema.get("properties", {}).items():
        yield name, part
        yield from parameters(part)


def keywords_of(schema: Any) -> Iterator[str]:
    """Yield the keywords of a schema, without the names of parameters."""
    for word, value in schema.items():
        yield word
        if word == "properties":
            for part in value.values():
                yield from keywords_of(part)
        elif word == "items":
            yield from keywords_of(value)


async def test_mcp_lists_only_the_tools_that_an_agent_may_use(stack: Stack) -> None:
    async with agents_client(stack, tools=["session_status"]) as (session, _):
        granted = {tool.name for tool in (await session.list_tools()).tools}
    configure_owner(stack)
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
    """The channel decides, because no adapter runs on either."""
    lacking = {"pin", "thread_reply"}
    async with agents_client(stack, provider="web", from_="admin.ada") as (session, _):
        page = {tool.name for tool in (await session.list_tools()).tools}
    stack.configure(channels={"chats": {"owners": ["alice"]}})
    async with agents_client(stack, provider="chats") as (session, _):
        other = {tool.name for tool in (await session.list_tools()).tools}

    assert page == LISTED - {f"message_{name}" for name in lacking}
    assert other == LISTED


#: The parameters of each tool, in the order of the calls. `$job` is the id of the job that cron_add
#: creates; `$hash` and `$config` come from gateway_config_get.
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
    "memory_write": {"text": "Alice likes tea."},
}


async def test_the_official_mcp_client_can_call_every_tool(
    stack: Stack, platform: Platform, directory: Path
) -> None:
    """The client refuses results that do not match the output schema of the tool. The list is the
    same in every process, because a provider's prompt cache ends at the first byte that differs.
    """
    agent = {
        **stack.agent,
        "memory": True,
        "sees_sessions": "all",
        "workspace": str(directory / "work"),
    }
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
    errors = {tool: text_of(result) for tool, result in results.items() if result.is_error}
    assert errors == {"session_progress": NO_PARENT}
    assert set(results) == set(TOOLS)
    for result in results.values():
        if result.is_error:
            continue
        assert json.loads(text_of(result)) == result.structured_content


async def test_an_unset_setting_is_returned_as_null(stack: Stack) -> None:
    configure_owner(stack)
    async with agents_client(stack) as (session, _):
        result = await session.call_tool("gateway_config_get", {"key": "agents.main.model"})

    assert result.structured_content is not None
    assert result.structured_content["config"] is None
    assert '"config": null' in text_of(result)


@pytest.mark.parametrize("how", ["argument", "environment"])
async def test_a_persons_own_cli_can_use_the_tools_of_a_session(
    stack: Stack, platform: Platform, how: str
) -> None:
    """There is no current chat, so the person names a session."""
    accepted = await stack.append("hello")
    post = platform.say("chat-1", "bo", "hi")
    calls: dict[str, dict[str, Any]] = {
        "message_reply": {"message": "yes", "replyToId": post},
        "message_thread_reply": {"message": "here", "threadId": "t1"},
        "message_react": {"emoji": "👍", "messageId": post},
        "message_pin": {"messageId": post},
        "message_read": {},
        "message_delete": {"messageId": post},
        "sessions_spawn": {"prompt": "look"},
        "subagents": {},
        "cron_add": {
            "job": {"name": "look", "schedule": {"every": 3600}, "message": "Look."},
        },
    }
    key = str(accepted.session)
    session_argument = {"sessionKey": key} if how == "argument" else {}
    program, *args = connector_launch()
    async with platform.served(stack.fleet), opened(stack) as door:
        env = {"REMOTECLAW_GATEWAY_URL": door.url, "REMOTECLAW_GATEWAY_TOKEN": own(stack)}
        env |= {} if session_argument else {"REMOTECLAW_SESSION_KEY": key}
        server = StdioServerParameters(command=program, args=args, env=env)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            results = {
                tool: await session.call_tool(tool, {**params, **session_argument})
                for tool, params in calls.items()
            }

    assert {tool: text_of(result) for tool, result in results.items() if result.is_error} == {}
    assert [one["text"] for one in platform.delivered] == ["yes", "here"]
    assert (results["subagents"].structured_content or {})["runs"]
    assert (results["cron_add"].structured_content or {})["job"]["sessionKey"] == key
    offered = {name for name, tool in listed.items() if takes_session_key(tool)}
    assert set(calls) <= offered


def takes_session_key(tool: Any) -> bool:
    return "sessionKey" in tool.input_schema["properties"]


async def test_an_agent_cannot_name_the_session_of_another_chat_over_mcp(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob", channel_id="c2")
    async with agents_client(stack) as (session, _):
        listed = {tool.name: tool for tool in (await session.list_tools()).tools}
        params = {"message": "hi", "sessionKey": str(bob.session)}
        result = await session.call_tool("message_reply", params)
        meta: Any = {"remoteclaw/sessionKey": str(bob.session)}
        status = await session.call_tool("session_status", {}, meta=meta)

    assert not takes_session_key(listed["message_reply"])
    assert "sessionKey is no parameter" in text_of(result)
    assert "chat-1" in text_of(status)


async def test_a_refusal_is_a_tool_error_that_a_model_can_read(stack: Stack) -> None:
    stack.configure(channels={})  # alice is no owner
    async with agents_client(stack) as (session, agent):
        wrong = await session.call_tool("sessions_list", {"limt": 3})
        denied = await session.call_tool("cron_list", {})
        unknown = await session.call_tool("no_such_tool", {})
        await agent.finish()
        late = await session.call_tool("session_status", {})

    texts = [text_of(result) for result in (wrong, denied, unknown, late)]
    assert all(result.is_error for result in (wrong, denied, unknown, late))
    assert texts[0] == "sessions_list: limt is no parameter."
    assert texts[1] == (
        "The policy doesn't allow cron_list here: it answers only to an owner, and this turn is "
        "not, or not only, an owner's. Say so in your answer."
    )
    assert "no_such_tool" in texts[2]
    assert "No turn is running" in texts[3]


async def test_a_repeated_mcp_call_is_done_once(stack: Stack) -> None:
    configure_owner(stack)
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


async def test_mcp_requests_without_a_valid_token_are_refused(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        missing = await door.post("/mcp", None, b"{}")
        wrong = await door.post("/mcp", agent.token[:-1] + "x", b"{}")
        session = await door.post("/mcp", None, b"{}", **{"Mcp-Session-Id": agent.token})
        stream = await door.get("/mcp", agent.token)

    assert [missing.status, wrong.status, session.status] == [401, 401, 401]
    assert stream.status == 405  # the gateway sends nothing but answers


async def test_the_mcp_inspector_can_call_a_listed_tool(stack: Stack) -> None:
    """Over pipes, with `remoteclaw mcp`. The inspector looks up the tool in the list."""
    program = shutil.which("mcp-inspector", path=BROUGHT or os.environ["PATH"])
    if program is None:
        missing("the MCP inspector is not installed")

    async with opened(stack) as door:
        connection = {"REMOTECLAW_GATEWAY_URL": door.url, "REMOTECLAW_GATEWAY_TOKEN": own(stack)}
        process = await asyncio.create_subprocess_exec(
            *(program, "--cli", REMOTECLAW, "mcp"),
            *("--method", "tools/call", "--tool-name", "agents_list"),
            env={**stack.env(**connection), "PATH": os.environ["PATH"]},
            cwd=Path(REMOTECLAW).parent,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()

    assert process.returncode == 0, errors
    assert json.loads(out)["structuredContent"]["agents"][0]["id"] == "main"
