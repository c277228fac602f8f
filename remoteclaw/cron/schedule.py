"""Schedules: once, at intervals, or by a cron expression in a time zone.

Instants are milliseconds since 1970; callers pass the current one.

cronsim interprets expressions as Debian's cron does. (croniter, a dependency of rq, would run a job
with a fixed time of day twice in the hour that a change of the clocks repeats.) When the clocks
change, a time in the skipped hour is due right after that hour, and a time in the repeated hour is
due once, the first time. An expression whose minute or hour begins with `*` follows elapsed time
instead.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError

from remoteclaw.clock import named_zone
from remoteclaw.errors import ScheduleRefused
from remoteclaw.messages import MAX_TIMESTAMP_MS

#: A due time is run up to this late, in seconds, unless the job is to be run at any age: a person
#: who scheduled something for the morning would be surprised to get it in the evening.
GRACE_S = 3600

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")


@dataclass(frozen=True, slots=True)
class Due:
    """The decision about a job that is due."""

    run_ms: int | None
    """The due time to run: the latest one; None if it is too long ago."""
    has_missed: bool
    """Whether due times were missed and get no run."""
    next_ms: int | None
    """The next due time; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The schedule of a job: exactly one of `at`, `every_s` and `cron` is set."""

    at: str | None = None
    """The time of a job that is due once, in ISO 8601."""
    every_s: int | None = None
    """The interval in seconds, counted from `anchor_ms`."""
    cron: str | None = None
    """A cron expression of five fields."""
    tz: str | None = None
    """The IANA time zone of `at` and `cron`; None for UTC."""
    anchor_ms: int = 0
    """The time at which the schedule was created."""

    def first(self, now_ms: int) -> int:
        """Return the first due time after `now_ms`.

        Raises `ScheduleRefused`, with one sentence for the schedule's author, if the schedule is
        invalid or never due.
        """
        due = self.next_after(now_ms)
        if due is not None:
            return due
        if self.at is not None:
            now = datetime.fromtimestamp(now_ms // 1000, tz=schedule_zone(self.tz))
            raise ScheduleRefused(f"at {self.at!r} is past: it is {now.isoformat()} now.")
        raise ScheduleRefused(f"cron {self.cron!r} is never due: no such day exists.")

    def upcoming(self, now_ms: int, count: int) -> list[int]:
        """Return up to `count` due times after `now_ms`. Raises as `first()`."""
        found = [self.first(now_ms)]
        while len(found) < count and (due := self.next_after(found[-1])) is not None:
            found.append(due)
        return found

    def next_after(self, after_ms: int) -> int | None:
        """Return the first due time after `after_ms`; None if the job is never due again.

        Raises `ScheduleRefused` if the schedule is invalid.
        """
        if self.at is not None:
            once = _instant(self.at, self.tz)
            return once if once > after_ms else None
        if self.every_s is not None:
            step = self.every_s * 1000
            passed = max(0, (after_ms - self.anchor_ms) // step)
            return self.anchor_ms + (passed + 1) * step
        assert self.cron is not None, "one of the three is set"
        return _next_of(self.cron, schedule_zone(self.tz), after_ms)

    def due(self, due_ms: int, now_ms: int, *, at_any_age: bool = False) -> Due:
        """Decide at `now_ms` about a job that was due at `due_ms`.

        A due time that is late by `GRACE_S` or more is not run, unless `at_any_age`.
        """
        latest, upcoming = due_ms, self.next_after(due_ms)
        # A binary search for the latest due time: a job that is due each minute has 43,200 due
        # times in a month without a scheduler.
        until = now_ms  # no due time lies between `until` and `now_ms`
        while upcoming is not None and upcoming <= now_ms:
            latest, middle = upcoming, (upcoming + until) // 2
            later = self.next_after(middle)
            if later is not None and later <= now_ms:
                latest = later
            else:
                until = middle
            upcoming = self.next_after(latest)
        run_ms = latest if at_any_age or now_ms - latest < GRACE_S * 1000 else None
        return Due(run_ms, run_ms != due_ms, upcoming)


def has_offset(at: str) -> bool:
    """Whether the time `at` has an offset and needs no zone; also true for an invalid time."""
    try:
        return datetime.fromisoformat(at).tzinfo is not None
    except ValueError:
        return True


def schedule_zone(name: str | None) -> tzinfo:
    """Return the time zone `name`; None means UTC. Raises `ScheduleRefused` if it is unknown."""
    if name is None:
        return UTC
    zone = named_zone(name)
    if zone is None:
        raise ScheduleRefused(f"There is no time zone {name!r}: write one such as Europe/Berlin.")
    return zone


def _instant(text: str, zone_name: str | None) -> int:
    zone = schedule_zone(zone_name)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        due = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ScheduleRefused(
            f"at {text!r} is no time: write ISO 8601, such as 2027-01-31T09:00."
        ) from None
    if due > MAX_TIMESTAMP_MS:
        raise ScheduleRefused(f"at {text!r} is too far away: the year 2999 is the last one.")
    return due


def _next_of(expression: str, zone: tzinfo, after_ms: int) -> int | None:
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleRefused(
            f"cron {expression!r} has {len(fields)} fields and needs five: {', '.join(_FIELDS)}."
        )
    after = datetime.fromtimestamp(after_ms / 1000, tz=zone)
    try:
        moments = (int(moment.timestamp() * 1000) for moment in CronSim(" ".join(fields), after))
        # In the repeated hour, cronsim returns the due times of the first pass once more.
        return next((moment for moment in moments if moment > after_ms), None)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("day-of-", "day of the ")
        raise ScheduleRefused(f"cron {expression!r} has no valid {field}.") from None
