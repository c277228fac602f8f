"""Output of CLIs, read with tolerance: a value of the expected type, or none.

A CLI is another program in another version. A line of a wrong shape must cost no more than what
it would have said, so no reader of these raises.
"""

import json
import math
from typing import Any

import orjson

__all__ = ["count", "decode", "mapping", "mappings", "text"]


def decode(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; an empty one for what is no message, None for a damaged one.

    Programs print all sorts of things between a CLI's messages, so what doesn't begin like a
    message is none. What does and can't be read may have been what somebody waits for.
    """
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _repaired(line)
    return message if isinstance(message, dict) else {}


def _repaired(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line that isn't UTF-8 throughout.

    JavaScript cuts strings between the halves of a character, and prints one half as `\\ud83d`;
    it becomes a question mark here, since nothing else of ours could pass it on.
    """
    if line and not line.lstrip().startswith(b"{"):
        return {}
    try:
        message = json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        whole = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        message = orjson.loads(whole)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a text, or an empty one for anything else."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """Return a number that counts something, or 0 for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return max(0, int(value))
    return 0
