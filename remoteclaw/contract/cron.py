"""Methods about cron jobs: messages to a session that come by the clock."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from remoteclaw.contract.base import Id, Limit, Method, NoParams, Params, Result, Text

__all__ = ["METHODS", "CronJob", "JobPatch", "JobSpec", "Schedule"]

JobId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="A job's id.")]


class Schedule(Params):
    """When a job is due: exactly one of `at`, `every` and `cron`."""

    at: Annotated[str, Field(max_length=64)] | None = None
    """Once, at this time: ISO 8601, with an offset, or in the zone of `tz`."""
    every: Annotated[int, Field(ge=60, le=366 * 24 * 3600)] | None = None
    """Again and again, every so many seconds."""
    cron: Annotated[str, Field(max_length=200)] | None = None
    """A cron expression of five fields: minute, hour, day of the month, month, day of the week."""
    tz: Annotated[str, Field(max_length=64)] | None = None
    """The IANA time zone of `at` and `cron`, such as Europe/Berlin; else UTC."""
    stagger: Annotated[int, Field(ge=0, le=3600)] | None = None
    """By how many seconds `cron` may be put off at most, each job always by the same time: 0 for
    exactly then. Else 300 where its minute is 0, so that not all begin at a full hour."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if sum(value is not None for value in (self.at, self.every, self.cron)) != 1:
            raise ValueError("needs exactly one of at, every and cron")
        if self.every is not None and self.tz is not None:
            raise ValueError("has every, so tz means nothing: leave it out")
        if self.cron is None and self.stagger is not None:
            raise ValueError("has no cron, so stagger means nothing: leave it out")
        return self


Misfire = Literal["grace", "skip", "run_once"]
Grace = Annotated[int, Field(ge=60, le=366 * 24 * 3600)]
AlertAfter = Annotated[int, Field(ge=0, le=1000)]
AlertCooldown = Annotated[int, Field(ge=0, le=366 * 24 * 3600)]


def _check_grace(misfire: Misfire | None, grace: int | None) -> None:
    if grace is not None and misfire not in (None, "grace"):
        raise ValueError(f"has misfire {misfire}, so grace means nothing: leave it out")


class JobSpec(Params):
    """What a job is."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """What people call it."""
    schedule: Schedule
    message: Text
    """What the session's agent is told each time."""
    session_key: Id | None = None
    """The session that it writes to; else that of this call."""
    enabled: bool = True
    misfire: Misfire = "grace"
    """What becomes of a due time that nobody could fire then: it is run if it is less than `grace`
    old, not at all, or once, however old it is. Of several, the latest is meant."""
    grace: Grace | None = None
    """In seconds; else 3600."""
    delete_after_run: bool | None = None
    """Whether it is removed after a run that went well; else that is if it is due once."""
    alert_after: AlertAfter | None = None
    """After how many failures in a row its chat is told; 0 for never. Else as is configured."""
    alert_cooldown: AlertCooldown | None = None
    """For how many seconds it is not told again. Else as is configured."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.misfire, self.grace)
        return self


class JobPatch(Params):
    """What to change of a job; what is absent stays."""

    aliases: ClassVar[Mapping[str, str]] = {}

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    schedule: Schedule | None = None
    message: Text | None = None
    enabled: bool | None = None
    misfire: Misfire | None = None
    grace: Grace | None = None
    delete_after_run: bool | None = None
    alert_after: AlertAfter | None = None
    alert_cooldown: AlertCooldown | None = None

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("changes nothing")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("takes no null: leave out what is to stay")
        _check_grace(self.misfire, self.grace)
        return self


class AddParams(Params):
    job: JobSpec


class UpdateParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"patch": "updates", "id": "jobId"}

    job_id: JobId
    updates: JobPatch


class JobParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"id": "jobId"}

    job_id: JobId


class RunParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"id": "jobId"}

    job_id: JobId
    force: bool = False
    """Also while a run of it is unfinished."""


class ListParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"query": "filter"}

    filter: Annotated[str, Field(max_length=200)] | None = None
    """Only jobs whose name contains this, in any case."""


class RunsParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"id": "jobId"}

    job_id: JobId | None = None
    """One job's; else those of all jobs that can be seen."""
    limit: Limit = 20


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
    last_run_ms: int | None = None
    """When the run was due that the clock began last."""
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
    grace: int | None = None
    delete_after_run: bool
    alert_after: int | None = None
    alert_cooldown: int | None = None


class CronStatus(Result):
    jobs: int
    enabled: int
    next_run_ms: int | None = None
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
    status: str
    """fired, until it is over; then done, failed, stopped, interrupted, dropped, dead or unknown.
    skipped is a due time without a run."""
    run_id: str | None = None
    detail: str | None = None
    """Why there was none, or why it did not go well."""
    is_manual: bool = False
    """Whether somebody asked for it."""
    duration_ms: int | None = None


class RunsResult(Result):
    runs: tuple[CronRun, ...]
    """Newest first."""


class RunResult(Result):
    run_id: str
    """Names the message that the session was given; cron_runs tells what becomes of it."""


def _method(name: str, tool: str, title: str, description: str, **more: Any) -> Method:
    return Method(
        name=name,
        tool=tool,
        title=title,
        description=description,
        **more,
    )


METHODS = (
    _method(
        "cron.status",
        "cron_status",
        "Show cron's status",
        "Show how many jobs there are, and whether they are fired.",
        params=NoParams,
        result=CronStatus,
        scope="read",
    ),
    _method(
        "cron.list",
        "cron_list",
        "List cron jobs",
        "List the jobs that send messages to sessions by the clock.",
        params=ListParams,
        result=JobsResult,
        scope="read",
    ),
    _method(
        "cron.add",
        "cron_add",
        "Add a cron job",
        "Add a job that sends a message to a session by the clock: once, at intervals, or by a "
        "cron expression.",
        params=AddParams,
        result=JobResult,
        scope="admin",
        effect="job",
    ),
    _method(
        "cron.update",
        "cron_update",
        "Change a cron job",
        "Change a job.",
        params=UpdateParams,
        result=JobResult,
        scope="admin",
        effect="job",
        destroys=True,
    ),
    _method(
        "cron.remove",
        "cron_remove",
        "Remove a cron job",
        "Remove a job.",
        params=JobParams,
        result=RemovedResult,
        scope="admin",
        effect="job",
        destroys=True,
    ),
    _method(
        "cron.run",
        "cron_run",
        "Run a cron job now",
        "Run a job now, whenever it is due. That moves nothing: it is due next as before.",
        params=RunParams,
        result=RunResult,
        scope="admin",
        effect="job",
    ),
    _method(
        "cron.runs",
        "cron_runs",
        "List runs of cron jobs",
        "List when jobs were due and what became of it.",
        params=RunsParams,
        result=RunsResult,
        scope="read",
    ),
)
