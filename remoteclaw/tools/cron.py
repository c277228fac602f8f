"""Methods about cron jobs: messages to a session that come by the clock."""

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from remoteclaw.tools.base import Id, Limit, NoParams, Params, Result, Text, Tool

JobId = Annotated[
    str, Field(pattern=r"^[0-9a-f]{16}$", description="The job's id, from cron_list.")
]


class ScheduleParams(Params):
    """When a job is due: exactly one of `at`, `every` and `cron`."""

    at: Annotated[str, Field(max_length=64)] | None = None
    """Once: ISO 8601, with an offset or in the zone `tz`."""
    every: Annotated[int, Field(ge=60, le=366 * 24 * 3600)] | None = None
    """Repeatedly: seconds from one run to the next."""
    cron: Annotated[str, Field(max_length=200)] | None = None
    """Five fields: minute, hour, day of month, month, day of week."""
    tz: Annotated[str, Field(max_length=64)] | None = None
    """The IANA time zone, such as Europe/Berlin; else the agent's."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if sum(value is not None for value in (self.at, self.every, self.cron)) != 1:
            raise ValueError("needs exactly one of at, every and cron")
        if self.every is not None and self.tz is not None:
            raise ValueError("has every, so tz means nothing: leave it out")
        return self


Misfire = Literal["skip", "run_once"]
AlertAfter = Annotated[int, Field(ge=0, le=1000)]


class JobSpec(Params):
    """What a job is."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """A short name."""
    schedule: ScheduleParams
    """When: exactly one of `at`, `every` and `cron`."""
    message: Text
    """What the agent is told each time."""
    session_key: Id | None = None
    """Leave it out: it is your own session."""
    enabled: bool = True
    """False: it is paused."""
    misfire: Misfire = "skip"
    """A run missed by over an hour is skipped, or happens once at any age."""
    alert_after: AlertAfter = 0
    """Tell the chat after so many failures in a row; 0: never."""


class JobPatch(Params):
    """What to change of a job; what is absent stays."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Its new name."""
    schedule: ScheduleParams | None = None
    """Its new schedule; without `tz`, its zone stays."""
    message: Text | None = None
    """What the agent is told from now on."""
    enabled: bool | None = None
    """False pauses it, true resumes it."""
    misfire: Misfire | None = None
    """See cron_add."""
    alert_after: AlertAfter | None = None
    """See cron_add."""

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("changes nothing")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("takes no null: leave out what is to stay")
        return self


class AddParams(Params):
    job: JobSpec
    """The job."""


class UpdateParams(Params):
    job_id: JobId
    updates: JobPatch
    """What changes; the rest stays."""


class JobParams(Params):
    job_id: JobId


class RunParams(Params):
    job_id: JobId
    force: bool = False
    """Also while a run of the job is unfinished."""


class ListParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only jobs whose name contains this, in any case."""


class RunsParams(Params):
    job_id: JobId | None = None
    """One job's runs; else those of all jobs."""
    limit: Limit = 20
    """How many of the newest runs."""


class CronJob(Result):
    """A job as it stands."""

    id: str
    name: str
    schedule: dict[str, Any]
    message: str
    session_key: str
    enabled: bool
    created_ms: int
    next_run_ms: int | None = None
    """When it is due next, in milliseconds since 1970; none if it is not enabled, or done."""
    next_run: str | None = None
    """The same in the job's time zone: ISO 8601."""
    last_run_ms: int | None = None
    """When the run was due that the clock began last."""
    last_run: str | None = None
    """The same in the job's time zone."""
    last_status: str | None = None
    """How the last run ended that is over: done, failed, …"""
    last_error: str | None = None
    """Why that one did not go well."""
    last_duration_ms: int | None = None
    failures: int = 0
    """How many runs in a row have failed."""
    is_running: bool = False
    """Whether the run that was begun last is not settled yet."""
    misfire: Misfire
    alert_after: int


class CronStatus(Result):
    jobs: int
    enabled: int
    next_run_ms: int | None = None
    next_run: str | None = None
    """The same in the time zone of that job: ISO 8601."""
    scheduler: Literal["running", "absent"]
    """Whether something runs that fires the jobs."""


class JobsResult(Result):
    jobs: tuple[CronJob, ...]


class JobResult(Result):
    job: CronJob


class RemovedResult(Result):
    removed: bool
    """False if there was no such job any more."""


class CronRun(Result):
    job_id: str
    due_ms: int
    due: str
    """The same in the job's time zone: ISO 8601."""
    status: str
    """fired, until it is over; then done, failed, stopped, interrupted, dropped, dead or unknown.
    skipped is a due time without a run."""
    run_id: str | None = None
    detail: str | None = None
    """Why there was none, or why it did not go well."""
    is_manual: bool = False
    """Whether cron_run began it."""
    duration_ms: int | None = None


class RunsResult(Result):
    runs: tuple[CronRun, ...]
    """Newest first."""


class RunResult(Result):
    run_id: str
    """Names the message that the session was given; cron_runs tells what becomes of it."""


#: A tool for cron jobs; it is for owners.
_tool = partial(Tool, groups=("cron", "automation"), owner_only=True, approvable=False)

METHODS = (
    _tool(
        name="cron.status",
        tool="cron_status",
        title="Show cron's status",
        description="Show how many cron jobs there are, when the next one runs, and whether a"
        " scheduler runs them. Use it when a reminder did not come.",
        params=NoParams,
        result=CronStatus,
        scope="read",
        effect="none",
    ),
    _tool(
        name="cron.list",
        tool="cron_list",
        title="List cron jobs",
        description="List reminders and recurring tasks (cron jobs): id, schedule, next run, "
        'last result. Use it to find a jobId. Example: {"filter": "report"}.',
        params=ListParams,
        result=JobsResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="cron.add",
        tool="cron_add",
        title="Add a cron job",
        description="Schedule a reminder or a recurring task ('remind me at 9', 'every "
        "morning', 'check this each hour'). At each due time you get `message`, "
        "and your answer goes to this chat. Returns the job with id, zone and "
        'next run: tell the person that time. Example: {"job": {"name": "stand-'
        'up", "schedule": {"cron": "0 9 * * MON-FRI"}, "message": "Remind Alice '
        'of the stand-up."}}.',
        params=AddParams,
        result=JobResult,
        scope="admin",
        effect="job",
    ),
    _tool(
        name="cron.update",
        tool="cron_update",
        title="Change a cron job",
        description="Change, pause or resume a reminder or recurring task: its time, its "
        'text, whether it runs. Returns the job as it is then. Example: {"jobId":'
        ' "0f3a5c7e9b1d2468", "updates": {"enabled": false}}.',
        params=UpdateParams,
        result=JobResult,
        scope="admin",
        effect="job",
        destroys=True,
    ),
    _tool(
        name="cron.remove",
        tool="cron_remove",
        title="Remove a cron job",
        description="Remove a reminder or recurring task ('cancel that reminder'); "
        "cron_update can pause it. Returns whether there was one. Example: "
        '{"jobId": "0f3a5c7e9b1d2468"}.',
        params=JobParams,
        result=RemovedResult,
        scope="admin",
        effect="job",
        destroys=True,
    ),
    _tool(
        name="cron.run",
        tool="cron_run",
        title="Run a cron job now",
        description="Run a cron job now, beside its schedule, which stays: to try it, for "
        "instance. Returns a runId; cron_runs shows what came of it. Example: "
        '{"jobId": "0f3a5c7e9b1d2468"}.',
        params=RunParams,
        result=RunResult,
        scope="admin",
        effect="job",
    ),
    _tool(
        name="cron.runs",
        tool="cron_runs",
        title="List runs of cron jobs",
        description="List the last runs of cron jobs, newest first: when each was due, how it"
        ' ended, and why it failed or was skipped. Example: {"jobId": '
        '"0f3a5c7e9b1d2468"}.',
        params=RunsParams,
        result=RunsResult,
        scope="read",
        effect="none",
    ),
)
