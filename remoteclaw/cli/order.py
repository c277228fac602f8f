"""An order of `send`: a message to send, with the options of the command."""

import sys
from dataclasses import dataclass
from typing import Any

from remoteclaw.cli.outcome import EXIT_REPLY, OutcomeReport
from remoteclaw.cli.output import complain, echo, echo_text

#: The channel and the account of a message if no option names others.
DEFAULT_CHANNEL = "cli"
#: As in `messages`, which would make each `--help` import pydantic.
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A message to send, with the options of the command."""

    text: str
    is_in_chat: bool
    """Whether the message is written into the person's conversation with the agent, which the page
    and the terminal show, too."""
    session: str | None
    """The session: its key, the start of its id, its label or its title. None for the sender's."""
    channel: str | None
    from_: str | None
    to: str | None
    thread: str | None
    account: str | None
    agent: str | None
    message_id: str
    has_new_id: bool
    """Whether `message_id` is new, so that the message can't be a duplicate."""
    is_background: bool
    wait_s: float
    attach: tuple[str, ...]
    """The paths and URLs of the files to send with the message."""

    @property
    def target(self) -> dict[str, Any]:
        """The recipient, as parameters of `chat.open`."""
        if self.is_in_chat:
            return {"agentId": self.agent}
        if self.session is not None:
            return {"sessionKey": self.session}
        sender = {
            "channel": self.channel or DEFAULT_CHANNEL,
            "from": self.from_,
            "to": self.to,
            "account": self.account or DEFAULT_ACCOUNT,
            "threadId": self.thread,
        }
        return {"agentId": self.agent, "sender": sender}

    @property
    def repeat_hint(self) -> str:
        """A sentence on how to send the message again without sending it twice."""
        return f"If you repeat it, add `--message-id {self.message_id}`, so that it counts once."

    def warn_of_duplicate(self, *, is_duplicate: bool) -> bool:
        """Warn if the message was sent before, by another command; return whether it was."""
        is_duplicate = is_duplicate and not self.has_new_id
        if is_duplicate:
            complain("A message with this id was accepted before: this text was not used.")
        return is_duplicate

    def print_reference(self, reference: str, *, is_duplicate: bool, as_json: bool) -> int:
        """Print the reference of the sent message; return the exit status."""
        if as_json:
            return OutcomeReport().print_json(reference, is_duplicate=is_duplicate)
        echo(reference)
        return EXIT_REPLY

    def print_answer(self, answer: str, *, as_json: bool) -> int:
        """Print the answer to a chat command, such as /status; return the exit status."""
        text = answer or "Done."
        if as_json:
            return OutcomeReport(
                status="done", reply=[{"text": text, "isError": False}]
            ).print_json(None)
        if sys.stdout.isatty():
            from remoteclaw.cli.stream import AnswerStream

            AnswerStream().end([text])
        else:
            echo_text(text)
        return EXIT_REPLY
