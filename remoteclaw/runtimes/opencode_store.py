"""Opencode's record of a conversation, in its database, read while it runs and afterwards.

A message has parts, and a part is told once it is complete. Both have names that grow with time:
a position is that of the message and that of the part that were told last.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes.terminal import telling, without_header
from remoteclaw.runtimes.wire import count, mapping, text

#: How many messages are looked at with one read.
MAX_MESSAGES = 100
#: How long a reader waits for a writer, in seconds.
BUSY_S = 1.0
#: Behind all parts of a message.
_ALL = "~"
_MESSAGES = """
    SELECT id, time_created, data FROM message
    WHERE session_id = ? AND id >= ? ORDER BY id LIMIT ?
"""
_PARTS = "SELECT id, time_created, data FROM part WHERE message_id = ? AND id > ? ORDER BY id"
_LAST = """
    SELECT max(id), max(id) FILTER (WHERE json_extract(data, '$.role') = 'assistant')
    FROM message WHERE session_id = ?
"""


_BEGUN = """
    SELECT session.id FROM session
    JOIN message ON message.session_id = session.id JOIN part ON part.message_id = message.id
    WHERE session.time_created >= ? AND session.parent_id IS NULL
    AND json_extract(part.data, '$.text') = ? ORDER BY session.time_created LIMIT 1
"""


class _Message(NamedTuple):
    id: str
    data: dict[str, Any]
    is_over: bool
    """Whether nothing will be added to it."""


class OpencodeTranscript:
    """The record of one conversation."""

    def __init__(self, conversation: str, env: Mapping[str, str]) -> None:
        self._conversation = conversation
        self._file = database(env)

    @property
    def is_there(self) -> bool:
        """Whether the database has it."""
        with contextlib.suppress(OSError), opened(self._file) as store:
            query = "SELECT 1 FROM session WHERE id = ? AND time_archived IS NULL"
            return store.execute(query, (self._conversation,)).fetchone() is not None
        return False

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return the complete parts behind a position, and the position behind them."""
        of, _, told = position.partition(" ")
        items: list[TranscriptItem] = []
        with opened(self._file) as store:
            for message in self._messages(store, of):
                since = told if message.id == of else ""
                for part, stored_ms, data in store.execute(_PARTS, (message.id, since)):
                    parsed = _parsed(data)
                    # In a copy, which a fork begins with, the message alone keeps its time.
                    began_ms = count(mapping(message.data.get("time")).get("created"))
                    at_ms = min(count(stored_ms), began_ms or count(stored_ms))
                    if not (message.is_over or _is_complete(message, parsed)):
                        return items, position
                    items += _item(part, at_ms, message, parsed)
                    position = f"{message.id} {part}"
                if not message.is_over:
                    break
                if since != _ALL:
                    items += _ending(message)
                position = f"{message.id} {_ALL}"
        return items, position

    def end(self) -> str:
        """Return the position behind the last message."""
        with opened(self._file) as store:
            last, _ = store.execute(_LAST, (self._conversation,)).fetchone()
        return f"{last} {_ALL}" if last else ""

    def _messages(self, store: sqlite3.Connection, since: str) -> Iterator[_Message]:
        last, last_of_agent = store.execute(_LAST, (self._conversation,)).fetchone()
        rows = store.execute(_MESSAGES, (self._conversation, since, MAX_MESSAGES)).fetchall()
        for id_, _, raw in rows:
            data = _parsed(raw)
            if data.get("role") == "assistant":
                # One that died with its process stays as it was.
                is_over = bool(mapping(data.get("time")).get("completed")) or id_ < last_of_agent
            else:
                is_over = id_ < last
            yield _Message(id_, data, is_over)


@contextlib.contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for reading; raises `OSError` where it can't be read."""
    try:
        store = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
        with contextlib.closing(store):
            yield store
    except sqlite3.Error as error:
        raise OSError(f"opencode's record {file} can't be read: {error}") from None


def begun_with(prompt: str, since_ms: int, env: Mapping[str, str]) -> str | None:
    """Return the conversation that was begun with these words; raises `OSError`."""
    with opened(database(env)) as store:
        found = store.execute(_BEGUN, (since_ms, prompt)).fetchone()
    return text(found[0]) if found else None


def database(env: Mapping[str, str]) -> Path:
    """Return where opencode keeps its conversations."""
    home = Path(env.get("HOME") or "~").expanduser()
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "opencode"
    return data / (env.get("OPENCODE_DB") or "opencode.db")


def _parsed(data: str) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(data))
    except ValueError:
        return {}


def _is_complete(message: _Message, part: Mapping[str, Any]) -> bool:
    match part.get("type"):
        case "text" | "reasoning" if message.data.get("role") == "assistant":
            return bool(mapping(part.get("time")).get("end"))
        case "tool":
            return mapping(part.get("state")).get("status") in ("completed", "error")
    return True


def _item(
    id_: str, at_ms: int, message: _Message, part: Mapping[str, Any]
) -> Iterator[TranscriptItem]:
    """Yield a part that is of somebody's words, or a tool; a summary is of no one's."""
    said = text(part.get("text")).strip()
    is_agents = message.data.get("role") == "assistant"
    match part.get("type"):
        case "text" if said and not (part.get("synthetic") or message.data.get("summary") is True):
            words = said if is_agents else without_header(said)
            yield TranscriptItem(id_, "agent" if is_agents else "user", words, at_ms=count(at_ms))
        case "tool":
            argument = telling(mapping(part.get("state")).get("input"))
            name = text(part.get("tool"))
            yield TranscriptItem(id_, "tool", argument, name=name, at_ms=count(at_ms))
        case "compaction":
            yield TranscriptItem(id_, "notice", "The conversation was compacted.", at_ms=at_ms)


def _ending(message: _Message) -> Iterator[TranscriptItem]:
    """Yield a notice of why a message of the agent's has ended too early."""
    error = mapping(message.data.get("error"))
    at_ms = count(mapping(message.data.get("time")).get("completed"))
    if error.get("name") == "MessageAbortedError":
        yield TranscriptItem(f"{message.id}-end", "notice", "Interrupted.", at_ms=at_ms)
    elif why := text(mapping(error.get("data")).get("message")) or text(error.get("name")):
        yield TranscriptItem(f"{message.id}-end", "notice", why, at_ms=at_ms)
