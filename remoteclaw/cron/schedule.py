"""Schedules: once, at intervals, or by a cron expression in a time zone.

Instants are milliseconds since 1970. Nothing here knows what time it is: whoever asks says so.

Expressions are read as Debian's cron reads them, by cronsim. (croniter, which rq brings along,
runs what has a fixed time of day twice in the hour that a zone repeats.) In a zone that changes its
clocks, what falls into the hour that is skipped is due right behind it, and what falls into the
hour that comes twice is due the first time. An expression whose minute or hour begins with `*`
goes by the time that passes instead.

Where everybody writes `0 9 * * *`, everything would begin at nine. So what is due at a full hour is
put off by up to five minutes, each job always by the same time.
"""

import difflib
import hashlib
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from remoteclaw.errors import ScheduleRefused
from remoteclaw.messages import MAX_TIMESTAMP_MS

__all__ = [
    "GRACE_S",
    "ON_TIME_MS",
    "STAGGER_S",
    "Due",
    "Schedule",
    "has_offset",
    "in_words",
    "offset_ms",
    "stagger_s",
]

#: What should have run so many seconds ago is not run any more, unless the job says otherwise: what
#: a person wanted at nine in the morning would surprise them in the evening.
GRACE_S = 3600
#: What runs within this of its due time ran on time, in milliseconds: a scheduler looks every
#: second, and one that was restarted needs some more. No two due times are closer than a minute.
ON_TIME_MS = 60_000
#: By how many seconds what is due at a full hour is put off at most, unless its schedule says so.
STAGGER_S = 300

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")


@dataclass(frozen=True, slots=True)
class Due:
    """What a look at a job that is due comes to."""

    run_ms: int | None
    """The due time that counts: the latest one. None if that is too long ago."""
    has_missed: bool
    """Whether there were due times that nobody fires any more, the first one of the look."""
    next_ms: int | None
    """When the job is due next; None if it never is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job is due: exactly one of `at`, `every_s` and `cron` is set."""

    at: str | None = None
    """Once, at this time: ISO 8601."""
    every_s: int | None = None
    """Again and again, every so many seconds since `anchor_ms`."""
    cron: str | None = None
    """A cron expression of five fields."""
    tz: str | None = None
    """The IANA time zone of `at` and `cron`; else UTC."""
    anchor_ms: int = 0
    """When the schedule was made."""
    stagger_s: int = 0
    """By how many seconds what `cron` says is put off at most."""
    offset_ms: int = 0
    """By how many milliseconds it is put off: see `offset_ms()`."""

    def first(self, now_ms: int) -> int:
        """Return when a job with this schedule is due first.

        Raises `ScheduleRefused`, with one sentence for whoever wrote it, if that can't be told, or
        is never.
        """
        # What is put off from a moment that is past counts from the next one.
        due = self.next_after(now_ms + self.offset_ms)
        if due is not None:
            return due
        if self.at is not None:
            now = datetime.fromtimestamp(now_ms // 1000, tz=_zone(self.tz))
            raise ScheduleRefused(f"at {self.at!r} is past: it is {now.isoformat()} now.")
        raise ScheduleRefused(f"cron {self.cron!r} is never due: no such day comes.")

    def next_after(self, after_ms: int) -> int | None:
        """Return the first due time behind an instant; None if there is none.

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
        due = _next_of(self.cron, _zone(self.tz), after_ms - self.offset_ms)
        return None if due is None else due + self.offset_ms

    def due(self, due_ms: int, now_ms: int, *, late_ms: int | None = GRACE_S * 1000) -> Due:
        """Return what is to be done at `now_ms` about a job that was due at `due_ms`.

        What is late by `late_ms` is not run any more; with None, whatever is late is run.
        """
        latest, upcoming = due_ms, self.next_after(due_ms)
        # Halved, since a job of each minute that nobody fired for a month has 43,200 due times.
        until = now_ms  # from here to now, nothing is due
        while upcoming is not None and upcoming <= now_ms:
            latest, middle = upcoming, (upcoming + until) // 2
            further = self.next_after(middle)
            if further is not None and further <= now_ms:
                latest = further
            else:
                until = middle
            upcoming = self.next_after(latest)
        run = latest if late_ms is None or now_ms - latest < late_ms else None
        return Due(run, run != due_ms, upcoming)


def stagger_s(cron: str | None, wanted: int | None) -> int:
    """Return by how many seconds an expression's due times may be put off, if `wanted` or not."""
    if cron is None:
        return 0
    if wanted is not None:
        return wanted
    minute = cron.split()[:1]
    is_full_hour = bool(minute) and minute[0].strip("0") == ""
    return STAGGER_S if is_full_hour else 0


def offset_ms(name: str, most_s: int) -> int:
    """Return by how much a job is put off, always the same for its name, in milliseconds."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return number % (most_s + 1) * 1000


def has_offset(at: str) -> bool:
    """Whether a time says by itself which instant it is; also if it is no time."""
    try:
        return datetime.fromisoformat(at).tzinfo is not None
    except ValueError:
        return True


def in_words(seconds: int) -> str:
    """Return a duration in words: "an hour", "90 seconds"."""
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            count = seconds // size
            article = "an" if unit == "hour" else "a"
            return f"{article} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds} seconds"


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # "Europe" is a directory
        near = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "write one such as Europe/Berlin."
        raise ScheduleRefused(f"There is no time zone {name!r}; {hint}") from None


def _instant(text: str, zone_name: str | None) -> int:
    zone = _zone(zone_name)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
            # Of a time that comes twice, the first one is meant.
            if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment.replace(
                tzinfo=None
            ):
                raise ScheduleRefused(
                    f"at {text!r} does not exist in {zone_name}: the clocks skip it."
                )
        elif zone_name and moment.utcoffset() != moment.astimezone(zone).utcoffset():
            raise ScheduleRefused(
                f"at {text!r} has an offset that {zone_name} does not have then: leave tz out."
            )
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
        if fields[0].startswith("*") or fields[1].startswith("*"):
            return _by_passing_time(" ".join(fields), zone, after)
        # In the hour that comes twice, what was due the first time comes up again.
        moments = (int(moment.timestamp() * 1000) for moment in CronSim(" ".join(fields), after))
        return next((moment for moment in moments if moment > after_ms), None)
    except CronSimError as error:
        if _is_well_formed(fields, after):
            return None
        field = str(error).removeprefix("Bad ").replace("day-of-", "day of the ")
        raise ScheduleRefused(f"cron {expression!r} has no valid {field}.") from None


def _by_passing_time(expression: str, zone: tzinfo, after: datetime) -> int | None:
    """Return the next minute at which a clock of the zone shows what the expression says.

    Between two changes of the clocks one looks like the other, so each such stretch is asked by
    itself. cronsim goes from hour to hour instead, and where clocks change by half an hour, on Lord
    Howe Island, it leaves a minute out.
    """
    start, wall = after.astimezone(UTC), after.replace(tzinfo=None)
    while True:
        offset = start.astimezone(zone).utcoffset()
        assert offset is not None, "it is in a zone"
        shown = next(CronSim(expression, wall), None)
        if shown is None:
            return None
        due = shown.replace(tzinfo=UTC) - offset
        change = _change_between(start, due, zone)
        if change is None:
            return int(due.timestamp() * 1000)
        start = change
        wall = change.astimezone(zone).replace(tzinfo=None) - timedelta(minutes=1)


def _change_between(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """Return the first minute behind `start` from which on clocks show another time, up to `end`.

    Clocks that are changed twice within a day are not seen; there are none.
    """
    before = start.astimezone(zone).utcoffset()
    early = start
    while early < end:
        late = min(early + timedelta(days=1), end)
        if late.astimezone(zone).utcoffset() == before:
            early = late
            continue
        low, high = int(early.timestamp()) // 60, int(late.timestamp()) // 60
        while high - low > 1:
            middle = (low + high) // 2
            is_before = datetime.fromtimestamp(middle * 60, tz=zone).utcoffset() == before
            low, high = (middle, high) if is_before else (low, middle)
        return datetime.fromtimestamp(high * 60, tz=UTC)
    return None


def _is_well_formed(fields: list[str], after: datetime) -> bool:
    """Whether every field is one; cronsim says of the 31st of February that its day is none."""
    minute, hour, day, month, week_day = fields
    try:
        CronSim(f"{minute} {hour} {day} * {week_day}", after)
        CronSim(f"{minute} {hour} * {month} {week_day}", after)
    except CronSimError:
        return False
    return True
