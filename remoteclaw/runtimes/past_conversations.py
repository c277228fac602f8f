"""Past conversations of a workspace, from the CLIs' own files.

Gemini can't copy a conversation (see `gemini/runtime.py`), so its content is read from its file, as
notes.
"""

import functools
import heapq
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.runtimes.claude.transcript import projects_of
from remoteclaw.runtimes.codex.rollouts import sessions_of
from remoteclaw.runtimes.gemini.chats import all_chats, is_of_project
from remoteclaw.runtimes.opencode.store import database_path, open_database
from remoteclaw.runtimes.terminal import record_of, without_header
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

#: At most this many conversations are examined, newest first: codex has those of all workspaces in
#: one directory.
MAX_FILES = 300
#: The title is searched in the first bytes and lines of a conversation, up to these limits.
MAX_TITLE_SOURCE_BYTES, MAX_TITLE_SOURCE_LINES = 256_000, 60
#: For notes, at most this many bytes of a conversation are read.
MAX_NOTES_SOURCE_BYTES = 50_000_000
#: Notes have at most about this many bytes, from the end of the conversation. An agent reads less.
MAX_NOTES_BYTES = 100_000
#: The maximum length of a title, in characters.
MAX_TITLE_CHARS = 70

#: Opencode's conversations of a directory, each with the texts of the user's first messages.
_OPENCODE = """
    SELECT id, time_updated, (
        SELECT json_group_array(said) FROM (
            SELECT json_extract(part.data, '$.text') AS said
            FROM message JOIN part ON part.message_id = message.id
            WHERE message.session_id = session.id AND json_extract(message.data, '$.role') = 'user'
            ORDER BY message.time_created, part.id LIMIT 5))
    FROM session WHERE directory = ? AND parent_id IS NULL AND time_archived IS NULL
    ORDER BY time_updated DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class PastConversation:
    """A conversation of a CLI."""

    id: str
    """The CLI's id of the conversation."""
    title: str
    """The beginning of the person's first message; empty if none is found."""
    at: float
    """The time of the last change, in seconds since 1970."""
    notes: Callable[[], str] | None = None
    """Returns the content as a record (see `session/record.py`); None if the CLI can copy the
    conversation itself."""


def past_conversations(
    runtime: str, workspace: str, env: Mapping[str, str], *, limit: int
) -> list[PastConversation] | None:
    """Return at most `limit` conversations of a workspace, newest first.

    `env` is the CLI's environment, which locates its files. None if the runtime's files are
    unknown.
    """
    read = _READERS.get(runtime)
    if read is None:
        return None
    return list(itertools.islice(read(os.path.realpath(workspace), env), limit))


def _claude(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    directory = projects_of(env) / re.sub("[^A-Za-z0-9]", "-", workspace)
    for file, at in _newest(directory.glob("*.jsonl")):
        lines = _lines(file)
        # Workspaces whose paths differ only in punctuation have the same directory.
        cwd = next((text(line["cwd"]) for line in lines if "cwd" in line), workspace)
        if UUID.fullmatch(file.stem) and cwd == workspace:
            yield PastConversation(file.stem, title_of(map(_claude_message, lines)), at)


def _claude_message(line: dict[str, Any]) -> str:
    if line.get("type") != "user" or line.get("isMeta") or line.get("isSidechain"):
        return ""
    return _first_text(mapping(line.get("message")).get("content"))


def _codex(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    for file, at in _newest(sessions_of(env).glob("*/*/*/rollout-*.jsonl")):
        first, *lines = _lines(file) or [{}]
        payload = mapping(first.get("payload"))
        id_ = text(payload.get("id"))
        if UUID.fullmatch(id_) and os.path.realpath(text(payload.get("cwd"))) == workspace:
            yield PastConversation(id_, title_of(map(_codex_message, lines)), at)


def _codex_message(line: dict[str, Any]) -> str:
    payload = mapping(line.get("payload"))
    is_user_message = line.get("type") == "response_item" and payload.get("role") == "user"
    return _first_text(payload.get("content")) if is_user_message else ""


def _opencode(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    try:
        with open_database(database_path(env)) as connection:
            rows = connection.execute(_OPENCODE, (workspace, MAX_FILES)).fetchall()
    except OSError:  # there is no database, or one of another version
        return
    for id_, at_ms, texts in rows:
        yield PastConversation(id_, title_of(map(text, orjson.loads(texts))), at_ms / 1000)


def _gemini(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    for file, at in _newest(all_chats(env)):
        first, *lines = _lines(file) or [{}]
        id_ = text(first.get("sessionId"))
        if UUID.fullmatch(id_) and is_of_project(first, workspace):
            messages = (each for each in _gemini_messages(lines) if each.get("type") == "user")
            if title := title_of(_first_text(each.get("content")) for each in messages):
                yield PastConversation(id_, title, at, functools.partial(_notes_of, file))


def _gemini_messages(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for line in lines:
        if "messages" in (changed := mapping(line.get("$set"))):
            messages = mappings(changed["messages"])
        else:
            messages.append(line)
    return messages


def _notes_of(file: Path) -> str:
    """Return the content of a gemini conversation as a record, with the current time."""
    notes, left, at = [], MAX_NOTES_BYTES, now_ms()
    lines = _lines(file, max_bytes=MAX_NOTES_SOURCE_BYTES, max_lines=None)
    for message in reversed(_gemini_messages(lines)):
        content = without_header(_first_text(message.get("content"))).strip()
        match message.get("type"):
            case "user" if content and not content.startswith("<"):
                note = {"at": at, "role": "user", "from": "user", "text": content}
            case "gemini" if content:
                note = {"at": at, "role": "agent", "text": content}
            case _:
                continue
        notes.append(orjson.dumps(note).decode())
        left -= len(notes[-1])
        if left < 0:
            break
    return "".join(f"{note}\n" for note in reversed(notes))


_READERS: Mapping[str, Callable[[str, Mapping[str, str]], Iterator[PastConversation]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}


def _newest(files: Iterable[Path]) -> list[tuple[Path, float]]:
    """Return the newest files, each with the time of its last change, newest first."""
    dated = []
    for file in files:
        try:
            dated.append((file, file.stat().st_mtime))
        except OSError:  # just removed
            continue
    return heapq.nlargest(MAX_FILES, dated, key=lambda each: each[1])


def _lines(
    file: Path,
    *,
    max_bytes: int = MAX_TITLE_SOURCE_BYTES,
    max_lines: int | None = MAX_TITLE_SOURCE_LINES,
) -> list[dict[str, Any]]:
    """Return the JSON objects among the first lines of a file; none if it can't be read."""
    try:
        with file.open("rb") as stream:
            lines = stream.read(max_bytes).splitlines()
    except OSError:
        return []
    return [record for line in lines[:max_lines] if (record := record_of(line))]


def _first_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return next((text(part.get("text")) for part in mappings(content) if part.get("text")), "")


def title_of(messages: Iterable[str]) -> str:
    """Return a title from the first message that a person has written; empty if there is none."""
    for message in messages:
        line = " ".join(without_header(message).split())
        if line and not line.startswith(("<", "# AGENTS.md")):  # written by the CLI itself
            return line[: MAX_TITLE_CHARS - 1] + "…" if len(line) > MAX_TITLE_CHARS else line
    return ""
