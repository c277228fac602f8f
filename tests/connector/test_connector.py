"""The stdio connector with real MCP clients and servers, and with misbehaving servers."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from remoteclaw.bridge.side_effects import read_mcp_side_effects
from remoteclaw.connector import connector_launch
from remoteclaw.connector.connector import MAX_MESSAGE_BYTES
from remoteclaw.connector.environment import Unusable, endpoint
from remoteclaw.gateway import limits
from tests.support.connector import Exchange, Pipes, ScriptedGateway, answer, free_port, request
from tests.support.mcp_gateway import TOKEN, TOOLS, McpGateway, call_id
from tests.support.rows import for_each
from tests.support.waiting import eventually

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

SENT = {
    "type": "message_sent",
    "tool": "message_send",
    "provider": "telegram",
    "to": "group:123",
    "text": "Hällo",
    "mediaUrl": None,
    "ts": 1708905600000,
    "callId": "abc",
}


@pytest.fixture
def gateway() -> Iterator[McpGateway]:
    """The real MCP server."""
    with McpGateway().running() as running:
        yield running


@pytest.fixture
async def agent(gateway: McpGateway) -> AsyncIterator[Pipes]:
    """A connector to that server, after the handshake."""
    async with Pipes.of(gateway.url) as pipes:
        await pipes.begin()
        yield pipes


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a call's result."""
    text: str = message["result"]["content"][0]["text"]
    return text


def failure_of(message: dict[str, Any]) -> str:
    """Return the text of a failed call's result."""
    assert message["result"]["isError"] is True
    return text_of(message)


# -- with a real client and a real server ----------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_real_client_lists_and_calls_tools(gateway: McpGateway, mode: str) -> None:
    command, *args = connector_launch()
    env = {"REMOTECLAW_GATEWAY_URL": gateway.url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
    server = StdioServerParameters(command=command, args=args, env=env)

    async with Client(server, mode=mode) as client:
        tools = await client.list_tools()
        result = await client.call_tool("echo", {"message": "grüße\n\u2028"})

    assert [tool.name for tool in tools.tools] == [tool.name for tool in TOOLS]
    assert result.content == [types.TextContent(type="text", text="grüße\n\u2028")]
    assert {headers["mcp-protocol-version"] for headers in gateway.headers[1:]} <= {
        "2025-06-18",
        "2025-11-25",
    }


async def test_the_handshake_is_forwarded_to_the_gateway(gateway: McpGateway) -> None:
    async with Pipes.of(gateway.url) as agent:
        result = await agent.begin()

        await agent.ask("tools/list")

    assert result["protocolVersion"] == "2025-06-18"
    assert gateway.methods == ["initialize", "tools/list"]


async def test_eight_calls_run_at_once_without_blocking_other_requests(
    agent: Pipes, gateway: McpGateway
) -> None:
    numbers = range(1, 10)
    await agent.say(
        *(
            request("tools/call", number, name="wait", arguments={"message": str(number)})
            for number in numbers
        )
    )
    await eventually(lambda: len(gateway.waiting) == 8)

    listed = await agent.ask("tools/list", "in between")
    gateway.released.set()
    response = [await agent.hear() for _ in numbers]

    assert listed["id"] == "in between"
    assert {message["id"]: text_of(message) for message in response} == {
        number: str(number) for number in numbers
    }


async def test_every_call_has_a_unique_id(agent: Pipes, gateway: McpGateway) -> None:
    await agent.call("echo", 1, message="a")
    await agent.call("echo", 2, message="b")
    meta = {"remoteclaw/callId": "mine", "progressToken": 7}
    await agent.ask("tools/call", 3, name="echo", arguments={"message": "c"}, _meta=meta)

    first, second, third = gateway.received[-3:]
    assert len({call_id(first), call_id(second), "mine", None}) == 4
    assert third["params"]["_meta"] == meta


async def test_a_cancelled_call_is_abandoned(agent: Pipes, gateway: McpGateway) -> None:
    await agent.say(request("tools/call", 5, name="wait", arguments={"message": "x"}))
    await eventually(lambda: gateway.waiting)

    params = {"requestId": 5, "reason": "no time"}
    await agent.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    assert (await agent.ask("ping"))["result"] == {}  # so it has read the cancellation
    gateway.released.set()
    assert (await agent.ask("tools/list", 6))["id"] == 6  # and not an answer to 5
    assert text_of(await agent.call("echo", 7, message="on")) == "on"


async def test_a_queued_call_that_is_cancelled_is_never_sent(
    agent: Pipes, gateway: McpGateway
) -> None:
    await agent.say(
        *(
            request("tools/call", number, name="wait", arguments={"message": str(number)})
            for number in range(8)
        ),
        request("tools/call", "late", name="echo", arguments={}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "late"}},
    )
    await eventually(lambda: len(gateway.waiting) == 8)
    assert (await agent.ask("ping"))["result"] == {}
    gateway.released.set()
    for _ in range(8):
        await agent.hear()

    assert (await agent.ask("ping", "last"))["id"] == "last"
    assert "echo" not in {message["params"].get("name") for message in gateway.received}


async def test_a_call_carries_the_session_key_of_its_environment(gateway: McpGateway) -> None:
    async with Pipes.of(gateway.url, {"REMOTECLAW_SESSION_KEY": "3f9a1c2b"}) as agent:
        await agent.begin()
        await agent.call("echo", message="x")

    (call,) = [one for one in gateway.received if one["method"] == "tools/call"]
    assert call["params"]["_meta"]["remoteclaw/sessionKey"] == "3f9a1c2b"


# -- side effects ----------------------------------------------------------------------------------


async def test_side_effects_are_on_disk_before_the_answer_and_hidden_from_the_agent(
    gateway: McpGateway, directory: Path
) -> None:
    file = directory / "side-effects.ndjson"
    gateway.side_effects = [SENT, {"type": "cron_added", "jobId": "job", "ts": 1}]
    async with Pipes.of(gateway.url, {"REMOTECLAW_SIDE_EFFECTS_FILE": str(file)}) as agent:
        await agent.begin()
        response = await agent.call("send", message="done")
        lines = file.read_text().splitlines()

    assert text_of(response) == "done"
    assert "_meta" not in response["result"]
    assert [json.loads(line) for line in lines] == gateway.side_effects
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    effects = read_mcp_side_effects(file)
    assert effects.sent_texts == ("Hällo",)
    assert effects.cron_adds == 1


async def test_side_effects_that_cannot_be_written_are_reported(
    gateway: McpGateway, directory: Path
) -> None:
    gateway.side_effects = [SENT]

    env = {"REMOTECLAW_SIDE_EFFECTS_FILE": str(directory)}
    async with Pipes.of(gateway.url, env) as agent:
        assert text_of(await agent.call("send", message="done")) == "done"

    assert "Side effects can't be written to REMOTECLAW_SIDE_EFFECTS_FILE: Is a d" in agent.errors


# -- an unreachable or refusing gateway ------------------------------------------------------------


async def test_an_unreachable_gateway_is_reported_until_it_is_back() -> None:
    port = free_port()
    async with Pipes.of(f"http://127.0.0.1:{port}") as agent:
        began = await agent.ask("initialize", 0)
        called = await agent.call("echo", 2, message="x")
        ping = await agent.ask("ping", 3)
        with McpGateway(port=port).running():
            await agent.begin()
            called_again = await agent.call("echo", 5, message="x")

    assert (
        began["error"]["message"]
        == failure_of(called)
        == (
            f"RemoteClaw's gateway at 127.0.0.1:{port} can't be reached: connection refused; "
            "start it with `remoteclaw up` or `remoteclaw gateway`."
        )
    )
    assert ping["result"] == {}
    assert text_of(called_again) == "x"


async def test_a_rejected_token_is_reported_at_the_handshake(
    gateway: McpGateway,
) -> None:
    env = {"REMOTECLAW_GATEWAY_TOKEN": "wrong-token"}
    async with Pipes.of(gateway.url, env) as agent:
        began = await agent.ask("initialize", 0, protocolVersion="2025-06-18")
        called = await agent.call("echo", 1, message="x")

    sentence = (
        f"RemoteClaw's gateway at 127.0.0.1:{gateway.port} doesn't accept the token from "
        "REMOTECLAW_GATEWAY_TOKEN."
    )
    assert began["error"]["message"] == failure_of(called) == sentence
    assert "wrong-token" not in agent.errors


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "answered echo with HTTP status 403 (No turn runs.)."),
        (413, "is too large"),
        (500, "answered echo with HTTP status 500 (No turn runs.). Whether it was done"),
    ],
)
async def test_every_http_refusal_is_reported_in_a_sentence(status: int, words: str) -> None:
    body = json.dumps({"error": {"code": -1, "message": "No turn\nruns."}}).encode()

    async def script(exchange: Exchange) -> None:
        await exchange.reply(
            b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
        )

    gateway = ScriptedGateway(script)
    async with gateway.running(), Pipes.of(gateway.url) as agent:
        assert words in failure_of(await agent.call("echo"))


async def test_a_message_that_is_too_large_for_the_gateway_is_not_sent(
    gateway: McpGateway,
) -> None:
    async with Pipes.of(gateway.url) as agent:
        large = await agent.call("echo", 1, message="x" * MAX_MESSAGE_BYTES)
        less = await agent.call("echo", 2, message="y" * (MAX_MESSAGE_BYTES - 1000))

    assert "The request echo is too large" in failure_of(large)
    assert len(text_of(less)) == MAX_MESSAGE_BYTES - 1000
    assert len(gateway.connections) == 1
    assert MAX_MESSAGE_BYTES == limits.MAX_REQUEST_BYTES


# -- connections that break ------------------------------------------------------------------------


async def test_a_request_that_may_have_been_executed_is_not_repeated() -> None:
    async def script(exchange: Exchange) -> None:
        exchange.close()

    gateway = ScriptedGateway(script)
    async with gateway.running(), Pipes.of(gateway.url) as agent:
        response = await agent.ask("prompts/get", 1)

    assert len(gateway.seen) == 1
    assert "failed during prompts/get" in response["error"]["message"]


@pytest.mark.parametrize("cut", [b"", OK + b"Content-Length: 99\r\n\r\n{"])
async def test_a_call_is_retried_under_the_same_id(cut: bytes) -> None:
    async def script(exchange: Exchange) -> None:
        if len(server.seen) == 1:
            await exchange.reply(cut)
            exchange.close()
        else:
            await exchange.reply(answer(exchange, {"content": [{"type": "text", "text": "ok"}]}))

    server = ScriptedGateway(script)
    async with server.running(), Pipes.of(server.url) as agent:
        response = await agent.call("echo", 1)

    first, second = server.seen
    assert text_of(response) == "ok"
    assert call_id(first.message) == call_id(second.message) is not None


async def test_a_call_that_keeps_failing_is_reported_as_unknown() -> None:
    async def script(exchange: Exchange) -> None:
        exchange.close()

    gateway = ScriptedGateway(script)
    async with gateway.running(), Pipes.of(gateway.url) as agent:
        response = await agent.call("echo", 1)

    assert len(gateway.seen) > 2  # it tries for as long as a gateway takes to start
    assert len({call_id(seen.message) for seen in gateway.seen}) == 1
    assert "Whether it was done is unknown" in failure_of(response)


async def test_all_attempts_of_a_call_share_one_time_limit() -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(0.5)
        exchange.close()

    gateway = ScriptedGateway(script)
    async with gateway.running(), Pipes.of(gateway.url, patience_s=2) as agent:
        response = await agent.call("echo", 1)

    assert "has not answered echo within 2 s" in failure_of(response)
    assert 1 < len(gateway.seen) < 5


IMPROPER = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "endless": OK + b"\r\n" + b"y" * 17_000_000,
    "not JSON": OK + b"Content-Length: 6\r\n\r\n<html>",
    "nothing": b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    "another's answer": OK + b"Content-Length: 10\r\n\r\n" + b'{"id": 99}',
}


@pytest.mark.parametrize("name", IMPROPER)
async def test_an_invalid_http_response_is_reported_in_a_sentence(name: str) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.message["params"]["name"] == "second":
            return await exchange.reply(answer(exchange, {"content": [{"text": "fine"}]}))
        await exchange.reply(IMPROPER[name])
        return exchange.close()

    gateway = ScriptedGateway(script)
    async with gateway.running(), Pipes.of(gateway.url) as agent:
        response = await agent.call("first", 1)
        later = await agent.call("second", 2)

    assert "failed during first: " in failure_of(response)
    assert text_of(later) == "fine"


# -- invalid requests ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', -32601, 1),
    ],
)
async def test_an_invalid_request_is_answered_with_an_error(
    line: bytes, code: int, number: int | None
) -> None:
    async with Pipes.of("http://127.0.0.1:1") as agent:
        await agent.write(line + b"\n\r\n \n")
        response = await agent.hear()

        assert (await agent.ask("ping", "then"))["id"] == "then"
    assert (response["error"]["code"], response["id"]) == (code, number)


async def test_a_cancellation_without_a_matching_call_is_ignored(gateway: McpGateway) -> None:
    async with Pipes.of(gateway.url) as agent:
        odd: list[Any] = [{}, {"requestId": 99}, {"requestId": [1]}, 7]
        for params in odd:
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            await agent.say(message)
        assert (await agent.ask("ping", 1))["id"] == 1

    assert gateway.received == []


# -- start and end ---------------------------------------------------------------------------------


def start(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a connector with nothing to do."""
    return subprocess.run(
        connector_launch(),
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_a_connector_without_a_token_reports_it_and_exits(directory: Path) -> None:
    ended = start({"REMOTECLAW_HOME": str(directory)})

    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "REMOTECLAW_GATEWAY_TOKEN is not set" in ended.stderr
    assert f"{directory}/connector-token" in ended.stderr


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ("file-token\n", 0o600, None),
        ("file-token", 0o640, "open to others: run `chmod 600"),
        ("", 0o600, "is empty or has invalid characters"),
        ("file-token\nmore", 0o600, "is empty or has invalid characters"),
    ],
)
def test_a_token_file_has_to_be_private(
    directory: Path, content: str, mode: int, problem: str | None
) -> None:
    file = directory / ".remoteclaw" / "connector-token"
    file.parent.mkdir()
    file.write_text(content)
    file.chmod(mode)

    ended = start({"HOME": str(directory)})

    assert "token\n" not in ended.stderr
    assert "file-token" not in ended.stderr
    if problem is None:
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert ended.returncode == 1
        assert problem in ended.stderr


@for_each(
    ("url", "where"),
    [
        (None, ("/home/me/.remoteclaw/gateways", 0)),
        ("http://127.0.0.1:5", ("127.0.0.1", 5)),
        ("WS://localhost:5/", ("localhost", 5)),
        ("http://gateway.example", ("gateway.example", 80)),
        ("http://[::1]:5/mcp", ("::1", 5)),
        ("https://127.0.0.1:5", None),
        ("127.0.0.1:5", None),
        ("http://:5", None),
        ("http://h:0", None),
        ("http://me:secret@h:x", None),
    ],
)
def test_a_gateway_address_is_parsed_or_refused(
    url: str | None, where: tuple[str, int] | None
) -> None:
    environ = {"REMOTECLAW_HOME": "/home/me/.remoteclaw"}
    environ |= {"REMOTECLAW_GATEWAY_URL": url} if url else {}
    if where is None:
        with pytest.raises(Unusable) as refused:
            endpoint(environ)
        assert "secret" not in str(refused.value)
    else:
        assert endpoint(environ) == where


async def test_host_names_in_addresses_are_resolved(gateway: McpGateway) -> None:
    async with Pipes.of(f"ws://localhost:{gateway.port}") as agent:
        assert "result" in await agent.ask("tools/list")
    async with Pipes.of("ws://nobody.invalid") as agent:
        assert "nobody.invalid:80 can't be reached: " in failure_of(await agent.call("echo"))


async def test_the_connector_exits_when_its_input_ends(gateway: McpGateway) -> None:
    async with Pipes.of(gateway.url) as agent:
        await agent.say(request("tools/call", 1, name="wait", arguments={}))
        await eventually(lambda: gateway.waiting)
        await agent.end()

    assert agent.process.returncode == 0
    assert agent.errors == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_connector_without_output(number: signal.Signals) -> None:
    async with Pipes.of("http://127.0.0.1:1") as agent:
        await agent.ask("ping")
        agent.process.send_signal(number)
        await agent.process.wait()

    assert agent.process.returncode == -number
    assert agent.errors == ""


async def test_the_connector_exits_when_its_output_is_closed(gateway: McpGateway) -> None:
    reading, writing = os.pipe()
    env = {"REMOTECLAW_GATEWAY_URL": gateway.url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *connector_launch(),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    os.close(reading)
    assert process.stdin
    process.stdin.write(json.dumps(request("tools/list")).encode() + b"\n")
    assert process.stderr
    errors = await process.stderr.read()
    process.stdin.close()

    assert await process.wait() == 0
    assert errors == b""


async def test_the_connector_works_with_non_blocking_pipes(gateway: McpGateway) -> None:
    """The connector shares pipes with the CLI, which may have made them non-blocking."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    answers, output = os.pipe()
    os.set_blocking(output, False)
    env = {"REMOTECLAW_GATEWAY_URL": gateway.url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *connector_launch(), env=env, stdin=ours, stdout=output
    )
    os.close(ours)
    os.close(output)
    text = "x" * 500_000  # more than fits into a pipe

    def talk() -> bytes:
        message = request("tools/call", name="echo", arguments={"message": text})
        with os.fdopen(theirs, "wb") as writing, os.fdopen(answers, "rb") as reading:
            writing.write(json.dumps(message).encode() + b"\n")
            writing.flush()
            return reading.readline()

    response = json.loads(await asyncio.to_thread(talk))

    assert text_of(response) == text
    assert await process.wait() == 0


async def test_the_mcp_command_becomes_the_connector(gateway: McpGateway) -> None:
    env = {"REMOTECLAW_GATEWAY_URL": gateway.url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from remoteclaw.cli import main; main()", "mcp"),
        env={**os.environ, **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(request("tools/list")).encode() + b"\n")
    response = json.loads(await process.stdout.readline())
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    process.stdin.close()
    await process.wait()

    assert len(response["result"]["tools"]) == len(TOOLS)
    assert [os.fsdecode(word) for word in command] == connector_launch()


def test_the_connector_imports_only_the_standard_library() -> None:
    launch = connector_launch()
    script = (
        "import sys; sys.path.append(sys.argv[1]); import remoteclaw.connector.connector; "
        "print(*(name.partition('.')[0] for name in sys.modules)); "
        "print(*(name for name in sys.modules if name.startswith('remoteclaw')))"
    )
    root = str(Path(launch[-1]).parents[2])
    loaded, ours = subprocess.run(
        [*launch[:-1], "-c", script, root], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert {*loaded.split()} <= {*sys.stdlib_module_names, "__main__", "remoteclaw"}
    modules = ("connector", "environment", "exchange")
    assert {*ours.split()} == {
        *("remoteclaw", "remoteclaw.connector", "remoteclaw.locations"),
        *(f"remoteclaw.connector.{name}" for name in modules),
    }
