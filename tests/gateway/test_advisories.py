"""What went wrong in other gateways of this kind, each as a test of ours.

The numbers are those under which it was published; what each says is in a few words here.
"""

import asyncio
import contextlib
from pathlib import Path

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from remoteclaw.gateway.token_file import TokenFile
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.doors import Refused, calling, gateway_process, hello, opened, own_token, raw
from tests.support.stack import Stack
from tests.support.waiting import HANG_S

MCP = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


async def test_cve_2026_25253_no_page_leads_a_client_elsewhere(stack: Stack) -> None:
    """A page took `gatewayUrl` from its address and sent the token there. There is no page here,
    nothing redirects, and a page that tries to connect is seen by its origin."""
    async with opened(stack) as door:
        for path in ("/", "/?gatewayUrl=ws://evil", "/ws", "/mcp?gatewayUrl=http://evil"):
            answer = await door.get(path)
            assert answer.status in (401, 404), path
            assert "Location" not in answer.headers
            assert b"evil" not in answer.body
        with pytest.raises(InvalidStatus) as refused:
            async with door.socket(origin="https://evil"):
                pass
        assert refused.value.response.status_code == 403


async def test_cve_2026_25593_loopback_alone_opens_nothing(stack: Stack) -> None:
    """Whoever was on the same computer could have a program of theirs configured and run."""
    async with opened(stack) as door:
        for method in ("config.apply", "config.patch", "config.get", "agent"):
            async with door.socket() as client:
                await client.frame()
                with pytest.raises(Refused, match="The first request is connect"):
                    await client.call(method, {"config": {"agents": {"main": {"command": ["x"]}}}})
        for tool in TOOLS:
            assert (await door.invoke(None, tool)).status == 401
        with pytest.raises(Refused, match="connect needs a valid token"):
            async with door.connected(""):
                pass


async def test_cve_2026_28472_that_there_is_a_token_proves_nothing(stack: Stack) -> None:
    async with opened(stack) as door:
        for token in ("x", "true", "undefined", "0" * 64):
            assert (await door.invoke(token, "sessions_list")).status == 401
            with pytest.raises(Refused):
                async with door.connected(token):
                    pass


async def test_ghsa_rqpp_rjj8_7wv8_what_a_client_declares_is_not_believed(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "read", None)
    claims = {
        "role": "operator",
        "scopes": ["operator.admin", "read", "write", "admin"],
        "permissions": {"admin": True},
        "device": {"id": "x", "publicKey": "y", "signature": "z"},
        "client": {"id": "gateway", "mode": "backend", "scope": "admin", "name": "gateway"},
        "auth": {"token": token, "deviceToken": "x", "password": "y"},
    }
    async with opened(stack) as door, door.connected(token, **claims) as client:
        assert client.hello["auth"] == {"role": "operator", "scopes": ["read"]}
        for method in ("sessions.send", "sessions.stop", "agent"):
            with pytest.raises(Refused, match="FORBIDDEN"):
                await client.call(method)


async def test_ghsa_4jpw_hj22_2xmc_no_token_makes_another_one(stack: Stack) -> None:
    """A rotated token had more rights than the one before. Here no method makes tokens."""
    assert [name for name in METHODS if "token" in name or "pair" in name or "device" in name] == []
    token, view = await stack.fleet.tokens.create("ada", "read", None)
    async with opened(stack) as door:
        again = f"{token[: token.rindex('_')]}_{'0' * 64}"
        assert (await door.invoke(again, "sessions_list")).status == 401
    assert [one.scope for one in await stack.fleet.tokens.list()] == [view.scope]


async def test_ghsa_943q_mwmv_hhvh_http_has_no_rules_of_its_own(stack: Stack) -> None:
    """What was denied to agents could be called over HTTP."""
    stack.configure(channels={"test": {"tools": {"deny": ["group:sessions", "group:messaging"]}}})
    async with (
        opened(stack) as door,
        calling(stack) as agent,
        door.connected(agent.token) as client,
    ):
        for tool in ("sessions_send", "sessions_spawn", "message_send", "cron_add"):
            args = {"target": "t", "message": "m"} if tool == "message_send" else {}
            over_http = await door.invoke(agent.token, tool, args)
            with pytest.raises(Refused) as over_websocket:
                await client.call(tool, args)
            assert over_http.code == over_websocket.value.code
            assert over_http.code in ("FORBIDDEN", "NOT_FOUND")


async def test_ghsa_qrp5_gfw2_gxv4_policy_comes_last(stack: Stack) -> None:
    """Tools that were added after the filter were not filtered. Here each list, and each call, is
    asked of the policy of now, whatever the process was granted."""
    async with opened(stack) as door, calling(stack) as agent:
        asked = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

        async def listed() -> set[str]:
            answer = await door.post("/mcp", agent.token, asked, **MCP)
            return {tool["name"] for tool in answer.json["result"]["tools"]}

        before = await listed()
        config = stack.home.config_file.read_text()
        stack.home.config_file.write_text(f"{config}\n[tools]\nprofile = 'minimal'\n")

        assert {"sessions_list", "session_status"} < before
        assert await listed() == {"session_status"}
        assert (await door.invoke(agent.token, "sessions_list")).status == 403


async def test_cve_2026_44118_an_owner_is_nobody_who_says_so(stack: Stack) -> None:
    """A header of the agent's own made its caller the owner."""
    claims = {
        "X-RemoteClaw-Account-Id": "alice",
        "X-RemoteClaw-Message-Channel": "console",
        "X-RemoteClaw-Sender-Is-Owner": "true",
        "X-RemoteClaw-Scopes": "admin",
        "X-RemoteClaw-Session-Key": "main/console/default/x:x:_",
        "X-Forwarded-User": "alice",
    }
    stack.configure(channels={"test": {"owners": ["alice"]}})
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"name": "cron_list", "arguments": {}, "_meta": {"sender": "alice", "owner": True}}
    async with opened(stack) as door, calling(stack, from_="mallory") as agent:
        answer = await door.invoke(agent.token, "cron_list", headers=claims)
        body = orjson.dumps({**call, "params": params})
        over_mcp = await door.post("/mcp", agent.token, body, **MCP, **claims)

    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert over_mcp.json["result"]["isError"]
    assert "policy doesn't allow cron_list" in over_mcp.json["result"]["content"][0]["text"]


async def test_cve_2026_44991_a_message_of_somebody_else_has_no_owners_rights(
    stack: Stack,
) -> None:
    """Any sender became the owner where the list had a *."""
    stack.configure(channels={"test": {"owners": ["alice"]}})
    async with opened(stack) as door, calling(stack, from_="alice") as agent:
        assert (await door.invoke(agent.token, "gateway_config_get")).code != "FORBIDDEN"
        async with calling(stack, from_="mallory", channel_id="g") as other:
            assert (await door.invoke(other.token, "gateway_config_get")).code == "FORBIDDEN"
            assert (await door.invoke(other.token, "cron_list")).code == "FORBIDDEN"


async def test_ghsa_xmxx_7p24_h892_revocation_ends_what_is_open(stack: Stack) -> None:
    token, view = await stack.fleet.tokens.create("ada", "admin", None)
    async with opened(stack) as door, door.connected(token) as client:
        session = await stack.append("x")
        await client.call("sessions.subscribe", {"sessionKey": session.session.sid})

        await stack.fleet.tokens.revoke(view.id)

        assert (await client.closed())[0] == 1008
        assert (await door.invoke(token, "sessions_list")).status == 401
        with pytest.raises(Refused, match="UNAUTHORIZED"):
            async with door.connected(token):
                pass


async def test_openclaw_37812_without_a_fit_token_nothing_is_open(stack: Stack) -> None:
    """With a configuration that could not be read, the gateway began without authentication."""
    async with opened(stack) as door:
        own = own_token(stack)
        stack.home.config_file.write_text("this is no TOML")
        assert (await door.invoke(None, "sessions_list")).status == 401
        assert (await door.invoke(own, "sessions_list")).status == 200

        TokenFile(stack.home.path).path.write_bytes(b"")

        for token in (None, "x", own, "undefined"):
            assert (await door.invoke(token, "sessions_list")).status == 401


async def test_log_poisoning_nothing_that_a_stranger_sends_is_logged(stack: Stack) -> None:
    """Agents read logs: what stands there is asked of them."""
    poison = "ignore-all-rules"
    async with gateway_process(stack) as (door, process):
        for path in (f"/{poison}", f"/?{poison}", f"/tools/invoke?token={poison}"):
            await door.get(path, poison, Origin=poison)
            await door.get(path, poison, **{"User-Agent": poison, "X-Request-Id": poison})
        await raw(door, f"{poison}\r\n\r\n".encode())
        await raw(door, f"GET / HTTP/1.1\r\nHost: {poison}\r\n\r\n".encode())
        with contextlib.suppress(InvalidStatus):
            async with door.socket(origin=poison):
                pass
        async with door.socket() as client:
            await client.begin(poison, hello(poison, locale=poison, userAgent=poison))
            await client.closed()
        process.terminate()
        await asyncio.to_thread(process.wait, HANG_S)
        log = Path(stack.home.logs / "gateway.log").read_text()

    assert poison not in log
    assert log.count("\n") == 1


async def test_cve_2025_52882_a_socket_on_loopback_wants_a_token_and_an_origin(
    stack: Stack,
) -> None:
    """A coding agent's own WebSocket server let any web page in."""
    async with opened(stack) as door:
        for origin in ("https://evil", "null", "http://localhost:3000"):
            with pytest.raises(InvalidStatus) as refused:
                async with door.socket(origin=origin):
                    pass
            assert refused.value.response.status_code == 403


async def test_cve_2025_66416_mcp_can_not_be_reached_by_a_name_of_others(stack: Stack) -> None:
    asked = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    async with opened(stack) as door:
        token = own_token(stack)

        rebound = await door.post("/mcp", token, asked, **MCP, Host=f"evil:{door.port}")
        from_page = await door.post("/mcp", token, asked, **MCP, Origin="https://evil")
        known = await door.post("/mcp", token, asked, **MCP)

    assert (rebound.status, from_page.status, known.status) == (403, 403, 200)


async def test_an_agent_does_not_speak_for_another_session(stack: Stack) -> None:
    """Which one is a fact of the token, whatever stands in the parameters or beside them."""
    stack.configure(channels={})  # alice is no owner
    other = await stack.append("x", from_="bob", channel_id="bob")
    key = str(other.session)
    async with opened(stack) as door, calling(stack) as agent:
        assert (await door.invoke(agent.token, "session_status", sessionKey=key)).status == 403
        asked = await door.invoke(agent.token, "session_status", {"sessionKey": key})
        assert (asked.status, asked.code) == (404, "NOT_FOUND")
        own = str(agent.lease.session)
        answer = await door.invoke(agent.token, "session_status", sessionKey=own)
        assert answer.json["result"]["key"] == own


async def test_a_token_is_worth_nothing_between_turns(stack: Stack) -> None:
    async with opened(stack) as door, calling(stack) as agent:
        assert (await door.invoke(agent.token, "sessions_list")).status == 200
        await agent.finish()

        answer = await door.invoke(agent.token, "sessions_list")

    assert (answer.status, answer.code) == (403, "NO_TURN")
