"""Commands for cron jobs: `cron`. They call as the gateway's operators do."""

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import clock, load, on_fleet
from remoteclaw.cli.edge import complain, echo, echo_text
from remoteclaw.errors import CallRefused
from remoteclaw.host.terminal import login_name, one_line

if TYPE_CHECKING:
    from remoteclaw.tools.base import Result
    from remoteclaw.tools.cron import CronJob, CronRun

__all__ = ["cron"]


def _job_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or re.fullmatch("[0-9a-f]{16}", value):
        return value
    raise click.BadParameter("it has 16 hexadecimal digits; `remoteclaw cron list` shows it.")


@click.group()
def cron() -> None:
    """Send messages to sessions at set times."""


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _job_options(*, is_new: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that say when a job is due, and what is done where it goes wrong."""
    options = (
        ("--at", "TIME", str, "Once, at this time (ISO 8601)."),
        ("--every", "SECONDS", int, "Every so many seconds, 60 at least."),
        ("--cron", "FIELDS", str, 'By the clock: "0 9 * * MON-FRI".'),
        ("--tz", "ZONE", str, "The time zone of --at and --cron. "
         "[default: the agent's, else this computer's]"),
        ("--stagger", "SECONDS", int, "By how much --cron may be put off at most, 0 for exactly "
         "then. [default: 300 at full hours, else 0]"),
        ("--misfire", None, click.Choice(("skip", "run_once")), "A run that was missed by more "
         "than an hour is skipped, or happens once at any age. [default: skip]"),
        ("--delete-after-run/--keep", None, None, "Remove it after a successful run. "
         "[default: with --at]"),
        ("--alert-after", "NUMBER", int, "Tell its chat after so many failures in a row; 0 for "
         "never. [default: 0]"),
    )  # fmt: skip

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for name, metavar, kind, words in reversed(options):
            # What is changed has no defaults: it stays as it is.
            told = words if is_new or name in ("--tz", "--stagger") else words.partition(" [")[0]
            command = click.option(name, metavar=metavar, type=kind, default=None, help=told)(
                command
            )
        return command

    return add


def _changes(options: dict[str, Any]) -> dict[str, Any]:
    """Return what options say of a job, as the gateway takes it."""
    said = {name: value for name, value in options.items() if value is not None}
    kinds = ("at", "every", "cron")
    schedule = {name: said.pop(name) for name in (*kinds, "tz", "stagger") if name in said}
    if schedule and len(schedule.keys() & set(kinds)) != 1:
        raise click.UsageError("Say when: one of --at, --every and --cron.")
    names = {"delete_after_run": "deleteAfterRun", "alert_after": "alertAfter"}
    told = {names.get(name, name): value for name, value in said.items()}
    return {**told, "schedule": schedule} if schedule else told


@cron.command("list")
@_json
def list_jobs(as_json: bool) -> None:
    """List the jobs: when each is due next, how its last run ended."""
    from remoteclaw.tools.cron import CronStatus

    status = _ask("cron.status", {})
    assert isinstance(status, CronStatus)
    jobs = _jobs()
    if as_json:
        echo_text(_as_json([_plain(job) for job in jobs]))
    else:
        head = f"{'JOB':<16}  {'NEXT':<19}  {'LAST':<11}  {'SCHEDULE':<30}  {'SESSION':<8}  NAME"
        echo(head)
        for job in jobs:
            schedule = one_line(_words(job), most=30)
            name = one_line(job.name)
            line = f"{job.id}  {_next(job):<19}  {_last(job):<11}  {schedule:<30}"
            echo(f"{line}  {_sid(job):<8}  {name}")
    if jobs and status.scheduler == "absent":
        complain("No scheduler runs: start `remoteclaw up`, or `remoteclaw sweep`.")


@cron.command("show")
@click.argument("job", callback=_job_id)
@_json
def show_job(job: str, as_json: bool) -> None:
    """Show a job and its last runs."""
    found = _job(job)
    runs = _runs(job, limit=5)
    if as_json:
        echo_text(_as_json({**_plain(found), "runs": [_plain(run) for run in runs]}))
        return
    facts = {
        "name": found.name,
        "schedule": _words(found),
        "session": found.session_key,
        "message": found.message,
        "next": _next(found),
        "last": " ".join(filter(None, (_last(found), found.last_error))),
        "failures": str(found.failures),
        "misfire": found.misfire,
        "afterwards": "it is removed, if it went well" if found.delete_after_run else "it is kept",
        "alert": f"after {found.alert_after} failures" if found.alert_after else "never",
    }
    for name, value in facts.items():
        echo(f"{name:<10}  {one_line(value)}")
    if runs:
        echo("")
        _print_runs(runs)


@cron.command("add")
@click.option("--name", required=True, help="What it is called.")
@click.option("--message", required=True, help="What the session's agent is told each time.")
@click.option(
    "--session", required=True, help="The session's key, or the start of its id if there is one."
)
@_job_options(is_new=True)
@click.option("--paused", is_flag=True, help="Don't begin yet: `cron resume` does.")
def add_job(session: str, paused: bool, **options: Any) -> None:
    """Add a job: one of --at, --every and --cron says when it is due. Prints its id."""
    from remoteclaw.tools.cron import JobResult

    job = _changes(options)
    if "schedule" not in job:
        raise click.UsageError("Say when: one of --at, --every and --cron.")
    made = _ask("cron.add", {"job": {**job, "sessionKey": session, "enabled": not paused}})
    assert isinstance(made, JobResult)
    echo(made.job.id)
    _print_next(made.job, "It is due first on")


@cron.command("edit")
@click.argument("job", callback=_job_id)
@click.option("--name", help="What it is called.")
@click.option("--message", help="What the session's agent is told each time.")
@_job_options(is_new=False)
def edit_job(job: str, **options: Any) -> None:
    """Change a job; what is not given stays. A schedule is replaced as a whole."""
    updates = _changes(options)
    if not updates:
        raise click.UsageError("Say what is to change: `remoteclaw cron edit --help` lists it.")
    _update(job, updates)


@cron.command("pause")
@click.argument("job", callback=_job_id)
def pause_job(job: str) -> None:
    """Pause a job until it is resumed."""
    _update(job, {"enabled": False})


@cron.command("resume")
@click.argument("job", callback=_job_id)
def resume_job(job: str) -> None:
    """Resume a job: it is due at its next time."""
    _update(job, {"enabled": True})


@cron.command("run")
@click.argument("job", callback=_job_id)
@click.option("--force", is_flag=True, help="Also while a run of it is unfinished.")
def run_job(job: str, force: bool) -> None:
    """Run a job now; it is due next as before. Prints the run's name."""
    from remoteclaw.tools.cron import RunResult

    begun = _ask("cron.run", {"jobId": job, "force": force})
    assert isinstance(begun, RunResult)
    echo(begun.run_id)


@cron.command("remove")
@click.argument("job", callback=_job_id)
def remove_job(job: str) -> None:
    """Remove a job."""
    from remoteclaw.tools.cron import RemovedResult

    removed = _ask("cron.remove", {"jobId": job})
    assert isinstance(removed, RemovedResult)
    echo("It is gone." if removed.removed else "There was no such job.")


@cron.command("runs")
@click.argument("job", required=False, callback=_job_id)
@click.option("--limit", metavar="NUMBER", type=click.IntRange(1, 1000), default=20,
              show_default=True, help="How many, newest first.")  # fmt: skip
@_json
def list_runs(job: str | None, limit: int, as_json: bool) -> None:
    """List the runs of one job or of all, newest first."""
    runs = _runs(job, limit=limit)
    if as_json:
        echo_text(_as_json([_plain(run) for run in runs]))
    else:
        _print_runs(runs)


def _print_runs(runs: "Sequence[CronRun]") -> None:
    echo(f"{'JOB':<16}  {'DUE':<19}  {'STATUS':<11}  {'TOOK':<8}  MESSAGE")
    for run in runs:
        took = "" if run.duration_ms is None else f"{run.duration_ms / 1000:.1f} s"
        told = " ".join(filter(None, (run.run_id, "(asked for)" if run.is_manual else "",
                                      run.detail)))  # fmt: skip
        line = f"{run.job_id}  {clock(run.due_ms)}  {run.status:<11}  {took:<8}  {one_line(told)}"
        echo(line.rstrip())


def _print_next(job: "CronJob", words: str) -> None:
    if job.next_run_ms:
        echo(f"{words} {clock(job.next_run_ms)}.", err=True)


# ---------------------------------------------------------------------------------------------
# Asking


def _update(job_id: str, updates: dict[str, Any]) -> None:
    from remoteclaw.tools.cron import JobResult

    changed = _ask("cron.update", {"jobId": job_id, "updates": updates})
    assert isinstance(changed, JobResult)
    _print_next(changed.job, "It is due next on")


def _jobs() -> "Sequence[CronJob]":
    from remoteclaw.tools.cron import JobsResult

    found = _ask("cron.list", {})
    assert isinstance(found, JobsResult)
    return found.jobs


def _job(job_id: str) -> "CronJob":
    found = next((job for job in _jobs() if job.id == job_id), None)
    if found is None:
        raise CallRefused("NOT_FOUND", f"There is no cron job {job_id}.")
    return found


def _runs(job_id: str | None, *, limit: int) -> "Sequence[CronRun]":
    from remoteclaw.tools.cron import RunsResult

    found = _ask("cron.runs", {"limit": limit} | ({"jobId": job_id} if job_id else {}))
    assert isinstance(found, RunsResult)
    return found.runs


def _ask(method: str, params: dict[str, Any]) -> "Result":
    """Call a method of the gateway in this process, with the rights of an operator."""
    from remoteclaw.fleet import Fleet
    from remoteclaw.gateway.dispatch import Dispatcher
    from remoteclaw.gateway.methods.cron import HANDLERS
    from remoteclaw.gateway.principals import Operator
    from remoteclaw.tools.catalog import METHODS

    home, config = load()
    methods = {name: METHODS[name] for name in HANDLERS}
    operator = Operator(name=login_name(), scope="admin", credential="cli")

    async def run(fleet: Fleet) -> "Result":
        dispatcher = Dispatcher(fleet, home, lambda: config, HANDLERS, methods=methods)
        answer, _ = await dispatcher.call(operator, method, params)
        return answer

    answer: Result = on_fleet(run)
    return answer


# ---------------------------------------------------------------------------------------------
# Words


def _plain(result: "Result") -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True)


def _as_json(data: Any) -> str:
    return json.dumps(data, indent=2)


def _next(job: "CronJob") -> str:
    if job.next_run_ms:
        return clock(job.next_run_ms)
    return "never" if job.enabled else "off"


def _last(job: "CronJob") -> str:
    return "running" if job.is_running else job.last_status or ""


def _sid(job: "CronJob") -> str:
    from remoteclaw.messages import SessionKey

    return SessionKey.parse(job.session_key).sid[:8]


def _words(job: "CronJob") -> str:
    """Return a schedule in words."""
    kinds = dict(job.schedule)
    zone = kinds.pop("tz", None)
    kinds.pop("stagger", None)
    ((kind, value),) = kinds.items()
    unit = " s" if kind == "every" else f" {zone}" if zone else ""
    return f"{kind} {value}{unit}"
