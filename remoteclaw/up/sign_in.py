"""The sign-in of an agent CLI, checked without a request to a model.

A CLI that doesn't tell counts as signed in: gemini has no such command, and opencode has models
that need no sign-in.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from remoteclaw.host.process import read_output
from remoteclaw.runtimes.wire import mapping

__all__ = ["sign_in_problem"]

#: How long a CLI may take to tell, in seconds.
TELL_S = 20.0


def sign_in_problem(runtime: str, command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return why a CLI can't ask its models, and what to do; None if it can, or doesn't tell."""
    way = {"claude": _claude, "codex": _codex}.get(runtime)
    hint = way(command, env) if way else None
    return f"{runtime} is not signed in: {hint}." if hint else None


def _claude(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    try:
        status = mapping(orjson.loads(_output((*command, "auth", "status"), env)))
    except ValueError:
        return None  # an older version has no such command
    is_out = status.get("loggedIn") is False
    return "run `claude auth login`, or give it ANTHROPIC_API_KEY" if is_out else None


def _codex(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Check codex; a provider of the user's own may need no sign-in."""
    home = Path(env.get("HOME") or "~").expanduser()
    config = Path(env.get("CODEX_HOME") or home / ".codex") / "config.toml"
    if any("model_provider" in text for text in (*command, _content(config))):
        return None
    is_out = "Not logged in" in _output((*command, "login", "status"), env)
    return "run `codex login`" if is_out else None


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Return what a command prints, whatever its exit status; empty if it can't be run."""
    return read_output(argv, env=env, timeout_s=TELL_S, may_fail=True) or ""
