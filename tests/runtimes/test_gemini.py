"""Gemini: trust in workspaces, names of tools, sessions, and the log."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.messages import OWN_SERVER, McpServerConfig
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.gemini import runtime as gemini
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime, trust_problem
from remoteclaw.tools.catalog import TOOLS

#: The maximum length of a function's name in gemini's API.
MAX_NAME_CHARS = 63


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace in the user's home."""
    path = tmp_path / "user" / "projects" / "work"
    path.mkdir(parents=True)
    return path


def problem(workspace: Path, *, asks: bool = True) -> str | None:
    return trust_problem(str(workspace), {"HOME": str(workspace.parents[1])}, asks=asks)


def spec(workspace: Path, **more: object) -> AgentSpec:
    given = AgentSpec(
        runtime="gemini",
        command=("gemini",),
        workspace=str(workspace),
        env={"HOME": str(workspace.parents[1])},
        system_prompt="with tools",
        plain_prompt="without",
        tools=("session_status",),
        own_server="remoteclaw-0123456789abcdef",
        mcp_servers={"probe": McpServerConfig(command="probe")},
    )
    return replace(given, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "place",
    [
        ".gemini/settings.json",
        ".agents/skills/x/SKILL.md",
        ".env",
        "GEMINI.md",
        ".git/config",
        "../.gemini/.env",
        "../.env",
        "../GEMINI.md",
        "../.git/config",
        "../../../.env",
        "src/deep/GEMINI.md",
        "src/.git/config",
    ],
)
def test_a_workspace_with_files_that_gemini_would_obey_is_not_trusted(
    place: str, workspace: Path
) -> None:
    assert problem(workspace) is None
    file = workspace / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()

    text = str(problem(workspace))

    name = next(part for part in Path(place).parts if part.startswith((".g", ".a", ".e", "G")))
    assert f"{name} in a trusted workspace" in text
    assert "trust_workspace = true" in text


@pytest.mark.parametrize(
    ("place", "asks"),
    [
        ("../../.gemini/settings.json", True),
        ("../../.env", True),
        ("../../GEMINI.md", True),
        ("src/.env", True),
        ("src/.gemini/settings.json", True),
        (".git/config", False),
        ("AGENTS.md", True),
    ],
)
def test_files_that_gemini_ignores_or_the_user_owns_do_not_prevent_trust(
    place: str, asks: bool, workspace: Path
) -> None:
    file = workspace / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()

    assert problem(workspace, asks=asks) is None


def test_the_real_path_of_a_symlinked_workspace_is_checked_too(workspace: Path) -> None:
    elsewhere = workspace.parents[2] / "elsewhere"
    (elsewhere / "real").mkdir(parents=True)
    (elsewhere / ".env").touch()
    link = workspace / "link"
    link.symlink_to(elsewhere / "real")

    assert str(elsewhere / ".env") in str(problem(link))


def test_instruction_files_with_names_from_the_users_settings_prevent_trust(
    workspace: Path,
) -> None:
    settings = workspace.parents[1] / ".gemini" / "settings.json"
    settings.parent.mkdir()
    names = json.dumps({"context": {"fileName": ["RULES.md", "http://x"]}})
    settings.write_text(f"// mine\n{names} /* {{ */")
    (workspace / "RULES.md").touch()

    assert str(workspace / "RULES.md") in str(problem(workspace))


def test_a_workspace_with_too_many_directories_to_check_is_not_trusted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemini, "MAX_DIRECTORIES", 2)
    (workspace / "one").mkdir()
    assert problem(workspace) is None
    (workspace / "two").mkdir()

    assert "more than 2 directories" in str(problem(workspace))


def test_gemini_is_not_started_for_a_session_of_an_earlier_process(
    workspace: Path, tmp_path: Path
) -> None:
    """Gemini would destroy the session, so the turn continues from RemoteClaw's record."""
    with pytest.raises(AgentUnavailable) as lost:
        GeminiRuntime().launch(spec(workspace), session_id="1", fork=False, run_dir=tmp_path)

    assert lost.value.category is ErrorCategory.SESSION_EXPIRED


def test_each_start_of_gemini_checks_the_workspace_again(workspace: Path, tmp_path: Path) -> None:
    def started() -> tuple[str, AgentSpec]:
        fitted = GeminiRuntime().fitted(spec(workspace))
        run_dir = Path(tempfile.mkdtemp(dir=tmp_path))
        launch = GeminiRuntime().launch(fitted, session_id=None, fork=False, run_dir=run_dir)
        return launch.env["GEMINI_CLI_TRUST_WORKSPACE"], fitted

    trusted, before = started()
    (workspace / ".env").touch()
    untrusted, after = started()

    assert (trusted, untrusted) == ("true", "false")
    assert (before.tools, before.system_prompt) == (("session_status",), "with tools")
    assert (after.tools, after.system_prompt, after.mcp_servers) == (None, "without", {})


def test_under_deny_gemini_trusts_no_workspace(workspace: Path) -> None:
    """Gemini may not ask about calls to a server that the user has configured."""
    fitted = GeminiRuntime().fitted(spec(workspace, permissions="deny"))

    assert not fitted.trust_workspace
    assert fitted.tools is None


def test_the_server_name_of_a_session_is_unique_and_stable(home: Home, tmp_path: Path) -> None:
    name = home.server_name("a" * 32)

    assert name == Home(home.path).server_name("a" * 32)
    assert name != home.server_name("b" * 32)
    elsewhere = Home(tmp_path / "other").create()
    assert name != elsewhere.server_name("a" * 32)
    # gemini takes the text before the first "_" as the server's name, and cuts longer names.
    assert "_" not in name
    assert max(len(f"mcp_{name}_{tool}") for tool in TOOLS) <= MAX_NAME_CHARS
    assert os.stat(home.path / "server-secret").st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("call_id", "server", "shown"),
    [
        (
            "mcp_remoteclaw-0123456789abcdef_session_status__1",
            OWN_SERVER,
            "mcp_remoteclaw_session_status",
        ),
        ("mcp_remoteclaw_session_status__1", None, "mcp_remoteclaw_session_status"),
        ("mcp_remoteclaw-1123456789abcdef_x__1", None, "mcp_remoteclaw_x"),
        ("mcp_probe_echo__1", None, "mcp_probe_echo"),
    ],
)
def test_only_the_server_name_of_the_session_makes_a_tool_ours(
    call_id: str, server: str | None, shown: str, workspace: Path
) -> None:
    call = {"toolCallId": call_id, "title": "session_status (remoteclaw MCP Server)"}

    assert GeminiRuntime().server_of(call, spec(workspace)) == server
    assert GeminiRuntime().tool_name(call) == shown


def test_gemini_gets_our_server_under_the_server_name_of_the_session(
    workspace: Path, tmp_path: Path
) -> None:
    servers = {OWN_SERVER: McpServerConfig(url="http://127.0.0.1:1/mcp")}
    given = spec(workspace, inherit_mcp=False, mcp_servers=servers)

    launch = GeminiRuntime().launch(given, session_id=None, fork=False, run_dir=tmp_path)

    assert launch.argv[-1] == given.own_server
    assert GeminiRuntime().server_name("probe", given) == "probe"


@pytest.mark.parametrize(
    ("call_id", "title", "inherit_mcp", "server"),
    [
        ("mcp_probe_echo__1", "echo (probe MCP Server)", False, "probe"),
        ("mcp_probe_echo__1", "rm -rf / (probe MCP Server)", True, None),
        ("mcp_evil_run__1", "rm -rf / (probe MCP Server)", False, None),
        ("run_shell_command__1", "mcp_probe_x", False, None),
    ],
)
def test_the_server_of_a_gemini_tool_is_read_from_the_call_id_alone(
    call_id: str, title: str, inherit_mcp: bool, server: str | None, tmp_path: Path
) -> None:
    given = spec(tmp_path, inherit_mcp=inherit_mcp)

    assert GeminiRuntime().server_of({"toolCallId": call_id, "title": title}, given) == server


@pytest.mark.parametrize(
    ("line", "category", "wait_s"),
    [
        (
            "[2026-11-22T04:45:57.782Z] [WARN] Attempt 2 failed with status 503. Retrying with "
            'backoff... _ApiError: {"error":{"code":503}}',
            ErrorCategory.RETRYABLE,
            10.0,
        ),
        ("Suggested retry after 60s.. Retrying after 67862ms...", ErrorCategory.RETRYABLE, 67.862),
        (
            "[2026-11-22T04:45:57.782Z] [WARN] Attempt 1 failed. Retrying with backoff... Error: "
            "getaddrinfo ENOTFOUND nowhere.invalid",
            ErrorCategory.UNREACHABLE,
            5.0,
        ),
    ],
)
def test_retries_of_gemini_are_read_from_its_log(
    line: str, category: ErrorCategory, wait_s: float
) -> None:
    assert GeminiRuntime.log is not None
    note = GeminiRuntime().read_log(line)

    assert GeminiRuntime.log[1].search(line.encode())
    assert note is not None
    assert note.failure is not None
    assert (note.failure.category, note.wait_s) == (category, wait_s)
    assert (note.failure.retry_at_ms is not None) is ("retry after 60s" in line)


def test_asides_of_gemini_run_in_a_directory_whose_settings_allow_no_tools(
    workspace: Path, tmp_path: Path
) -> None:
    """All agents share it, so settings that another agent wrote there are replaced."""
    run_dir = tmp_path / "home" / "run" / "a"
    run_dir.mkdir(parents=True)
    place = Path(GeminiRuntime().aside_directory(spec(workspace), run_dir))
    settings = place / ".gemini" / "settings.json"
    settings.write_text("{}")

    assert GeminiRuntime().aside_directory(spec(workspace), run_dir) == str(place)

    assert place == tmp_path / "home" / "asides"
    written = json.loads(settings.read_text())
    assert written["tools"] == {"core": [], "allowed": []}
    assert written["mcp"] == {"allowed": ["none"]}
    assert place.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("variable", ["HOME", "GEMINI_CLI_HOME"])
def test_forgetting_a_gemini_session_deletes_only_its_own_file(
    workspace: Path, variable: str
) -> None:
    given = spec(workspace, env={variable: str(workspace.parents[1])})
    chats = workspace.parents[1] / ".gemini" / "tmp" / "asides" / "chats"
    chats.mkdir(parents=True)
    session, similar = (
        "0d743ac0-120e-4bb3-9de2-3a0dca4e8f52",
        "0d743ac0-ffff-4bb3-9de2-3a0dca4e8f52",
    )
    for minute, owner in enumerate((session, similar)):
        file = chats / f"session-2026-11-23T05-5{minute}-{owner[:8]}.jsonl"
        file.write_text(f'{{"sessionId":"{owner}","kind":"main"}}\n{{"about":"{session}"}}\n')
    (chats / "session-2026-11-23T05-59-0d743ac0.jsonl").mkdir()

    GeminiRuntime().forget(given, session)
    GeminiRuntime().forget(given, "*")
    GeminiRuntime().forget(given, session)

    kept = sorted(file.name for file in chats.iterdir())
    assert kept == [f"session-2026-11-23T05-5{minute}-0d743ac0.jsonl" for minute in (1, 9)]
