"""The door to MCP, opened by clients that we did not write."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.client import ClientSession
from mcp.client.streamable_http import streamable_http_client

from remoteclaw.contract import TOOLS
from tests.conftest import REQUIRED
from tests.support.agents import BROUGHT
from tests.support.doors import Calling, Door, calling, opened
from tests.support.stack import Stack
from tests.support.terminal import REMOTECLAW

LISTED = set(TOOLS)


@contextlib.asynccontextmanager
async def agents_client(
    stack: Stack, **options: Any
) -> AsyncIterator[tuple[ClientSession, Calling]]:
    """Have a gateway, and an agent's client connected whose turn runs."""
    async with (
        opened(stack) as door,
        calling(stack, **options) as agent,
        client(door, agent.token) as session,
    ):
        yield session, agent


@contextlib.asynccontextmanager
async def client(door: Door, token: str) -> AsyncIterator[ClientSession]:
    """Have the official client connected."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{door.url}/mcp", http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def own(stack: Stack) -> str:
    """Return the gateway's own token."""
    return (stack.home.path / "gateway-token").read_text().strip()


def owner(stack: Stack) -> None:
    stack.configure(channels={"test": {"owners": ["alice"]}})


async def test_an_operator_is_told_of_every_listed_tool(stack: Stack) -> None:
    async with opened(stack) as door, client(door, own(stack)) as session:
        tools = (await session.list_tools()).tools

    assert {tool.name for tool in tools} == LISTED
    for tool in tools:
        method = TOOLS[tool.name]
        assert tool.title == method.title
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (method.effect == "none")
        assert tool.annotations.destructive_hint == method.destroys
        for schema in (tool.input_schema, tool.output_schema):
            assert schema is not None
            assert schema["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(schema)


async def test_an_agent_is_told_of_what_it_may_use(stack: Stack) -> None:
    async with agents_client(stack, tools=["session_status"]) as (session, _):
        granted = {tool.name for tool in (await session.list_tools()).tools}
    owner(stack)
    async with agents_client(stack, from_="bob", channel_id="c2") as (session, _):
        strangers = {tool.name for tool in (await session.list_tools()).tools}

    assert granted == {"session_status"}
    assert strangers == {name for name in LISTED if not name.startswith(("cron", "gateway"))}


async def test_results_have_the_form_that_is_announced(stack: Stack) -> None:
    owner(stack)
    async with agents_client(stack) as (session, _):
        schemas = {tool.name: tool.output_schema for tool in (await session.list_tools()).tools}
        for tool in ("session_status", "sessions_list", "agents_list", "cron_list"):
            result = await session.call_tool(tool, {})
            assert not result.is_error
            jsonschema.validate(result.structured_content, schemas[tool] or {})
            assert json.loads(text_of(result)) == result.structured_content


async def test_a_refusal_is_a_tools_error_that_a_model_can_read(stack: Stack) -> None:
    async with agents_client(stack) as (session, agent):
        wrong = await session.call_tool("sessions_list", {"limt": 3})
        denied = await session.call_tool("cron_list", {})
        unknown = await session.call_tool("no_such_tool", {})
        await agent.finish()
        late = await session.call_tool("session_status", {})

    told = [text_of(result) for result in (wrong, denied, unknown, late)]
    assert all(result.is_error for result in (wrong, denied, unknown, late))
    assert told[0] == "sessions_list: limt is no parameter; there are filter, limit."
    assert told[1] == "The policy doesn't allow cron_list here."
    assert "no_such_tool" in told[2]
    assert "No turn is running" in told[3]


async def test_the_same_call_again_is_not_done_again(stack: Stack) -> None:
    owner(stack)
    job = {"name": "tea", "schedule": {"every": 3600}, "message": "tea"}
    call = {"name": "cron_add", "arguments": {"job": job}, "_meta": {"remoteclaw/callId": "c1"}}
    async with opened(stack) as door, calling(stack) as agent:
        answers = [await post(door, agent.token, "tools/call", call) for _ in range(2)]
        jobs = await stack.fleet.cron.jobs()

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


async def test_the_inspector_lists_and_calls(stack: Stack) -> None:
    """Over pipes, with `remoteclaw mcp` and the token of the state directory."""
    program = shutil.which("mcp-inspector", path=BROUGHT or os.environ["PATH"])
    if program is None:
        assert not REQUIRED, "the MCP inspector is not installed"
        pytest.skip("the MCP inspector is not installed")

    async def inspect(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            *(program, "--cli", REMOTECLAW, "mcp", *arguments),
            env={**stack.env(REMOTECLAW_GATEWAY_URL=door.url), "PATH": os.environ["PATH"]},
            cwd=Path(REMOTECLAW).parent,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()
        assert process.returncode == 0, errors
        return json.loads(out)

    async with opened(stack) as door:
        listed = await inspect("--method", "tools/list")
        called = await inspect("--method", "tools/call", "--tool-name", "agents_list")

    assert {tool["name"] for tool in listed["tools"]} == LISTED
    assert called["structuredContent"]["agents"][0]["id"] == "main"
