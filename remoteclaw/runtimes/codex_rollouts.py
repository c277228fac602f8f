"""Codex' rollouts: a file of records for each thread."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.protocols import Activity, TranscriptItem
from remoteclaw.runtimes.terminal import LineFile, moment_of, record_of, telling, without_header
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

_ROLLOUT = re.compile(rf"rollout-.*-({UUID.pattern})\.jsonl")


def sessions_of(env: Mapping[str, str]) -> Path:
    """Return the directory of all rollouts, by year, month and day."""
    home = Path(env.get("HOME") or "~").expanduser()
    return Path(env.get("CODEX_HOME") or home / ".codex") / "sessions"


def thread_in(rollout: Path) -> str | None:
    """Return the id of a rollout's thread, which its name has."""
    named = _ROLLOUT.fullmatch(rollout.name)
    return named[1] if named else None


def finder(sessions: Path, thread: str) -> Callable[[], Path | None]:
    """Return what finds the rollout of a thread, and goes on knowing it."""
    found: list[Path] = []

    def find() -> Path | None:
        if not found and UUID.fullmatch(thread):
            found.extend(sessions.glob(f"*/*/*/rollout-*-{thread}.jsonl"))
        return found[0] if found else None

    return find


def items_of(record: dict[str, Any]) -> Iterator[TranscriptItem]:
    """Yield the items of a record; none for a record without words."""
    about, at_ms = mapping(record.get("payload")), moment_of(record.get("timestamp"))
    match record.get("type"), about.get("type"):
        case "event_msg", "item_completed":
            yield from _of_item(mapping(about.get("item")), at_ms)
        case "response_item", "function_call" | "custom_tool_call":
            id_, name = text(about.get("call_id")), text(about.get("name"))
            yield TranscriptItem(id_, "tool", _argument(about), name, at_ms)
        case "event_msg", "turn_aborted":
            id_ = text(about.get("turn_id"))
            yield TranscriptItem(id_, "notice", "The request was interrupted.", at_ms=at_ms)
        case "event_msg", "task_complete":
            if why := text(mapping(about.get("error")).get("message")):
                yield TranscriptItem(text(about.get("turn_id")), "notice", why, at_ms=at_ms)


def _of_item(item: dict[str, Any], at_ms: int) -> Iterator[TranscriptItem]:
    id_ = text(item.get("id"))
    said = "\n".join(text(part.get("text")) for part in mappings(item.get("content"))).strip()
    match item.get("type"):
        case "UserMessage" if said := without_header(said).strip():
            yield TranscriptItem(id_, "user", said, at_ms=at_ms)
        case "AgentMessage" if said:
            yield TranscriptItem(id_, "agent", said, at_ms=at_ms)
        case "CommandExecution" if item.get("source") == "user_shell":
            command = item.get("command")
            words = command[-1] if isinstance(command, list) and command else ""
            yield TranscriptItem(id_, "notice", f"! {text(words)}", at_ms=at_ms)
        case "ContextCompaction":
            yield TranscriptItem(id_, "notice", "The conversation was compacted.", at_ms=at_ms)


def _argument(call: dict[str, Any]) -> str:
    """Return the argument of a tool that tells most; one that is no JSON is all there is."""
    given = text(call.get("arguments")) or text(call.get("input"))
    try:
        return telling(orjson.loads(given))
    except orjson.JSONDecodeError:
        return telling({"text": given})


class LastTurn:
    """Whether the last turn that a rollout has is over."""

    def __init__(self) -> None:
        self.said: Activity = "unknown"
        self._path, self._position = Path(), ""

    def read(self, path: Path) -> None:
        """Read what the rollout has more than at the last time."""
        if path != self._path:
            self._path, self._position, self.said = path, "", "unknown"
        for line, behind in LineFile(path).read(self._position):
            self._position = behind
            if b'"task_' in line or b'"turn_aborted"' in line:
                match mapping(record_of(line).get("payload")).get("type"):
                    case "task_started":
                        self.said = "busy"
                    case "task_complete" | "turn_aborted":
                        self.said = "idle"


class OpenRollouts:
    """The rollouts that one codex has open: it keeps each open that it has written to.

    Its process is known by a mark in its environment. By its directory alone, a codex of the user's
    own beside it would be taken for it.
    """

    def __init__(self, sessions: Path, mark: bytes) -> None:
        self._sessions = os.path.realpath(sessions)
        self._mark = mark
        self._pid = 0

    def newest(self) -> Path | None:
        """Return the one that was written to last; None while there is none."""
        for pid in (self._pid, *map(int, filter(str.isdigit, os.listdir("/proc")))):
            try:
                found = self._of(pid)
            except OSError:  # it has just ended, or isn't ours
                continue
            if found:
                self._pid = pid
                return max(found, key=lambda path: path.stat().st_mtime_ns)
        return None

    def _of(self, pid: int) -> list[Path]:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if self._mark not in variables:
            return []
        opened = (Path(os.readlink(link)) for link in Path(f"/proc/{pid}/fd").iterdir())
        return [file for file in opened if thread_in(file) and file.is_relative_to(self._sessions)]
