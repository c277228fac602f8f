"""Opencode's transcript and totals of a conversation, in its SQLite database.

A message has parts, each of which becomes an item once it is complete. The ids of messages and
parts grow with time, so a position consists of the last message's and the last part's id.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from remoteclaw.events import AgentUsage
from remoteclaw.protocols import ModelRequest, TranscriptItem
from remoteclaw.runtimes.terminal import main_argument, without_header
from remoteclaw.runtimes.wire import count, mapping, text

#: One read examines at most this many messages.
MAX_MESSAGES = 100
#: How long a reader waits for a writer's lock, in seconds.
LOCK_WAIT_S = 1.0
#: Stands for the last part's id in the position after all parts of a message.
_AFTER_ALL_PARTS = "~"
_MESSAGES = """
    SELECT id, data FROM message
    WHERE session_id = ? AND id >= ? ORDER BY id LIMIT ?
"""
_PARTS = "SELECT id, time_created, data FROM part WHERE message_id = ? AND id > ? ORDER BY id"
_LAST = """
    SELECT max(id), max(id) FILTER (WHERE json_extract(data, '$.role') = 'assistant')
    FROM message WHERE session_id = ?
"""
_BEGUN_WITH = """
    SELECT session.id FROM session
    JOIN message ON message.session_id = session.id JOIN part ON part.message_id = message.id
    WHERE session.time_created >= ? AND session.parent_id IS NULL
    AND json_extract(part.data, '$.text') = ? ORDER BY session.time_created LIMIT 1
"""

_TREE = """
    WITH RECURSIVE tree(id) AS (
        SELECT ? UNION SELECT session.id FROM session JOIN tree ON session.parent_id = tree.id
    )
"""
_TOTALS = """
    SELECT sum(tokens_input), sum(tokens_output + tokens_reasoning), sum(tokens_cache_read),
    sum(tokens_cache_write), sum(cost) FROM session WHERE id IN tree
"""
_STEPS = """
    SELECT part.id, part.time_created, part.data, message.data
    FROM message JOIN part ON part.message_id = message.id
    WHERE message.session_id IN tree AND json_extract(part.data, '$.type') = 'step-finish'
"""


class _Message(NamedTuple):
    id: str
    data: dict[str, Any]
    is_over: bool
    """Whether the message is complete."""


class OpencodeTranscript:
    """The transcript of one conversation."""

    def __init__(self, conversation: str, env: Mapping[str, str]) -> None:
        self._conversation = conversation
        self._file = database_path(env)

    @property
    def is_resumable(self) -> bool:
        """Whether the database has the conversation, and it is not archived."""
        with contextlib.suppress(OSError), open_database(self._file) as connection:
            query = "SELECT 1 FROM session WHERE id = ? AND time_archived IS NULL"
            return connection.execute(query, (self._conversation,)).fetchone() is not None
        return False

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return the items of complete parts after `position`, and the position after them."""
        last_message, _, last_part = position.partition(" ")
        items: list[TranscriptItem] = []
        with open_database(self._file) as connection:
            for message in self._messages(connection, last_message):
                since = last_part if message.id == last_message else ""
                for part, stored_ms, data in connection.execute(_PARTS, (message.id, since)):
                    parsed = _parsed(data)
                    at_ms = _time_of(stored_ms, message.data)
                    if not (message.is_over or _is_complete(message, parsed)):
                        return items, position
                    items += _item(part, at_ms, message, parsed)
                    position = f"{message.id} {part}"
                if not message.is_over:
                    break
                if since != _AFTER_ALL_PARTS:
                    items += _end_notice(message)
                position = f"{message.id} {_AFTER_ALL_PARTS}"
        return items, position

    def end(self) -> str:
        """Return the position after the last message."""
        with open_database(self._file) as connection:
            last, _ = connection.execute(_LAST, (self._conversation,)).fetchone()
        return f"{last} {_AFTER_ALL_PARTS}" if last else ""

    def _messages(self, connection: sqlite3.Connection, since: str) -> Iterator[_Message]:
        last, last_of_agent = connection.execute(_LAST, (self._conversation,)).fetchone()
        rows = connection.execute(_MESSAGES, (self._conversation, since, MAX_MESSAGES)).fetchall()
        for id_, raw in rows:
            data = _parsed(raw)
            if data.get("role") == "assistant":
                # A message whose process died is never completed.
                is_over = bool(mapping(data.get("time")).get("completed")) or id_ < last_of_agent
            else:
                is_over = id_ < last
            yield _Message(id_, data, is_over)


@contextlib.contextmanager
def open_database(file: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for reading. Raises `OSError` if it can't be read."""
    try:
        connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)
        with contextlib.closing(connection):
            yield connection
    except sqlite3.Error as error:
        raise OSError(f"opencode's record {file} can't be read: {error}") from None


def conversation_begun_with(prompt: str, since_ms: int, env: Mapping[str, str]) -> str | None:
    """Return the id of the first conversation since `since_ms` with the message `prompt`.

    `since_ms` is in milliseconds since 1970. None if there is none. Raises `OSError`.
    """
    with open_database(database_path(env)) as connection:
        row = connection.execute(_BEGUN_WITH, (since_ms, prompt)).fetchone()
    return text(row[0]) if row else None


def totals_of(conversation: str, env: Mapping[str, str]) -> tuple[AgentUsage, float] | None:
    """Return the tokens of a conversation so far, and their cost in US dollars.

    They include those of its subagents, and in a copy those of its original. None if the database
    does not have the conversation. Raises `OSError`.
    """
    with open_database(database_path(env)) as connection:
        *tokens, cost = connection.execute(_TREE + _TOTALS, (conversation,)).fetchone()
    return None if cost is None else (AgentUsage(*map(count, tokens)), float(cost))


def model_requests(conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
    """Return the requests of a conversation and its subagents, each of which ends a step."""
    found: list[ModelRequest] = []
    with open_database(database_path(env)) as connection:
        for id_, stored_ms, data, of_message in connection.execute(_TREE + _STEPS, (conversation,)):
            step, message = _parsed(data), _parsed(of_message)
            tokens, cost = mapping(step.get("tokens")), step.get("cost")
            cache = mapping(tokens.get("cache"))
            usage = AgentUsage(
                input_tokens=count(tokens.get("input")),
                output_tokens=count(tokens.get("output")) + count(tokens.get("reasoning")),
                cache_read_tokens=count(cache.get("read")),
                cache_write_tokens=count(cache.get("write")),
            )
            model = f"{text(message.get('providerID'))}/{text(message.get('modelID'))}"
            cost_usd = float(cost) if isinstance(cost, int | float) else None
            at_ms = _time_of(stored_ms, message)
            found.append(ModelRequest(id_, at_ms, usage, model, cost_usd))
    return found


def _time_of(stored_ms: Any, message: Mapping[str, Any]) -> int:
    """Return the time of a part: copied messages of a fork keep their time, and parts do not."""
    began_ms = count(mapping(message.get("time")).get("created"))
    return min(count(stored_ms), began_ms or count(stored_ms))


def database_path(env: Mapping[str, str]) -> Path:
    """Return the path of opencode's database."""
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
    """Yield the item of a part; none for synthetic text and summaries."""
    message_text = text(part.get("text")).strip()
    is_of_agent = message.data.get("role") == "assistant"
    match part.get("type"):
        case "text" if message_text and not (
            part.get("synthetic") or message.data.get("summary") is True
        ):
            content = message_text if is_of_agent else without_header(message_text)
            yield TranscriptItem(id_, "agent" if is_of_agent else "user", content, at_ms=at_ms)
        case "tool":
            argument = main_argument(mapping(part.get("state")).get("input"))
            name = text(part.get("tool"))
            yield TranscriptItem(id_, "tool", argument, name=name, at_ms=at_ms)
        case "compaction":
            yield TranscriptItem(id_, "notice", "The conversation was compacted.", at_ms=at_ms)


def _end_notice(message: _Message) -> Iterator[TranscriptItem]:
    """Yield a notice if a message of the agent was interrupted or has failed."""
    error = mapping(message.data.get("error"))
    at_ms = count(mapping(message.data.get("time")).get("completed"))
    if error.get("name") == "MessageAbortedError":
        yield TranscriptItem(f"{message.id}-end", "notice", "Interrupted.", at_ms=at_ms)
    elif why := text(mapping(error.get("data")).get("message")) or text(error.get("name")):
        yield TranscriptItem(f"{message.id}-end", "notice", why, at_ms=at_ms)
