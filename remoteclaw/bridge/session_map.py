"""A session map in a file, for a bridge without a fleet."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Conversation, conversation_name, parts_of_name

FILE_NAME = "remoteclaw-sessions.json"
#: How long an id is kept after its last use, in milliseconds.
KEEP_MS = 7 * 24 * 3600 * 1000

log = logging.getLogger(__name__)

_Entries = dict[str, dict[str, Any]]


class FileSessionMap:
    """The CLIs' ids of one session's conversations, in `remoteclaw-sessions.json` in a directory.

    Any number of processes may share the file: each change is made under a lock and replaces the
    whole file. There is no cache. A damaged file is renamed, not overwritten.
    """

    def __init__(
        self,
        directory: Path,
        session: SessionKey,
        *,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`now_ms` is the clock, in milliseconds since 1970."""
        self._file = directory / FILE_NAME
        self._session = session
        self._now_ms = now_ms

    async def get(self, name: str) -> Conversation | None:
        """Return the conversation under `name`, and keep it for 7 more days; None without one."""
        return await asyncio.to_thread(self._get, name)

    async def set(self, name: str, conversation: Conversation) -> None:
        """Store a conversation for 7 days."""
        await asyncio.to_thread(self._set, name, conversation)

    async def delete(self, name: str) -> None:
        """Delete an id that the CLI no longer knows."""
        with self._changing() as entries:
            entries.pop(self._key(name), None)

    def _get(self, name: str) -> Conversation | None:
        with self._changing() as entries:
            if (entry := entries.get(self._key(name))) is None:
                return None
            entry["lastAccessMs"] = self._now_ms()
            return Conversation.decode(entry["conversation"])

    def _set(self, name: str, conversation: Conversation) -> None:
        with self._changing() as entries:
            entries[self._key(name)] = {
                "conversation": conversation.encode(),
                "lastAccessMs": self._now_ms(),
            }

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Entries]:
        """Yield the unexpired entries under the lock; the changed entries then replace the file."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._file.with_suffix(".lock")):
            since = self._now_ms() - KEEP_MS
            entries = {k: e for k, e in self._read().items() if e["lastAccessMs"] >= since}
            yield entries
            replace_file(self._file, orjson.dumps(entries, option=orjson.OPT_INDENT_2))

    def _key(self, name: str) -> str:
        return f"{self._session}|{name}"

    def _read(self) -> _Entries:
        """Return the file's entries; rename a damaged file and return none."""
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            entries = orjson.loads(data)
            return {
                _current_key(key): {
                    "conversation": entry["conversation"]
                    if "conversation" in entry
                    else Conversation(entry["sessionId"], entry.get("note", "")).encode(),
                    "lastAccessMs": int(entry["lastAccessMs"]),
                }
                for key, entry in entries.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            damaged = self._file.with_suffix(f".damaged-{self._now_ms()}")
            self._file.replace(damaged)
            log.error("%s can't be read, and is set aside as %s", self._file, damaged.name)
            return {}


def _current_key(key: str) -> str:
    """Return an entry's key, also for one from before conversations were stored by agent."""
    session, name = key.split("|", 1)
    agent, runtime, workspace = parts_of_name(name)
    agent = agent or SessionKey.parse(session).agent
    return f"{session}|{conversation_name(agent, runtime, workspace)}"
