"""What an agent asks to do, as people are shown it: nothing hidden, nothing secret."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import orjson

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import PermissionEvent

__all__ = ["wanted"]

#: How much is shown, in characters: the middle of what is longer is left out.
MOST = 3000
#: What a terminal or a chat would obey or hide: controls, directions, and what has no width.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
#: What says no more about a command than itself.
_OF_COMMAND = {"command", "description"}
_DIFFS = ("old_string", "new_string")


def wanted(event: PermissionEvent, scrubber: Scrubber) -> str:
    """Return what a tool would do: a command, a change as a diff, or the tool's arguments."""
    text = scrubber.text(_text(event), 1_000_000)
    text = _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if len(text) > MOST:
        left_out = len(text) - MOST
        text = f"{text[: MOST // 2]}\n… {left_out:,} characters …\n{text[-MOST // 2 :]}"
    return text


def _text(event: PermissionEvent) -> str:
    given, intent = event.input, event.intent
    if intent and intent.tool == "Bash" and intent.command:
        return intent.command
    if isinstance(command := given.get("command"), str) and given.keys() <= _OF_COMMAND:
        return command
    if changes := given.get("changes"):  # codex
        return "\n".join(_change(change) for change in changes if isinstance(change, Mapping))
    path = str(given.get("file_path") or given.get("notebook_path") or "")
    edits = [edit for edit in given.get("edits", [given]) if isinstance(edit, Mapping)]
    if path and all(isinstance(edit.get(name), str) for edit in edits for name in _DIFFS):
        return "\n".join([path, *(_diff(*(edit[name] for name in _DIFFS)) for edit in edits)])
    if path and isinstance(given.get("content"), str):
        return f"{path}\n{_diff('', given['content'])}"
    return orjson.dumps(given, option=orjson.OPT_INDENT_2, default=str).decode()


def _change(change: Mapping[str, Any]) -> str:
    return f"{change.get('path', '')}\n{change.get('diff', '')}"


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    return "\n".join([*lines][2:])
