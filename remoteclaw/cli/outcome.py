"""Waits for the outcome of a message, and prints its reply."""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.edge import complain, echo, echo_text
from remoteclaw.cli.files import ReplyFile, complain_of, note_on, save_files
from remoteclaw.errors import RemoteClawError

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.inbound import Accepted
    from remoteclaw.fleet.outcomes import Outcome

__all__ = [
    "EXIT_ERROR",
    "EXIT_NO_OUTCOME",
    "EXIT_REPLY",
    "outcome_json",
    "print_reply",
    "reference_of",
    "wait_option",
    "warn_without_workers",
]

#: How long `send` waits for the reply unless told otherwise, in seconds.
WAIT_S = 600.0
#: Interval of the check that Redis takes writes while a reply is waited for, in seconds.
WRITABLE_S = 3.0

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
    fleet: "Fleet",
    accepted: "Accepted",
    wait_s: float,
    *,
    as_json: bool = False,
    save: Path | None = None,
) -> int:
    """Wait for a message's outcome and print its reply; return the exit status.

    The files that came with it are saved in the directory `save`.
    """
    outcome = await _wait(fleet, accepted, wait_s)
    if outcome is None:
        return EXIT_NO_OUTCOME
    if not as_json:
        texts = [str(part["text"]) for part in outcome.reply if part["text"]]
        echo_text("\n\n".join(texts))
    files = await save_files(fleet, accepted.session.sid, outcome.reply, save)
    if as_json:
        echo_text(outcome_json(accepted, outcome, files))
    else:
        for file in files:
            if not file.problem:
                echo("")
                echo(note_on(file, reference_of(accepted)))
        if outcome.status == "failed":
            complain(f"It failed: `remoteclaw sessions trace {reference_of(accepted)}` says why.")
        elif outcome.status == "dead":
            complain("It was given up, and is kept: see `remoteclaw deadletters list`.")
    is_unsaved = complain_of(files)
    return EXIT_REPLY if outcome.status == "done" and not is_unsaved else EXIT_ERROR


async def _wait(fleet: "Fleet", accepted: "Accepted", wait_s: float) -> "Outcome | None":
    """Wait for the outcome; say what becomes of the message if it takes too long."""
    sid, reference = accepted.session.sid, reference_of(accepted)
    trace, stop = f"remoteclaw sessions trace {reference}", f"remoteclaw stop {sid[:8]}"
    hint = f"Look with `{trace}`, stop it with `{stop}`."
    try:
        outcome = await fleet.outcomes.read(sid, accepted.entry_id)
        if outcome is None or not outcome.is_final:
            await warn_without_workers(fleet)
            watch = asyncio.create_task(_warn_of_refused_writes(fleet))
            try:
                outcome = await fleet.outcomes.wait(
                    sid, accepted.entry_id, timeout_s=wait_s, told=_Pauses(hint)
                )
            finally:
                watch.cancel()
    except asyncio.CancelledError:  # Ctrl-C
        complain(f"Not waiting any longer; the message is not lost. {hint}")
        raise
    if outcome is None:
        complain(f"No outcome within {wait_s:g} s; the message is not lost. {hint}")
    return outcome


async def _warn_of_refused_writes(fleet: "Fleet") -> None:
    """Say once why nothing goes on, if Redis takes no writes while a reply is waited for."""
    from remoteclaw.fleet.fitness import write_problem

    while True:
        if problem := await write_problem(fleet.scripts.client):
            complain(problem)
            return
        await asyncio.sleep(WRITABLE_S)


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


def outcome_json(
    accepted: "Accepted", outcome: "Outcome | None", files: Sequence[ReplyFile] = ()
) -> str:
    """Return a message's outcome as JSON; `files` are those of its reply."""
    import orjson

    told = [
        {
            "name": file.file.name,
            "mime_type": file.file.mime_type,
            "size": file.file.size,
            "saved": file.saved,
            "problem": file.problem,
        }
        for file in files
    ]
    reply = [
        {"text": part["text"], "is_error": part["is_error"]}
        for part in (outcome.reply if outcome else ())
    ]
    data = {
        "reference": reference_of(accepted),
        "status": outcome.status if outcome else "accepted",
        "reply": reply,
        "files": told,
        "error": outcome.error if outcome else None,
        "usage": outcome.usage.plain() if outcome and outcome.usage else None,
        "duplicate": accepted.is_duplicate,
    }
    return orjson.dumps(data).decode()
