"""The record of a conversation: who said what and when, the same for every CLI.

A CLI's own transcript may be lost with its host or directory. A new process then learns from the
record what was said before.
It is lines of JSON, oldest first, each with `at` (milliseconds since 1970) and `role`:

- `user`: `from` (a name), of a person `from_id`, `id` (the platform's), `text`, and the names of
  `attachments`
- `agent`: `text`, as it left the agent, and the names of the `attachments` that it sent
- `plan`: its `steps` as they were last, each with `text` and `state`
- `tool`: `name`, `argument`, `input` and `output` shortened, `is_error`, `since_ms`, `seconds`, and
  the CLI's `id` of the call
- `notice`: RemoteClaw's own `text`
- `error`: `category`, and the `text` that was said of it, with its reference

What a turn adds besides the messages of people has its id as `turn`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from remoteclaw.clock import local_time
from remoteclaw.config.model import RecordConfig
from remoteclaw.events import PlanStep
from remoteclaw.fleet.turn import RecordAppend
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import AgentDeliveryResult, Entry, ReplyPayload, ToolCall, Turn
from remoteclaw.protocols import TranscriptItem

#: How much of one message is kept, in characters: its beginning and its end.
MAX_TEXT = 8_000
#: How many of a turn's tool calls are kept: the last ones.
MAX_CALLS = 30
#: How much of a record the tool calls of one turn may fill with what they were given and gave back,
#: as a part of it: a few turns full of tools must not push out what was said. With what is kept by
#: default, that is 32 KB a turn. Of the others so many characters are kept, and agents are told no
#: more of any.
TOOLS_SHARE, MAX_SHOWN = 8, 300
#: The part of a conversation that a new process is told, in characters: its end.
MAX_DIGEST = 24_000


def lines_of(
    turn: Turn,
    joined: Sequence[Entry],
    result: AgentDeliveryResult,
    *,
    at_ms: int,
    most_bytes: int = 1024 * 1024,
    said: Sequence[ReplyPayload] = (),
    plan: Sequence[PlanStep] = (),
) -> bytes:
    """Return what a turn adds to the record; `joined` came while it ran, `at_ms` is its end.

    `said` are the notices before the answer, and `plan` is the agent's. Of more than `most_bytes`,
    half of a whole record, the beginning is left out; no text takes more than half of that.
    """
    most = min(MAX_TEXT, most_bytes // 16)  # JSON has up to six bytes for a character
    lines = [_asked(entry, most) for entry in (*turn.left_out, *turn.entries, *joined)]
    of_turn = {"at": at_ms, "turn": turn.id}
    lines += [{**of_turn, "role": "notice", "text": payload.text} for payload in said]
    if plan:
        lines.append({**of_turn, "role": "plan", "steps": [asdict(step) for step in plan]})
    tools = _tools(result.tool_calls[-MAX_CALLS:], most_bytes * 2 // TOOLS_SHARE)
    lines += [{**of_turn, "role": "tool", **told} for told in tools]
    theirs = [payload for payload in result.payloads if not payload.is_ours]
    if theirs:
        text = "\n\n".join(payload.text for payload in theirs)
        sent = [file.name for payload in theirs for file in payload.attachments]
        names = {"attachments": sent} if sent else {}
        lines.append({**of_turn, "role": "agent", "text": _shortened(text, most), **names})
    ours = [payload.text for payload in result.payloads if payload.is_ours]
    if result.error_category:
        words = ours.pop() if ours else ""
        about = {"category": str(result.error_category), "text": words}
        lines.append({**of_turn, "role": "error", **about})
    lines += [{**of_turn, "role": "notice", "text": words} for words in ours]
    return _end_of(reversed(lines), most_bytes)


def lines_of_aside(
    entry: Entry, payloads: Sequence[ReplyPayload], *, at_ms: int, most_bytes: int
) -> bytes:
    """Return what a message that was answered beside a turn adds to the record."""
    most = min(MAX_TEXT, most_bytes // 16)
    lines = [_asked(entry, most)]
    if text := "\n\n".join(payload.text for payload in payloads):
        said = {"at": at_ms, "turn": entry.id, "role": "agent", "text": _shortened(text, most)}
        lines.append(said)
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def lines_of_terminal(
    items: Sequence[TranscriptItem], *, turn: str, by: str, most_bytes: int
) -> bytes:
    """Return what was said in a terminal that `by` has opened, as lines; the last `most_bytes`."""
    most = min(MAX_TEXT, most_bytes // 16)

    def line_of(item: TranscriptItem) -> dict[str, Any]:
        line: dict[str, Any] = {"at": item.at_ms, "turn": turn, "role": item.kind}
        match item.kind:
            case "user":
                line |= {"from": by, "id": item.id, "text": _shortened(item.text, most)}
            case "tool":
                line |= {"name": item.name, "argument": item.text, "input": "", "output": ""}
                line |= {"is_error": False, "since_ms": item.at_ms, "seconds": 0, "id": item.id}
            case _:
                line["text"] = _shortened(item.text, most)
        return line

    return _end_of(map(line_of, reversed(items)), most_bytes)


def added(settings: RecordConfig, lines: Callable[..., bytes]) -> RecordAppend:
    """Return what one of these functions adds to a record; where none is kept, it is removed."""
    if not settings.keep_days:
        return RecordAppend(b"", 0, 0)
    most_bytes = settings.max_kb * 1024
    return RecordAppend(lines(most_bytes=most_bytes // 2), most_bytes, settings.keep_ms)


def _end_of(newest_first: Iterable[dict[str, Any]], most_bytes: int) -> bytes:
    """Return the last lines that are no more than `most_bytes`, oldest first."""
    kept: list[bytes] = []
    for line in newest_first:
        encoded = orjson.dumps(line) + b"\n"
        most_bytes -= len(encoded)
        if most_bytes < 0:
            break
        kept.append(encoded)
    return b"".join(reversed(kept))


def _tools(calls: Sequence[ToolCall], most_bytes: int) -> list[dict[str, Any]]:
    """Return what is kept of tool calls: the last ones whole, as long as there is room."""
    told: list[dict[str, Any]] = []
    for call in reversed(calls):
        kept = asdict(call)
        most_bytes -= len(orjson.dumps(kept))
        if most_bytes < 0:
            kept |= {"input": call.input[:MAX_SHOWN], "output": call.output[:MAX_SHOWN]}
        told.append(kept)
    return told[::-1]


def _asked(entry: Entry, most: int) -> dict[str, Any]:
    message = entry.message
    asked: dict[str, Any] = {
        "at": entry.at_ms,
        "role": "user",
        "from": message.user_name or message.from_,
        **({"from_id": message.from_} if entry.origin == "chat" else {}),
        "id": message.id,
        "text": _shortened(message.text, most),
    }
    if message.attachments:
        asked["attachments"] = [attachment.name for attachment in message.attachments]
    return asked


def digest(record: bytes, *, since_ms: int = 0) -> list[dict[str, str]]:
    """Return what a new agent process is told of a conversation, oldest first.

    Each note names its speaker by its key, so that no text can pretend to be another's. What
    is older than `since_ms` is left out, and so is what goes beyond `MAX_DIGEST`.
    """
    told: list[dict[str, str]] = []
    length = 0
    for note in reversed([*_notes(record, since_ms)]):
        length += sum(map(len, note.values()))
        if length > MAX_DIGEST:
            break
        told.append(note)
    return told[::-1]


def count_messages(record: bytes) -> int:
    """Return how many messages of people are in a record."""
    return sum(line.get("role") == "user" for line in read_lines(record))


def as_markdown(record: bytes) -> str:
    """Return a record as a text for people: who said what and when, and which tools were used."""
    parts = []
    for line in read_lines(record):
        at = local_time(int(line.get("at", 0)), None)
        match line.get("role"):
            case "user":
                head = f"## {one_line(str(line['from']))}, {at:%Y-%m-%d %H:%M}"
                parts += [head, str(line["text"])]
            case "agent":
                parts += [f"## Agent, {at:%Y-%m-%d %H:%M}", str(line["text"])]
            case "tool":
                parts.append(f"- used {one_line(str(line['name']))}")
            case "error":
                parts.append(f"- it failed: {one_line(str(line['category']))}")
        if line.get("attachments"):
            parts.append("\n".join(f"- file {one_line(str(name))}" for name in line["attachments"]))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n" if parts else ""


def read_lines(record: bytes) -> Iterator[dict[str, Any]]:
    """Yield what a record has, oldest first."""
    for raw in record.splitlines():
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue  # the oldest one may have been cut
        if isinstance(line, dict):
            yield line


def _notes(record: bytes, since_ms: int) -> Iterator[dict[str, str]]:
    for line in read_lines(record):
        if line.get("at", 0) < since_ms:
            continue
        match line.get("role"):
            case "user":
                who: dict[str, str] = {key: line[key] for key in ("from", "from_id") if key in line}
                yield {**who, "said": line["text"], **_files(line, "with_files")}
            case "agent":
                yield {"you": line["text"], **_files(line, "you_sent_files")}
            case "tool":
                yield {"you_used": line["name"], "with": line["input"][:MAX_SHOWN]}
            case "error":
                yield {"error": line["category"]}


def _files(line: dict[str, Any], key: str) -> dict[str, str]:
    names = line.get("attachments")
    return {key: ", ".join(names)} if names else {}


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n(… {len(text) - 2 * half:,} characters …)\n{text[-half:]}"
