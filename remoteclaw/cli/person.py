"""The person at the terminal, whom a command that sets something up asks."""

import click

from remoteclaw.cli.output import echo
from remoteclaw.errors import ConfigError
from remoteclaw.host.hidden_input import hidden_input
from remoteclaw.host.terminal import one_line


class Person:
    """The person at the terminal."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there

    def say(self, text: str) -> None:
        """Show a line."""
        echo(text)

    def ask(self, question: str) -> str:
        """Return the answer to a question, without spaces around it."""
        self._check(question)
        return str(click.prompt(one_line(question))).strip()

    def ask_hidden(self, question: str) -> str:
        """Return the answer to a question, which the terminal doesn't show; it may be empty."""
        self._check(question)
        with hidden_input():
            answer = str(click.prompt(one_line(question), default="", show_default=False))
        echo("")  # the terminal has not shown Enter either
        return answer

    def confirms(self, question: str) -> bool:
        """Return the answer to a question with yes or no; without one, no."""
        self._check(question)
        return click.confirm(one_line(question), default=False)

    def _check(self, question: str) -> None:
        if not self.is_there:
            raise ConfigError(f"Without --no-input, this asks: {question}.")
