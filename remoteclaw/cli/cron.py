"""Commands for cron jobs: `cron`."""

import re
from collections.abc import Callable
from typing import Any

import click

from remoteclaw.cli.access import ask
from remoteclaw.cli.output import (
    clock,
    complain,
    echo,
    echo_json,
    facts,
    json_option,
    listing,
    short_id,
    table,
)
from remoteclaw.errors import NotFound

RUN_HEADS = ("JOB", "DUE", "STATUS", "TOOK", "MESSAGE")


@click.group()
def cron() -> None:
    """Send messages to sessions at set times.

    A JOB is named by its name, its id, or the start of that.
    """


_of_job = click.argument("job")


def _job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say when a job is due, and what is done where it goes wrong."""
    options: tuple[tuple[str, str | None, Any, str], ...] = (
        ("--at", "TIME", str, "Once, at this time (ISO 8601)."),
        ("--every", "SECONDS", click.IntRange(min=60), "Every so many seconds, 60 at least."),
        ("--cron", "FIELDS", str, 'By the clock: "0 9 * * MON-FRI".'),
        ("--tz", "ZONE", str, "The time zone of --at and --cron. "
         "[default: the agent's, else this computer's]"),
        ("--misfire", None, click.Choice(("skip", "run_once")), "A run that was missed by more "
         "than an hour is skipped, or happens once at any age. [default: skip]"),
        ("--alert-after", "NUMBER", int, "Tell its chat after so many failures in a row; 0 for "
         "never. [default: 0]"),
    )  # fmt: skip
    for name, metavar, kind, words in reversed(options):
        command = click.option(name, metavar=metavar, type=kind, default=None, help=words)(command)
    return command


def _changes(options: dict[str, Any]) -> dict[str, Any]:
    """Return what options say of a job, as the gateway takes it."""
    said = {name: value for name, value in options.items() if value is not None}
    kinds = ("at", "every", "cron")
    schedule = {name: said.pop(name) for name in (*kinds, "tz") if name in said}
    if schedule and len(schedule.keys() & set(kinds)) != 1:
        raise click.UsageError("Say when: one of --at, --every and --cron.")
    if "alert_after" in said:
        said["alertAfter"] = said.pop("alert_after")
    return {**said, "schedule": schedule} if schedule else said


@cron.command("list")
@json_option
def list_jobs(as_json: bool) -> None:
    """List the jobs: when each is due next, how its last run ended."""
    jobs = ask("cron.list").jobs
    listing(
        jobs,
        as_json=as_json,
        plain=_plain,
        heads=("JOB", "NEXT", "LAST", "SCHEDULE", "SESSION", "NAME"),
        row=lambda job: (
            job.id,
            _next(job),
            _last(job),
            _words(job),
            short_id(job.session_key),
            job.name,
        ),
        empty="There are no cron jobs: `remoteclaw cron add` makes one.",
        narrows="SCHEDULE",
    )
    if jobs and ask("cron.status").scheduler == "absent":
        complain("No scheduler runs: start `remoteclaw up`, or `remoteclaw sweep`.")


@cron.command("show")
@_of_job
@json_option
def show_job(job: str, as_json: bool) -> None:
    """Show a job and its last runs."""
    found = _named(job)
    runs = ask("cron.runs", limit=5, jobId=found.id).runs
    if as_json:
        echo_json({**_plain(found), "runs": [_plain(run) for run in runs]})
        return
    facts(
        {
            "name": found.name,
            "schedule": _words(found),
            "session": found.session_key,
            "message": found.message,
            "next": _next(found),
            "last": " ".join(filter(None, (_last(found), found.last_error))),
            "failures": found.failures,
            "misfire": found.misfire,
            "alert": f"after {found.alert_after} failures" if found.alert_after else "never",
        }
    )
    if runs:
        echo("")
        table(RUN_HEADS, map(_run_row, runs))


@cron.command("add")
@click.option("--name", required=True, help="What it is called.")
@click.option("--message", required=True, help="What the session's agent is told each time.")
@click.option(
    "--session", required=True, help="The session: its label, title, key, or the start of its id."
)
@_job_options
@click.option("--paused", is_flag=True, help="Don't begin yet: `cron resume` does.")
def add_job(session: str, paused: bool, **options: Any) -> None:
    """Add a job: one of --at, --every and --cron says when it is due. Prints its id."""
    job = _changes(options)
    if "schedule" not in job:
        raise click.UsageError("Say when: one of --at, --every and --cron.")
    made = ask("cron.add", job={**job, "sessionKey": session, "enabled": not paused}).job
    echo(made.id)
    _print_next(made, "It is due first on")


@cron.command("edit")
@_of_job
@click.option("--name", help="What it is called.")
@click.option("--message", help="What the session's agent is told each time.")
@_job_options
def edit_job(job: str, **options: Any) -> None:
    """Change a job; what is not given stays. A schedule is replaced as a whole."""
    updates = _changes(options)
    if not updates:
        raise click.UsageError("Say what is to change: `remoteclaw cron edit --help` lists it.")
    _update(job, updates)


@cron.command("pause")
@_of_job
def pause_job(job: str) -> None:
    """Pause a job until it is resumed."""
    _update(job, {"enabled": False})


@cron.command("resume")
@_of_job
def resume_job(job: str) -> None:
    """Resume a job: it is due at its next time."""
    _update(job, {"enabled": True})


@cron.command("run")
@_of_job
@click.option("--force", is_flag=True, help="Also while a run of it is unfinished.")
def run_job(job: str, force: bool) -> None:
    """Run a job now; it is due next as before. Prints the run's name."""
    echo(ask("cron.run", jobId=_id_of(job), force=force).run_id)


@cron.command("remove")
@_of_job
def remove_job(job: str) -> None:
    """Remove a job."""
    is_gone = ask("cron.remove", jobId=_id_of(job)).removed
    echo("It is gone." if is_gone else "There was no such job.")


@cron.command("runs")
@click.argument("job", required=False)
@click.option("--limit", metavar="NUMBER", type=click.IntRange(1, 1000), default=20,
              show_default=True, help="How many, newest first.")  # fmt: skip
@json_option
def list_runs(job: str | None, limit: int, as_json: bool) -> None:
    """List the runs of one job or of all, newest first."""
    runs = ask("cron.runs", limit=limit, **({"jobId": _id_of(job)} if job else {})).runs
    empty = "No job has run yet."
    listing(runs, as_json=as_json, plain=_plain, heads=RUN_HEADS, row=_run_row, empty=empty)


# ---------------------------------------------------------------------------------------------
# Asking


def _update(job: str, updates: dict[str, Any]) -> None:
    _print_next(ask("cron.update", jobId=_id_of(job), updates=updates).job, "It is due next on")


def _id_of(job: str) -> str:
    """Return a job's id; one that is given whole may be that of a job that is gone."""
    return job if re.fullmatch("[0-9a-f]{16}", job) else str(_named(job).id)


def _named(job: str) -> Any:
    """Return the job with a name, an id, or an id that begins so."""
    jobs = ask("cron.list").jobs
    found = [each for each in jobs if job in (each.id, each.name)]
    found = found or [each for each in jobs if job and each.id.startswith(job)]
    if len(found) == 1:
        return found[0]
    listed = "`remoteclaw cron list` shows those there are"
    if found:
        raise NotFound(f"{job!r} fits {len(found)} cron jobs: give its id; {listed}.")
    raise NotFound(f"There is no cron job {job!r}: {listed}.")


# ---------------------------------------------------------------------------------------------
# Words


def _plain(result: Any) -> Any:
    return result.model_dump(mode="json", by_alias=True)


def _print_next(job: Any, words: str) -> None:
    if job.next_run_ms:
        echo(f"{words} {clock(job.next_run_ms)}.", err=True)
    elif not job.enabled:
        echo("It is paused.", err=True)


def _run_row(run: Any) -> tuple[object, ...]:
    took = None if run.duration_ms is None else f"{run.duration_ms / 1000:.1f} s"
    told = (run.run_id, "(asked for)" if run.is_manual else None, run.detail)
    return run.job_id, clock(run.due_ms), run.status, took, " ".join(filter(None, told))


def _next(job: Any) -> str:
    if job.next_run_ms:
        return clock(job.next_run_ms)
    return "never" if job.enabled else "off"


def _last(job: Any) -> str:
    return "running" if job.is_running else job.last_status or ""


def _words(job: Any) -> str:
    """Return a schedule in words."""
    kinds = dict(job.schedule)
    zone = kinds.pop("tz", None)
    ((kind, value),) = kinds.items()
    unit = " s" if kind == "every" else f" {zone}" if zone else ""
    return f"{kind} {value}{unit}"
