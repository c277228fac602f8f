"""The gateway over HTTP and as a process, and which hosts and origins it accepts."""

import asyncio
import contextlib
import functools
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientOSError

from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config, GatewayConfig
from remoteclaw.errors import ConfigError
from remoteclaw.fleet import keys
from remoteclaw.gateway.address import listen, url_of
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.guard import is_own_name
from remoteclaw.gateway.limits import MAX_REQUEST_BYTES
from tests.support.cli import run
from tests.support.command import run_command
from tests.support.doors import Door, calling, gateway_process, hello, opened, own_token, raw
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually

# -- paths ----------------------------------------------------------------------------------------


async def test_unknown_paths_are_not_found(stack: Stack) -> None:
    async with opened(stack) as door:
        for path in ("/nothing", "/tools", "/tools/invoke/", "/mcp/", "/healthz/"):
            answer = await door.get(path)
            assert (answer.status, answer.body) == (404, b"Not Found"), path


async def test_health_checks_need_no_token_and_reveal_nothing_else(stack: Stack) -> None:
    async with opened(stack) as door:
        answer = await door.get("/healthz")

        assert (answer.status, answer.body) == (200, b"ok")
        assert set(answer.headers) == {"Date", "Content-Length", "Content-Type"}
        assert (await door.get("/readyz")).body == b"ok"


async def test_without_redis_the_gateway_is_alive_but_not_ready(stack: Stack) -> None:
    async with opened(stack) as door:
        await asyncio.to_thread(stack.redis.kill)

        answer = await door.get("/readyz")

        assert (answer.status, answer.body) == (503, b"Redis can't be reached")
        assert (await door.get("/healthz")).status == 200
        assert (await door.get("/metrics", own_token(stack))).status == 503


async def test_metrics_need_a_token_with_the_scope_read(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("prometheus", "read", None)
    async with opened(stack) as door, calling(stack) as agent:
        await door.invoke(own_token(stack), "sessions_list")
        await door.invoke(own_token(stack), "cron_add", {"x": 1})
        await door.invoke("wrong", "sessions_list")
        await stack.append("x", channel_id="other")

        assert (await door.get("/metrics")).status == 401
        assert (await door.get("/metrics", agent.token)).status == 403
        async with door.connected(token):
            answer = await door.get("/metrics", token)

    lines = answer.body.decode().splitlines()
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'remoteclaw_gateway_calls_total{method="sessions.search",outcome="ok"} 1.0' in lines
    assert "remoteclaw_gateway_auth_failures_total 2.0" in lines
    assert "remoteclaw_gateway_sockets 1.0" in lines
    assert 'remoteclaw_sessions{state="waiting"} 1.0' in lines
    assert "remoteclaw_hints_waiting 2.0" in lines
    assert "remoteclaw_hung_workers 0.0" in lines


# -- calling a tool -------------------------------------------------------------------------------


async def test_agents_and_operators_call_a_tool_over_http(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        by_agent = await door.invoke(agent.token, "session_status")
        key = str(agent.lease.session)
        by_operator = await door.invoke(own_token(stack), "session_status", sessionKey=key)

    assert by_agent.status == by_operator.status == 200
    assert by_agent.json["result"]["key"] == by_operator.json["result"]["key"] == key


async def test_operators_call_a_method_over_http_and_agents_do_not(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        by_operator = await door.invoke(own_token(stack), "requests.list")
        by_agent = await door.invoke(agent.token, "requests.list")
        following = await door.invoke(
            own_token(stack), "sessions.subscribe", {"sessionKey": agent.lease.sid}
        )

    assert by_operator.json["result"] == {"requests": []}
    assert (by_agent.status, by_agent.json["error"]["message"]) == (
        403,
        "requests.list is for operators.",
    )
    assert following.json["error"]["message"] == "Events are sent only over WebSocket."


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "The body is not JSON."),
        (b"[" * 100_000, 400, "The body is not JSON."),
        (b"{}", 400, "tool Field required"),
        (b'{"tool":"sessions_list","dryRun":true}', 400, "dryRun Extra inputs"),
        (b'{"tool":"sessions_list","args":{"limit":0}}', 400, "limit"),
        (b'{"tool":"sessions_list","args":{"x":0}}', 400, "x is no parameter"),
        (b'{"tool":"nothing"}', 404, "There is no tool or method 'nothing'."),
        (b'{"tool":"agent","args":{}}', 404, "There is no tool or method"),
        (b'{"tool":"sessions_list","sessionKey":"nobody"}', 404, "'nobody' is no session"),
    ],
)
async def test_an_invalid_body_is_refused_with_a_reason(
    stack: Stack, body: bytes, status: int, why: str
) -> None:
    async with opened(stack) as door:
        answer = await door.post("/tools/invoke", own_token(stack), body)

    assert answer.status == status
    assert why in answer.json["error"]["message"]
    assert len(answer.body) < 1000


async def test_a_request_body_that_is_too_large_is_refused(stack: Stack) -> None:
    async with opened(stack) as door:
        token = own_token(stack)
        size = MAX_REQUEST_BYTES
        fits = orjson.dumps({"tool": "nothing", "args": {"x": ""}})
        fits = fits.replace(b'""', b'"' + b"x" * (size - len(fits)) + b'"')
        assert len(fits) == size

        assert (await door.post("/tools/invoke", token, fits)).status == 404
        assert (await door.post("/tools/invoke", token, fits + b" ")).status == 413
        head = (
            f"POST /tools/invoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 33
        assert (await raw(door, chunked)).startswith(b"HTTP/1.1 413 ")


async def test_a_body_of_100_mb_takes_no_memory_and_delays_no_other_client(stack: Stack) -> None:
    async def huge() -> AsyncIterator[bytes]:
        for _ in range(1600):
            yield bytes(65_536)

    def peak_mb() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    async with gateway_process(stack) as (door, process):
        token = own_token(stack)
        headers = {"Authorization": f"Bearer {token}"}

        async def is_refused(path: str) -> bool:
            try:
                async with door.http.post(door.url + path, data=huge(), headers=headers) as answer:
                    assert (await other.call("terminals.list"))["terminals"] == []
                    assert answer.status == 413
            except ClientOSError:  # the connection closed during the upload
                return False
            return True

        async with door.connected(token) as other:
            before = peak_mb()
            for path in (f"/api/sessions/{'0' * 32}/paste", "/tools/invoke"):
                await eventually(functools.partial(is_refused, path))
            assert peak_mb() - before < 32


async def test_without_a_token_no_request_body_is_read(stack: Stack) -> None:
    async with opened(stack) as door:
        head = b"POST /tools/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        with contextlib.closing(writer):
            writer.write(head)

            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")


async def test_a_repeated_idempotency_key_starts_no_second_run(stack: Stack) -> None:
    target = await stack.append("x", channel_id="other")
    args = {"sessionKey": str(target.session), "message": "m", "timeout": 0}
    async with opened(stack) as door:
        runs = [
            (await door.invoke(own_token(stack), "sessions_send", args, headers=headers)).json
            for headers in ({"Idempotency-Key": "k"}, {"Idempotency-Key": "k"}, {})
        ]

    ids = [run["result"]["runId"] for run in runs]
    assert ids[0] == ids[1] != ids[2]


# -- host names and origins -----------------------------------------------------------------------

HOSTS = [
    ("127.0.0.1", True),
    ("127.0.0.1:18789", True),
    ("LOCALHOST", True),
    ("[::1]:18789", True),
    ("claw.example.org", True),
    ("with-port.example.org:8443", True),
    ("with-port.example.org:8444", False),
    ("evil", False),
    ("claw.example.org.evil", False),
    ("localhost.evil", False),
    ("127.0.0.1@evil", False),
    ("0.0.0.0", False),
    ("localhost:x", False),
]
GATEWAY = {
    "hosts": ["claw.example.org", "with-port.example.org:8443"],
    "origins": ["https://claw.example.org"],
}


async def test_only_requests_for_the_gateways_own_host_names_are_accepted(stack: Stack) -> None:
    """A page can make any name resolve to this host, but its Host header shows the name."""
    stack.configure(gateway=GATEWAY)
    async with opened(stack) as door:
        for path in ("/healthz", "/", "/tools/invoke", "/mcp"):
            for host, may in HOSTS:
                answer = await door.get(path, own_token(stack), Host=host)
                assert (answer.status != 403) is may, (path, host)
        for host, may in HOSTS:
            assert await _upgrades(door, Host=host) is may, host


@pytest.mark.parametrize("heads", ["", "Host: localhost\r\nHost: evil\r\n"])
async def test_a_request_needs_exactly_one_host_header(stack: Stack, heads: str) -> None:
    async with opened(stack) as door:
        for version in ("1.0", "1.1"):
            request = f"GET /healthz HTTP/{version}\r\n{heads}\r\n"
            assert b" 400 " in await raw(door, request.encode())


ORIGINS = [
    ("https://claw.example.org", True),
    ("HTTPS://CLAW.example.org", True),
    ("http://claw.example.org", False),
    ("https://claw.example.org:8443", False),
    ("https://evil", False),
    ("http://127.0.0.1:18789", False),
    ("null", False),
]


async def test_only_pages_of_configured_origins_are_accepted(stack: Stack) -> None:
    stack.configure(gateway=GATEWAY)
    async with opened(stack) as door:
        for origin, may in ORIGINS:
            for path in ("/healthz", "/tools/invoke", "/mcp"):
                answer = await door.get(path, own_token(stack), Origin=origin)
                assert (answer.status != 403) is may, (path, origin)
                assert not [name for name in answer.headers if "access-control" in name.lower()]
            assert await _upgrades(door, Origin=origin) is may, origin


async def _upgrades(door: Door, **headers: str) -> bool:
    """Whether a WebSocket is opened with these headers."""
    lines = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    with contextlib.closing(writer):
        writer.write(f"GET /ws HTTP/1.1\r\n{head}\r\n".encode())
        status = (await reader.readline()).split()[1]
        assert status in (b"101", b"403"), status
        return status == b"101"


# -- invalid requests -----------------------------------------------------------------------------


HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


async def test_a_request_head_that_is_too_large_is_refused(stack: Stack) -> None:
    async with opened(stack) as door:
        answer = await raw(door, HEAD + b"X: " + b"y" * 20_000 + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_gateway_raises_its_limit_of_open_files(stack: Stack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        async with gateway_process(stack) as (_, process):
            limit, maximum = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert limit == min(maximum, 65536)


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00", b"PING\r\n"])
async def test_data_that_is_not_http_is_refused_and_not_logged(
    stack: Stack, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(stack) as door:
        with contextlib.suppress(ConnectionError):
            await raw(door, garbage + b"\r\n\r\n")
        assert (await door.get("/healthz")).status == 200

    assert not [r for r in caplog.records if r.name.startswith("remoteclaw")]


# -- MCP ------------------------------------------------------------------------------------------


async def test_mcp_needs_a_token_and_lists_only_granted_tools(stack: Stack) -> None:
    request = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with opened(stack) as door, calling(stack, tools={"session_status"}) as agent:
        without = await door.post("/mcp", None, request, **kind)
        wrong = await door.post("/mcp", "0" * 64, request, **kind)
        known = await door.post("/mcp", agent.token, request, **kind)

    assert (without.status, without.code) == (wrong.status, wrong.code) == (401, "UNAUTHORIZED")
    assert [tool["name"] for tool in known.json["result"]["tools"]] == ["session_status"]


# -- as a process ---------------------------------------------------------------------------------


def refused(stack: Stack, **env: str) -> str:
    """Start a gateway that can't run; return its one line of error output."""
    result = run_command("gateway", env=stack.env(**env))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


async def test_a_gateway_publishes_its_address_and_ends_on_sigterm(stack: Stack) -> None:
    address = keys.gateway(stack.home.host_id)
    client = stack.fleet.scripts.client
    async with gateway_process(stack) as (door, process):
        assert await client.get(address) == door.url.encode()
        assert 20_000 < await client.pttl(address) <= 30_000
        async with door.connected(TokenFile(stack.home.path).read()) as rpc:
            call = await rpc.begin("outcomes.wait", {"runId": await _unanswered(stack)})
            process.send_signal(signal.SIGTERM)

            assert await rpc.event("shutdown") == {"reason": "stopped"}
            assert (await rpc.answer(call))["error"]["code"] == "UNAVAILABLE"
            assert (await rpc.closed())[0] == 1012
            assert await asyncio.to_thread(process.wait, HANG_S) == 0
        assert await client.get(address) is None


async def _unanswered(stack: Stack) -> str:
    accepted = await stack.append("x")
    return f"{accepted.session.sid}-{accepted.entry_id}"


async def test_two_gateways_serve_the_same_fleet(stack: Stack) -> None:
    address = keys.gateway(stack.home.host_id)
    client = stack.fleet.scripts.client
    token = own_token(stack)
    async with gateway_process(stack) as (one, _), calling(stack) as agent:
        async with gateway_process(stack) as (other, process):
            assert one.url != other.url
            for door in (one, other):
                for known in (token, agent.token):
                    assert (await door.invoke(known, "sessions_list")).status == 200
            assert await client.get(address) in (one.url.encode(), other.url.encode())
            async with one.connected(token) as listening, other.connected(token) as stopping:
                session = {"sessionKey": agent.lease.sid}
                await listening.call("sessions.subscribe", session)
                assert (await stopping.call("sessions.stop", session))["stopped"] == 1
                await agent.finish()
                assert (await listening.event("session.outcome"))["status"] == "done"
            process.terminate()
            await asyncio.to_thread(process.wait, HANG_S)
            assert await client.get(address) != other.url.encode()

        async def is_back() -> bool:
            return bool(await client.get(address) == one.url.encode())

        await eventually(is_back)


async def test_an_ending_gateway_does_not_withdraw_another_gateways_address(stack: Stack) -> None:
    gateways = stack.fleet.gateways
    async with gateways.announced("here", "http://one"):
        async with gateways.announced("here", "http://other"):
            assert await gateways.address("here") == "http://other"
            await gateways.withdraw("here", "http://one")
            assert await gateways.address("here") == "http://other"
        assert await gateways.address("here") is None
        async with gateways.announced("here", "http://third"):
            pass
    assert await gateways.address("here") is None


async def test_an_unusable_listen_address_is_reported_in_one_line(stack: Stack) -> None:
    away = {"REMOTECLAW__GATEWAY__HOST": "192.0.2.1", "REMOTECLAW__GATEWAY__ALLOW_REMOTE": "true"}
    assert "[gateway] can't listen on 192.0.2.1" in refused(stack, **away)


async def test_an_invalid_gateway_token_file_is_reported_in_one_line(stack: Stack) -> None:
    file = TokenFile(stack.home.path).path
    file.write_bytes(b"short")
    file.chmod(0o600)

    assert f"The gateway's token {file} isn't one word" in refused(stack)


async def test_a_gateway_that_cannot_reach_redis_says_so_in_one_line(stack: Stack) -> None:
    stack.redis.kill()

    assert "can't be reached" in refused(stack)


async def test_an_invalid_socket_descriptor_is_reported_in_one_line(stack: Stack) -> None:
    result = run(stack, "gateway", "--socket", "77")

    assert result.returncode == 1
    assert "Descriptor 77 is no socket to listen on" in result.stderr


async def test_tokens_and_invalid_requests_are_not_logged(stack: Stack) -> None:
    """Tokens are secret, and an agent that reads the log could follow instructions in it."""
    operator, _ = await stack.fleet.tokens.create("ada", "read", None)
    async with gateway_process(stack) as (door, process):
        own = TokenFile(stack.home.path).read()
        for token in (own, operator, "wrong-token"):
            await door.invoke(token, "sessions_list")
            await door.get(f"/x?token={token}", token, **{"User-Agent": token})
            async with door.socket_at(f"{door.ws_url}?token={token}") as client:
                await client.begin(token, hello(token, locale=token))
                await client.closed()
            await raw(door, f"GET /?{token} HTP/1.1\r\n{token}\r\n\r\n".encode())
        process.terminate()
        process.wait()
        log = (stack.home.logs / "gateway.log").read_text()

    assert operator not in log
    assert own not in log
    assert "wrong-" not in log
    assert log.count("\n") == 1


# -- where it listens -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "::1"])
def test_the_gateway_listens_on_loopback_addresses(host: str) -> None:
    with listen(GatewayConfig(host=host, port=0)) as listening:
        name, port = listening.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        assert url_of(listening) == f"http://{shown}:{port}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "10.0.0.1"])
def test_an_address_that_other_computers_reach_needs_allow_remote(
    host: str, tmp_path: Path
) -> None:
    file = tmp_path / "remoteclaw.toml"
    file.write_text(f"[gateway]\nhost = '{host}'\n")
    with pytest.raises(ConfigError) as error:
        load_config(file, {})
    assert "which other computers reach: use 127.0.0.1, or set allow_remote" in str(error.value)

    file.write_text(f"[gateway]\nhost = '{host}'\nallow_remote = true\n")

    config: Config = load_config(file, {})
    assert config.gateway.allow_remote
    assert not is_own_name("evil", config.gateway)
    assert is_own_name("localhost:1", config.gateway)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("host = 'example.org'", "must be an IP address or localhost"),
        ("port = 70000", "port is not valid"),
        ("hosts = ['*']", "has '*': write a name, or name:port"),
        ("origins = ['*']", "has '*': write an origin"),
        ("origins = ['https://x/path']", "write an origin"),
    ],
)
def test_invalid_gateway_settings_are_refused(line: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "remoteclaw.toml"
    file.write_text(f"[gateway]\n{line}\n")

    with pytest.raises(ConfigError) as error:
        load_config(file, {})

    assert why in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_gateway_on_all_addresses_is_reachable_on_loopback(stack: Stack) -> None:
    stack.configure(gateway={"host": "0.0.0.0", "allow_remote": True})
    async with opened(stack) as door:
        assert door.url.startswith("http://127.0.0.1:")
        assert (await door.get("/healthz")).status == 200
        assert (await door.get("/healthz", Host=f"0.0.0.0:{door.port}")).status == 200


# -- the current configuration --------------------------------------------------------------------


async def test_a_changed_configuration_applies_at_once_and_an_invalid_one_never(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        assert (await door.invoke(agent.token, "sessions_list")).status == 200
        before = stack.home.config_file.read_text()

        stack.home.config_file.write_text(before + "\n[tools]\ndeny = ['sessions_list']\n")
        assert (await door.invoke(agent.token, "sessions_list")).status == 403
        stack.home.config_file.write_text(before + "\n[tools]\ndeny = ['sessions_lst']\n")
        assert (await door.invoke(agent.token, "sessions_list")).status == 403
        assert "the last valid configuration stays in effect: tools.deny has" in caplog.text
        stack.home.config_file.write_text(before)
        assert (await door.invoke(agent.token, "sessions_list")).status == 200


async def test_a_missing_or_empty_configuration_file_grants_no_rights(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    file = stack.home.config_file
    before = file.read_text()
    file.write_text(before + "\n[tools]\ndeny = ['sessions_list']\n")
    async with opened(stack) as door, calling(stack) as agent:
        aside = file.rename(file.with_suffix(".aside"))
        assert (await door.invoke(agent.token, "sessions_list")).status == 403
        assert (await door.invoke(agent.token, "sessions_list")).status == 403
        assert caplog.text.count("the file is gone, or empty") == 1

        file.write_text("")
        assert (await door.invoke(agent.token, "sessions_list")).status == 403

        aside.rename(file)
        assert (await door.invoke(agent.token, "sessions_list")).status == 403
        file.write_text(before)
        assert (await door.invoke(agent.token, "sessions_list")).status == 200
