"""What codex may do without being asked: look around, where it works, and no more."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.messages import AgentEvent, DoneEvent, PermissionEvent, TextEvent
from remoteclaw.runtimes.codex_turn import CodexTurn, only_looks
from remoteclaw.runtimes.jsonrpc import Message, Peer
from tests.runtimes.test_rpc_fuzz import Nobody


def command(what: str, *, cwd: Path, method: str = "commandExecution") -> Message:
    """Return a request about a command that codex itself calls harmless."""
    params = {
        "cwd": str(cwd),
        "command": f"/bin/bash -lc {shlex.quote(what)}",
        "commandActions": [{"type": "read", "path": "a.py"}],
    }
    return Message(method=f"item/{method}/requestApproval", id=0, params=params)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "work" / "link").symlink_to("/etc")
    return tmp_path / "work"


@pytest.mark.parametrize(
    "what",
    [
        *("cat src/a.py", "cat -n a.py", "ls", "ls -la src", "pwd", "head -n 5 a.py", "wc -l a.py"),
        *("tail -20 a.py", "cat {files}/1-0/1-a.txt"),
    ],
)
def test_looking_around_needs_nobody(work: Path, what: str) -> None:
    files = work.parent / "files"

    assert only_looks(command(what.format(files=files), cwd=work), (work, files))


@pytest.mark.parametrize(
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
    pipes = Nobody()
    turn = CodexTurn(pipes, Peer(pipes, version=None), "ours", 1, {}, ())
    return [event for message in messages for event in await turn.take(Message.of(message))]


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


async def test_the_server_of_a_tool_is_codex_word_and_not_the_tools() -> None:
    params = {
        "threadId": "ours",
        "serverName": "theirs",
        "_meta": {"tool_name": "x", "tool_params": {}},
        "message": "Allow mcp__ours__x?",
    }

    (event,) = await said({"id": 0, "method": "mcpServer/elicitation/request", "params": params})

    assert isinstance(event, PermissionEvent)
    assert event.server == "theirs"
