"""A session map in a file, for a bridge that is used without a fleet."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.messages import SessionKey

__all__ = ["FILE_NAME", "FileSessionMap"]

FILE_NAME = "remoteclaw-sessions.json"
#: How long an id is kept since its last use, in milliseconds.
KEEP_MS = 7 * 24 * 3600 * 1000
#: How old the time of the last use may be in the file, in milliseconds: not every look writes it.
STALE_MS = 3600 * 1000

log = logging.getLogger(__name__)

_Entries = dict[str, dict[str, Any]]


class FileSessionMap:
    """The CLIs' ids of one session's conversations, in `remoteclaw-sessions.json` of a directory.

    Any number of processes may share the file: each change is made under a lock and replaces the
    whole file. There is no cache. A file that can't be read is set aside, not overwritten.
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

    async def get(self, name: str) -> str | None:
        """Return the id kept under a runtime and workspace, and keep it for 7 more days."""
        return await asyncio.to_thread(self._get, name)

    async def note(self, name: str) -> str:
        """Return what an agent has noted with that id; nothing if there is none."""
        entries = self._living(await asyncio.to_thread(self._read))
        return str(entries.get(self._key(name), {}).get("note", ""))

    async def set(self, name: str, session_id: str, note: str = "") -> None:
        """Keep an id, and what the agent has noted with it, for 7 days from now."""
        await asyncio.to_thread(self._change, name, session_id, note)

    async def delete(self, name: str) -> None:
        """Forget an id that the CLI no longer knows."""
        await asyncio.to_thread(self._change, name, None)

    def _key(self, name: str) -> str:
        return f"{self._session}|{name}"

    def _get(self, name: str) -> str | None:
        entry = self._living(self._read()).get(self._key(name))
        if entry is None:
            return None
        session_id = str(entry["sessionId"])
        if entry["lastAccessMs"] < self._now_ms() - STALE_MS:
            self._change(name, session_id, entry["note"], only_if=session_id)
        return session_id

    def _change(
        self, name: str, session_id: str | None, note: str = "", *, only_if: str | None = None
    ) -> None:
        with self._locked():
            entries = self._living(self._read(set_aside=True))
            before = entries.pop(self._key(name), None)
            if only_if is not None and (before is None or before["sessionId"] != only_if):
                return  # another process has changed it meanwhile
            if session_id is not None:
                entries[self._key(name)] = {
                    "sessionId": session_id,
                    "lastAccessMs": self._now_ms(),
                    "note": note,
                }
            self._write(entries)

    def _living(self, entries: _Entries) -> _Entries:
        since = self._now_ms() - KEEP_MS
        return {key: entry for key, entry in entries.items() if entry["lastAccessMs"] >= since}

    def _read(self, *, set_aside: bool = False) -> _Entries:
        """Return what is in the file; a damaged one is empty, and goes if we hold the lock."""
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            entries = orjson.loads(data)
            return {
                str(key): {
                    "sessionId": str(entry["sessionId"]),
                    "lastAccessMs": int(entry["lastAccessMs"]),
                    "note": str(entry.get("note", "")),
                }
                for key, entry in entries.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            if set_aside:
                aside = self._file.with_suffix(f".damaged-{self._now_ms()}")
                os.replace(self._file, aside)
                log.error("%s can't be read, and is set aside as %s", self._file, aside.name)
            return {}

    def _write(self, entries: _Entries) -> None:
        replace_file(self._file, orjson.dumps(entries, option=orjson.OPT_INDENT_2))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._file.with_suffix(".lock")):
            yield
