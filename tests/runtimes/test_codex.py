"""Codex: commands that need no approval, its requests and questions, and their intents."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.events import AgentEvent, DoneEvent, Intent, PermissionEvent, Question, TextEvent
from remoteclaw.protocols import AgentSpec, Decision
from remoteclaw.runtimes.codex.runtime import CodexRuntime
from remoteclaw.runtimes.codex.turn import CodexTurn, ThreadTokens
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from tests.support.silent import SilentPipes


async def events_of(*messages: dict[str, Any]) -> list[AgentEvent]:
    pipes = SilentPipes()
    unasked = frozenset(("configured",))
    turn = CodexTurn(
        pipes,
        RpcPeer(pipes, version=None),
        thread="ours",
        request=1,
        tokens=ThreadTokens(),
        unasked=unasked,
    )
    return [event for message in messages for event in await turn.take(RpcMessage.of(message))]


async def event_and_answer(
    request: dict[str, Any], decision: Decision
) -> tuple[PermissionEvent, Any]:
    """Return the permission event for a request of codex, and the answer that codex gets."""
    sent: list[Any] = []

    class Pipes(SilentPipes):
        async def write(self, line: bytes) -> None:
            sent.append(orjson.loads(line))

    pipes = Pipes()
    turn = CodexTurn(
        pipes, RpcPeer(pipes, version=None), thread="ours", request=1, tokens=ThreadTokens()
    )
    (event,) = await turn.take(RpcMessage.of(request))
    assert isinstance(event, PermissionEvent)
    await turn.answer(event.id, decision)
    return event, sent[0]["result"]


#: Requests as codex 0.169.0 sends them.
QUESTIONS: dict[str, Any] = {
    "method": "item/tool/requestUserInput",
    "id": 0,
    "params": {
        "threadId": "ours",
        "itemId": "call_1",
        "isBlocking": False,
        "questions": [
            {
                "id": "db",
                "header": "DB",
                "question": "Which DB?",
                "isOther": True,
                "isSecret": False,
                "options": [{"label": "SQLite", "description": "a file"}],
            },
            {"id": "name", "header": "Name", "question": "Which name?", "options": None},
        ],
    },
}
MORE_PERMISSIONS: dict[str, Any] = {
    "method": "item/permissions/requestApproval",
    "id": 0,
    "params": {
        "threadId": "ours",
        "cwd": "/work",
        "reason": "to look",
        "permissions": {"network": {"enabled": True}, "fileSystem": None},
    },
}


async def test_each_question_of_codex_is_answered_under_its_id() -> None:
    event, answer = await event_and_answer(QUESTIONS, Decision("allow", answers=("SQLite", "Ada")))

    assert event.questions == (
        Question("Which DB?", "DB", (("SQLite", "a file"),)),
        Question("Which name?", "Name"),
    )
    assert answer == {"answers": {"db": {"answers": ["SQLite"]}, "name": {"answers": ["Ada"]}}}


async def test_unanswered_questions_of_codex_are_answered_with_the_reason() -> None:
    _, answer = await event_and_answer(QUESTIONS, Decision("deny", "Ada does not."))

    reason = {"answers": ["(No answer, says RemoteClaw: Ada does not.)"]}
    assert answer == {"answers": {"db": reason, "name": reason}}


async def test_only_a_person_can_grant_codex_more_than_its_sandbox() -> None:
    event, granted = await event_and_answer(MORE_PERMISSIONS, Decision("allow"))
    _, denied = await event_and_answer(MORE_PERMISSIONS, Decision("deny"))

    assert (event.tool_name, event.intent) == ("request_permissions", None)
    assert event.input["permissions"] == MORE_PERMISSIONS["params"]["permissions"]
    assert granted == {"permissions": MORE_PERMISSIONS["params"]["permissions"]}
    assert denied == {"permissions": {}}


async def test_messages_of_another_codex_thread_are_ignored() -> None:
    def delta(thread: str, words: str) -> dict[str, Any]:
        params = {"threadId": thread, "itemId": thread, "delta": words}
        return {"method": "item/agentMessage/delta", "params": params}

    def completed(thread: str) -> dict[str, Any]:
        params = {"threadId": thread, "turn": {"status": "completed"}}
        return {"method": "turn/completed", "params": params}

    request = {
        "id": 0,
        "method": "item/commandExecution/requestApproval",
        "params": {"threadId": "another", "command": "rm"},
    }

    events = await events_of(
        delta("another", "private"), completed("another"), request, delta("ours", "answer")
    )

    assert events == [TextEvent("answer")]
    assert isinstance((await events_of(completed("ours")))[-1], DoneEvent)


def call_started(server: str = "theirs") -> dict[str, Any]:
    """Return codex's notification that a call of an MCP tool begins."""
    item = {"type": "mcpToolCall", "id": "1", "server": server, "tool": "x", "arguments": {"a": 1}}
    return {"method": "item/started", "params": {"threadId": "ours", "item": item}}


def approval_request(server: str = "theirs", **meta: Any) -> dict[str, Any]:
    """Return codex's request to approve that call."""
    kind = {"codex_approval_kind": "mcp_tool_call"}
    params = {
        "threadId": "ours",
        "serverName": server,
        "_meta": {**kind, "tool_name": "x", "tool_params": {"a": 1}, **meta},
        "message": "Allow mcp__configured__x?",
    }
    return {"id": 0, "method": "mcpServer/elicitation/request", "params": params}


async def test_the_server_of_a_tool_is_taken_from_codex_and_not_from_the_message() -> None:
    _, event = await events_of(call_started(), approval_request())

    assert isinstance(event, PermissionEvent)
    assert (event.tool_name, event.server) == ("mcp__theirs__x", "theirs")


@pytest.mark.parametrize(
    "messages",
    [
        (approval_request(),),
        (call_started(), approval_request(codex_approval_kind="another")),
        (call_started(), approval_request(codex_approval_kind=None)),
        (call_started(), approval_request(tool_name="y")),
        (call_started(), approval_request(tool_params={"a": 2})),
        (call_started("another"), approval_request()),
        (call_started("configured"), approval_request("configured")),
        (
            call_started(),
            {"method": "item/completed", "params": call_started()["params"]},
            approval_request(),
        ),
    ],
    ids=["no call", "kind", "no kind", "tool", "input", "server", "unasked", "over"],
)
async def test_an_elicitation_of_an_mcp_server_is_no_permission_request(
    messages: tuple[dict[str, Any], ...],
) -> None:
    """A server can send any metadata with it, also that of codex's own approval requests."""
    assert not any(isinstance(event, PermissionEvent) for event in await events_of(*messages))


async def test_a_second_approval_request_of_codex_for_a_call_is_ignored() -> None:
    events = await events_of(call_started(), approval_request(), approval_request())

    assert len([event for event in events if isinstance(event, PermissionEvent)]) == 1


def test_the_trust_setting_of_codex_works_for_any_workspace_name(tmp_path: Path) -> None:
    strange = 'wörk "\U0001f600" \\x'
    spec = AgentSpec(
        runtime="codex", command=("codex",), workspace=f"/w/{strange}", env={}, system_prompt=""
    )

    def trusted(trust_workspace: bool) -> Any:
        chosen = replace(spec, trust_workspace=trust_workspace)
        argv = CodexRuntime().launch(chosen, session_id=None, fork=False, run_dir=tmp_path).argv
        return tomllib.loads(next(option for option in argv if option.startswith("projects=")))

    level = {"trust_level": "untrusted"}
    assert trusted(False) == {"projects": {"/": level, "/w": level, f"/w/{strange}": level}}
    assert trusted(True) == {"projects": {f"/w/{strange}": {"trust_level": "trusted"}}}


# -- intents --------------------------------------------------------------------------------------


async def codex_intent(
    method: str, params: dict[str, Any], item: dict[str, Any] | None = None
) -> Intent | None:
    about = {"threadId": "ours", "itemId": "1"}
    started = {"method": "item/started", "params": {**about, "item": {"id": "1", **(item or {})}}}
    request = {"id": 0, "method": f"item/{method}/requestApproval", "params": {**about, **params}}
    *_, event = await events_of(*([started] if item else []), request)
    assert isinstance(event, PermissionEvent)
    return event.intent


@pytest.mark.parametrize("shell", ["/bin/bash -lc", "/usr/bin/sh -c", "/bin/zsh -lc"])
async def test_the_intent_of_a_codex_command_is_the_argument_of_its_shell(shell: str) -> None:
    params = {"command": f"{shell} 'git status; ls'", "cwd": "/elsewhere", "kind": "command"}

    assert await codex_intent("commandExecution", params) == Intent(
        "Bash", command="git status; ls", cwd="/elsewhere"
    )


@pytest.mark.parametrize(
    "params",
    [
        {"command": "/work/bash -lc 'git status'"},
        {"command": "bash -lc 'git status'"},
        {"command": "/bin/bash -lc 'git status' x"},
        {"command": "/bin/bash -x 'git status'"},
        {"command": "git status"},
        {"command": "/bin/bash -lc 'git status"},
        {"command": "/bin/bash -lc 'ls'", "additionalPermissions": {"network": True}},
        {"command": "/bin/bash -lc 'ls'", "networkApprovalContext": {"host": "x"}},
        {},
    ],
)
async def test_other_codex_commands_have_no_intent(params: dict[str, Any]) -> None:
    """The model chooses the shell, and may have created it."""
    assert await codex_intent("commandExecution", {"cwd": "/work", **params}) is None


async def test_the_intent_of_a_codex_patch_names_all_its_files() -> None:
    changes = [
        {"path": "/work/a", "kind": {"type": "add"}},
        {"path": "/work/b", "kind": {"type": "update", "move_path": "/elsewhere/b"}},
    ]
    patch = {"type": "fileChange", "changes": changes}

    asked = await codex_intent("fileChange", {}, patch)
    unknown = await codex_intent("fileChange", {})
    rooted = await codex_intent("fileChange", {"grantRoot": "/"}, patch)

    assert asked == Intent("Edit", paths=("/work/a", "/work/b", "/elsewhere/b"))
    assert unknown == Intent("Edit")
    assert rooted is None
