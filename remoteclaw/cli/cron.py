"""Commands for cron jobs: `cron`."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.completion import complete_sessions
from remoteclaw.cli.output import (
    complain,
    echo,
    echo_json,
    format_time,
    json_option,
    print_facts,
    print_result,
    print_table,
    short_id,
)
from remoteclaw.clock import format_exact_duration

RUN_HEADERS = ("JOB", "DUE", "STATUS", "TOOK", "MESSAGE")


@click.group()
def cron() -> None:
    """Send messages to sessions at set times.

    JOB is a job's name, its id, or the start of its id.
    """


_of_job = click.argument("job")


def _job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for a job's name and zone, and for runs that are missed or fail."""
    options: tuple[tuple[str, str | None, Any, str], ...] = (
        ("--name", None, str, "The name of the job. [default: the beginning of the message]"),
        ("--tz", "ZONE", str, "The time zone of WHEN. [default: the agent's, else the fleet's, "
         "else this computer's]"),
        ("--misfire", None, click.Choice(("skip", "run_once")), "Skip a run that was missed by "
         "more than an hour, or run it once, however late it is. [default: skip]"),
        ("--alert-after", "NUMBER", int, "Notify the chat after this many failures in a row; 0 "
         "for never. [default: 0]"),
    )  # fmt: skip
    for name, metavar, kind, text in reversed(options):
        command = click.option(name, metavar=metavar, type=kind, default=None, help=text)(command)
    return command


def _job_fields(when: str | None, tz: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that the options set, by the gateway's names."""
    fields = {name: value for name, value in options.items() if value is not None}
    if "alert_after" in fields:
        fields["alertAfter"] = fields.pop("alert_after")
    if when is not None:
        fields["schedule"] = {"words": when, **({"tz": tz} if tz else {})}
    elif tz:
        raise click.UsageError("--tz is the zone of --when: give both.")
    return fields


@cron.command("list")
@json_option
def list_jobs(as_json: bool) -> None:
    """List the jobs, with the next run and the last outcome of each."""
    result = call_method("cron.list")
    print_result(
        result,
        "jobs",
        as_json=as_json,
        headers=("JOB", "NEXT", "LAST", "SCHEDULE", "SESSION", "NAME"),
        row=lambda job: (
            job["id"],
            _next(job),
            _last(job),
            _schedule_text(job),
            short_id(job["sessionKey"]),
            job["name"],
        ),
        empty="There are no cron jobs: `remoteclaw cron add` makes one.",
        cut_column="SCHEDULE",
    )
    if result["jobs"] and call_method("cron.status")["scheduler"] == "absent":
        complain("No scheduler runs: start `remoteclaw up`, or `remoteclaw sweep`.")


@cron.command("show")
@_of_job
@json_option
def show_job(job: str, as_json: bool) -> None:
    """Show a job and its last five runs."""
    result = call_method("cron.show", name=job)
    if as_json:
        echo_json(result)
        return
    found, runs = result["job"], result["runs"]
    alert = found["alertAfter"]
    print_facts(
        {
            "name": found["name"],
            "schedule": _schedule_text(found),
            "session": found["sessionKey"],
            "message": found["message"],
            "next": _next(found),
            "last": " ".join(filter(None, (_last(found), found["lastError"]))),
            "failures": found["failures"],
            "misfire": found["misfire"],
            "alert": f"after {alert} failures" if alert else "never",
        }
    )
    if runs:
        echo("")
        print_table(RUN_HEADERS, map(_run_row, runs))


@cron.command("add")
@click.argument("when")
@click.argument("words", metavar="MESSAGE", nargs=-1, required=True)
@click.option(
    "--session",
    shell_complete=complete_sessions,
    help="The session: its label, title, key, or the start of its id. "
    "[default: your conversation with the agent]",
)
@_job_options
@click.option("--paused", is_flag=True, help="Add it paused; `cron resume` starts it.")
def add_job(
    when: str,
    words: tuple[str, ...],
    session: str | None,
    tz: str | None,
    paused: bool,
    **options: Any,
) -> None:
    """Send MESSAGE to a session at set times; print the job's id.

    WHEN is in words, such as "every weekday at 9", "every 20 minutes", "on the 1st of every month
    at 8", "tomorrow at noon" or "in 45 minutes", or has the five fields of cron.
    The answer goes to the session's chat.
    """
    job = {**_job_fields(when, tz, options), "message": " ".join(words), "enabled": not paused}
    added = call_method("cron.add", job={**job, **({"sessionKey": session} if session else {})})
    echo(added["job"]["id"])
    _print_upcoming(added)


@cron.command("edit")
@_of_job
@click.option("--when", metavar="WHEN", help="When it is due, as in `cron add`.")
@click.option("--message", help="The message that each run sends to the session.")
@_job_options
def edit_job(job: str, when: str | None, tz: str | None, **options: Any) -> None:
    """Change a job; options that are left out change nothing.

    A new schedule replaces the old one as a whole.
    """
    updates = _job_fields(when, tz, options)
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
    """Resume a paused job: it runs at its next scheduled time."""
    _update(job, {"enabled": True})


@cron.command("run")
@_of_job
@click.option("--force", is_flag=True, help="Run it even if a run of it is unfinished.")
def run_job(job: str, force: bool) -> None:
    """Run a job now and print the run's id; its schedule stays the same."""
    echo(call_method("cron.run", jobId=_id_of(job), force=force)["runId"])


@cron.command("remove")
@_of_job
def remove_job(job: str) -> None:
    """Remove a job."""
    is_gone = call_method("cron.remove", jobId=_id_of(job))["removed"]
    echo("It is gone." if is_gone else "There was no such job.")


@cron.command("runs")
@click.argument("job", required=False)
@click.option("--limit", metavar="NUMBER", type=click.IntRange(1, 1000), default=20,
              show_default=True, help="The maximum number of runs.")  # fmt: skip
@json_option
def list_runs(job: str | None, limit: int, as_json: bool) -> None:
    """List the runs of one job or of all, newest first."""
    result = call_method("cron.runs", limit=limit, jobId=_id_of(job) if job else None)
    print_result(
        result,
        "runs",
        as_json=as_json,
        headers=RUN_HEADERS,
        row=_run_row,
        empty="No job has run yet.",
    )


# ---------------------------------------------------------------------------------------------
# Calls


def _update(job: str, updates: dict[str, Any]) -> None:
    _print_upcoming(call_method("cron.update", jobId=_id_of(job), updates=updates))


def _id_of(job: str) -> str:
    """Return the id of the job that `job` names: its name, its id or the start of its id.

    A complete id is returned without a lookup, because the job may have been removed.
    """
    is_id = re.fullmatch("[0-9a-f]{16}", job)
    return job if is_id else str(call_method("cron.show", name=job)["job"]["id"])


# ---------------------------------------------------------------------------------------------
# Formatting


def _print_upcoming(changed: Mapping[str, Any]) -> None:
    """Print what a job's schedule means, and when the job is due next."""
    job = changed["job"]
    times = map(_time, changed["upcoming"])
    due = f"next {', '.join(times)}" if changed["upcoming"] else _next(job)
    echo(f"{_schedule_text(job)}: {due}", err=True)


def _run_row(run: Mapping[str, Any]) -> tuple[object, ...]:
    took = None if run["durationMs"] is None else format_exact_duration(run["durationMs"])
    message = (run["runId"], "(run by hand)" if run["isManual"] else None, run["detail"])
    due = format_time(run["dueMs"])
    return run["jobId"], due, run["status"], took, " ".join(filter(None, message))


def _next(job: Mapping[str, Any]) -> str:
    """Return when a job is due next, in the zone of its schedule."""
    if job["nextRun"]:
        return _time(job["nextRun"])
    return "never" if job["enabled"] else "off"


def _time(iso_text: str) -> str:
    return f"{datetime.fromisoformat(iso_text):%a %Y-%m-%d %H:%M}"


def _last(job: Mapping[str, Any]) -> str:
    return "running" if job["isRunning"] else job["lastStatus"] or ""


def _schedule_text(job: Mapping[str, Any]) -> str:
    """Return a job's schedule as text, such as `every weekday at 09:00 (Europe/Berlin)`."""
    return f"{job['words']} ({job['zone']})"
