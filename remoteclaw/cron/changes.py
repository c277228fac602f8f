"""New and changed cron jobs, as methods, tools and the chat command `/cron` make them.

Nothing here touches Redis: `calls.py` writes the jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remoteclaw.clock import host_zone
from remoteclaw.config.model import Config
from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Schedule, has_offset
from remoteclaw.cron.words import read_schedule
from remoteclaw.errors import CallRefused, NotFound
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import SessionKey
from remoteclaw.tools.cron import JobPatch, JobSpec, ScheduleParams

#: A new or changed schedule is shown with this many due times.
SHOWN_TIMES = 3
#: A list in a chat names a job by this many digits of its id; the user may write more.
SHOWN_DIGITS = 4
#: The longest name of a job that was given none, in characters.
MAX_NAME_CHARS = 60


@dataclass(frozen=True, slots=True)
class Author:
    """The people on whose behalf a job is added or changed."""

    people: tuple[str, ...]
    """Each as CHANNEL:ID; none if it is nobody."""
    has_read_web: bool = False
    """Whether they act through a turn that has read what others have written."""


def new_job(
    spec: JobSpec, *, id: str, session: SessionKey, author: Author, zone: str, now_ms: int
) -> Job:
    """Return a new job for `session`; local times without a zone of their own are in `zone`.

    Raises `ScheduleRefused`, `MessageRefused` or `CallRefused` for an invalid job.
    """
    schedule = schedule_of(spec.schedule, now_ms, zone)
    job = Job(
        id=id,
        name=spec.name or one_line(spec.message, max_chars=MAX_NAME_CHARS),
        schedule=schedule,
        session=session,
        created_ms=now_ms,
        people=author.people,
        has_read_web=author.has_read_web,
        next_ms=schedule.first(now_ms) if spec.enabled else None,
        **spec.model_dump(exclude={"name", "schedule", "session_key"}),
    )
    return _checked(job, now_ms)


def changed_job(job: Job, updates: JobPatch, *, author: Author, zone: str, now_ms: int) -> Job:
    """Return the job with `updates`; a new schedule without a zone keeps the job's, or has `zone`.

    Raises as `new_job()`.
    """
    changed = replace(
        job,
        # The job acts on behalf of everyone who has changed it, or of nobody if a change was made
        # on behalf of nobody.
        people=(
            tuple(dict.fromkeys((*job.people, *author.people)))
            if job.people and author.people
            else ()
        ),
        has_read_web=job.has_read_web or author.has_read_web,
        **updates.model_dump(exclude_unset=True, exclude={"schedule"}),
    )
    if updates.schedule:
        schedule = schedule_of(updates.schedule, now_ms, job.schedule.tz or zone)
        changed = replace(changed, schedule=schedule)
    is_resumed = changed.enabled and not job.enabled
    if is_resumed or updates.schedule or updates.message:
        changed = replace(changed, failures=0)  # the failures were of the job as it was before
    if not changed.enabled:
        changed = replace(changed, next_ms=None)
    elif is_resumed or updates.schedule:
        changed = replace(changed, next_ms=changed.schedule.first(now_ms))
    return _checked(changed, now_ms)


def schedule_of(params: ScheduleParams, now_ms: int, zone: str) -> Schedule:
    """Return the schedule to store. Raises `ScheduleRefused` for words that are no schedule."""
    zone = params.tz or zone
    if params.words is not None:
        return read_schedule(params.words, now_ms, zone)
    by_wall_clock = params.cron is not None or (params.at is not None and not has_offset(params.at))
    return Schedule(
        at=params.at,
        every_s=params.every,
        cron=params.cron,
        tz=zone if by_wall_clock else params.tz,
        anchor_ms=now_ms,
    )


def zone_of_agent(config: Config, agent: str) -> str:
    """Return the time zone of an agent's schedules that name none."""
    return config.timezone_of(agent) or host_zone()


def upcoming_of(job: Job, now_ms: int) -> list[int]:
    """Return the next due times of a job that has just been written; none if it is paused."""
    if job.next_ms is None or job.next_ms <= now_ms:  # it may have become due in between
        return []
    return job.schedule.upcoming(now_ms, SHOWN_TIMES)


def find_job(jobs: Sequence[Job], named: str, *, listed_by: str) -> Job:
    """Return the job with this id, this name, or an id that begins so.

    A name never hides an id as lists show it, as agents choose names: both are a refusal. Raises
    `NotFound`, which names the command `listed_by` if there is none, and the ids if there are more.
    """
    found = [job for job in jobs if named == job.id]
    found = found or [job for job in jobs if named == job.name or _is_shown_id(job, named)]
    found = found or [job for job in jobs if named and job.id.startswith(named)]
    if len(found) > 1:
        ids = ", ".join(f"`{job.id}`" for job in found)
        raise NotFound(f"{named!r} fits {len(found)} cron jobs: write the whole id, one of {ids}.")
    if not found:
        raise NotFound(f"There is no cron job {named!r}: `{listed_by}` lists them.")
    return found[0]


def _is_shown_id(job: Job, named: str) -> bool:
    return len(named) >= SHOWN_DIGITS and job.id.startswith(named)


def _checked(job: Job, now_ms: int) -> Job:
    """Return `job`. Raises an error if its schedule, message or session is not valid."""
    job.schedule.next_after(now_ms)
    message = job.message_at(now_ms)
    if SessionKey.of(message, agent=job.session.agent) != job.session:
        raise CallRefused("INVALID_REQUEST", "There can be no session with this key.")
    return job
