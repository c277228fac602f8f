"""Terminals in the states with which tests begin."""

from pathlib import Path

import orjson

from remoteclaw.fleet.terminals.state import TerminalPlace
from tests.support.agents import AgentCli


def used_before(cli: AgentCli, home: Path, workspace: Path) -> dict[str, str]:
    """Return the environment of a CLI whose first-start questions are answered already."""
    home.mkdir(exist_ok=True)
    env = {**cli.env, "HOME": str(home)}
    where = str(workspace.resolve())
    match cli.name:
        case "claude":
            answered = {
                "hasCompletedOnboarding": True,
                "customApiKeyResponses": {"approved": [env["ANTHROPIC_API_KEY"][-20:]]},
                "projects": {where: {"hasTrustDialogAccepted": True}},
            }
            (home / ".claude.json").write_bytes(orjson.dumps(answered))
        case "codex":
            (home / ".codex").mkdir(exist_ok=True)
            (home / ".codex" / "config.toml").write_text(
                f'[projects."{where}"]\ntrust_level = "trusted"\n'
            )
        case "gemini":
            (home / ".gemini").mkdir(exist_ok=True)
            auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
            (home / ".gemini" / "settings.json").write_bytes(orjson.dumps(auth))
            (home / ".gemini" / "trustedFolders.json").write_bytes(
                orjson.dumps({where: "TRUST_FOLDER"})
            )
    return env


def place_of(turn: str, **changes: object) -> TerminalPlace:
    """Return the place of a turn's terminal, for a test that starts no terminal."""
    known: dict[str, object] = {
        "turn": turn,
        "path": "/nowhere/holder.sock",
        "key": "0" * 32,
        "files": "/nowhere",
        "ended": "/nowhere/ended",
        "runtime": "claude",
        "workspace": "/nowhere",
        "cwd": "/nowhere",
        "places": {},
        "conversation": None,
        "name": "claude|/nowhere",
        "position": "",
        "by": "Ada",
        "host": "here",
        "started_ms": 0,
    }
    return TerminalPlace(**{**known, **changes})  # type: ignore[arg-type]
