"""The text of a request for people, which shows exactly what they decide about.

Lines that begin with `▸` are not part of the action, and `visible.py` keeps every text from
imitating them. A request whose action can't be shown completely has a reason for that, and people
can only deny it.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.bridge.visible import UNIT, Renderer
from remoteclaw.events import PermissionEvent, Question
from remoteclaw.host.terminal import NOTE, with_note

#: The maximum lengths of the text in the chat, and of the full text in a file, in characters. The
#: middle of a longer text is left out.
MAX_SHOWN_CHARS, MAX_FULL_CHARS = 3000, 1_000_000
#: The maximum length of a choice of a question, in characters.
MAX_CHOICE_CHARS = 300
#: A change of more lines than this is shown without a diff, which takes quadratic time.
MAX_DIFF_LINES = 2000
#: Shown instead of an empty plan.
NO_PLAN = "(It has written no plan.)"
TOO_LONG = (
    "It is too long to be shown completely, so it can only be denied: have the agent do it in "
    "smaller steps."
)
#: More characters than the longest escape or mark has.
_UNIT_CHARS = 20
#: Arguments that need not be shown besides the command itself.
_OF_COMMAND = {"command", "description", "timeout", "cwd", "reason", "workdir"}
_DIFFS = ("old_string", "new_string")
_OF_EDIT = {"file_path", "replace_all", *_DIFFS}


@dataclass(frozen=True, slots=True)
class ShownText:
    """A visible text, as a message and a file show it."""

    text: str
    """The text for the message, without the middle of a long text."""
    full_text: str = ""
    """The text for the file; empty if the message has all of it."""
    incomplete: str = ""
    """Why even the file lacks the middle of the text, as both texts say; empty if it does not."""


def as_shown(event: PermissionEvent, scrubber: Scrubber) -> PermissionEvent:
    """Return a request with the texts for people: its description, or its questions."""
    render = Renderer(scrubber)
    if not event.questions:
        shown = shortened(_text(event, render))
        return replace(
            event,
            description=shown.text,
            full_description=shown.full_text,
            incomplete=shown.incomplete,
        )

    def line(text: str) -> str:
        shown = render.line(text[:MAX_CHOICE_CHARS].strip())
        return shown if len(text) <= MAX_CHOICE_CHARS else f"{shown} …"

    texts = [shortened(render.prose(question.text)) for question in event.questions]
    questions = (
        Question(
            text=with_note(shown.text, TOO_LONG) if shown.full_text else shown.text,
            header=line(question.header),
            choices=tuple((line(label), line(meaning)) for label, meaning in question.choices),
            is_multiple=question.is_multiple,
        )
        for question, shown in zip(event.questions, texts, strict=True)
    )
    is_cut = any(shown.full_text for shown in texts)
    return replace(event, questions=tuple(questions), incomplete=TOO_LONG if is_cut else "")


def place_shown(directory: str) -> str:
    """Return a directory on one line, for inline code."""
    return Renderer(Scrubber()).line(directory).replace("`", "\\u0060")


def shortened(visible: str) -> ShownText:
    """Return a visible text for a message, and for a file if it is too long for the message."""
    if len(visible) <= MAX_SHOWN_CHARS:
        return ShownText(visible)
    shown = _without_middle(visible, MAX_SHOWN_CHARS)
    if len(visible) <= MAX_FULL_CHARS:
        return ShownText(shown, visible)
    full_text = with_note(_without_middle(visible, MAX_FULL_CHARS), TOO_LONG)
    return ShownText(with_note(shown, TOO_LONG), full_text, TOO_LONG)


def _without_middle(visible: str, max_chars: int) -> str:
    half = max_chars // 2
    begin, end = (_boundary(visible, at) for at in (half, len(visible) - half))
    left_out = f"… {end - begin:,} characters …"
    return f"{with_note(visible[:begin], left_out)}\n{visible[end:]}"


def _boundary(visible: str, at: int) -> int:
    """Return `at`, or the beginning of the escape or mark that it would cut in two."""
    for unit in UNIT.finditer(visible, at - _UNIT_CHARS, at + _UNIT_CHARS):
        if unit.start() < at < unit.end():
            return unit.start()
    return at


def _text(event: PermissionEvent, render: Renderer) -> str:
    """Return the shortest text that hides no argument; without a short form, all arguments."""
    if event.plan is not None:
        return render.prose(event.plan) or NO_PLAN
    given, intent = event.input, event.intent
    if intent and intent.tool == "Bash" and intent.command:
        shown = render.content(intent.command)
        if event.place != event.workspace:
            shown = with_note(shown, f"in {render.line(event.place)}")
        is_title = given.get("title") == intent.command  # gemini
        known = {*_OF_COMMAND, "title"} if is_title else _OF_COMMAND
        if more := {name: value for name, value in given.items() if name not in known}:
            shown = with_note(shown, f"with {render.json(more)}")
        return shown
    if isinstance(command := given.get("command"), str) and given.keys() <= {"command"}:
        return render.content(command)
    match given:
        case {"changes": [*changes], **more} if intent and all(
            isinstance(change, Mapping) for change in changes
        ):  # codex
            files = [_change(change, render) for change in changes]
            return "\n".join([*files, *([render.json(more)] if more else ())])
        case {"file_path": str(path), "content": str(content)} if len(given) == 2:
            return f"{render.line(path)}\n{_diff('', content, render)}"
        case {"file_path": str(path), "old_string": str(old), "new_string": str(new)} if (
            given.keys() <= _OF_EDIT
        ):
            diff = f"{render.line(path)}\n{_diff(old, new, render)}"
            return with_note(diff, "everywhere in it") if given.get("replace_all") else diff
    return render.json(given)


def _change(change: Mapping[str, Any], render: Renderer) -> str:
    more = {name: value for name, value in change.items() if name not in ("path", "diff")}
    path, diff = (str(change.get(name)) for name in ("path", "diff"))
    about = render.json(more, is_on_one_line=True)
    return f"{NOTE} {render.line(path)} {about}\n{render.content(diff)}"


def _diff(before: str, after: str, render: Renderer) -> str:
    """Return all lines of a change: those that stay may decide which place of the file it is."""
    old, new = (render.content(text).split("\n") if text else [] for text in (before, after))
    if len(old) + len(new) > MAX_DIFF_LINES:
        return "\n".join([*(f"-{line}" for line in old), *(f"+{line}" for line in new)])
    lines = difflib.unified_diff(old, new, lineterm="", n=len(old))
    return "\n".join([*lines][2:])
