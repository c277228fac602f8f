"""Past conversations of a workspace, as CLIs keep them.

gemini can't copy one (`gemini.py`): what was said in it is read from its file, as notes.
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
from remoteclaw.runtimes.claude_transcript import projects_of
from remoteclaw.runtimes.codex_rollouts import sessions_of
from remoteclaw.runtimes.gemini_chats import all_chats, is_of_project
from remoteclaw.runtimes.opencode_store import database, opened
from remoteclaw.runtimes.terminal import record_of, without_header
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

#: How many are looked at, newest first: codex has those of all workspaces in one place.
MAX_FILES = 300
#: How much of a conversation is read for its title, in bytes and lines.
MAX_BYTES, MAX_LINES = 256_000, 60
#: How much is read of one that is gone on with from notes, and how much of its end is kept, in
#: bytes. An agent is told less than that.
MAX_READ, MAX_NOTES = 50_000_000, 100_000
#: How long a title is, in characters.
LONGEST_TITLE = 70

#: opencode's conversations of a directory, each with the first texts of its messages by the user.
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
    """A conversation of a CLI's."""

    id: str
    """The CLI's own id of it."""
    title: str
    """The beginning of what was said first; empty if that isn't found."""
    at: float
    """When it was changed last, in seconds since 1970."""
    notes: Callable[[], str] | None = None
    """Returns what was said in it, as a record (`session.record`), where no CLI can copy it."""


def past_conversations(
    runtime: str, workspace: str, env: Mapping[str, str], *, most: int
) -> list[PastConversation] | None:
    """Return a CLI's newest conversations of a workspace, newest first; None if that isn't known.

    `env` is the CLI's environment, which says where it keeps them.
    """
    read = _READERS.get(runtime)
    if read is None:
        return None
    return list(itertools.islice(read(os.path.realpath(workspace), env), most))


def _claude(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    directory = projects_of(env) / re.sub("[^A-Za-z0-9]", "-", workspace)
    for file, at in _newest(directory.glob("*.jsonl")):
        lines = _lines(file)
        # The directory's name is the same for workspaces that differ in signs alone.
        cwd = next((text(line["cwd"]) for line in lines if "cwd" in line), workspace)
        if UUID.fullmatch(file.stem) and cwd == workspace:
            yield PastConversation(file.stem, title_of(map(_said_to_claude, lines)), at)


def _said_to_claude(line: dict[str, Any]) -> str:
    if line.get("type") != "user" or line.get("isMeta") or line.get("isSidechain"):
        return ""
    return _first_text(mapping(line.get("message")).get("content"))


def _codex(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    for file, at in _newest(sessions_of(env).glob("*/*/*/rollout-*.jsonl")):
        first, *lines = _lines(file) or [{}]
        about = mapping(first.get("payload"))
        id_ = text(about.get("id"))
        if UUID.fullmatch(id_) and os.path.realpath(text(about.get("cwd"))) == workspace:
            yield PastConversation(id_, title_of(map(_said_to_codex, lines)), at)


def _said_to_codex(line: dict[str, Any]) -> str:
    said = mapping(line.get("payload"))
    is_said = line.get("type") == "response_item" and said.get("role") == "user"
    return _first_text(said.get("content")) if is_said else ""


def _opencode(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    try:
        with opened(database(env)) as store:
            found = store.execute(_OPENCODE, (workspace, MAX_FILES)).fetchall()
    except OSError:  # there is none, or it is another version's
        return
    for id_, at_ms, said in found:
        yield PastConversation(id_, title_of(map(text, orjson.loads(said))), at_ms / 1000)


def _gemini(workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    for file, at in _newest(all_chats(env)):
        first, *lines = _lines(file) or [{}]
        id_ = text(first.get("sessionId"))
        if UUID.fullmatch(id_) and is_of_project(first, workspace):
            asked = (each for each in _gemini_messages(lines) if each.get("type") == "user")
            if title := title_of(_first_text(each.get("content")) for each in asked):
                yield PastConversation(id_, title, at, functools.partial(_noted, file))


def _gemini_messages(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for line in lines:
        if "messages" in (changed := mapping(line.get("$set"))):
            messages = mappings(changed["messages"])
        else:
            messages.append(line)
    return messages


def _noted(file: Path) -> str:
    """Return the record of what was said in a conversation of gemini's, as said now."""
    notes, left, at = [], MAX_NOTES, now_ms()
    lines = _lines(file, most_bytes=MAX_READ, most_lines=None)
    for message in reversed(_gemini_messages(lines)):
        said = without_header(_first_text(message.get("content"))).strip()
        match message.get("type"):
            case "user" if said and not said.startswith("<"):
                note = {"at": at, "role": "user", "from": "user", "text": said}
            case "gemini" if said:
                note = {"at": at, "role": "agent", "text": said}
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
    """Return files and when they were changed, the newest first."""
    known = []
    for file in files:
        try:
            known.append((file, file.stat().st_mtime))
        except OSError:  # just removed
            continue
    return heapq.nlargest(MAX_FILES, known, key=lambda each: each[1])


def _lines(
    file: Path, *, most_bytes: int = MAX_BYTES, most_lines: int | None = MAX_LINES
) -> list[dict[str, Any]]:
    """Return the first lines of a file that are JSON objects."""
    try:
        with file.open("rb") as stream:
            lines = stream.read(most_bytes).splitlines()
    except OSError:
        return []
    return [record for line in lines[:most_lines] if (record := record_of(line))]


def _first_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return next((text(part.get("text")) for part in mappings(content) if part.get("text")), "")


def title_of(said: Iterable[str]) -> str:
    """Return the beginning of the first words of a person's, on one line."""
    for words in said:
        line = " ".join(without_header(words).split())
        if line and not line.startswith(("<", "# AGENTS.md")):  # what a CLI says by itself
            return line[: LONGEST_TITLE - 1] + "…" if len(line) > LONGEST_TITLE else line
    return ""
