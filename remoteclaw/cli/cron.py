"""The commands about cron jobs: `cron`. They ask as the gateway's operators do."""

import re
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import clock, load, on_fleet
from remoteclaw.cli.edge import complain
from remoteclaw.terminal import login_name, one_line

if TYPE_CHECKING:
    from remoteclaw.contract.base import Result
    from remoteclaw.contract.cron import CronJob

__all__ = ["cron"]


def _job_id(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or re.fullmatch("[0-9a-f]{16}", value):
        return value
    raise click.BadParameter("it has 16 hexadecimal digits; `remoteclaw cron list` shows it.")


@click.group()
def cron() -> None:
    """Have sessions given messages by the clock."""


@cron.command("list")
def list_jobs() -> None:
    """List the jobs, oldest first, and when each is due next."""
    from remoteclaw.contract.cron import CronStatus, JobsResult

    status = _ask("cron.status", {})
    jobs = _ask("cron.list", {})
    assert isinstance(status, CronStatus)
    assert isinstance(jobs, JobsResult)
    click.echo(f"{'JOB':<16}  {'NEXT':<19}  {'SCHEDULE':<30}  {'SESSION':<8}  NAME")
    for job in jobs.jobs:
        upcoming = clock(job.next_run_ms) if job.next_run_ms else "never" if job.enabled else "off"
        schedule = one_line(_words(job), most=30)
        name = one_line(job.name)
        click.echo(f"{job.id}  {upcoming:<19}  {schedule:<30}  {_sid(job):<8}  {name}")
    if jobs.jobs and status.scheduler == "absent":
        complain("Nothing runs that fires them: run `remoteclaw up`, or `remoteclaw sweep`.")


@cron.command("add")
@click.option("--name", required=True, help="What it is called.")
@click.option("--message", required=True, help="What the session's agent is told each time.")
@click.option(
    "--session", required=True, help="The session's key, or the start of its id if there is one."
)
@click.option("--at", metavar="TIME", help="Once, at this time (ISO 8601).")
@click.option("--every", metavar="SECONDS", type=int, help="Every so many seconds, 60 at least.")
@click.option("--cron", "expression", metavar="FIELDS", help='By the clock: "0 9 * * MON-FRI".')
@click.option("--tz", metavar="ZONE", help="The time zone of --at and --cron. [default: UTC]")
def add_job(
    name: str,
    message: str,
    session: str,
    at: str | None,
    every: int | None,
    expression: str | None,
    tz: str | None,
) -> None:
    """Add a job: one of --at, --every and --cron says when it is due. Prints its id."""
    from remoteclaw.contract.cron import JobResult

    kinds = {"at": at, "every": every, "cron": expression, "tz": tz}
    schedule = {kind: value for kind, value in kinds.items() if value is not None}
    if len(schedule.keys() - {"tz"}) != 1:
        raise click.UsageError("Say when: one of --at, --every and --cron.")
    job = {"name": name, "message": message, "sessionKey": session, "schedule": schedule}
    made = _ask("cron.add", {"job": job})
    assert isinstance(made, JobResult)
    click.echo(made.job.id)
    if made.job.next_run_ms:
        click.echo(f"It is due first on {clock(made.job.next_run_ms)}.", err=True)


@cron.command("remove")
@click.argument("job", callback=_job_id)
def remove_job(job: str) -> None:
    """Remove a job."""
    from remoteclaw.contract.cron import RemovedResult

    removed = _ask("cron.remove", {"jobId": job})
    assert isinstance(removed, RemovedResult)
    click.echo("It is gone." if removed.removed else "There was no such job.")


@cron.command("runs")
@click.argument("job", required=False, callback=_job_id)
@click.option("--limit", metavar="NUMBER", type=click.IntRange(1, 1000), default=20,
              show_default=True, help="How many, newest first.")  # fmt: skip
def list_runs(job: str | None, limit: int) -> None:
    """List when jobs were due and what became of it: of one job, or of all."""
    from remoteclaw.contract.cron import RunsResult

    runs = _ask("cron.runs", {"limit": limit} | ({"jobId": job} if job else {}))
    assert isinstance(runs, RunsResult)
    click.echo(f"{'JOB':<16}  {'DUE':<19}  {'STATUS':<7}  MESSAGE")
    for run in runs.runs:
        told = one_line(run.detail or run.run_id or "")
        click.echo(f"{run.job_id}  {clock(run.due_ms)}  {run.status:<7}  {told}".rstrip())


def _ask(method: str, params: dict[str, Any]) -> "Result":
    """Call a method of the gateway here, as whoever may write to Redis can."""
    from remoteclaw.contract import METHODS
    from remoteclaw.fleet import Fleet
    from remoteclaw.gateway.dispatch import Dispatcher
    from remoteclaw.gateway.methods.cron import HANDLERS
    from remoteclaw.gateway.principals import Operator

    home, config = load()
    methods = {name: METHODS[name] for name in HANDLERS}
    operator = Operator(name=login_name(), scope="admin", credential="cli")

    async def run(fleet: Fleet) -> "Result":
        dispatcher = Dispatcher(fleet, home, lambda: config, HANDLERS, methods=methods)
        answer, _ = await dispatcher.call(operator, method, params)
        return answer

    answer: Result = on_fleet(run)
    return answer


def _sid(job: "CronJob") -> str:
    from remoteclaw.messages import SessionKey

    return SessionKey.parse(job.session_key).sid[:8]


def _words(job: "CronJob") -> str:
    """Return a schedule in words."""
    kinds = dict(job.schedule)
    zone = kinds.pop("tz", None)
    ((kind, value),) = kinds.items()
    unit = " s" if kind == "every" else f" {zone}" if zone else ""
    return f"{kind} {value}{unit}"
