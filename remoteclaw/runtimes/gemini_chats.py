"""Gemini's record of a conversation: a file of lines, of which each may repeat earlier ones.

A message is written again with each tool that it has used. After some cancellations, gemini writes
all of a conversation again under other names; that begins with its own description of the
workspace, and ends with a list of all messages.
"""

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes.terminal import (
    READ_BYTES,
    READ_ITEMS,
    LineFile,
    moment_of,
    record_of,
    telling,
    without_header,
)
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The beginning of what gemini tells its model of the workspace.
_CONTEXT = "<session_context>"
#: The variables that name gemini's home, the one that counts first.
_HOMES = ("GEMINI_CLI_HOME", "HOME")


def homes(env: Mapping[str, str]) -> list[Path]:
    """Return the homes that gemini may take for the user's; the first one has its files."""
    return [Path(env[name]).expanduser() for name in _HOMES if env.get(name)]


def chat_files(conversation: str, env: Mapping[str, str]) -> list[Path]:
    """Return the files of a conversation; gemini goes on with the first one.

    Each process that resumes it in a later minute adds one in which nothing is said.
    """
    found = all_chats(env, glob.escape(conversation[:8]))
    return [file for file in sorted(found) if _is_of(file, conversation)]


def all_chats(env: Mapping[str, str], ending: str = "*") -> Iterator[Path]:
    """Yield the files of all conversations, or of those whose ids begin like this."""
    for home in homes(env)[:1]:
        yield from (home / ".gemini").glob(f"tmp/*/chats/session-*-{ending}.jsonl")


def is_of_project(first: Mapping[str, Any], workspace: str) -> bool:
    """Whether the first line of a file says that the conversation is of a workspace."""
    project = hashlib.sha256(os.path.realpath(workspace).encode()).hexdigest()
    return first.get("projectHash") == project


def is_resumable(conversation: str, workspace: str, env: Mapping[str, str]) -> bool:
    """Whether gemini goes on with a conversation, which it does only where it was begun."""
    for file in chat_files(conversation, env):
        for line, _ in LineFile(file).read(""):
            is_here = is_of_project(record_of(line), workspace)
            return is_here and GeminiTranscript(conversation, env).is_there
    return False


def _is_of(file: Path, conversation: str) -> bool:
    try:
        with file.open("rb") as lines:
            return f'"sessionId":"{conversation}"'.encode() in lines.readline(65_536)
    except OSError:  # just removed
        return False


class GeminiTranscript:
    """The record of one conversation."""

    def __init__(self, conversation: str, env: Mapping[str, str]) -> None:
        self._conversation, self._env = conversation, env

    @property
    def is_there(self) -> bool:
        """Whether something was said in it: gemini removes what has nothing else."""
        try:
            return bool(self.read("")[0])
        except OSError:
            return False

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return the items behind a position, and the position behind them.

        A position has the place in the file, the last message, and how many of its tools were told.
        """
        items: list[TranscriptItem] = []
        if (file := self._file()) is None:
            return items, position
        place, _, told = position.partition(" ")
        last, _, tools = told.partition(" ")
        told_tools = int(tools) if tools.isdecimal() else 0
        is_repeated = False
        left = READ_BYTES
        for line, behind in file.read(place):
            record = record_of(line)
            if is_repeated or _repeats(record):
                # The place stays before it until its end is there.
                is_repeated = "messages" not in mapping(record.get("$set"))
            elif name := text(record.get("id")):
                is_again = name == last
                items += _items(record, told_tools if is_again else None)
                calls = len(mappings(record.get("toolCalls")))
                told_tools = max(told_tools, calls) if is_again else calls
                last = name
            left -= len(line)
            if not is_repeated:
                place = behind
                if len(items) >= READ_ITEMS or left <= 0:
                    break
        return items, f"{place} {last} {told_tools}".strip() if place else position

    def end(self) -> str:
        """Return the position behind the last complete line."""
        file = self._file()
        return file.end() if file else ""

    def _file(self) -> LineFile | None:
        files = chat_files(self._conversation, self._env)
        return LineFile(files[0]) if files else None


def _repeats(record: Mapping[str, Any]) -> bool:
    """Whether all of the conversation is written again, from here on."""
    return record.get("type") == "user" and _said(record).startswith(_CONTEXT)


def _items(record: Mapping[str, Any], told_tools: int | None) -> Iterator[TranscriptItem]:
    """Yield what a message says; of one that was told, the tools that are new."""
    id_, at_ms = text(record.get("id")), moment_of(record.get("timestamp"))
    said = _said(record).strip()
    if said and told_tools is None:
        match record.get("type"):
            case "user":
                yield TranscriptItem(id_, "user", without_header(said), at_ms=at_ms)
            case "gemini":
                yield TranscriptItem(id_, "agent", said, at_ms=at_ms)
            case "info" | "warning" | "error":
                yield TranscriptItem(id_, "notice", said, at_ms=at_ms)
    for call in mappings(record.get("toolCalls"))[count(told_tools) :]:
        at = moment_of(call.get("timestamp")) or at_ms
        name = text(call.get("name"))
        yield TranscriptItem(text(call.get("id")), "tool", telling(call.get("args")), name, at)


def _said(record: Mapping[str, Any]) -> str:
    """Return the words of a message, as they were typed: files that it names are added to it."""
    content = record.get("displayContent") or record.get("content")
    if isinstance(content, str):
        return content
    parts = (text(part.get("text")) for part in mappings(content) if not part.get("thought"))
    return "\n".join(filter(None, parts))
