"""Past conversations of a workspace, as claude and codex keep them."""

import heapq
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.runtimes.wire import mapping, mappings, text

__all__ = ["PastConversation", "past_conversations"]

#: How many are looked at, newest first: codex has those of all workspaces in one place.
MOST_FILES = 300
#: How much of a conversation is read for its title, in bytes and lines.
MOST_BYTES, MOST_LINES = 256_000, 60
#: How long a title is, in characters.
LONGEST_TITLE = 70
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: RemoteClaw's own line before a message.
_HEADER = re.compile(r"\[remoteclaw \{.*\}\]\n+")


@dataclass(frozen=True, slots=True)
class PastConversation:
    """A conversation of a CLI's."""

    id: str
    """The CLI's own id of it."""
    title: str
    """The beginning of what was said first; empty if that isn't found."""
    at: float
    """When it was changed last, in seconds since 1970."""


def past_conversations(
    runtime: str, workspace: str, env: Mapping[str, str], *, most: int
) -> list[PastConversation] | None:
    """Return a CLI's newest conversations of a workspace, newest first; None if that isn't known.

    `env` is the CLI's environment, which says where it keeps them.
    """
    read = _READERS.get(runtime)
    if read is None:
        return None
    home = Path(env.get("HOME") or "~").expanduser()
    return list(itertools.islice(read(home, os.path.realpath(workspace), env), most))


def _claude(home: Path, workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    root = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    directory = root / "projects" / re.sub("[^A-Za-z0-9]", "-", workspace)
    for file, at in _newest(directory.glob("*.jsonl")):
        lines = _lines(file)
        # The directory's name is the same for workspaces that differ in signs alone.
        cwd = next((text(line["cwd"]) for line in lines if "cwd" in line), workspace)
        if _ID.fullmatch(file.stem) and cwd == workspace:
            yield PastConversation(file.stem, _title(map(_said_to_claude, lines)), at)


def _said_to_claude(line: dict[str, Any]) -> str:
    if line.get("type") != "user" or line.get("isMeta") or line.get("isSidechain"):
        return ""
    content = mapping(line.get("message")).get("content")
    return content if isinstance(content, str) else _first_text(content)


def _codex(home: Path, workspace: str, env: Mapping[str, str]) -> Iterator[PastConversation]:
    root = Path(env.get("CODEX_HOME") or home / ".codex")
    for file, at in _newest((root / "sessions").glob("*/*/*/rollout-*.jsonl")):
        first, *lines = _lines(file) or [{}]
        about = mapping(first.get("payload"))
        id_ = text(about.get("id"))
        if _ID.fullmatch(id_) and os.path.realpath(text(about.get("cwd"))) == workspace:
            yield PastConversation(id_, _title(map(_said_to_codex, lines)), at)


def _said_to_codex(line: dict[str, Any]) -> str:
    said = mapping(line.get("payload"))
    is_said = line.get("type") == "response_item" and said.get("role") == "user"
    return _first_text(said.get("content")) if is_said else ""


_READERS: Mapping[str, Callable[[Path, str, Mapping[str, str]], Iterator[PastConversation]]] = {
    "claude": _claude,
    "codex": _codex,
}


def _newest(files: Iterable[Path]) -> list[tuple[Path, float]]:
    """Return files and when they were changed, the newest first."""
    known = []
    for file in files:
        try:
            known.append((file, file.stat().st_mtime))
        except OSError:  # just removed
            continue
    return heapq.nlargest(MOST_FILES, known, key=lambda each: each[1])


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return the first lines of a file that are JSON objects."""
    found = []
    try:
        with file.open("rb") as stream:
            for raw in itertools.islice(stream.read(MOST_BYTES).splitlines(), MOST_LINES):
                try:
                    line = orjson.loads(raw)
                except orjson.JSONDecodeError:
                    continue
                found += [line] if isinstance(line, dict) else []
    except OSError:
        return []
    return found


def _first_text(content: Any) -> str:
    return next((text(part.get("text")) for part in mappings(content) if part.get("text")), "")


def _title(said: Iterable[str]) -> str:
    """Return the beginning of the first words of a person's, on one line."""
    for words in said:
        line = " ".join(_HEADER.sub("", words, count=1).split())
        if line and not line.startswith(("<", "# AGENTS.md")):  # what a CLI says by itself
            return line[: LONGEST_TITLE - 1] + "…" if len(line) > LONGEST_TITLE else line
    return ""
