"""What codex may do without being asked: look around, where it works, and no more."""

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.events import AgentEvent, DoneEvent, Intent, PermissionEvent, Question, TextEvent
from remoteclaw.protocols import AgentSpec, Decision
from remoteclaw.runtimes.codex import CodexRuntime
from remoteclaw.runtimes.codex_read_only import only_looks
from remoteclaw.runtimes.codex_turn import CodexTurn
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from tests.support.rows import for_each
from tests.support.silent import SilentPipes


def command(what: str, *, cwd: Path, method: str = "commandExecution") -> RpcMessage:
    """Return a request about a command that codex itself calls harmless."""
    params = {
        "cwd": str(cwd),
        "command": f"/bin/bash -lc {shlex.quote(what)}",
        "commandActions": [{"type": "read", "path": "a.py"}],
    }
    return RpcMessage(method=f"item/{method}/requestApproval", id=0, params=params)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    for name in ("link", "7", "a\u00a0b", "a\u2028b"):
        (tmp_path / "work" / name).symlink_to("/etc")
    return tmp_path / "work"


@for_each(
    "what",
    [
        *("cat src/a.py", "cat -n a.py", "ls", "ls -la src", "pwd", "head -n 5 a.py", "wc -l a.py"),
        *("tail -20 a.py", "cat {files}/1-0/1-a.txt"),
    ],
)
def test_looking_around_needs_nobody(work: Path, what: str) -> None:
    files = work.parent / "files"

    assert only_looks(command(what.format(files=files), cwd=work), (work, files))


@for_each(
    "what",
    [
        *("cat a.py | tee /var/tmp/x", "cat a.py | xargs touch x", "ls | sort -o /var/tmp/x"),
        *("find . -name x -delete", "rg --pre ./evil.sh x a.py", "git grep -Oevil x"),
        *("cat a.py | awk 'BEGIN{{system(1)}}'", "cat /etc/passwd", "cat ../secret", "ls /"),
        *("cat link/passwd", "cat a.py > b", "cat a.py; rm b", "cat a.py && rm b", "cat $(rm b)"),
        *(
            "cat `rm b`",
            "cat ~/.ssh/id_rsa",
            "cat *",
            "cat a.py\nrm b",
            "tail -f a.py",
            "cat 'a b'",
        ),
        # To Python these part words, and are numbers; to a shell they are names of files.
        *("head 7", "tail 7", "cat a\u00a0b", "cat a\u2028b", "cat\ta.py"),
        *("sed -n 1p a.py", "ls --hyperlink", "cat -- a.py", "", "PAGER=x cat a.py", "rm -rf ."),
    ],
)
def test_whatever_else_codex_calls_reading_is_asked_for(work: Path, what: str) -> None:
    assert not only_looks(command(what, cwd=work), (work, work.parent / "files"))


def test_elsewhere_and_for_who_may_do_nothing_it_is_asked_for(work: Path) -> None:
    assert not only_looks(command("ls", cwd=Path("/")), (work,))
    assert not only_looks(command("ls", cwd=work, method="fileChange"), (work,))
    assert not only_looks(command("ls", cwd=work), ())


async def said(*messages: dict[str, Any]) -> list[AgentEvent]:
    pipes = SilentPipes()
    unasked = frozenset(("configured",))
    turn = CodexTurn(
        pipes, RpcPeer(pipes, version=None), thread="ours", request=1, used={}, unasked=unasked
    )
    return [event for message in messages for event in await turn.take(RpcMessage.of(message))]


async def told(request: dict[str, Any], decision: Decision) -> tuple[PermissionEvent, Any]:
    """Return what codex asks with a request, and what it is answered."""
    sent: list[Any] = []

    class Pipes(SilentPipes):
        async def write(self, line: bytes) -> None:
            sent.append(orjson.loads(line))

    pipes = Pipes()
    turn = CodexTurn(pipes, RpcPeer(pipes, version=None), thread="ours", request=1, used={})
    (event,) = await turn.take(RpcMessage.of(request))
    assert isinstance(event, PermissionEvent)
    await turn.answer(event.id, decision)
    return event, sent[0]["result"]


#: As codex 0.169.0 has sent them.
ASKED: dict[str, Any] = {
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
WIDER: dict[str, Any] = {
    "method": "item/permissions/requestApproval",
    "id": 0,
    "params": {
        "threadId": "ours",
        "cwd": "/work",
        "reason": "to look",
        "permissions": {"network": {"enabled": True}, "fileSystem": None},
    },
}


async def test_questions_of_codex_are_answered_each_by_its_id() -> None:
    event, answer = await told(ASKED, Decision("allow", answers=("SQLite", "Ada")))

    assert event.questions == (
        Question("Which DB?", "DB", (("SQLite", "a file"),)),
        Question("Which name?", "Name"),
    )
    assert answer == {"answers": {"db": {"answers": ["SQLite"]}, "name": {"answers": ["Ada"]}}}


async def test_what_a_person_does_not_answer_codex_is_told_by_us() -> None:
    _, answer = await told(ASKED, Decision("deny", "Ada does not."))

    words = {"answers": ["(No answer, says RemoteClaw: Ada does not.)"]}
    assert answer == {"answers": {"db": words, "name": words}}


async def test_more_than_its_sandbox_codex_has_only_of_a_person() -> None:
    event, granted = await told(WIDER, Decision("allow"))
    _, denied = await told(WIDER, Decision("deny"))

    assert (event.tool_name, event.intent) == ("request_permissions", None)
    assert event.input["permissions"] == WIDER["params"]["permissions"]
    assert granted == {"permissions": WIDER["params"]["permissions"]}
    assert denied == {"permissions": {}}


async def test_an_agent_of_codex_own_does_not_speak_for_it() -> None:
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

    events = await said(
        delta("another", "private"), completed("another"), request, delta("ours", "answer")
    )

    assert events == [TextEvent("answer")]
    assert isinstance((await said(completed("ours")))[-1], DoneEvent)


def called(server: str = "theirs") -> dict[str, Any]:
    """Return how codex says that it begins to use a server's tool."""
    item = {"type": "mcpToolCall", "id": "1", "server": server, "tool": "x", "arguments": {"a": 1}}
    return {"method": "item/started", "params": {"threadId": "ours", "item": item}}


def question(server: str = "theirs", **meta: Any) -> dict[str, Any]:
    """Return how codex asks whether it may use that tool."""
    kind = {"codex_approval_kind": "mcp_tool_call"}
    params = {
        "threadId": "ours",
        "serverName": server,
        "_meta": {**kind, "tool_name": "x", "tool_params": {"a": 1}, **meta},
        "message": "Allow mcp__configured__x?",
    }
    return {"id": 0, "method": "mcpServer/elicitation/request", "params": params}


async def test_the_server_of_a_tool_is_codex_word_and_not_the_tools() -> None:
    _, event = await said(called(), question())

    assert isinstance(event, PermissionEvent)
    assert (event.tool_name, event.server) == ("mcp__theirs__x", "theirs")


@pytest.mark.parametrize(
    "messages",
    [
        (question(),),
        (called(), question(codex_approval_kind="another")),
        (called(), question(codex_approval_kind=None)),
        (called(), question(tool_name="y")),
        (called(), question(tool_params={"a": 2})),
        (called("another"), question()),
        (called("configured"), question("configured")),
        (called(), {"method": "item/completed", "params": called()["params"]}, question()),
    ],
    ids=["no call", "kind", "no kind", "tool", "input", "server", "unasked", "over"],
)
async def test_what_a_server_asks_the_person_is_no_permission(
    messages: tuple[dict[str, Any], ...],
) -> None:
    """It may say anything along with it, also what codex says with its own questions."""
    assert not any(isinstance(event, PermissionEvent) for event in await said(*messages))


async def test_codex_asks_about_each_call_once() -> None:
    events = await said(called(), question(), question())

    assert len([event for event in events if isinstance(event, PermissionEvent)]) == 1


def test_codex_is_told_whom_to_trust_whatever_the_workspace_is_called(tmp_path: Path) -> None:
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


# -- what it asks for ------------------------------------------------------------------------------


async def codex_intent(
    method: str, params: dict[str, Any], item: dict[str, Any] | None = None
) -> Intent | None:
    about = {"threadId": "ours", "itemId": "1"}
    started = {"method": "item/started", "params": {**about, "item": {"id": "1", **(item or {})}}}
    request = {"id": 0, "method": f"item/{method}/requestApproval", "params": {**about, **params}}
    *_, event = await said(*([started] if item else []), request)
    assert isinstance(event, PermissionEvent)
    return event.intent


@pytest.mark.parametrize("shell", ["/bin/bash -lc", "/usr/bin/sh -c", "/bin/zsh -lc"])
async def test_a_command_of_codex_is_what_its_shell_is_given(shell: str) -> None:
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
async def test_what_else_codex_wants_to_start_has_no_rule(params: dict[str, Any]) -> None:
    """The model names the shell, and may have made it."""
    assert await codex_intent("commandExecution", {"cwd": "/work", **params}) is None


async def test_a_patch_of_codex_is_all_its_files() -> None:
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
