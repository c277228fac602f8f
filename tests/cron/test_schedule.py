"""The due times of jobs, above all across clock changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from remoteclaw.cron.schedule import GRACE_S, Due, Schedule
from remoteclaw.errors import ScheduleRefused
from tests.support.rows import for_each

HOUR_MS = 3600 * 1000
LATE_MS = GRACE_S * 1000
#: A moment in winter without a clock change.
NOW = "2026-11-21T12:00Z"


def ms(text: str) -> int:
    """Return an instant, written with its offset."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def text(at_ms: int, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=ZoneInfo(zone)).strftime("%m-%d %H:%M%z")


def upcoming(schedule: Schedule, after: str, count: int) -> list[str]:
    """Return the next due times, each found from the one before."""
    found, at_ms = [], ms(after)
    for _ in range(count):
        due = schedule.next_after(at_ms)
        assert due is not None
        assert due > at_ms
        found.append(text(due, schedule.tz or "UTC"))
        at_ms = due
    return found


def refusal(now: str = NOW, **schedule: object) -> str:
    with pytest.raises(ScheduleRefused) as refused:
        Schedule(**schedule).first(ms(now))  # type: ignore[arg-type]
    return str(refused.value)


def answer(schedule: Schedule, after_ms: int) -> int | str:
    """Return the first due time, or the text of the refusal."""
    try:
        return schedule.first(after_ms)
    except ScheduleRefused as refused:
        return str(refused)


# -- once -----------------------------------------------------------------------------------------


@for_each(
    ("at", "tz", "instant"),
    [
        ("2026-12-24T18:00", None, "2026-12-24T18:00Z"),
        ("2026-12-24T18:00", "Europe/Berlin", "2026-12-24T17:00Z"),
        ("2026-12-24T18:00:00+05:30", None, "2026-12-24T12:30Z"),
        ("2026-12-24T18:00+01:00", "Europe/Berlin", "2026-12-24T17:00Z"),
        ("2026-12-24T18:00Z", "Europe/London", "2026-12-24T18:00Z"),
        # A skipped time is due an hour later; of a repeated time, the first one counts.
        ("2027-03-28T02:30", "Europe/Berlin", "2027-03-28T01:30Z"),
        ("2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30Z"),
        ("2027-10-31T02:30+01:00", "Europe/Berlin", "2027-10-31T01:30Z"),
    ],
)
def test_a_local_time_is_converted_to_an_instant(at: str, tz: str | None, instant: str) -> None:
    schedule = Schedule(at=at, tz=tz)

    assert schedule.first(ms(NOW)) == ms(instant)
    assert schedule.next_after(ms(instant)) is None


def test_an_invalid_time_is_refused_with_a_clear_error() -> None:
    assert refusal(at="2026-11-21T13:00", tz="Europe/Berlin") == (
        "at '2026-11-21T13:00' is past: it is 2026-11-21T13:00:00+01:00 now."
    )
    assert refusal(at="tomorrow") == (
        "at 'tomorrow' is no time: write ISO 8601, such as 2027-01-31T09:00."
    )
    assert refusal(at="3000-01-02") == (
        "at '3000-01-02' is too far away: the year 2999 is the last one."
    )


# -- at intervals ---------------------------------------------------------------------------------


@given(
    every_s=st.integers(60, 366 * 24 * 3600),
    anchor_ms=st.integers(0, 2**42),
    passed_ms=st.integers(-(2**40), 2**42),
)
def test_intervals_never_drift(every_s: int, anchor_ms: int, passed_ms: int) -> None:
    after = anchor_ms + passed_ms

    due = Schedule(every_s=every_s, anchor_ms=anchor_ms).next_after(after)

    assert due is not None
    assert due > after
    assert due > anchor_ms
    assert (due - anchor_ms) % (every_s * 1000) == 0
    assert due - every_s * 1000 <= max(after, anchor_ms)


# -- by an expression -----------------------------------------------------------------------------


@for_each(
    ("zone", "after", "cron", "times"),
    [
        ("America/New_York", "2026-11-20T20:00Z", "0 9 * * MON-FRI",
         ["11-23 09:00-0500", "11-24 09:00-0500"]),
        # 02:00 to 03:00 does not exist: the job is due once, right after the gap.
        ("Europe/Berlin", "2026-03-29T01:00+01:00", "30 2-3 * * *",
         ["03-29 03:00+0200", "03-29 03:30+0200", "03-30 02:30+0200"]),
        ("Europe/Berlin", "2026-03-29T01:00+01:00", "*/20 2 * * *",
         ["03-30 02:00+0200", "03-30 02:20+0200"]),
        # 02:00 to 03:00 repeats: fixed times are due the first time, intervals by elapsed time.
        ("Europe/Berlin", "2026-10-25T01:00+02:00", "30 2 * * *",
         ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("Europe/Berlin", "2026-10-25T02:10+01:00", "30 2 * * *", ["10-26 02:30+0100"]),
        ("Europe/Berlin", "2026-10-25T01:00+02:00", "*/30 2 * * *",
         ["10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100"]),
        # Lord Howe Island skips 02:00 to 02:30.
        ("Australia/Lord_Howe", "2026-10-04T01:00+10:30", "15 2 * * *",
         ["10-04 02:30+1100", "10-05 02:15+1100"]),
    ],
)  # fmt: skip
def test_due_times_in_nights_with_a_clock_change(
    zone: str, after: str, cron: str, times: list[str]
) -> None:
    assert upcoming(Schedule(cron=cron, tz=zone), after, len(times)) == times


#: Zones, each with the days before its clocks change: at night, at midnight, by half an hour.
CHANGES = st.sampled_from(
    [
        ("Europe/Berlin", "2026-03-28T12:00"),
        ("Europe/Berlin", "2026-10-24T12:00"),
        ("America/New_York", "2026-03-07T12:00"),
        ("America/New_York", "2026-10-31T12:00"),
        ("America/Santiago", "2026-09-05T12:00"),
        ("America/Santiago", "2026-04-04T12:00"),
        ("Australia/Lord_Howe", "2026-10-03T12:00"),
        ("Australia/Lord_Howe", "2026-04-04T12:00"),
        ("Asia/Kolkata", "2026-03-28T12:00"),
    ]
)
MINUTES = st.one_of(
    st.lists(st.integers(0, 59), min_size=1, max_size=4),
    st.sampled_from(["*/7", "*/30"]),
)
HOURS = st.one_of(st.lists(st.integers(0, 23), min_size=1, max_size=5), st.just("*"))


def numbers(field: list[int] | str, limit: int) -> set[int]:
    if isinstance(field, list):
        return set(field)
    return set(range(0, limit, int(field.partition("/")[2] or 1)))


def written(field: list[int] | str) -> str:
    return field if isinstance(field, str) else ",".join(map(str, field))


def minute_by_minute(
    minutes: list[int] | str, hours: list[int] | str, zone: ZoneInfo, after: datetime, days: int
) -> list[datetime]:
    """Return when Debian's cron, which wakes every minute, would run a job."""
    is_interval = isinstance(minutes, str) or isinstance(hours, str)
    wanted = {(hour, minute) for hour in numbers(hours, 24) for minute in numbers(minutes, 60)}
    found = []
    before = after.astimezone(zone)
    for passed in range(1, days * 24 * 60):
        now = (after.astimezone(UTC) + timedelta(minutes=passed)).astimezone(zone)
        is_due = (now.hour, now.minute) in wanted and (is_interval or not now.fold)
        skipped = now.replace(tzinfo=None) - before.replace(tzinfo=None) - timedelta(minutes=1)
        if not is_interval:
            for ago in range(1, int(skipped.total_seconds() // 60) + 1):
                wall = now.replace(tzinfo=None) - timedelta(minutes=ago)
                is_due |= (wall.hour, wall.minute) in wanted
        if is_due:
            found.append(now)
        before = now
    return found


@given(change=CHANGES, minutes=MINUTES, hours=HOURS)
@example(change=("Europe/Berlin", "2026-03-28T12:00"), minutes=[30], hours=[2])
@example(change=("Europe/Berlin", "2026-10-24T12:00"), minutes=[30], hours=[2])
@example(change=("America/Santiago", "2026-09-05T12:00"), minutes=[0], hours=[0])
def test_due_times_equal_those_of_a_cron_that_checks_every_minute(
    change: tuple[str, str], minutes: list[int] | str, hours: list[int] | str
) -> None:
    name, start = change
    # Where clocks change by half an hour, cronsim skips minutes of schedules by elapsed time.
    assume(name != "Australia/Lord_Howe" or (not isinstance(minutes, str) and hours != "*"))
    zone = ZoneInfo(name)
    after = datetime.fromisoformat(start).replace(tzinfo=zone)
    expected = minute_by_minute(minutes, hours, zone, after, days=2)
    schedule = Schedule(cron=f"{written(minutes)} {written(hours)} * * *", tz=name)

    found: list[datetime] = []
    at_ms = int(after.timestamp() * 1000)
    while len(found) < len(expected):
        at_ms = schedule.next_after(at_ms) or 0
        found.append(datetime.fromtimestamp(at_ms / 1000, tz=zone))

    assert [one.isoformat() for one in found] == [one.isoformat() for one in expected]


def test_an_invalid_cron_expression_is_refused_with_a_clear_error() -> None:
    assert refusal(cron="0 9 * *") == (
        "cron '0 9 * *' has 4 fields and needs five: minute, hour, day of the month, month, "
        "day of the week."
    )
    assert refusal(cron="* * * * * *").startswith("cron '* * * * * *' has 6 fields")
    assert refusal(cron="0 24 * * *") == "cron '0 24 * * *' has no valid hour."
    assert refusal(cron="0 9 * * FREITAG") == "cron '0 9 * * FREITAG' has no valid day of the week."
    assert refusal(cron="0 9 32 2 *") == "cron '0 9 32 2 *' has no valid day of the month."
    assert refusal(cron="0 9 31 2 *") == "cron '0 9 31 2 *' has no valid day of the month."
    for zone in ("Europe", "/etc/localtime", "../../etc/passwd", "\0", "x" * 64, ""):
        assert refusal(cron="0 9 * * *", tz=zone) == (
            f"There is no time zone {zone!r}: write one such as Europe/Berlin."
        )


@given(cron=st.text("0123456789*/,-#LWMONFEB ?²", max_size=30), after=st.integers(0, 2**42))
def test_any_cron_expression_is_due_or_refused(cron: str, after: int) -> None:
    result = answer(Schedule(cron=cron, tz="America/Santiago"), after)

    assert result.startswith("cron ") if isinstance(result, str) else result > after


@given(at=st.text(max_size=64), tz=st.none() | st.text(max_size=64))
def test_any_time_is_due_or_refused(at: str, tz: str | None) -> None:
    result = answer(Schedule(at=at, tz=tz), ms(NOW))

    assert result.endswith((".", "?")) if isinstance(result, str) else result > ms(NOW)


# -- checks of due jobs ---------------------------------------------------------------------------


def test_a_due_time_over_an_hour_late_runs_only_at_any_age() -> None:
    schedule = Schedule(cron="0 9 * * *")
    due, day = ms("2026-11-21T09:00Z"), 24 * HOUR_MS

    assert schedule.due(due, due + LATE_MS - 1) == Due(due, False, due + day)
    assert schedule.due(due, due + LATE_MS) == Due(None, True, due + day)
    assert schedule.due(due, due + LATE_MS, at_any_age=True) == Due(due, False, due + day)


def test_a_job_due_every_minute_runs_once_after_a_month_of_downtime() -> None:
    check = Schedule(cron="* * * * *").due(ms("2026-10-21T12:00Z"), ms("2026-11-21T12:00:30Z"))

    assert check == Due(ms("2026-11-21T12:00Z"), True, ms("2026-11-21T12:01Z"))


def test_a_one_time_job_has_no_next_due_time() -> None:
    due = ms("2026-11-21T12:00Z")

    assert Schedule(at="2026-11-21T12:00").due(due, due) == Due(due, False, None)


@given(
    cron=st.sampled_from(["* * * * *", "*/7 3 * * *", "0 9 * * MON", "30 2 * * *", "0 0 29 2 *"]),
    first=st.integers(0, 400),
    late_minutes=st.integers(0, 60 * 24 * 3),
)
def test_the_latest_of_several_missed_due_times_is_found(
    cron: str, first: int, late_minutes: int
) -> None:
    schedule = Schedule(cron=cron, tz="Europe/Berlin")
    due = schedule.next_after(ms("2026-03-20T00:00Z") + first * HOUR_MS) or 0
    now = due + late_minutes * 60_000
    latest, upcoming = due, schedule.next_after(due) or 0
    while upcoming <= now:
        latest, upcoming = upcoming, schedule.next_after(upcoming) or 0

    assert schedule.due(due, now, at_any_age=True) == Due(latest, latest != due, upcoming)


@given(
    every_s=st.integers(60, 100_000),
    late_ms=st.integers(0, 10 * LATE_MS),
)
def test_a_check_leaves_nothing_due(every_s: int, late_ms: int) -> None:
    schedule = Schedule(every_s=every_s)
    first = every_s * 1000

    check = schedule.due(first, first + late_ms)

    assert check.next_ms is not None
    assert check.next_ms > first + late_ms
    if check.run_ms is None:
        assert check.has_missed
        assert check.next_ms - first > LATE_MS
    else:
        assert first + late_ms - check.run_ms < LATE_MS
        assert check.next_ms - check.run_ms == first
