"""Our own record of a conversation: who said what and when, alike for every CLI.

CLIs lose theirs: with a host, with a directory, when they tidy up. From this one a new process
learns what was said before.
It is lines of JSON, oldest first, each with `at` (milliseconds since 1970) and `role`:

- `user`: `from`, `id` (the platform's), `text`
- `agent`: `text`, as it was delivered
- `tool`: `name`, `input` and `output` shortened, `is_error`
- `error`: `category`
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from remoteclaw.messages import AgentDeliveryResult, Entry, Turn

__all__ = ["digest", "lines_of"]

#: How much of one message is kept, in characters: its beginning and its end.
MOST_TEXT = 8_000
#: How many of a turn's tool calls are kept: the last ones.
MOST_CALLS = 30
#: How much of a conversation a new process is told, in characters: its end.
MOST_DIGEST = 24_000


def lines_of(
    turn: Turn, joined: Sequence[Entry], result: AgentDeliveryResult, *, at_ms: int
) -> bytes:
    """Return what a turn adds to the record; `joined` came while it ran, `at_ms` is its end."""
    lines = [*map(_asked, (*turn.left_out, *turn.entries, *joined))]
    lines += [
        {
            "at": at_ms,
            "role": "tool",
            "name": call.name,
            "input": call.input,
            "output": call.output,
            "is_error": call.is_error,
        }
        for call in result.tool_calls[-MOST_CALLS:]
    ]
    if said := "\n\n".join(payload.text for payload in result.payloads if not payload.is_error):
        lines.append({"at": at_ms, "role": "agent", "text": _shortened(said)})
    if result.error_category:
        lines.append({"at": at_ms, "role": "error", "category": str(result.error_category)})
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def _asked(entry: Entry) -> dict[str, Any]:
    message = entry.message
    return {
        "at": entry.at_ms,
        "role": "user",
        "from": message.user_name or message.from_,
        "id": message.id,
        "text": _shortened(message.text),
    }


def digest(record: bytes, *, since_ms: int = 0) -> str:
    """Return what a new agent process is told of a conversation; empty if there is nothing.

    What is older than `since_ms` is left out.
    """
    told: list[str] = []
    length = 0
    for words in reversed([*_told(record, since_ms)]):
        length += len(words) + 1
        if length > MOST_DIGEST:
            told.append("(…)")
            break
        told.append(words)
    return "\n".join(reversed(told))


def _told(record: bytes, since_ms: int) -> Iterator[str]:
    for raw in record.splitlines():
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue  # the oldest one may have been cut
        if not isinstance(line, dict) or line.get("at", 0) < since_ms:
            continue
        match line.get("role"):
            case "user":
                yield f"{line['from']}: {line['text']}"
            case "agent":
                yield f"You: {line['text']}"
            case "tool":
                failed = " and failed" if line["is_error"] else ""
                yield f"(You used {line['name']} with {line['input']}{failed}.)"
            case "error":
                yield f"(That turn ended with an error: {line['category']}.)"


def _shortened(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n(… {len(text) - 2 * half:,} characters …)\n{text[-half:]}"
