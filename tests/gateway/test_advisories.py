"""Published vulnerabilities of similar gateways, each as a test of this one.

The numbers are those of the advisories; names and docstrings summarize them.
"""

import orjson
import pytest

from tests.support.doors import Refused, calling, opened
from tests.support.stack import Stack

MCP = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


async def test_ghsa_rqpp_rjj8_7wv8_rights_that_a_client_declares_are_ignored(stack: Stack) -> None:
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
        for method in ("sessions.send", "sessions.stop", "sessions.write"):
            with pytest.raises(Refused, match="FORBIDDEN"):
                await client.call(method)


async def test_ghsa_qrp5_gfw2_gxv4_the_policy_filters_every_list_and_call(stack: Stack) -> None:
    """In the advisory, tools that were added after the filter were not filtered. Here, each list
    and each call is checked against the current policy, whatever the process was granted."""
    async with opened(stack) as door, calling(stack) as agent:
        request = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

        async def listed() -> set[str]:
            answer = await door.post("/mcp", agent.token, request, **MCP)
            return {tool["name"] for tool in answer.json["result"]["tools"]}

        before = await listed()
        config = stack.home.config_file.read_text()
        stack.home.config_file.write_text(f"{config}\n[tools]\nprofile = 'minimal'\n")

        assert {"sessions_list", "session_status"} < before
        assert await listed() == {"session_status"}
        assert (await door.invoke(agent.token, "sessions_list")).status == 403


async def test_cve_2026_44118_headers_cannot_make_a_caller_the_owner(stack: Stack) -> None:
    """In the advisory, a header that the agent set made its caller the owner."""
    claims = {
        "X-RemoteClaw-Account-Id": "alice",
        "X-RemoteClaw-Message-Channel": "web",
        "X-RemoteClaw-Sender-Is-Owner": "true",
        "X-RemoteClaw-Scopes": "admin",
        "X-RemoteClaw-Session-Key": "main/web/default/admin.x:admin.x:_",
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
