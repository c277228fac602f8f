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
    assert intent("write_file", content=diff, locations=[{"path": "/b"}]) == Intent(
        "Edit", paths=("/work/a", "/b")
    )
    assert intent("web_fetch", title="https://example.org") == Intent("WebFetch")
    for other in ("mcp_theirs_write_file", "resolve-prompt-run_shell_command", "new_tool", ""):
        assert intent(other, title="git status", content=diff, kind="execute") is None


@for_each(
    ("explanation", "cwd"),
    [
        ("[current working directory /work] (Runs it)", ""),
        ("[current working directory /work]", ""),
        ("[in sub]", "sub"),
        ("[in ../other] (Runs it)", "../other"),
        # These could be about a directory whose name ends with a bracket.
        ("[in sub] (Runs it) [background]", None),
        ("[in sub] (Runs it) (x]", None),
        ("[current working directory /work] [in sub]", None),
        ("", None),
    ],
)
def test_the_directory_of_geminis_command_is_that_of_its_explanation(
    explanation: str, cwd: str | None
) -> None:
    content = [{"type": "content", "content": {"type": "text", "text": explanation}}]
    call = {"toolCallId": "run_shell_command__fc-1", "title": "ls", "content": content}

    assert acp_intent("gemini", call, {}) == Intent("Bash", command="ls", cwd=cwd)


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
            Intent("Bash", command="ls", cwd="sub"),
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
    before = {"title": name, "rawInput": {"command": "ls", "workdir": "sub"}}

    assert acp_intent("opencode", call, before) == intent


def test_the_directory_of_opencodes_command_is_unknown_until_its_arguments_are_known() -> None:
    call = {"kind": "execute", "rawInput": {"command": "ls"}}

    early = acp_intent("opencode", call, {"title": "bash", "rawInput": {"cwd": "/work"}})
    known = acp_intent("opencode", call, {"title": "bash", "rawInput": {"command": "ls"}})

    assert early == Intent("Bash", command="ls", cwd=None)
    assert known == Intent("Bash", command="ls")


def test_tool_calls_of_other_acp_agents_have_no_intent() -> None:
    call = {"kind": "edit", "locations": [{"path": "/work/a"}], "title": "write"}

    assert acp_intent("acp", call, {"title": "write"}) is None
