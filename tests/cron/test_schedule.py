"""When jobs are due, above all where clocks are changed."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from remoteclaw.cron.schedule import GRACE_S, Due, Schedule, offset_ms, stagger_s
from remoteclaw.errors import ScheduleRefused

HOUR_MS = 3600 * 1000
LATE_MS = GRACE_S * 1000
#: A moment of a winter in which nothing happens.
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
    """Return the first due time, or why there is none."""
    try:
        return schedule.first(after_ms)
    except ScheduleRefused as refused:
        return str(refused)


# -- once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "tz", "instant"),
    [
        ("2026-12-24T18:00", None, "2026-12-24T18:00Z"),
        ("2026-12-24T18:00", "Europe/Berlin", "2026-12-24T17:00Z"),
        ("2026-12-24T18:00:00+05:30", None, "2026-12-24T12:30Z"),
        ("2026-12-24T18:00+01:00", "Europe/Berlin", "2026-12-24T17:00Z"),
        ("2026-12-24T18:00Z", "Europe/London", "2026-12-24T18:00Z"),
        # What the clocks skip is due right behind; of what comes twice, the first one is meant.
        ("2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30Z"),
        ("2027-10-31T02:30+01:00", "Europe/Berlin", "2027-10-31T01:30Z"),
    ],
)
def test_a_time_is_an_instant(at: str, tz: str | None, instant: str) -> None:
    schedule = Schedule(at=at, tz=tz)

    assert schedule.first(ms(NOW)) == ms(instant)
    assert schedule.next_after(ms(instant)) is None


def test_a_time_that_makes_no_sense_is_refused_in_one_sentence() -> None:
    assert refusal(at="2026-11-21T13:00", tz="Europe/Berlin") == (
        "at '2026-11-21T13:00' is past: it is 2026-11-21T13:00:00+01:00 now."
    )
    assert refusal(at="tomorrow") == (
        "at 'tomorrow' is no time: write ISO 8601, such as 2027-01-31T09:00."
    )
    assert refusal(at="2027-03-28T02:30", tz="Europe/Berlin") == (
        "at '2027-03-28T02:30' does not exist in Europe/Berlin: the clocks skip it."
    )
    assert refusal(at="2027-03-28T12:00+05:00", tz="Europe/Berlin") == (
        "at '2027-03-28T12:00+05:00' has an offset that Europe/Berlin does not have then: "
        "leave tz out."
    )
    assert refusal(at="3000-01-02") == (
        "at '3000-01-02' is too far away: the year 2999 is the last one."
    )


# -- at intervals ---------------------------------------------------------------------------------


def test_intervals_are_counted_from_when_the_job_was_made() -> None:
    schedule = Schedule(every_s=90 * 60, anchor_ms=ms("2026-11-21T12:07Z"))

    assert upcoming(schedule, "2026-11-21T12:07Z", 3) == [
        "11-21 13:37+0000",
        "11-21 15:07+0000",
        "11-21 16:37+0000",
    ]
    assert upcoming(schedule, "2026-11-21T16:36:59Z", 1) == ["11-21 16:37+0000"]


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


def test_every_working_day_at_nine() -> None:
    schedule = Schedule(cron="0 9 * * MON-FRI", tz="America/New_York")

    assert upcoming(schedule, "2026-11-20T20:00Z", 3) == [
        "11-23 09:00-0500",
        "11-24 09:00-0500",
        "11-25 09:00-0500",
    ]


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        # 02:00 to 03:00 does not exist: it is due right behind, once, and not left out.
        ("30 2 * * *", ["03-29 03:00+0200", "03-30 02:30+0200"]),
        ("15,45 2 * * *", ["03-29 03:00+0200", "03-30 02:15+0200"]),
        ("30 2-3 * * *", ["03-29 03:00+0200", "03-29 03:30+0200", "03-30 02:30+0200"]),
        ("0 3 * * *", ["03-29 03:00+0200", "03-30 03:00+0200"]),
        # By the time that passes.
        ("30 * * * *", ["03-29 01:30+0100", "03-29 03:30+0200", "03-29 04:30+0200"]),
        ("*/20 2 * * *", ["03-30 02:00+0200", "03-30 02:20+0200"]),
    ],
)
def test_clocks_that_skip_an_hour(cron: str, times: list[str]) -> None:
    schedule = Schedule(cron=cron, tz="Europe/Berlin")

    assert upcoming(schedule, "2026-03-29T01:00+01:00", len(times)) == times


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        # 02:00 to 03:00 comes twice: it is due the first time.
        ("30 2 * * *", ["10-25 02:30+0200", "10-26 02:30+0100"]),
        ("0 2,3 * * *", ["10-25 02:00+0200", "10-25 03:00+0100", "10-26 02:00+0100"]),
        # By the time that passes.
        ("30 * * * *", ["10-25 01:30+0200", "10-25 02:30+0200", "10-25 02:30+0100"]),
        ("*/30 2 * * *", ["10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100"]),
    ],
)
def test_clocks_that_have_an_hour_twice(cron: str, times: list[str]) -> None:
    schedule = Schedule(cron=cron, tz="Europe/Berlin")

    assert upcoming(schedule, "2026-10-25T01:00+02:00", len(times)) == times


@pytest.mark.parametrize(
    ("tz", "after", "cron", "times"),
    [
        # New York skips 02:00 to 03:00, and has 01:00 to 02:00 twice.
        ("America/New_York", "2026-03-08T01:00-05:00", "30 2 * * *",
         ["03-08 03:00-0400", "03-09 02:30-0400"]),
        ("America/New_York", "2026-03-08T01:00-05:00", "30 * * * *",
         ["03-08 01:30-0500", "03-08 03:30-0400"]),
        ("America/New_York", "2026-11-01T01:00-04:00", "30 1 * * *",
         ["11-01 01:30-0400", "11-02 01:30-0500"]),
        ("America/New_York", "2026-11-01T01:00-04:00", "30 * * * *",
         ["11-01 01:30-0400", "11-01 01:30-0500", "11-01 02:30-0500"]),
        # Lord Howe Island skips 02:00 to 02:30, and has 01:30 to 02:00 twice.
        ("Australia/Lord_Howe", "2026-10-04T01:00+10:30", "15 2 * * *",
         ["10-04 02:30+1100", "10-05 02:15+1100"]),
        ("Australia/Lord_Howe", "2026-04-05T01:00+11:00", "45 1 * * *",
         ["04-05 01:45+1100", "04-06 01:45+1030"]),
        # What is due seldom, across changes of many years.
        ("Europe/Berlin", "2026-03-01T00:00+01:00", "*/30 2 25 10 *",
         ["10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100"]),
    ],
)  # fmt: skip
def test_clocks_that_change_elsewhere(tz: str, after: str, cron: str, times: list[str]) -> None:
    assert upcoming(Schedule(cron=cron, tz=tz), after, len(times)) == times


def test_between_the_two_hours_of_the_same_name_nothing_comes_again() -> None:
    schedule = Schedule(cron="30 2 * * *", tz="Europe/Berlin")

    assert upcoming(schedule, "2026-10-25T02:10+01:00", 1) == ["10-26 02:30+0100"]


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


def numbers(field: list[int] | str, most: int) -> set[int]:
    if isinstance(field, list):
        return set(field)
    return set(range(0, most, int(field.partition("/")[2] or 1)))


def written(field: list[int] | str) -> str:
    return field if isinstance(field, str) else ",".join(map(str, field))


def minute_by_minute(
    minutes: list[int] | str, hours: list[int] | str, zone: ZoneInfo, after: datetime, days: int
) -> list[datetime]:
    """Return when Debian's cron, which wakes every minute, would run a job."""
    goes_by_time = isinstance(minutes, str) or isinstance(hours, str)
    wanted = {(hour, minute) for hour in numbers(hours, 24) for minute in numbers(minutes, 60)}
    found = []
    before = after.astimezone(zone)
    for passed in range(1, days * 24 * 60):
        now = (after.astimezone(UTC) + timedelta(minutes=passed)).astimezone(zone)
        is_due = (now.hour, now.minute) in wanted and (goes_by_time or not now.fold)
        skipped = now.replace(tzinfo=None) - before.replace(tzinfo=None) - timedelta(minutes=1)
        if not goes_by_time:
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
def test_what_is_due_is_what_a_look_every_minute_would_find(
    change: tuple[str, str], minutes: list[int] | str, hours: list[int] | str
) -> None:
    name, start = change
    # Where clocks change by half an hour, cronsim skips minutes of what follows elapsed time.
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


@given(
    change=CHANGES,
    minutes=MINUTES,
    hours=HOURS,
    days=st.sampled_from(["* *", "1 *", "* 3,10", "L *"]),
    most_s=st.integers(0, 3600),
    name=st.text(max_size=8),
)
def test_due_times_only_ever_increase_and_none_comes_twice(
    change: tuple[str, str],
    minutes: list[int] | str,
    hours: list[int] | str,
    days: str,
    most_s: int,
    name: str,
) -> None:
    """Whoever asks between two due times is told the second; put off, all are by as much."""
    zone, start = change
    # As above.
    assume(zone != "Australia/Lord_Howe" or (not isinstance(minutes, str) and hours != "*"))
    cron = f"{written(minutes)} {written(hours)} {days} *"
    offset = offset_ms(name, most_s)
    exact = Schedule(cron=cron, tz=zone)
    schedule = Schedule(cron=cron, tz=zone, stagger_s=most_s, offset_ms=offset)
    at_ms = int(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)

    for _ in range(20):
        due = schedule.next_after(at_ms)
        assert due is not None
        assert due > at_ms
        for between in (at_ms + 1, (at_ms + due) // 2, due - 1):
            assert between == due or schedule.next_after(between) == due
        assert exact.next_after(due - offset - 1) == due - offset
        assert 0 <= offset <= most_s * 1000
        at_ms = due


@pytest.mark.parametrize(
    ("cron", "wanted", "found"),
    [
        ("0 9 * * *", None, 300),
        ("00 * * * *", None, 300),
        ("0 9 * * *", 0, 0),
        ("0 9 * * *", 7, 7),
        ("30 9 * * *", None, 0),
        ("*/30 * * * *", None, 0),
        ("", None, 0),
        (None, None, 0),
    ],
)
def test_what_is_put_off(cron: str | None, wanted: int | None, found: int) -> None:
    assert stagger_s(cron, wanted) == found


def test_what_is_put_off_begins_with_the_next_full_hour() -> None:
    """A job that is made at two past nine is not due at three past nine for that."""
    schedule = Schedule(cron="0 9 * * *", stagger_s=300, offset_ms=180_000)

    assert schedule.first(ms("2026-11-21T09:02Z")) == ms("2026-11-22T09:03Z")
    assert schedule.first(ms("2026-11-21T08:59Z")) == ms("2026-11-21T09:03Z")


def test_jobs_are_put_off_by_different_times_each_always_by_the_same() -> None:
    offsets = [offset_ms(str(number), 300) for number in range(100)]

    assert offsets == [offset_ms(str(number), 300) for number in range(100)]
    assert len(set(offsets)) > 60
    assert all(offset % 1000 == 0 for offset in offsets)


def test_an_expression_that_makes_no_sense_is_refused_in_one_sentence() -> None:
    assert refusal(cron="0 9 * *") == (
        "cron '0 9 * *' has 4 fields and needs five: minute, hour, day of the month, month, "
        "day of the week."
    )
    assert refusal(cron="* * * * * *").startswith("cron '* * * * * *' has 6 fields")
    assert refusal(cron="0 24 * * *") == "cron '0 24 * * *' has no valid hour."
    assert refusal(cron="0 9 * * FREITAG") == "cron '0 9 * * FREITAG' has no valid day of the week."
    assert refusal(cron="0 9 32 2 *") == "cron '0 9 32 2 *' has no valid day of the month."
    for never in ("0 9 31 2 *", "0 9 30 FEB *", "0 9 31 4,6 *"):
        assert refusal(cron=never) == f"cron {never!r} is never due: no such day comes."
    assert refusal(cron="0 9 * * *", tz="Europe/Berln") == (
        "There is no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'?"
    )
    for zone in ("Europe", "/etc/localtime", "../../etc/passwd", "\0", "x" * 64, ""):
        assert refusal(cron="0 9 * * *", tz=zone).startswith(f"There is no time zone {zone!r}; ")


@given(cron=st.text("0123456789*/,-#LWMONFEB ?²", max_size=30), after=st.integers(0, 2**42))
def test_no_expression_does_anything_but_being_due_or_refused(cron: str, after: int) -> None:
    told = answer(Schedule(cron=cron, tz="America/Santiago"), after)

    assert told.startswith("cron ") if isinstance(told, str) else told > after


@given(at=st.text(max_size=64), tz=st.none() | st.text(max_size=64))
def test_no_time_does_anything_but_being_due_or_refused(at: str, tz: str | None) -> None:
    told = answer(Schedule(at=at, tz=tz), ms(NOW))

    assert told.endswith((".", "?")) if isinstance(told, str) else told > ms(NOW)


# -- a look at what is due ------------------------------------------------------------------------


def test_what_is_due_is_run_and_due_again() -> None:
    schedule = Schedule(cron="0 * * * *")
    due = ms("2026-11-21T12:00Z")

    assert schedule.due(due, due + 800) == Due(due, False, due + HOUR_MS)


def test_of_what_was_missed_the_latest_is_run_once() -> None:
    schedule = Schedule(cron="*/10 * * * *")
    due = ms("2026-11-21T12:00Z")

    look = schedule.due(due, ms("2026-11-21T12:34Z"))

    assert look == Due(ms("2026-11-21T12:30Z"), True, ms("2026-11-21T12:40Z"))


def test_what_is_more_than_an_hour_late_is_not_run() -> None:
    schedule = Schedule(cron="0 9 * * *")
    due = ms("2026-11-21T09:00Z")

    assert schedule.due(due, due + LATE_MS - 1).run_ms == due
    assert schedule.due(due, due + LATE_MS) == Due(None, True, ms("2026-11-22T09:00Z"))


def test_after_a_month_a_job_of_each_minute_is_run_once() -> None:
    schedule = Schedule(cron="* * * * *")

    look = schedule.due(ms("2026-10-21T12:00Z"), ms("2026-11-21T12:00:30Z"))

    assert look == Due(ms("2026-11-21T12:00Z"), True, ms("2026-11-21T12:01Z"))


def test_however_late_the_latest_is_run_where_that_is_wanted() -> None:
    schedule = Schedule(cron="0 9 * * *")

    look = schedule.due(ms("2025-11-21T09:00Z"), ms("2026-11-21T12:00Z"), at_any_age=True)

    assert look == Due(ms("2026-11-21T09:00Z"), True, ms("2026-11-22T09:00Z"))


@given(
    cron=st.sampled_from(["* * * * *", "*/7 3 * * *", "0 9 * * MON", "30 2 * * *", "0 0 29 2 *"]),
    first=st.integers(0, 400),
    late_minutes=st.integers(0, 60 * 24 * 3),
)
def test_of_what_is_due_the_latest_is_found(cron: str, first: int, late_minutes: int) -> None:
    schedule = Schedule(cron=cron, tz="Europe/Berlin")
    due = schedule.next_after(ms("2026-03-20T00:00Z") + first * HOUR_MS) or 0
    now = due + late_minutes * 60_000
    latest, upcoming = due, schedule.next_after(due) or 0
    while upcoming <= now:
        latest, upcoming = upcoming, schedule.next_after(upcoming) or 0

    assert schedule.due(due, now, at_any_age=True) == Due(latest, latest != due, upcoming)


def test_what_is_due_once_is_done_with() -> None:
    schedule = Schedule(at="2026-11-21T12:00")
    due = ms("2026-11-21T12:00Z")

    assert schedule.due(due, due) == Due(due, False, None)
    assert schedule.due(due, due + 2 * HOUR_MS) == Due(None, True, None)


@given(
    every_s=st.integers(60, 100_000),
    late_ms=st.integers(0, 10 * LATE_MS),
)
def test_a_look_leaves_nothing_due(every_s: int, late_ms: int) -> None:
    schedule = Schedule(every_s=every_s)
    first = every_s * 1000

    look = schedule.due(first, first + late_ms)

    assert look.next_ms is not None
    assert look.next_ms > first + late_ms
    if look.run_ms is None:
        assert look.has_missed
        assert look.next_ms - first > LATE_MS
    else:
        assert first + late_ms - look.run_ms < LATE_MS
        assert look.next_ms - look.run_ms == first
