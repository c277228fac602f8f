"""Waits for the outcome of a message, and prints its reply."""

import contextlib
import math
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.output import complain, echo, echo_json, echo_text
from remoteclaw.errors import RemoteClawError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.inbound import Accepted
    from remoteclaw.fleet.outcomes import Outcome

__all__ = [
    "EXIT_ERROR",
    "EXIT_NO_OUTCOME",
    "EXIT_REPLY",
    "print_outcome",
    "print_reply",
    "reference_of",
    "wait_option",
    "warn_without_workers",
]

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


async def print_reply(
    fleet: "Fleet", accepted: "Accepted", wait_s: float, *, as_json: bool = False
) -> int:
    """Wait for a message's outcome and print its reply; return the exit status."""
    from remoteclaw.host.files import about_file
    from remoteclaw.messages import Attachment

    outcome = await _wait(fleet, accepted, wait_s)
    if outcome is None:
        return EXIT_NO_OUTCOME
    reference = reference_of(accepted)
    if as_json:
        print_outcome(accepted, outcome)
    else:
        echo_text("\n\n".join(str(part["text"]) for part in outcome.reply if part["text"]))
        for file in _files(outcome):
            hint = f"`remoteclaw sessions files {reference} DIR` saves it."
            echo("")
            echo(about_file(Attachment.model_validate(file), hint=hint))
        if outcome.status == "failed":
            complain(f"It failed: `remoteclaw sessions trace {reference}` says why.")
        elif outcome.status == "dead":
            complain("It was given up, and is kept: see `remoteclaw deadletters list`.")
    return EXIT_REPLY if outcome.status == "done" else EXIT_ERROR


async def _wait(fleet: "Fleet", accepted: "Accepted", wait_s: float) -> "Outcome | None":
    """Wait for the outcome; say what becomes of the message if it takes too long."""
    import asyncio

    sid, reference = accepted.session.sid, reference_of(accepted)
    trace, stop = f"remoteclaw sessions trace {reference}", f"remoteclaw stop {sid[:8]}"
    hint = f"Look with `{trace}`, stop it with `{stop}`."
    try:
        outcome = await fleet.outcomes.read(sid, accepted.entry_id)
        if outcome is None or not outcome.is_final:
            await warn_without_workers(fleet)
            outcome = await fleet.outcomes.wait(
                sid, accepted.entry_id, timeout_s=wait_s, told=_Pauses(hint)
            )
    except asyncio.CancelledError:  # Ctrl-C
        complain(f"Not waiting any longer; the message is not lost. {hint}")
        raise
    if outcome is None:
        complain(f"No outcome within {wait_s:g} s; the message is not lost. {hint}")
    return outcome


class _Pauses:
    """Says once why a message waits, where the chat is not told."""

    def __init__(self, hint: str) -> None:
        self._hint = hint
        self._has_told = False

    def __call__(self, outcome: "Outcome") -> None:
        last = outcome.steps[-1]
        if last.name == "postponed" and outcome.status == "accepted" and not self._has_told:
            self._has_told = True
            complain(f"It is asked again by itself {last.detail}. {self._hint}")


async def warn_without_workers(
    fleet: "Fleet", so: str = "so there is no answer", then: str = " The message waits."
) -> None:
    """Say that there is no worker, if there is none; `so` and `then` tell what follows from it."""
    with contextlib.suppress(RemoteClawError):  # what was stored is safe, which matters more
        if not any(view.is_ours for view in await fleet.workers.list()):
            complain(
                f"no rq worker is running yet, {so}: start some with `remoteclaw worker`.{then}"
            )


def reference_of(accepted: "Accepted") -> str:
    """Return the id of a message that people see and that `sessions trace` takes."""
    return f"{accepted.session.sid[:8]}-{accepted.entry_id}"


def print_outcome(accepted: "Accepted", outcome: "Outcome | None") -> None:
    """Print a message's outcome as JSON; without one, it is only accepted."""
    parts = outcome.reply if outcome else ()
    files = _files(outcome) if outcome else ()
    echo_json(
        {
            "reference": reference_of(accepted),
            "status": outcome.status if outcome else "accepted",
            "reply": [{name: part[name] for name in ("text", "is_error")} for part in parts],
            "files": [
                {name: file[name] for name in ("name", "mime_type", "size")} for file in files
            ],
            "error": outcome.error if outcome else None,
            "usage": outcome.usage.plain() if outcome and outcome.usage else None,
            "duplicate": accepted.is_duplicate,
        }
    )


def _files(outcome: "Outcome") -> list[dict[str, Any]]:
    """Return the files of a reply as its outcome describes them."""
    return [file for part in outcome.reply for file in part.get("attachments", ())]
