"""JSON lines to and from a CLI, read with tolerance: a value of the expected type, or none.

A CLI is another program in another version. A line of a wrong shape must cost no more than what
it would have said, so the readers of values never raise.
"""

import json
import math
import re
from typing import Any, Protocol, TypeVar

import orjson

from remoteclaw.protocols import AgentPipes

#: The ids of most CLIs' conversations, and of claude's messages in them. Nothing else goes into
#: Redis and onto command lines as one.
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

_M = TypeVar("_M")


class UnreadableLine(Exception):
    """Raised for a line that is damaged or was too long: the agent may wait for an answer to it."""


class Messages(Protocol[_M]):
    """Messages of a CLI, one at a time."""

    async def read(self) -> _M | None:
        """Return the next message; None when the CLI has ended. Raises `UnreadableLine`."""

    def take_unread(self) -> list[_M]:
        """Return the messages that have arrived, without waiting; damaged lines are left out."""


class Lines:
    """Messages of one JSON object a line, each way."""

    def __init__(self, pipes: AgentPipes) -> None:
        self._pipes = pipes

    async def read(self) -> dict[str, Any] | None:
        """Return the next message; None when the CLI has ended. Raises `UnreadableLine`."""
        line = await self._pipes.read()
        return None if line is None else decode(line)

    def take_unread(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived, without waiting; damaged lines are left out."""
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
    """Return a line's object, an empty one for a line that is no message.

    Programs print all sorts of things between a CLI's messages, so a line that doesn't begin like
    a message is none. Raises `UnreadableLine` for one that does and can't be read.
    """
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _repaired(line)
    return message if isinstance(message, dict) else {}


def _repaired(line: bytes) -> dict[str, Any]:
    """Return the object of a line that isn't UTF-8 throughout.

    JavaScript cuts strings between surrogates, and prints a lone one as `\\ud83d`; it becomes a
    question mark here, because it can't be encoded again.
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
