"""Methods about cron jobs, which send messages to a session at set times."""

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from remoteclaw.tools.base import Id, Limit, Method, NoParams, Params, Result, Text, Tool

JobId = Annotated[
    str, Field(pattern=r"^[0-9a-f]{16}$", description="The job's id, from cron_list.")
]


#: The shortest and the longest interval of a job, in seconds.
MIN_INTERVAL_S, MAX_INTERVAL_S = 60, 366 * 24 * 3600


class ScheduleParams(Params):
    """The schedule of a job: exactly one of `words`, `at`, `every` and `cron`."""

    words: Annotated[str, Field(max_length=200)] | None = None
    """Such as "every weekday at 9", "in 45 minutes"."""
    at: Annotated[str, Field(max_length=64)] | None = None
    """Once: ISO 8601."""
    every: Annotated[int, Field(ge=MIN_INTERVAL_S, le=MAX_INTERVAL_S)] | None = None
    """Repeatedly: seconds from one run to the next."""
    cron: Annotated[str, Field(max_length=200)] | None = None
    """Five fields, from minute to day of week."""
    tz: Annotated[str, Field(max_length=64)] | None = None
    """The IANA time zone; else the agent's."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if sum(value is not None for value in (self.words, self.at, self.every, self.cron)) != 1:
            raise ValueError("needs exactly one of words, at, every and cron")
        if self.every is not None and self.tz is not None:
            raise ValueError("has every, so tz means nothing: leave it out")
        return self


Misfire = Literal["skip", "run_once"]
AlertAfter = Annotated[int, Field(ge=0, le=1000)]


class JobSpec(Params):
    """A new job."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """A short name; else the beginning of the message."""
    schedule: ScheduleParams
    """When: one of `words`, `at`, `every` and `cron`."""
    message: Text
    """The message that the agent gets each time."""
    session_key: Id | None = None
    """Leave it out: it is your own session."""
    enabled: bool = True
    """False: it is paused."""
    misfire: Misfire = "skip"
    """If a run is over an hour late: skip it, or run it once, however late."""
    alert_after: AlertAfter = 0
    """Notify the chat after so many failures in a row; 0: never."""


class JobPatch(Params):
    """Changes of a job; an absent field stays as it is."""

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Its new name."""
    schedule: ScheduleParams | None = None
    """Its new schedule; without `tz`, its zone stays."""
    message: Text | None = None
    """The agent's new message."""
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
    """What to change; the rest stays."""


class JobParams(Params):
    job_id: JobId


class RunParams(Params):
    job_id: JobId
    force: bool = False
    """Run it even while a run of the job is unfinished."""


class ListJobsParams(Params):
    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only jobs whose name contains this, in any case."""


class RunsParams(Params):
    job_id: JobId | None = None
    """One job's runs; else those of all jobs."""
    limit: Limit = 20
    """How many of the newest runs."""


class CronJob(Result):
    """The current state of a job."""

    id: str
    name: str
    schedule: dict[str, Any]
    words: str
    """The schedule in words, such as `every weekday at 09:00`; an expression without words is
    unchanged."""
    zone: str
    """The IANA time zone of the schedule and of the times of the job."""
    message: str
    session_key: str
    enabled: bool
    created_ms: int
    next_run_ms: int | None = None
    """When the job is due next, in milliseconds since 1970; absent if it is paused or done."""
    next_run: str | None = None
    """`nextRunMs` as ISO 8601, in the job's time zone."""
    last_run_ms: int | None = None
    """When the last scheduled run was due, in milliseconds since 1970."""
    last_run: str | None = None
    """`lastRunMs` as ISO 8601, in the job's time zone."""
    last_status: str | None = None
    """The status of the last run that has ended, such as `done` or `failed`."""
    last_error: str | None = None
    """Why the last run that has ended was not `done`."""
    last_duration_ms: int | None = None
    """How long the last run that has ended took, in milliseconds."""
    failures: int = 0
    """How many runs in a row have failed."""
    is_running: bool = False
    """Whether the last run has not ended yet."""
    misfire: Misfire
    """What happens to a run that is over an hour late: `skip` or `run_once`."""
    alert_after: int
    """After how many failures in a row the chat is notified; 0 for never."""


class CronStatus(Result):
    jobs: int
    """The number of jobs."""
    enabled: int
    """The number of jobs that are not paused."""
    next_run_ms: int | None = None
    """When the next job is due, in milliseconds since 1970."""
    next_run: str | None = None
    """`nextRunMs` as ISO 8601, in that job's time zone."""
    scheduler: Literal["running", "absent"]
    """Whether a process runs that starts the jobs when they are due."""


class JobsResult(Result):
    jobs: tuple[CronJob, ...]


class JobResult(Result):
    job: CronJob
    upcoming: tuple[str, ...]
    """The next three due times as ISO 8601, in the job's time zone; none if it is paused."""


class PreviewParams(Params):
    schedule: ScheduleParams
    """The schedule."""
    session_key: Id | None = None
    """The session that the job is to write to: its agent's time zone is the default."""


class SchedulePreview(Result):
    words: str
    """The schedule in words, as of a job."""
    zone: str
    """The IANA time zone of the schedule."""
    schedule: dict[str, Any]
    """The schedule as a job has it: one of `at`, `every` and `cron`, and `tz`."""
    upcoming: tuple[str, ...]
    """The next three due times as ISO 8601, in the time zone."""


class RemovedResult(Result):
    removed: bool
    """False if there is no such job."""


class CronRun(Result):
    job_id: str
    due_ms: int
    """When the run was due, in milliseconds since 1970."""
    due: str
    """`dueMs` as ISO 8601, in the job's time zone."""
    status: str
    """`fired` until the run ends; then `done`, `failed`, `stopped`, `interrupted`, `dropped`,
    `dead` or `unknown`. `skipped` is a due time at which no run was started."""
    run_id: str | None = None
    """The id of the message that the run sent; absent if it was skipped."""
    detail: str | None = None
    """Why the run was skipped, or was not `done`."""
    is_manual: bool = False
    """Whether cron_run started the run."""
    duration_ms: int | None = None


class RunsResult(Result):
    runs: tuple[CronRun, ...]
    """The runs, newest first."""


class ShowJobParams(Params):
    name: Id
    """The job's name, its id, or the start of its id."""


class JobWithRuns(Result):
    job: CronJob
    runs: tuple[CronRun, ...]
    """The last five runs, newest first."""


class RunResult(Result):
    run_id: str
    """The id of the message that the session got; cron_runs shows its status."""


#: A tool for cron jobs, which is for owners.
_tool = partial(Tool, groups=("cron", "automation"), owner_only=True, approvable=False)

METHODS = (
    _tool(
        name="cron.status",
        tool="cron_status",
        title="Show cron's status",
        description="Show how many cron jobs there are, when the next one runs, and whether a"
        " scheduler runs them. Use it when a reminder did not arrive.",
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
        params=ListJobsParams,
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
        'upcoming times: tell the person these. Example: {"job": {"name": "stand-'
        'up", "schedule": {"words": "every weekday at 9"}, "message": "Remind Alice '
        'of the stand-up."}}.',
        params=AddParams,
        result=JobResult,
        scope="admin",
        effect="job",
        is_about_session=True,
    ),
    _tool(
        name="cron.update",
        tool="cron_update",
        title="Change a cron job",
        description="Change, pause or resume a reminder or recurring task: its time, its "
        'text, whether it runs. Returns the changed job. Example: {"jobId":'
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
        description="Run a cron job now, in addition to its schedule, for instance to try "
        "it. Returns a runId; cron_runs shows how it ended. Example: "
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
    Method(
        name="cron.show",
        description="Show a cron job with its last runs.",
        params=ShowJobParams,
        result=JobWithRuns,
        scope="read",
    ),
    Method(
        name="cron.preview",
        description="Show what a schedule means, and when a job with it would be due next.",
        params=PreviewParams,
        result=SchedulePreview,
        scope="read",
    ),
)
