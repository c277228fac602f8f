"""The text of a permission request for people, without hidden characters and secrets."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import PermissionEvent, Question

#: The maximum lengths of the text in the chat, and of the full text in a file, in characters. The
#: middle of a longer text is left out.
MAX_SHOWN_CHARS, MAX_FULL_CHARS = 3000, 1_000_000
#: A change of more lines than this is shown without a diff, which takes quadratic time.
MAX_DIFF_LINES = 2000
#: Shown instead of an empty plan.
NO_PLAN = "(It has written no plan.)"
#: Characters that a terminal or a chat interprets or hides: controls, writing directions, and
#: characters without width.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\u115f\u1160\u2800\u3164\uffa0\U000e0000-\U000e0fff]"
)
#: Arguments that need not be shown besides the command itself.
_OF_COMMAND = {"command", "description", "timeout", "cwd", "reason", "workdir"}
_DIFFS = ("old_string", "new_string")
_OF_EDIT = {"file_path", "replace_all", *_DIFFS}


def as_shown(event: PermissionEvent, scrubber: Scrubber) -> PermissionEvent:
    """Return a request with the texts for people: its description, or its questions."""
    if not event.questions:
        shown, full = (
            description_of(event, scrubber, max_chars)
            for max_chars in (MAX_SHOWN_CHARS, MAX_FULL_CHARS)
        )
        return replace(event, description=shown, full_description="" if full == shown else full)

    def line(text: str) -> str:
        return " ".join(as_visible(text[: MAX_SHOWN_CHARS // 10], scrubber).split())

    questions = (
        Question(
            text=as_visible(question.text, scrubber),
            header=line(question.header),
            choices=tuple((line(label), line(meaning)) for label, meaning in question.choices),
            is_multiple=question.is_multiple,
        )
        for question in event.questions
    )
    return replace(event, questions=tuple(questions))


def description_of(
    event: PermissionEvent, scrubber: Scrubber, max_chars: int = MAX_SHOWN_CHARS
) -> str:
    """Return what a tool would do: a command, a diff, a plan, or else the tool's arguments."""
    return as_visible(_text(event), scrubber, max_chars)


def as_visible(text: str, scrubber: Scrubber, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """Return a text for people, without secrets and with hidden characters as escapes.

    The middle of a text of more than `max_chars` characters is left out.
    """
    # The escapes come first, because the scrubber removes hidden characters.
    text = _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if len(text) <= max_chars:
        return scrubber.text(text, max_chars)
    half = max_chars // 2
    first, last = scrubber.text(text, half), scrubber.text(text[-max_chars:], max_chars)[-half:]
    return f"{first}\n… {len(text) - max_chars:,} characters …\n{last}"


def _text(event: PermissionEvent) -> str:
    """Return the shortest text that hides no argument; without a short form, all arguments."""
    if event.plan is not None:
        return event.plan.strip() or NO_PLAN
    given, intent = event.input, event.intent
    if intent and intent.tool == "Bash" and intent.command:
        elsewhere = f"\n(in {intent.cwd})" if intent.cwd not in ("", event.workspace) else ""
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
    if len(old) + len(new) > MAX_DIFF_LINES:
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    lines = difflib.unified_diff(old, new, lineterm="", n=2)
    return "\n".join([*lines][2:])
