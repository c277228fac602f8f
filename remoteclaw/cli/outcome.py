"""The outcome of a message for `send`: the notices during the wait, and the printed reply."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.output import complain, echo, echo_json, echo_text

if TYPE_CHECKING:
    from remoteclaw.cli.stream import AnswerStream

#: The default of `send --wait`, in seconds.
WAIT_S = 600.0

EXIT_REPLY, EXIT_ERROR, EXIT_NO_OUTCOME = 0, 1, 3


def _check_wait(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("it is not a number.")
    return value


wait_option = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    callback=_check_wait,
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the reply; 0 for not at all.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeReport:
    """Prints an outcome of the gateway method `outcomes.wait`, as text or as JSON."""

    status: str = "accepted"
    reply: Sequence[Mapping[str, Any]] = ()
    files: Sequence[Mapping[str, Any]] = ()
    error: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None

    def print(self, reference: str, stream: "AnswerStream | None" = None) -> int:
        """Print the reply, without what `stream` has printed of it; return the exit status."""
        texts = [str(part["text"]) for part in self.reply if part["text"]]
        if stream:
            stream.end(texts)
        else:
            echo_text("\n\n".join(texts))
        for file in self.files:
            from remoteclaw.host.files import describe_file
            from remoteclaw.messages import Attachment

            hint = f"`remoteclaw sessions files {reference} DIR` saves it."
            echo("")
            known = {name: file[name] for name in ("name", "size", "blob")}
            echo(describe_file(Attachment(**known, mime_type=file["mimeType"]), hint=hint))
        if self.status == "failed":
            complain(f"The turn failed: `remoteclaw sessions trace {reference}` says why.")
        elif self.status == "dead":
            complain(
                "It was given up and is kept as a dead letter: see `remoteclaw deadletters list`."
            )
        return self.exit_status

    def print_json(self, reference: str | None, *, is_duplicate: bool = False) -> int:
        """Print the outcome as JSON; return the exit status."""
        echo_json(
            {
                "reference": reference,
                "status": self.status,
                "reply": [
                    {"text": part["text"], "isError": part["isError"]} for part in self.reply
                ],
                "files": [
                    {"name": file["name"], "mimeType": file["mimeType"], "size": file["size"]}
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
        """The exit status of a command that has waited for the outcome."""
        return EXIT_REPLY if self.status in ("accepted", "done") else EXIT_ERROR


class OutcomeWait:
    """Prints notices while `send` waits for the outcome of a message."""

    def __init__(self, reference: str, wait_s: float) -> None:
        self.wait_s = wait_s
        sid = reference.partition("-")[0]
        self._hint = (
            f"`remoteclaw sessions trace {reference}` shows it, `remoteclaw stop {sid}` stops it."
        )
        self.knows_pause = False
        """Whether the message's pause was printed; a parameter of `outcomes.wait`."""

    def print_pause(self, pause: str | None) -> None:
        """Print once that the message is postponed; `pause` is None if it is not."""
        if pause is not None and not self.knows_pause:
            self.knows_pause = True
            complain(f"The message is postponed {pause}. {self._hint}")

    @contextlib.contextmanager
    def unless_interrupted(self) -> Iterator[None]:
        """On Ctrl-C, print that the message is not lost, and raise the cancellation again."""
        import asyncio

        try:
            yield
        except asyncio.CancelledError:  # Ctrl-C
            complain(f"Not waiting any longer; the message is not lost. {self._hint}")
            raise

    def give_up(self) -> int:
        """Print that the wait is over without an outcome; return the exit status."""
        complain(f"No outcome within {self.wait_s:g} s; the message is not lost. {self._hint}")
        return EXIT_NO_OUTCOME


def complain_of_no_workers(
    effect: str = "so there is no answer", hint: str = " The message waits."
) -> None:
    """Print that no worker runs, with the `effect` of this and a `hint`."""
    complain(f"no rq worker is running yet, {effect}: start some with `remoteclaw worker`.{hint}")
