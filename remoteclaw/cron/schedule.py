"""Schedules: once, at intervals, or by a cron expression in a time zone.

Instants are milliseconds since 1970; callers pass the current one.

Expressions are read as Debian's cron reads them, by cronsim. (croniter, which rq brings along, runs
what has a fixed time of day twice in the hour that a zone repeats.) Where clocks change, what falls
into the skipped hour is due right behind it, and what falls into the repeated hour is due the first
time. An expression whose minute or hour begins with `*` follows elapsed time instead.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError

from remoteclaw.clock import named_zone
from remoteclaw.errors import ScheduleRefused
from remoteclaw.messages import MAX_TIMESTAMP_MS

#: How late, in seconds, a due time is still run unless the job wants to be run at any age: what a
#: person wanted at nine in the morning would surprise them in the evening.
GRACE_S = 3600

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")


@dataclass(frozen=True, slots=True)
class Due:
    """The decision about a job that is due."""

    run_ms: int | None
    """The due time to run: the latest one. None if that is too long ago."""
    has_missed: bool
    """Whether due times were missed and stay without a run."""
    next_ms: int | None
    """When the job is due next; None for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job is due: exactly one of `at`, `every_s` and `cron` is set."""

    at: str | None = None
    """Once, at this time: ISO 8601."""
    every_s: int | None = None
    """Interval in seconds, counted from `anchor_ms`."""
    cron: str | None = None
    """A cron expression of five fields."""
    tz: str | None = None
    """The IANA time zone of `at` and `cron`; else UTC."""
    anchor_ms: int = 0
    """When the schedule was made."""

    def first(self, now_ms: int) -> int:
        """Return when a job with this schedule is due first.

        Raises `ScheduleRefused`, with one sentence for its author, if the schedule is invalid or is
        never due.
        """
        due = self.next_after(now_ms)
        if due is not None:
            return due
        if self.at is not None:
            now = datetime.fromtimestamp(now_ms // 1000, tz=_zone(self.tz))
            raise ScheduleRefused(f"at {self.at!r} is past: it is {now.isoformat()} now.")
        raise ScheduleRefused(f"cron {self.cron!r} is never due: no such day comes.")

    def next_after(self, after_ms: int) -> int | None:
        """Return the first due time after an instant; None if there is none.

        Raises `ScheduleRefused` as `first()` does.
        """
        if self.at is not None:
            once = _instant(self.at, self.tz)
            return once if once > after_ms else None
        if self.every_s is not None:
            step = self.every_s * 1000
            passed = max(0, (after_ms - self.anchor_ms) // step)
            return self.anchor_ms + (passed + 1) * step
        assert self.cron is not None, "one of the three is set"
        return _next_of(self.cron, _zone(self.tz), after_ms)

    def due(self, due_ms: int, now_ms: int, *, at_any_age: bool = False) -> Due:
        """Return what to do at `now_ms` about a job that was due at `due_ms`.

        What is late by the grace is not run, unless `at_any_age`.
        """
        latest, upcoming = due_ms, self.next_after(due_ms)
        # Halved, since a job of each minute that no scheduler fired for a month has 43,200 due
        # times.
        until = now_ms  # from here to now, nothing is due
        while upcoming is not None and upcoming <= now_ms:
            latest, middle = upcoming, (upcoming + until) // 2
            further = self.next_after(middle)
            if further is not None and further <= now_ms:
                latest = further
            else:
                until = middle
            upcoming = self.next_after(latest)
        run = latest if at_any_age or now_ms - latest < GRACE_S * 1000 else None
        return Due(run, run != due_ms, upcoming)


def has_offset(at: str) -> bool:
    """Whether a time has an offset, so that it needs no zone; also true of an invalid time."""
    try:
        return datetime.fromisoformat(at).tzinfo is not None
    except ValueError:
        return True


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    zone = named_zone(name)
    if zone is None:
        raise ScheduleRefused(f"There is no time zone {name!r}: write one such as Europe/Berlin.")
    return zone


def _instant(text: str, zone_name: str | None) -> int:
    zone = _zone(zone_name)
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
        # In the repeated hour, cronsim returns what was due the first time again.
        return next((moment for moment in moments if moment > after_ms), None)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ").replace("day-of-", "day of the ")
        raise ScheduleRefused(f"cron {expression!r} has no valid {field}.") from None
