"""Prompt prefixes: the part of a request that a model's provider can read from its cache.

Providers cache a prompt from its beginning: tools, then system prompt, then messages. After the
first byte that differs, everything is read again at full price.
"""

import json
import uuid
from typing import Any

from tests.support.agents import ModelServerProcess

#: The field that has the conversation, by API.
_CONVERSATIONS = ("messages", "input", "contents")
#: Fields that no cache considers: ids of turns and processes, for the provider's statistics.
_STATISTICS = ("metadata", "client_metadata")


def word(text: str) -> str:
    """Return a text that is unique among all requests, because tests share the model server."""
    return f"{text}-{uuid.uuid4().hex[:8]}"


def asked(model: ModelServerProcess, text: str) -> dict[str, Any]:
    """Return the first of the last requests that contains `text`, a result of `word()`."""
    found: dict[str, Any] = next(
        json.loads(line) for line in model.bodies().split("\n") if text in line
    )
    return found


def added(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that a request adds to an earlier one; fail if anything else differs.

    The cache marks (`cache_control`) may move, and the ids of codex' own instructions may differ.
    """
    (name,) = (name for name in _CONVERSATIONS if name in before)
    old, new = _unmarked(before), _unmarked(after)
    for body in (old, new):
        for statistic in _STATISTICS:
            body.pop(statistic, None)
    said, says = old.pop(name), new.pop(name)
    assert new == old
    assert says[: len(said)] == said
    return list(says[len(said) :])


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = {"cache_control", *(["id"] if value.get("role") == "developer" else [])}
        return {name: _unmarked(part) for name, part in value.items() if name not in left_out}
    return [_unmarked(part) for part in value] if isinstance(value, list) else value
