"""Terminals at the moments that tests begin with."""

from remoteclaw.fleet.terminals import Place

__all__ = ["place_of"]


def place_of(turn: str, **changes: object) -> Place:
    """Return where a turn's terminal is, in a test that starts none."""
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
    return Place(**{**known, **changes})  # type: ignore[arg-type]
