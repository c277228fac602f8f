"""Intents of tool calls over ACP, in the terms of `allow`; None if the intent is uncertain."""

from typing import Any

from remoteclaw.events import Intent
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from tests.support.rows import for_each


def acp_intent(name: str, call: dict[str, Any], before: dict[str, Any]) -> Intent | None:
    runtime = create_cli_runtime(name)
    assert isinstance(runtime, AcpRuntime)
    return runtime.intent_of(call, before)


# -- gemini ---------------------------------------------------------------------------------------


def test_geminis_built_in_tools_are_recognized_by_their_ids() -> None:
    def intent(tool: str, **call: Any) -> Intent | None:
        return acp_intent("gemini", {"toolCallId": f"{tool}__fc-1", **call}, {})

    diff = [{"type": "diff", "path": "/work/a"}]
    assert intent("run_shell_command", title="git status") == Intent("Bash", command="git status")
    assert intent("write_file", content=diff, locations=[{"path": "/b"}]) == Intent(
        "Edit", paths=("/work/a", "/b")
    )
    assert intent("web_fetch", title="https://example.org") == Intent("WebFetch")
    for other in ("mcp_theirs_write_file", "resolve-prompt-run_shell_command", "new_tool", ""):
        assert intent(other, title="git status", content=diff, kind="execute") is None


# -- opencode -------------------------------------------------------------------------------------


@for_each(
    ("name", "call", "intent"),
    [
        (
            "bash",
            {"kind": "execute", "rawInput": {"command": "ls"}, "title": "write"},
            Intent("Bash", command="ls", cwd="sub"),
        ),
        (
            "bash",
            {"kind": "other", "rawInput": {"command": "ls", "directories": ["/x"]}},
            Intent("Bash", command="ls", cwd="/"),
        ),
        (
            "write",
            {"kind": "edit", "locations": [{"path": "/a"}], "rawInput": {"filepath": "/b"}},
            Intent("Edit", paths=("/a", "/b")),
        ),
        (
            "apply_patch",
            {
                "kind": "edit",
                "rawInput": {
                    "filepath": "a, b",
                    "files": [{"filePath": "/a"}, {"filePath": "/b", "movePath": "/c"}],
                },
            },
            Intent("Edit", paths=("/a", "/b", "/c")),
        ),
        (
            "read",
            {
                "kind": "other",
                "locations": [{"path": "/x/y"}, {"path": "/x"}],
                "rawInput": {"filepath": "/x/y", "parentDir": "/x"},
            },
            Intent("Read", paths=("/x/y",)),
        ),
        (
            "webfetch",
            {"kind": "fetch", "rawInput": {"url": "https://example.org/"}},
            Intent("WebFetch", url="https://example.org/"),
        ),
        ("theirs_write", {"kind": "other", "rawInput": {"filepath": "/work/a"}}, None),
        ("theirs_bash", {"kind": "execute", "rawInput": {"command": "ls"}}, None),
        ("bash", {"kind": "edit", "rawInput": {"filepath": "/work/a"}}, None),
        ("", {"kind": "execute", "title": "bash", "rawInput": {"command": "ls"}}, None),
    ],
)
def test_opencodes_built_in_tools_are_recognized_by_their_first_title(
    name: str, call: dict[str, Any], intent: Intent | None
) -> None:
    before = {"title": name, "rawInput": {"workdir": "sub"}}

    assert acp_intent("opencode", call, before) == intent


def test_tool_calls_of_other_acp_agents_have_no_intent() -> None:
    call = {"kind": "edit", "locations": [{"path": "/work/a"}], "title": "write"}

    assert acp_intent("acp", call, {"title": "write"}) is None
