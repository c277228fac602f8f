"""Questions of agents to people, in the format that claude and codex share."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.events import Question
from remoteclaw.runtimes.wire import mappings, text


def questions_of(arguments: Mapping[str, Any]) -> tuple[Question, ...]:
    """Return the questions in the arguments of a tool call or the parameters of a request."""
    return tuple(
        Question(
            text=text(question.get("question")),
            header=text(question.get("header")),
            choices=tuple(
                (text(choice.get("label")), text(choice.get("description")))
                for choice in mappings(question.get("options"))
            ),
            is_multiple=bool(question.get("multiSelect")),
        )
        for question in mappings(arguments.get("questions"))
    )
