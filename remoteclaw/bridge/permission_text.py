"""The text that shows people what an agent asks to do: nothing hidden, nothing secret."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import PermissionEvent, Question

#: How much is shown, in characters, and how much the whole has that goes with it as a file: the
#: middle of what is longer is left out.
MOST, MAX_OF_WHOLE = 3000, 1_000_000
#: How many lines of a change are compared: comparing takes the square of that.
MAX_COMPARED = 2000
#: What is shown of a plan that is empty.
NO_PLAN = "(It has written no plan.)"
#: What a terminal or a chat would obey or hide: controls, directions, and what has no width.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\u115f\u1160\u2800\u3164\uffa0\U000e0000-\U000e0fff]"
)
#: What says no more about a command than itself.
_OF_COMMAND = {"command", "description", "timeout", "cwd", "reason", "workdir"}
_DIFFS = ("old_string", "new_string")
_OF_EDIT = {"file_path", "replace_all", *_DIFFS}


def as_shown(event: PermissionEvent, scrubber: Scrubber) -> PermissionEvent:
    """Return a request with what people are shown of it: what is wanted, or its questions."""
    if not event.questions:
        shown, whole = (wanted(event, scrubber, most) for most in (MOST, MAX_OF_WHOLE))
        return replace(event, shown=shown, whole="" if whole == shown else whole)

    def line(text: str) -> str:
        return " ".join(as_seen(text[: MOST // 10], scrubber).split())

    questions = (
        Question(
            text=as_seen(asked.text, scrubber),
            header=line(asked.header),
            choices=tuple((line(label), line(meaning)) for label, meaning in asked.choices),
            is_multiple=asked.is_multiple,
        )
        for asked in event.questions
    )
    return replace(event, questions=tuple(questions))


def wanted(event: PermissionEvent, scrubber: Scrubber, most: int = MOST) -> str:
    """Return what a tool would do: a command, a change as a diff, or the tool's arguments.

    Of a plan, return that.
    """
    return as_seen(_text(event), scrubber, most)


def as_seen(text: str, scrubber: Scrubber, most: int = MOST) -> str:
    """Return a text as people are shown it, at most so many of its characters."""
    # In this order: the scrubber drops what is hidden.
    text = _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if len(text) <= most:
        return scrubber.text(text, most)
    half = most // 2
    first, last = scrubber.text(text, half), scrubber.text(text[-most:], most)[-half:]
    return f"{first}\n… {len(text) - most:,} characters …\n{last}"


def _text(event: PermissionEvent) -> str:
    """Return it in the shortest words that hide nothing: all arguments, where none fit."""
    if event.plan is not None:
        return event.plan.strip() or NO_PLAN
    given, intent = event.input, event.intent
    if intent and intent.tool == "Bash" and intent.command:
        elsewhere = f"\n(in {intent.cwd})" if intent.cwd not in ("", event.where) else ""
        more = {name: value for name, value in given.items() if name not in _OF_COMMAND}
        also = f"\n{_json(more)}" if more and "command" in given else ""
        return intent.command + elsewhere + also
    if isinstance(command := given.get("command"), str) and given.keys() <= {"command"}:
        return command
    match given:
        case {"changes": [*changes], **more} if intent and all(
            isinstance(c, Mapping) for c in changes
        ):
            return "\n".join([*map(_change, changes), *([_json(more)] if more else ())])  # codex
        case {"file_path": str(path), "content": str(content)} if len(given) == 2:
            return f"{path}\n{_diff('', content)}"
        case {"file_path": str(path), "old_string": str(old), "new_string": str(new)} if (
            given.keys() <= _OF_EDIT
        ):
            in_all = "\n(everywhere in it)" if given.get("replace_all") else ""
            return f"{path}\n{_diff(old, new)}{in_all}"
    return _json(given)


def _json(given: Mapping[str, Any]) -> str:
    return orjson.dumps(given, option=orjson.OPT_INDENT_2, default=str).decode()


def _change(change: Mapping[str, Any]) -> str:
    more = {name: value for name, value in change.items() if name not in ("path", "diff")}
    return f"{change.get('path')} {orjson.dumps(more, default=str).decode()}\n{change.get('diff')}"


def _diff(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > MAX_COMPARED:
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    lines = difflib.unified_diff(old, new, lineterm="", n=2)
    return "\n".join([*lines][2:])
