"""JSON lines to and from a CLI, and tolerant access to their values.

A CLI may be of any version. A value of an unexpected type must not break more than its own line, so
the access functions return an empty value instead of raising an error.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import orjson

from remoteclaw.protocols import AgentPipes

#: The format of most CLIs' conversation ids, and of claude's message ids. A value in any other
#: format is not used as such an id in Redis or on command lines.
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

#: Matches strings, as group 1, and comments, in JSON with comments; and commas before an end.
_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMAS = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*[}\]])')

_M = TypeVar("_M")


class UnreadableLine(Exception):
    """Raised for a message that is damaged or too long; the CLI may wait for its answer."""


class Messages(Protocol[_M]):
    """A stream of messages from a CLI."""

    async def read(self) -> _M | None:
        """Return the next message; None once the CLI has ended. Raises `UnreadableLine`."""

    def take_unread(self) -> list[_M]:
        """Return the messages that have arrived, without waiting; unreadable lines are skipped."""


class Lines:
    """Messages in both directions, each a JSON object on one line."""

    def __init__(self, pipes: AgentPipes) -> None:
        self._pipes = pipes

    async def read(self) -> dict[str, Any] | None:
        """Return the next message; None once the CLI has ended. Raises `UnreadableLine`."""
        line = await self._pipes.read()
        return None if line is None else decode(line)

    def take_unread(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived, without waiting; unreadable lines are skipped."""
        messages = []
        for line in self._pipes.take_unread():
            try:
                messages.append(decode(line))
            except UnreadableLine:
                continue
        return messages

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        await self._pipes.write(orjson.dumps(message))


def decode(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; an empty one for a line that is no message.

    Other programs may print lines between a CLI's messages, so a line that does not begin with `{`
    is ignored. Raises `UnreadableLine` for a damaged message.
    """
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _repaired(line)
    return message if isinstance(message, dict) else {}


def _repaired(line: bytes) -> dict[str, Any]:
    """Return the object of a line with invalid UTF-8 or lone surrogates.

    JavaScript programs may split a string between surrogates, and print a lone one as `\\ud83d`.
    Such a surrogate can't be encoded, so it is replaced by a question mark.
    """
    if line and not line.lstrip().startswith(b"{"):
        return {}
    try:
        message = json.loads(line.decode("utf-8", "replace"), parse_constant=lambda _name: None)
        whole = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        message = orjson.loads(whole)
    except (ValueError, RecursionError):
        raise UnreadableLine from None
    if not isinstance(message, dict):
        raise UnreadableLine
    return message


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a list; an empty list for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return `value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """Return a number as a non-negative integer; 0 for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return max(0, int(value))
    return 0


def commented_json(content: str) -> dict[str, Any]:
    """Return the object in JSON with comments and trailing commas. Raises `ValueError`."""
    return mapping(orjson.loads(_LAST_COMMAS.sub(r"\1", _COMMENTS.sub(r"\1", content))))


def toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(str(k))}={toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
