"""The record of a conversation: a transcript in one format for every CLI.

A CLI's own transcript may be lost with its host or directory. A new agent process then reads a
digest of the record instead.
The record is lines of JSON, oldest first, each with `at` (milliseconds since 1970) and `role`:

- `user`: `from` (a name), `from_id` if the sender is a person, `id` (the platform's), `text`, and
  the names of the `attachments`
- `agent`: `text`, as the agent wrote it, the names of the `attachments` that it sent, and, if it
  wrote this in a terminal, the `id` in the CLI's transcript
- `plan`: the last state of its `steps`, each with `text` and `state`
- `tool`: `name`, `argument`, shortened `input` and `output`, `is_error`, `since_ms`, `seconds`, and
  the CLI's `id` of the call
- `notice`: RemoteClaw's own `text`
- `summary`: the CLI's own summary of the conversation before this line, as `text`; a `notice` that
  the conversation was summarized follows it, or stands alone if the CLI does not report its summary
- `error`: `category`, and the `text` that the person read, with its reference

All lines but `user` have the id of their turn as `turn`. Those of a turn that another agent
answered in place of the session's have its name as `by`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from remoteclaw.clock import local_time
from remoteclaw.config.model import RecordConfig
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import CompactionEvent, PlanStep
from remoteclaw.fleet.sessions.records import Records
from remoteclaw.fleet.terminals.state import TerminalEvent
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.turns.turn import RecordAppend
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import (
    AgentDeliveryResult,
    Entry,
    ReplyPayload,
    ToolCall,
    Turn,
    stream_order,
)
from remoteclaw.protocols import TranscriptItem

#: At most this much of an open terminal is shown as recorded, in bytes.
MAX_OPEN_BYTES = 1024 * 1024
#: A longer message is cut to this length, in characters: its beginning and its end are kept.
MAX_TEXT_CHARS = 8_000
#: At most this many of a turn's tool calls are kept, the last ones.
MAX_CALLS = 30
#: The tool calls of one turn may fill 1 / `TOOLS_SHARE` of a record (32 KB with the default size),
#: so that a few turns full of tools don't push out the messages.
TOOLS_SHARE = 8
#: The input and output of any further call are cut to this length, in characters. A digest has no
#: more of any call.
MAX_TOOL_CHARS = 300
#: The CLI's summary may fill 1 / `SUMMARY_SHARE` of a turn's lines (16 KB with the default size).
SUMMARY_SHARE = 8
#: The maximum length of a digest, in characters.
MAX_DIGEST_CHARS = 24_000
#: The part of a digest that is for the beginning of the conversation, in characters; the rest is
#: for its end. A summary takes the place of the beginning.
MAX_BEGINNING_CHARS = 2_000
#: The failures that count as refusals of the conversation by the model's API.
_REFUSALS = (ErrorCategory.INVALID_REQUEST, ErrorCategory.UNFIT_IMAGE)


def lines_of(
    turn: Turn,
    joined: Sequence[Entry],
    result: AgentDeliveryResult,
    *,
    at_ms: int,
    max_bytes: int = 1024 * 1024,
    notices: Sequence[ReplyPayload] = (),
    plan: Sequence[PlanStep] = (),
    by: str = "",
) -> bytes:
    """Return the lines that a turn adds to the record.

    `joined` are the entries that joined the turn while it ran, `at_ms` is its end, `notices` were
    sent before the answer, and `plan` is the agent's. `by` is the agent that answered in place of
    the session's. If the lines have more than `max_bytes`, half
    of a whole record, the oldest ones are left out; no text takes more than half of that.
    """
    max_chars = min(MAX_TEXT_CHARS, max_bytes // 16)  # a character takes up to 6 bytes of JSON
    of_turn = {"at": at_ms, "turn": turn.id, **_by(by)}
    lines: list[dict[str, Any]] = []
    if result.compaction:
        lines += _compaction_lines(result.compaction, of_turn, max_bytes)
    lines += [_user_line(entry, max_chars) for entry in (*turn.left_out, *turn.entries, *joined)]
    lines += [{**of_turn, "role": "notice", "text": payload.text} for payload in notices]
    if plan:
        lines.append({**of_turn, "role": "plan", "steps": [asdict(step) for step in plan]})
    calls = _tool_fields(result.tool_calls[-MAX_CALLS:], max_bytes * 2 // TOOLS_SHARE)
    lines += [{**of_turn, "role": "tool", **call} for call in calls]
    theirs = [payload for payload in result.payloads if not payload.is_ours]
    if theirs:
        text = "\n\n".join(payload.text for payload in theirs)
        sent = [file.name for payload in theirs for file in payload.attachments]
        names = {"attachments": sent} if sent else {}
        lines.append({**of_turn, "role": "agent", "text": _shortened(text, max_chars), **names})
    ours = [payload.text for payload in result.payloads if payload.is_ours]
    if result.error_category:
        error_text = ours.pop() if ours else ""
        error = {"category": str(result.error_category), "text": error_text}
        lines.append({**of_turn, "role": "error", **error})
    lines += [{**of_turn, "role": "notice", "text": text} for text in ours]
    return _newest_lines(reversed(lines), max_bytes)


def lines_of_compaction(
    compaction: CompactionEvent, *, turn: str, at_ms: int, max_bytes: int
) -> bytes:
    """Return the lines that a compaction after `turn` adds to the record."""
    lines = _compaction_lines(compaction, {"at": at_ms, "turn": turn}, max_bytes)
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def _compaction_lines(
    compaction: CompactionEvent, of_turn: dict[str, Any], max_bytes: int
) -> list[dict[str, Any]]:
    change = f" ({compaction.change})" if compaction.change else ""
    notice = {**of_turn, "role": "notice", "text": f"The conversation was summarized{change}."}
    if not compaction.summary:
        return [notice]
    summary = _shortened(compaction.summary, max_bytes // SUMMARY_SHARE)
    return [{**of_turn, "role": "summary", "text": summary}, notice]


def lines_of_aside(
    entry: Entry, payloads: Sequence[ReplyPayload], *, at_ms: int, max_bytes: int, by: str = ""
) -> bytes:
    """Return the lines that a message answered as an aside adds to the record."""
    max_chars = min(MAX_TEXT_CHARS, max_bytes // 16)
    lines = [_user_line(entry, max_chars)]
    if text := "\n\n".join(payload.text for payload in payloads):
        text = _shortened(text, max_chars)
        of_turn = {"at": at_ms, "turn": entry.id, **_by(by)}
        lines.append({**of_turn, "role": "agent", "text": text})
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def lines_of_terminal(
    items: Sequence[TranscriptItem], *, turn: str, by: str, max_bytes: int
) -> bytes:
    """Return the lines of a terminal that `by` has opened, the newest `max_bytes` of them."""
    max_chars = min(MAX_TEXT_CHARS, max_bytes // 16)

    def line_of(item: TranscriptItem) -> dict[str, Any]:
        line: dict[str, Any] = {"at": item.at_ms, "turn": turn, "role": item.kind}
        line["is_terminal"] = True
        match item.kind:
            case "user":
                line |= {"from": by, "id": item.id, "text": _shortened(item.text, max_chars)}
            case "tool":
                line |= {"name": item.name, "argument": item.text, "input": "", "output": ""}
                line |= {"is_error": False, "since_ms": item.at_ms, "seconds": 0, "id": item.id}
            case _:
                line |= {"id": item.id, "text": _shortened(item.text, max_chars)}
        return line

    return _newest_lines(map(line_of, reversed(items)), max_bytes)


async def current_record(records: Records, terminals: Terminals, sid: str) -> bytes:
    """Return the record of a session's current conversation, with that of its open terminal.

    A terminal is recorded when it ends; until then, its published items stand in for its record.
    """
    unrecorded = await terminals.unrecorded(sid)  # first: it may be recorded just now
    record = await records.of(sid)
    if unrecorded is None:
        return record
    terminal, events = unrecorded
    if any(line.get("turn") == terminal.entry for line in read_lines(record)):
        return record
    items = published_items(events)
    lines = lines_of_terminal(items, turn=terminal.entry, by=terminal.by, max_bytes=MAX_OPEN_BYTES)
    return record + lines


def published_items(events: Iterable[TerminalEvent]) -> Sequence[TranscriptItem]:
    """Return the items of a transcript that events of a terminal have published."""
    return [item for event in events if (item := _published_item(event.data))]


def _published_item(event: Mapping[str, Any]) -> TranscriptItem | None:
    """Return the transcript's item that an event has published; None for any other event."""
    kind = event.get("role") if event.get("type") == "message" else event.get("type")
    if kind not in ("user", "agent", "tool", "notice"):
        return None
    fields = (event["id"], kind, event["text"], event.get("name", ""), event["at"])
    return TranscriptItem(*fields)


def added(settings: RecordConfig, lines: Callable[..., bytes]) -> RecordAppend:
    """Return the addition to a record; without `keep_days`, one that removes the record.

    `lines` is one of the functions above, with all arguments but `max_bytes`.
    """
    if not settings.keep_days:
        return RecordAppend(b"", 0, 0)
    max_bytes = settings.max_kb * 1024
    return RecordAppend(lines(max_bytes=max_bytes // 2), max_bytes, settings.keep_ms)


def _newest_lines(newest_first: Iterable[dict[str, Any]], max_bytes: int) -> bytes:
    """Return the newest lines that fit into `max_bytes`, oldest first."""
    kept: list[bytes] = []
    for line in newest_first:
        encoded = orjson.dumps(line) + b"\n"
        max_bytes -= len(encoded)
        if max_bytes < 0:
            break
        kept.append(encoded)
    return b"".join(reversed(kept))


def _tool_fields(calls: Sequence[ToolCall], max_bytes: int) -> list[dict[str, Any]]:
    """Return the fields of tool calls: the last calls that fit into `max_bytes` are whole."""
    fields: list[dict[str, Any]] = []
    for call in reversed(calls):
        kept = asdict(call)
        max_bytes -= len(orjson.dumps(kept))
        if max_bytes < 0:
            kept |= {"input": call.input[:MAX_TOOL_CHARS], "output": call.output[:MAX_TOOL_CHARS]}
        fields.append(kept)
    return fields[::-1]


def _user_line(entry: Entry, max_chars: int) -> dict[str, Any]:
    message = entry.message
    line: dict[str, Any] = {
        "at": entry.at_ms,
        "role": "user",
        "from": message.user_name or message.from_,
        **({"from_id": message.from_} if entry.origin == "chat" else {}),
        "id": message.id,
        "text": _shortened(message.text, max_chars),
    }
    if entry.has_text_of_others:
        line["has_text_of_others"] = True
    if message.attachments:
        line["attachments"] = [attachment.name for attachment in message.attachments]
    return line


def digest(
    record: bytes, *, since_ms: int = 0, seen: str | None = None, of: str = "", for_: str = ""
) -> list[dict[str, str]]:
    """Return notes of a conversation for a new agent process, oldest first.

    The keys of a note tell its speaker, so that no text can pretend to be another's. Lines from
    before `since_ms`, and all lines before the CLI's last summary, are left out. If the rest has
    more than `MAX_DIGEST_CHARS`, notes after its beginning are left out.

    With a turn `seen`, the notes are of what came after it, and none unless another agent has said
    or done something there. `of` is the session's agent, and `for_` the one that gets the notes, if
    that is another one.
    """
    lines = [*read_lines(record)]
    if seen is not None:
        lines = _lines_after(lines, seen)
        others = {line.get("by") or of for line in lines if line.get("role") in ("agent", "tool")}
        if not others - {for_ or of}:
            return []
    notes = [*_notes(lines, since_ms, of, for_ or of)]
    summary_at = max((at for at, note in enumerate(notes) if "summary" in note), default=0)
    notes = notes[summary_at:]
    if sum(map(_length, notes)) <= MAX_DIGEST_CHARS:
        return notes
    beginning = notes[:1] if "summary" in notes[0] else _beginning(notes)
    left, end = MAX_DIGEST_CHARS - sum(map(_length, beginning)), len(notes)
    while end > len(beginning) and (left := left - _length(notes[end - 1])) >= 0:
        end -= 1
    left_out = {"left_out": f"{end - len(beginning)} notes"}
    return [*beginning, left_out, *notes[end:]]


def count_refusals(record: bytes) -> int:
    """Return how many turns the model's API has refused since the agent's last answer."""
    count = 0
    for line in reversed([*read_lines(record)]):
        if line.get("role") == "agent":
            break
        count += line.get("role") == "error" and line.get("category") in _REFUSALS
    return count


def count_messages(record: bytes) -> int:
    """Return the number of `user` lines in a record."""
    return sum(line.get("role") == "user" for line in read_lines(record))


def has_message(record: bytes, message_id: str) -> bool:
    """Return whether a person has sent the message with a platform's id."""
    return any(
        line.get("role") == "user" and line.get("id") == message_id and "from_id" in line
        for line in read_lines(record)
    )


def senders_of(record: bytes) -> set[str]:
    """Return the ids of the people whose messages a record has."""
    return {line["from_id"] for line in read_lines(record) if line.get("from_id")}


def has_text_of_others(record: bytes) -> bool:
    """Whether a message of a record had a text that its sender may not have written."""
    return any(line.get("has_text_of_others") for line in read_lines(record))


def has_notice(record: bytes, text: str) -> bool:
    """Return whether people have read a notice in the conversation."""
    return any(
        line.get("role") == "notice" and line.get("text") == text for line in read_lines(record)
    )


def as_markdown(record: bytes) -> str:
    """Return a record as Markdown for people, with each speaker, time and tool."""
    parts = []
    for line in read_lines(record):
        at = local_time(int(line.get("at", 0)), None)
        match line.get("role"):
            case "user":
                head = f"## {one_line(str(line['from']))}, {at:%Y-%m-%d %H:%M}"
                parts += [head, str(line["text"])]
            case "agent":
                name = one_line(str(line.get("by", "Agent")))
                parts += [f"## {name}, {at:%Y-%m-%d %H:%M}", str(line["text"])]
            case "tool":
                parts.append(f"- used {one_line(str(line['name']))}")
            case "error":
                parts.append(f"- it failed: {one_line(str(line['category']))}")
            case "summary":
                parts += [f"## Summary of what was said, {at:%Y-%m-%d %H:%M}", str(line["text"])]
        if line.get("attachments"):
            parts.append("\n".join(f"- file {one_line(str(name))}" for name in line["attachments"]))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n" if parts else ""


def read_lines(record: bytes) -> Iterator[dict[str, Any]]:
    """Yield the valid lines of a record, oldest first."""
    for raw in record.splitlines():
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue  # the oldest line may have been cut
        if isinstance(line, dict):
            yield line


def _lines_after(lines: list[dict[str, Any]], seen: str) -> list[dict[str, Any]]:
    """Return the lines after those of the turn `seen`; all if the record has lost that turn."""
    if not seen:
        return []
    last = max((n for n, line in enumerate(lines) if line.get("turn") == seen), default=None)
    if last is not None:
        return lines[last + 1 :]
    return [line for line in lines if line.get("at", 0) > stream_order(seen)[0]]


def _by(agent: str) -> dict[str, str]:
    return {"by": agent} if agent else {}


def _notes(
    lines: Iterable[dict[str, Any]], since_ms: int, of: str, for_: str
) -> Iterator[dict[str, str]]:
    for line in lines:
        if line.get("at", 0) < since_ms:
            continue
        speaker = line.get("by") or of
        match line.get("role"):
            case "agent" if speaker != for_:
                yield {"agent": speaker, "wrote": line["text"], **_files(line, "sent_files")}
            case "tool" if speaker != for_:
                used = line["input"][:MAX_TOOL_CHARS]
                yield {"agent": speaker, "used": line["name"], "with": used}
            case "user":
                sender: dict[str, str] = {k: line[k] for k in ("from", "from_id") if k in line}
                yield {**sender, "said": line["text"], **_files(line, "with_files")}
            case "agent":
                yield {"you": line["text"], **_files(line, "you_sent_files")}
            case "tool":
                yield {"you_used": line["name"], "with": line["input"][:MAX_TOOL_CHARS]}
            case "error":
                yield {"error": line["category"]}
            case "summary":
                yield {"summary": line["text"]}


def _beginning(notes: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the first notes, `MAX_BEGINNING_CHARS` of them; the last one is cut."""
    beginning: list[dict[str, str]] = []
    left = MAX_BEGINNING_CHARS
    for note in notes:
        beginning.append({name: text[:left] for name, text in note.items()})
        if (left := left - _length(note)) <= 0:
            break
    return beginning


def _length(note: dict[str, str]) -> int:
    return sum(map(len, note.values()))


def _files(line: dict[str, Any], key: str) -> dict[str, str]:
    names = line.get("attachments")
    return {key: ", ".join(names)} if names else {}


def _shortened(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n(… {len(text) - 2 * half:,} characters …)\n{text[-half:]}"
