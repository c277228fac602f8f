"""Questions of agents to people, in the form that claude and codex share."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.events import Question
from remoteclaw.runtimes.wire import mappings, text


def questions_of(asked: Mapping[str, Any]) -> tuple[Question, ...]:
    """Return what an agent asks a person."""
    return tuple(
        Question(
            text=text(each.get("question")),
            header=text(each.get("header")),
            choices=tuple(
                (text(choice.get("label")), text(choice.get("description")))
                for choice in mappings(each.get("options"))
            ),
            is_multiple=bool(each.get("multiSelect")),
        )
        for each in mappings(asked.get("questions"))
    )
