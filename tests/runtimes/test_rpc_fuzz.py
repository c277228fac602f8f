"""Arbitrary lines over JSON-RPC: no exception, and a turn that ends at most once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.events import DoneEvent
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.runtimes.acp.turn import AcpTurn
from remoteclaw.runtimes.agent import CliTurn
from remoteclaw.runtimes.codex.items import TOOLS
from remoteclaw.runtimes.codex.turn import CodexTurn, ThreadTokens
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime
from remoteclaw.runtimes.wire import UnreadableLine, decode
from tests.support.recording import spec_of
from tests.support.silent import SilentPipes

WORDS = st.sampled_from(
    [
        *("session/update", "session/request_permission", "item/started", "item/completed"),
        *("item/agentMessage/delta", "turn/completed", "thread/tokenUsage/updated", "error"),
        *("agent_message_chunk", "tool_call", "tool_call_update", "plan", "usage_update"),
        *("completed", "failed", "in_progress", "end_turn", "cancelled", "interrupted"),
        *("agentMessage", "userMessage", "item/commandExecution/requestApproval", *TOOLS),
        *("mcpServer/elicitation/request", "a", "", "\ud800"),
    ]
)
KEYS = st.sampled_from(
    [
        *("update", "sessionUpdate", "content", "text", "toolCall", "toolCallId", "status"),
        *("rawInput", "rawOutput", "title", "entries", "options", "kind", "optionId", "cost"),
        *("amount", "item", "type", "id", "itemId", "delta", "turn", "error", "message", "plan"),
        *("codexErrorInfo", "httpStatusCode", "tokenUsage", "total", "inputTokens", "willRetry"),
        *("stopReason", "usage", "_meta", "quota", "token_count", "clientId", "changes", "step"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-1, 3) | WORDS | st.none() | OBJECTS,
        "method": WORDS,
        "params": OBJECTS | VALUES,
        "result": OBJECTS | VALUES,
        "error": st.fixed_dictionaries({}, optional={"code": VALUES, "message": VALUES}) | VALUES,
    },
)


async def codex() -> CliTurn[RpcMessage]:
    pipes = SilentPipes()
    return CodexTurn(
        pipes,
        RpcPeer(pipes, version=None),
        thread="thread",
        request=1,
        tokens=ThreadTokens(),
    )


async def acp(runtime: AcpRuntime) -> CliTurn[RpcMessage]:
    pipes = SilentPipes()
    turn = AcpTurn(pipes, RpcPeer(pipes), runtime, spec_of(runtime.name), session="s")
    await turn.ask([])
    return turn


@pytest.mark.thorough("acp")
@pytest.mark.parametrize("name", ["codex", "acp", "gemini", "opencode"])
@given(lines=st.lists(LINES, max_size=12))
async def test_arbitrary_rpc_lines_raise_nothing_and_end_a_turn_once(
    name: str, lines: list[dict[str, Any]]
) -> None:
    runtimes = {"acp": AcpRuntime, "gemini": GeminiRuntime, "opencode": OpencodeRuntime}
    turn = await codex() if name == "codex" else await acp(runtimes[name]())

    for line in lines:
        try:
            decoded = decode(json.dumps(line).encode())
        except UnreadableLine:
            continue
        events = await turn.take(RpcMessage.of(decoded))
        ends = [position for position, event in enumerate(events) if isinstance(event, DoneEvent)]
        assert ends in ([], [len(events) - 1])
        if ends:
            break
    turn.result()
