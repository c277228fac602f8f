"""Codex's rollouts: a file of JSON records for each thread."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.events import AgentUsage
from remoteclaw.protocols import Activity, ModelRequest, TranscriptItem
from remoteclaw.runtimes.terminal import (
    LineFile,
    main_argument,
    record_of,
    timestamp_ms,
    without_header,
)
from remoteclaw.runtimes.wire import UUID, count, mapping, mappings, text

_ROLLOUT = re.compile(rf"rollout-.*-({UUID.pattern})\.jsonl")


def sessions_of(env: Mapping[str, str]) -> Path:
    """Return the directory of all rollouts, by year, month and day."""
    home = Path(env.get("HOME") or "~").expanduser()
    return Path(env.get("CODEX_HOME") or home / ".codex") / "sessions"


def thread_in(rollout: Path) -> str | None:
    """Return the thread id in a rollout's file name; None for any other file."""
    named = _ROLLOUT.fullmatch(rollout.name)
    return named[1] if named else None


def rollout_finder(sessions: Path, thread: str) -> Callable[[], Path | None]:
    """Return a function that finds the rollout of a thread, and caches it once found."""
    rollouts: list[Path] = []

    def find() -> Path | None:
        if not rollouts and UUID.fullmatch(thread):
            rollouts.extend(sessions.glob(f"*/*/*/rollout-*-{thread}.jsonl"))
        return rollouts[0] if rollouts else None

    return find


def model_requests(thread: str, env: Mapping[str, str]) -> list[ModelRequest]:
    """Return the requests of a thread: codex records its total after each, and again later."""
    found: dict[int, ModelRequest] = {}
    model, path = "", rollout_finder(sessions_of(env), thread)()
    for line, _ in LineFile(path).read("") if path else ():
        if b'"turn_context"' in line or b'"token_count"' in line:
            record = record_of(line)
            payload = mapping(record.get("payload"))
            model = text(payload.get("model")) or model
            info = mapping(payload.get("info"))
            total = count(mapping(info.get("total_token_usage")).get("total_tokens"))
            last = mapping(info.get("last_token_usage"))
            if total and total not in found:
                at_ms = timestamp_ms(record.get("timestamp"))
                found[total] = ModelRequest(f"{thread}/{total}", at_ms, _usage(last), model)
    return [*found.values()]


def _usage(tokens: Mapping[str, Any]) -> AgentUsage:
    """Return the tokens of a rollout in our terms."""
    cached = count(tokens.get("cached_input_tokens"))
    return AgentUsage(
        input_tokens=max(0, count(tokens.get("input_tokens")) - cached),
        output_tokens=count(tokens.get("output_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=count(tokens.get("cache_write_input_tokens")),
    )


def items_of(record: dict[str, Any]) -> Iterator[TranscriptItem]:
    """Yield the transcript items of a record; none for internal records."""
    payload, at_ms = mapping(record.get("payload")), timestamp_ms(record.get("timestamp"))
    match record.get("type"), payload.get("type"):
        case "event_msg", "item_completed":
            yield from _items_of_item(mapping(payload.get("item")), at_ms)
        case "response_item", "function_call" | "custom_tool_call":
            id_, name = text(payload.get("call_id")), text(payload.get("name"))
            yield TranscriptItem(id_, "tool", _argument(payload), name, at_ms)
        case "event_msg", "turn_aborted":
            id_ = text(payload.get("turn_id"))
            yield TranscriptItem(id_, "notice", "The request was interrupted.", at_ms=at_ms)
        case "event_msg", "task_complete":
            if why := text(mapping(payload.get("error")).get("message")):
                yield TranscriptItem(text(payload.get("turn_id")), "notice", why, at_ms=at_ms)


def _items_of_item(item: dict[str, Any], at_ms: int) -> Iterator[TranscriptItem]:
    id_ = text(item.get("id"))
    message = "\n".join(text(part.get("text")) for part in mappings(item.get("content"))).strip()
    match item.get("type"):
        case "UserMessage" if message := without_header(message).strip():
            yield TranscriptItem(id_, "user", message, at_ms=at_ms)
        case "AgentMessage" if message:
            yield TranscriptItem(id_, "agent", message, at_ms=at_ms)
        case "CommandExecution" if item.get("source") == "user_shell":
            command = item.get("command")
            command_line = command[-1] if isinstance(command, list) and command else ""
            yield TranscriptItem(id_, "notice", f"! {text(command_line)}", at_ms=at_ms)
        case "ContextCompaction":
            yield TranscriptItem(id_, "notice", "The conversation was compacted.", at_ms=at_ms)


def _argument(call: dict[str, Any]) -> str:
    """Return the most informative argument of a tool call; all arguments if they are not JSON."""
    arguments = text(call.get("arguments")) or text(call.get("input"))
    try:
        return main_argument(orjson.loads(arguments))
    except orjson.JSONDecodeError:
        return main_argument({"text": arguments})


class LastTurn:
    """The state of the last turn in a rollout."""

    def __init__(self) -> None:
        self.activity: Activity = "unknown"
        """`busy` while the turn runs, `idle` after its end, `unknown` without a turn."""
        self._path, self._position = Path(), ""

    def read(self, path: Path) -> None:
        """Read the records that were added to the rollout since the last call."""
        if path != self._path:
            self._path, self._position, self.activity = path, "", "unknown"
        for line, next_position in LineFile(path).read(self._position):
            self._position = next_position
            if b'"task_' in line or b'"turn_aborted"' in line:
                match mapping(record_of(line).get("payload")).get("type"):
                    case "task_started":
                        self.activity = "busy"
                    case "task_complete" | "turn_aborted":
                        self.activity = "idle"


class OpenRollouts:
    """The rollouts that one codex process has open: it keeps open each one that it has written to.

    The process is recognized by `mark`, a `NAME=value` of its environment. Its working directory
    would not do: the user may run another codex in it.
    """

    def __init__(self, sessions: Path, mark: bytes) -> None:
        self._sessions = os.path.realpath(sessions)
        self._mark = mark
        self._pid = 0

    def newest(self) -> Path | None:
        """Return the open rollout that was written last; None if the process has none open."""
        for pid in (self._pid, *map(int, filter(str.isdigit, os.listdir("/proc")))):
            try:
                rollouts = self._open_rollouts(pid)
            except OSError:  # the process has just ended, or belongs to another user
                continue
            if rollouts:
                self._pid = pid
                return max(rollouts, key=lambda path: path.stat().st_mtime_ns)
        return None

    def _open_rollouts(self, pid: int) -> list[Path]:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if self._mark not in variables:
            return []
        open_files = (Path(os.readlink(link)) for link in Path(f"/proc/{pid}/fd").iterdir())
        return [
            file for file in open_files if thread_in(file) and file.is_relative_to(self._sessions)
        ]
