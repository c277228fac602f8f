"""Gemini's transcript of a conversation: a file of JSON lines, some of which repeat earlier ones.

A message is written again after each of its tool calls. After some cancellations, gemini writes the
whole conversation again with other ids: first its own description of the workspace, last a list of
all messages.
"""

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.events import AgentUsage
from remoteclaw.protocols import ModelRequest, TranscriptItem
from remoteclaw.runtimes.terminal import (
    READ_BYTES,
    READ_ITEMS,
    LineFile,
    main_argument,
    record_of,
    timestamp_ms,
    without_header,
)
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The beginning of gemini's description of the workspace for its model.
_CONTEXT = "<session_context>"
#: The variables that name gemini's home directory, the preferred one first.
_HOMES = ("GEMINI_CLI_HOME", "HOME")


def home_directories(env: Mapping[str, str]) -> list[Path]:
    """Return the directories that gemini may use as home; the first one has its files."""
    return [Path(env[name]).expanduser() for name in _HOMES if env.get(name)]


def chat_files(conversation: str, env: Mapping[str, str]) -> list[Path]:
    """Return the files of a conversation, of which gemini appends to the first one.

    Each process that resumes the conversation in a later minute adds an empty file.
    """
    files = all_chats(env, glob.escape(conversation[:8]))
    return [file for file in sorted(files) if _has_session(file, conversation)]


def all_chats(env: Mapping[str, str], ending: str = "*") -> Iterator[Path]:
    """Yield the files of all conversations, or of those whose names have this `ending`.

    The ending of a file's name is the beginning of its conversation's id.
    """
    for home in home_directories(env)[:1]:
        yield from (home / ".gemini").glob(f"tmp/*/chats/session-*-{ending}.jsonl")


def is_of_project(first: Mapping[str, Any], workspace: str) -> bool:
    """Whether the conversation of a file with this `first` line belongs to a workspace."""
    project = hashlib.sha256(os.path.realpath(workspace).encode()).hexdigest()
    return first.get("projectHash") == project


def is_resumable(conversation: str, workspace: str, env: Mapping[str, str]) -> bool:
    """Whether gemini can resume a conversation, which it does only in its original workspace."""
    for file in chat_files(conversation, env):
        for line, _ in LineFile(file).read(""):
            is_here = is_of_project(record_of(line), workspace)
            return is_here and GeminiTranscript(conversation, env).is_resumable
    return False


def tokens_of(conversation: str, env: Mapping[str, str]) -> AgentUsage:
    """Return the tokens of a conversation so far; none if gemini keeps no file of it."""
    requests = {each.id: each.usage for each in model_requests(conversation, env)}
    return sum(requests.values(), AgentUsage())


def model_requests(conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
    """Return the requests of a conversation.

    Each message of the model has the tokens of its request: also the ones of a stopped turn, and
    those of thoughts, which gemini does not report over ACP.
    """
    found: list[ModelRequest] = []
    for path in chat_files(conversation, env):
        with contextlib.suppress(OSError), path.open("rb") as lines:
            for line in lines:
                # A list of all messages may follow them, and is long.
                if b'"tokens"' in line and not line.startswith(b'{"$set"'):
                    record = record_of(line)
                    usage = _tokens_of(mapping(record.get("tokens")))
                    at_ms = timestamp_ms(record.get("timestamp"))
                    model = text(record.get("model"))
                    found.append(ModelRequest(text(record.get("id")), at_ms, usage, model))
    return found


def _tokens_of(tokens: Mapping[str, Any]) -> AgentUsage:
    cached = count(tokens.get("cached"))  # a part of the input
    return AgentUsage(
        input_tokens=max(0, count(tokens.get("input")) - cached) + count(tokens.get("tool")),
        output_tokens=count(tokens.get("output")) + count(tokens.get("thoughts")),
        cache_read_tokens=cached,
    )


def _has_session(file: Path, conversation: str) -> bool:
    try:
        with file.open("rb") as lines:
            return f'"sessionId":"{conversation}"'.encode() in lines.readline(65_536)
    except OSError:  # just removed
        return False


class GeminiTranscript:
    """The transcript of one conversation."""

    def __init__(self, conversation: str, env: Mapping[str, str]) -> None:
        self._conversation, self._env = conversation, env

    @property
    def is_resumable(self) -> bool:
        """Whether the transcript has any items; without items, gemini deletes it."""
        try:
            return bool(self.read("")[0])
        except OSError:
            return False

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return items after `position`, and the position after them.

        A position consists of the position in the file, the id of the last message, and the number
        of its tool calls that were returned.
        """
        items: list[TranscriptItem] = []
        if (file := self._file()) is None:
            return items, position
        file_position, _, rest = position.partition(" ")
        last_id, _, tools = rest.partition(" ")
        returned_calls = int(tools) if tools.isdecimal() else 0
        is_repetition = False
        left = READ_BYTES
        for line, next_position in file.read(file_position):
            record = record_of(line)
            if is_repetition or _begins_repetition(record):
                # The position stays before the repetition until its end is read.
                is_repetition = "messages" not in mapping(record.get("$set"))
            elif name := text(record.get("id")):
                is_same_message = name == last_id
                items += _items(record, returned_calls if is_same_message else None)
                calls = len(mappings(record.get("toolCalls")))
                returned_calls = max(returned_calls, calls) if is_same_message else calls
                last_id = name
            left -= len(line)
            if not is_repetition:
                file_position = next_position
                if len(items) >= READ_ITEMS or left <= 0:
                    break
        if file_position:
            position = f"{file_position} {last_id} {returned_calls}".strip()
        return items, position

    def end(self) -> str:
        """Return the position after the last complete line."""
        file = self._file()
        return file.end() if file else ""

    def _file(self) -> LineFile | None:
        files = chat_files(self._conversation, self._env)
        return LineFile(files[0]) if files else None


def _begins_repetition(record: Mapping[str, Any]) -> bool:
    """Whether a repetition of the whole conversation begins with this record."""
    return record.get("type") == "user" and _text_of(record).startswith(_CONTEXT)


def _items(record: Mapping[str, Any], returned_calls: int | None) -> Iterator[TranscriptItem]:
    """Yield the items of a message, or only its new tool calls if it was returned before.

    `returned_calls` is the number of tool calls that were returned, or None for a new message.
    """
    id_, at_ms = text(record.get("id")), timestamp_ms(record.get("timestamp"))
    message = _text_of(record).strip()
    if message and returned_calls is None:
        match record.get("type"):
            case "user":
                yield TranscriptItem(id_, "user", without_header(message), at_ms=at_ms)
            case "gemini":
                yield TranscriptItem(id_, "agent", message, at_ms=at_ms)
            case "info" | "warning" | "error":
                yield TranscriptItem(id_, "notice", message, at_ms=at_ms)
    for call in mappings(record.get("toolCalls"))[count(returned_calls) :]:
        call_at_ms = timestamp_ms(call.get("timestamp")) or at_ms
        name = text(call.get("name"))
        yield TranscriptItem(
            text(call.get("id")), "tool", main_argument(call.get("args")), name, call_at_ms
        )


def _text_of(record: Mapping[str, Any]) -> str:
    """Return the text of a message as it was typed, without the contents of files it names."""
    content = record.get("displayContent") or record.get("content")
    if isinstance(content, str):
        return content
    parts = (text(part.get("text")) for part in mappings(content) if not part.get("thought"))
    return "\n".join(filter(None, parts))
