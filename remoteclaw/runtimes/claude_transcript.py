"""Claude's transcripts: a file of records for each conversation."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes.terminal import LineFile, moment_of, record_of, telling, without_header
from remoteclaw.runtimes.wire import mapping, mappings, text

#: What claude writes into a conversation when a person has stopped it.
_INTERRUPTED = "[Request interrupted by user"
_COMMAND = re.compile(r"\s*<command-name>(.*?)</command-name>.*?<command-args>(.*?)</command-args>")
_SHELL = re.compile(r"\s*<bash-input>(.*?)</bash-input>", re.DOTALL)
#: What claude writes by itself where a person's words stand.
_OWN = re.compile(
    r"\s*<(local-command-\w+|bash-\w+|command-\w+|system-reminder|task-notification)>"
)


def projects_of(env: Mapping[str, str]) -> Path:
    """Return the directory of all transcripts, each in a directory of its workspace."""
    home = Path(env.get("HOME") or "~").expanduser()
    return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"


def items_of(record: dict[str, Any]) -> Iterator[TranscriptItem]:
    """Yield the items of a record; none for a record without words."""
    if any(record.get(flag) for flag in _NOT_SAID):
        return
    id_, at_ms = text(record.get("uuid")), moment_of(record.get("timestamp"))
    for number, (kind, said, name) in enumerate(_parts(record)):
        part = f"{id_}/{number}" if number else id_
        yield TranscriptItem(part, kind, said, name, at_ms)


_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")

_Part = tuple[Any, str, str]


def _parts(record: dict[str, Any]) -> Iterable[_Part]:
    content = mapping(record.get("message")).get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)
    match record.get("type"):
        case "user":
            return [part for block in blocks for part in _of_person(text(block.get("text")))]
        case "assistant":
            is_notice = bool(record.get("isApiErrorMessage"))
            model = mapping(record.get("message")).get("model")
            if model == "<synthetic>" and not is_notice:  # such as "No response requested."
                return []
            return [part for block in blocks for part in _of_agent(block, is_notice=is_notice)]
        case "attachment":  # what a person has typed while it worked
            queued = mapping(record.get("attachment"))
            if queued.get("type") == "queued_command" and queued.get("commandMode") == "prompt":
                return _of_person(text(queued.get("prompt")))
        case "system":
            if record.get("subtype") == "compact_boundary":
                return [("notice", "The conversation was compacted.", "")]
            if record.get("subtype") == "local_command":
                return _of_person(text(record.get("content")))
    return []


def _of_person(said: str) -> list[_Part]:
    if said.startswith(_INTERRUPTED):
        return [("notice", "The request was interrupted.", "")]
    if command := _COMMAND.match(" ".join(said.split())):
        return [("notice", f"{command[1]} {command[2]}".strip(), "")]
    if shell := _SHELL.match(said):
        return [("notice", f"! {shell[1]}", "")]
    said = without_header(said).strip()
    return [] if not said or _OWN.match(said) else [("user", said, "")]


def _of_agent(block: dict[str, Any], *, is_notice: bool) -> list[_Part]:
    match block.get("type"):
        case "text" if said := text(block.get("text")).strip():
            return [("notice" if is_notice else "agent", said, "")]
        case "tool_use":
            return [("tool", telling(block.get("input")), text(block.get("name")))]
    return []


class Interruptions:
    """Which prompt was interrupted, if nothing was said since: no hook tells of that."""

    def __init__(self) -> None:
        self.prompt = ""
        """The prompt's id; empty if the last words are others."""
        self._path = Path()
        self._position = ""

    def read(self, path: Path) -> None:
        """Read what a transcript has more than at the last time."""
        if path != self._path:
            self._path, self._position, self.prompt = path, "", ""
        for line, behind in LineFile(path).read(self._position):
            self._position = behind
            if _INTERRUPTED.encode() in line:
                record = record_of(line)
                blocks = mappings(mapping(record.get("message")).get("content")) or [{}]
                is_it = text(blocks[0].get("text")).startswith(_INTERRUPTED)
                self.prompt = text(record.get("promptId")) if is_it else ""
            elif b'"type":"user"' in line or b'"type":"assistant"' in line:
                self.prompt = ""
