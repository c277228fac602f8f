"""Claude's transcripts: a file of JSON records for each conversation."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.protocols import ModelRequest, TranscriptItem
from remoteclaw.runtimes.claude.progress import usage_of
from remoteclaw.runtimes.terminal import (
    LineFile,
    main_argument,
    record_of,
    timestamp_ms,
    without_header,
)
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

#: What comes before the first message of a conversation.
NOTHING = "nothing"
#: The beginning of the message that claude records when a person interrupts it.
_INTERRUPTED = "[Request interrupted by user"
_COMMAND = re.compile(r"\s*<command-name>(.*?)</command-name>.*?<command-args>(.*?)</command-args>")
_SHELL = re.compile(r"\s*<bash-input>(.*?)</bash-input>", re.DOTALL)
#: The beginning of messages that claude itself records as the user's.
_GENERATED = re.compile(
    r"\s*<(local-command-\w+|bash-\w+|command-\w+|system-reminder|task-notification)>"
)


def projects_of(env: Mapping[str, str]) -> Path:
    """Return the directory of all transcripts, each in a directory of its workspace."""
    home = Path(env.get("HOME") or "~").expanduser()
    return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"


def file_of(projects: Path, conversation: str) -> Path | None:
    """Return the transcript of a conversation of any workspace; None if there is none."""
    files = projects.glob(f"*/{conversation}.jsonl") if UUID.fullmatch(conversation) else ()
    return next(iter(files), None)


def end_before(refused: str, path: Path | None) -> str | None:
    """Return the id of the last message before the message `refused`, or `NOTHING` before it.

    Returns None if the transcript doesn't have that message, or has more after it than claude's own
    report of the failure: then the conversation must not be cut there.
    """
    parents: dict[str, tuple[bool, str]] = {}
    is_last = False
    for line, _ in LineFile(path).read("") if path and refused else ():
        record = record_of(line)
        id_, is_message = text(record.get("uuid")), record.get("type") in ("user", "assistant")
        parents[id_] = is_message, text(record.get("parentUuid"))
        if is_message and not record.get("isSidechain"):
            is_last = id_ == refused or (is_last and bool(record.get("isApiErrorMessage")))
    if not is_last:
        return None
    _, before = parents[refused]
    while before and not parents.get(before, (False, ""))[0]:
        _, before = parents.get(before, (False, ""))
    return before or NOTHING


def model_requests(conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
    """Return the requests of a conversation and its subagents, which have files of their own."""
    found: list[ModelRequest] = []
    path = file_of(projects_of(env), conversation)
    for file in (path, *sorted(path.with_suffix("").glob("subagents/*.jsonl"))) if path else ():
        for line, _ in LineFile(file).read(""):
            if b'"usage"' in line:
                found += _requests_of(record_of(line))
    return found


def _requests_of(record: Mapping[str, Any]) -> Iterator[ModelRequest]:
    message = mapping(record.get("message"))
    usage, model = mapping(message.get("usage")), text(message.get("model"))
    if record.get("type") == "assistant" and usage and model != "<synthetic>":
        at_ms = timestamp_ms(record.get("timestamp"))
        yield ModelRequest(text(message.get("id")), at_ms, usage_of(usage), model)


def items_of(record: dict[str, Any]) -> Iterator[TranscriptItem]:
    """Yield the transcript items of a record; none for internal records."""
    if any(record.get(flag) for flag in _INTERNAL_FLAGS):
        return
    id_, at_ms = text(record.get("uuid")), timestamp_ms(record.get("timestamp"))
    for number, (kind, message, name) in enumerate(_parts(record)):
        part = f"{id_}/{number}" if number else id_
        yield TranscriptItem(part, kind, message, name, at_ms)


#: The flags of internal records.
_INTERNAL_FLAGS = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")

#: The kind, text and tool name of a transcript item.
_Part = tuple[Any, str, str]


def _parts(record: dict[str, Any]) -> Iterable[_Part]:
    content = mapping(record.get("message")).get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)
    match record.get("type"):
        case "user":
            return [part for block in blocks for part in _of_person(text(block.get("text")))]
        case "assistant":
            is_notice = bool(record.get("isApiErrorMessage"))
            model = mapping(record.get("message")).get("model")
            if model == "<synthetic>" and not is_notice:  # such as "No response requested."
                return []
            return [part for block in blocks for part in _of_agent(block, is_notice=is_notice)]
        case "attachment":  # a message that was typed during a turn
            queued = mapping(record.get("attachment"))
            if queued.get("type") == "queued_command" and queued.get("commandMode") == "prompt":
                return _of_person(text(queued.get("prompt")))
        case "system":
            if record.get("subtype") == "compact_boundary":
                return [("notice", "The conversation was compacted.", "")]
            if record.get("subtype") == "local_command":
                return _of_person(text(record.get("content")))
    return []


def _of_person(message: str) -> list[_Part]:
    if message.startswith(_INTERRUPTED):
        return [("notice", "The request was interrupted.", "")]
    if command := _COMMAND.match(" ".join(message.split())):
        return [("notice", f"{command[1]} {command[2]}".strip(), "")]
    if shell := _SHELL.match(message):
        return [("notice", f"! {shell[1]}", "")]
    message = without_header(message).strip()
    return [] if not message or _GENERATED.match(message) else [("user", message, "")]


def _of_agent(block: dict[str, Any], *, is_notice: bool) -> list[_Part]:
    match block.get("type"):
        case "text" if message := text(block.get("text")).strip():
            return [("notice" if is_notice else "agent", message, "")]
        case "tool_use":
            return [("tool", main_argument(block.get("input")), text(block.get("name")))]
    return []


class Interruptions:
    """The prompt that was interrupted last, from the transcript, because no hook reports it."""

    def __init__(self) -> None:
        self.prompt = ""
        """The prompt's id; empty unless the last message of the transcript is an interruption."""
        self._path = Path()
        self._position = ""

    def read(self, path: Path) -> None:
        """Read the records that were added to the transcript since the last call."""
        if path != self._path:
            self._path, self._position, self.prompt = path, "", ""
        for line, next_position in LineFile(path).read(self._position):
            self._position = next_position
            if _INTERRUPTED.encode() in line:
                record = record_of(line)
                blocks = mappings(mapping(record.get("message")).get("content")) or [{}]
                is_interruption = text(blocks[0].get("text")).startswith(_INTERRUPTED)
                self.prompt = text(record.get("promptId")) if is_interruption else ""
            elif b'"type":"user"' in line or b'"type":"assistant"' in line:
                self.prompt = ""
