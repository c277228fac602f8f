"""The outcome of a message: the wait for it, and its reply as it is printed."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.output import complain, echo, echo_json, echo_text

if TYPE_CHECKING:
    from remoteclaw.cli.stream import AnswerStream

#: How long `send` waits for the reply unless told otherwise, in seconds.
WAIT_S = 600.0

EXIT_REPLY, EXIT_ERROR, EXIT_NO_OUTCOME = 0, 1, 3


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("it is not a number.")
    return value


wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    callback=_seconds,
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the reply; 0 for not at all.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldOutcome:
    """The outcome of a message as `chat.outcome` tells it, and how it is printed."""

    status: str = "accepted"
    reply: Sequence[Mapping[str, Any]] = ()
    files: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None

    def print(self, reference: str, stream: "AnswerStream | None" = None) -> int:
        """Print its reply, of which a stream has printed a part; return the exit status."""
        texts = [str(part["text"]) for part in self.reply if part["text"]]
        if stream:
            stream.end(texts)
        else:
            echo_text("\n\n".join(texts))
        for file in self.files:
            from remoteclaw.host.files import about_file
            from remoteclaw.messages import Attachment

            hint = f"`remoteclaw sessions files {reference} DIR` saves it."
            echo("")
            known = {name: file[name] for name in ("name", "size", "blob")}
            echo(about_file(Attachment(**known, mime_type=file["mimeType"]), hint=hint))
        if self.status == "failed":
            complain(f"It failed: `remoteclaw sessions trace {reference}` says why.")
        elif self.status == "dead":
            complain("It was given up, and is kept: see `remoteclaw deadletters list`.")
        return self.exit_status

    def print_json(self, reference: str | None, *, is_duplicate: bool = False) -> int:
        """Print it as JSON; return the exit status."""
        echo_json(
            {
                "reference": reference,
                "status": self.status,
                "reply": [
                    {"text": part["text"], "is_error": part["isError"]} for part in self.reply
                ],
                "files": [
                    {"name": file["name"], "mime_type": file["mimeType"], "size": file["size"]}
                    for file in self.files
                ],
                "error": self.error,
                "usage": self.usage,
                "duplicate": is_duplicate,
            }
        )
        return self.exit_status

    @property
    def exit_status(self) -> int:
        """The exit status of a command that has waited for it."""
        return EXIT_REPLY if self.status in ("accepted", "done") else EXIT_ERROR


class Wait:
    """A wait for a message's outcome: what is said meanwhile, and when it is over."""

    def __init__(self, reference: str, seconds: float) -> None:
        self.reference = reference
        self.seconds = seconds
        sid = reference.partition("-")[0]
        self._hint = (
            f"Look with `remoteclaw sessions trace {reference}`, "
            f"stop it with `remoteclaw stop {sid}`."
        )
        self.knows_pause = False

    def pause(self, why: str | None) -> None:
        """Say once why a message waits, where the chat is not told."""
        if why is not None and not self.knows_pause:
            self.knows_pause = True
            complain(f"It is asked again by itself {why}. {self._hint}")

    @contextlib.contextmanager
    def unless_interrupted(self) -> Iterator[None]:
        """Say what becomes of the message when the person won't wait any longer."""
        import asyncio

        try:
            yield
        except asyncio.CancelledError:  # Ctrl-C
            complain(f"Not waiting any longer; the message is not lost. {self._hint}")
            raise

    def give_up(self) -> int:
        """Say that it takes too long; return the exit status."""
        complain(f"No outcome within {self.seconds:g} s; the message is not lost. {self._hint}")
        return EXIT_NO_OUTCOME


def complain_of_no_workers(
    so: str = "so there is no answer", then: str = " The message waits."
) -> None:
    """Say that there is no worker."""
    complain(f"no rq worker is running yet, {so}: start some with `remoteclaw worker`.{then}")
