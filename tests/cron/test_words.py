"""Schedules in words: what each form means, what is refused, and the words of a schedule."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.words import (
    EXAMPLES,
    NO_DATE,
    NO_INTERVAL,
    NO_TIME,
    NO_TIME_OF_DAY,
    SEVERAL_MINUTES,
    UNKNOWN,
    in_words,
    read_schedule,
    split_schedule,
)
from remoteclaw.errors import ScheduleRefused
from tests.support.agents import ROOT
from tests.support.rows import for_each

BERLIN = "Europe/Berlin"
#: A Friday.
NOW = "2026-11-27T10:15:30+01:00"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def read(text: str, now: str = NOW, zone: str = BERLIN) -> Schedule:
    return read_schedule(text, ms(now), zone)


def first(text: str, now: str = NOW, zone: str = BERLIN) -> str:
    schedule = read(text, now, zone)
    at_ms = schedule.first(ms(now))
    return datetime.fromtimestamp(at_ms / 1000, tz=ZoneInfo(schedule.tz or zone)).isoformat()


def refusal(text: str) -> str:
    with pytest.raises(ScheduleRefused) as refused:
        read(text)
    return str(refused.value)


@for_each(
    ("text", "expression", "words"),
    [
        ("every day at 18:30", "30 18 * * *", "every day at 18:30"),
        ("daily at 7.30", "30 7 * * *", "every day at 07:30"),
        ("every weekday at 9", "0 9 * * MON-FRI", "every weekday at 09:00"),
        ("Weekdays at 9 a.m.", "0 9 * * MON-FRI", "every weekday at 09:00"),
        ("at 9 every weekday", "0 9 * * MON-FRI", "every weekday at 09:00"),
        ("on weekends at noon", "0 12 * * SAT,SUN", "every weekend at 12:00"),
        ("every Monday and Thursday at 9:15", "15 9 * * MON,THU",
         "every Monday and Thursday at 09:15"),
        ("every mon to wed and fri at 8pm", "0 20 * * MON,TUE,WED,FRI",
         "every Monday, Tuesday, Wednesday and Friday at 20:00"),
        ("every sunday-monday at 8", "0 8 * * MON,SUN", "every Monday and Sunday at 08:00"),
        ("tuesdays, at midnight", "0 0 * * TUE", "every Tuesday at 00:00"),
        ("every day at 9, 13 and at 18", "0 9,13,18 * * *", "every day at 09:00, 13:00 and 18:00"),
        ("each hour at :05", "5 * * * *", "every hour at :05"),
        ("on the 1st of every month at 8", "0 8 1 * *", "on the 1st of every month at 08:00"),
        ("the 15th, 2nd and 23rd of the month at 12am", "0 0 2,15,23 * *",
         "on the 2nd, 15th and 23rd of every month at 00:00"),
        ("on the last day of each month at 12 pm", "0 12 L * *",
         "on the last day of every month at 12:00"),
        ("on the first monday of every month at 9", "0 9 * * 1#1",
         "on the first Monday of every month at 09:00"),
        ("on the last sunday of every month at 9", "0 9 * * 0L",
         "on the last Sunday of every month at 09:00"),
        ("every year on 3 March at 9", "0 9 3 3 *", "every year on 3 March at 09:00"),
        ("every feb 29th at 9", "0 9 29 2 *", "every year on 29 February at 09:00"),
        ("“0 9 * * 1-5”", "0 9 * * 1-5", "every weekday at 09:00"),
        ("*/10 8-18 * * *", "*/10 8-18 * * *", "*/10 8-18 * * *"),
        ("0 9 1 * MON", "0 9 1 * MON", "0 9 1 * MON"),
        ("0 9 * * 0,6", "0 9 * * 0,6", "every weekend at 09:00"),
        ("0 9 * * SUN-TUE", "0 9 * * SUN-TUE", "every Monday, Tuesday and Sunday at 09:00"),
        ("0 9 11-13 * *", "0 9 11-13 * *", "0 9 11-13 * *"),
    ],
)  # fmt: skip
def test_what_recurs_is_an_expression_and_has_words(text: str, expression: str, words: str) -> None:
    schedule = read(text)

    assert schedule == Schedule(cron=expression, tz=BERLIN, anchor_ms=ms(NOW))
    assert in_words(schedule) == words


def test_a_time_in_a_zone_that_this_host_does_not_know_has_words() -> None:
    schedule = Schedule(at="2026-11-27T10:15:30+01:00", tz="Mars/Olympus")

    assert in_words(schedule) == "on 27 November 2026 at 09:15"


@for_each(
    ("text", "seconds", "words"),
    [
        ("every minute", 60, "every minute"),
        ("every 20 minutes", 1200, "every 20 minutes"),
        ("each 90 min", 5400, "every 90 minutes"),
        ("every 1 hour", 3600, "every hour"),
        ("every 2h", 7200, "every 2 hours"),
        ("every 1 day", 86_400, "every 24 hours"),
        ("every 3 days", 259_200, "every 3 days"),
        ("every 2 weeks", 1_209_600, "every 2 weeks"),
        ("every 61 s", 61, "every 61 seconds"),
    ],
)
def test_an_interval_counts_from_now(text: str, seconds: int, words: str) -> None:
    schedule = read(text)

    assert schedule == Schedule(every_s=seconds, anchor_ms=ms(NOW))
    assert in_words(schedule) == words


@for_each(
    ("text", "time"),
    [
        ("in 45 minutes", "2026-11-27T11:00:30+01:00"),
        ("in half an hour", "2026-11-27T10:45:30+01:00"),
        ("in 1 hour and 30 minutes", "2026-11-27T11:45:30+01:00"),
        ("in 1h30min", "2026-11-27T11:45:30+01:00"),
        ("in a week", "2026-12-04T10:15:30+01:00"),
        ("in 3 days at 9", "2026-11-30T09:00:00+01:00"),
        ("at 9", "2026-11-28T09:00:00+01:00"),
        ("11 am", "2026-11-27T11:00:00+01:00"),
        ("at noon", "2026-11-27T12:00:00+01:00"),
        ("today at 18:00", "2026-11-27T18:00:00+01:00"),
        ("tomorrow at 9", "2026-11-28T09:00:00+01:00"),
        ("9:30 tomorrow", "2026-11-28T09:30:00+01:00"),
        ("monday at 9", "2026-11-30T09:00:00+01:00"),
        ("on Friday at 11", "2026-11-27T11:00:00+01:00"),
        ("on fri at 9", "2026-12-04T09:00:00+01:00"),  # today, but past
        ("on 3 March at 14:00", "2027-03-03T14:00:00+01:00"),
        ("March 3rd, 2028 at 2pm", "2028-03-03T14:00:00+01:00"),
        ("27 november at 9", "2027-11-27T09:00:00+01:00"),
        ("on 29 of February at 9", "2028-02-29T09:00:00+01:00"),
        ("on 2027-07-03 at 14:00", "2027-07-03T14:00:00+02:00"),
        ("2027-07-03 14:00", "2027-07-03T14:00:00+02:00"),
        ("2027-07-03T14:00Z", "2027-07-03T16:00:00+02:00"),
        ("tomorrow at 9 in America/New_York", "2026-11-28T09:00:00-05:00"),
        ("tomorrow at 9 (UTC)", "2026-11-28T09:00:00+00:00"),
        ("tomorrow at 9 utc", "2026-11-28T09:00:00+00:00"),
        ("tomorrow at 9 in america/new_york", "2026-11-28T09:00:00-05:00"),
    ],
)
def test_a_time_that_comes_once_is_the_next_one(text: str, time: str) -> None:
    assert first(text) == time


@for_each(
    ("text", "now", "time"),
    [
        # Days keep the time of day across a change of the clocks; hours are elapsed time.
        ("in 1 day", "2026-10-24T12:00+02:00", "2026-10-25T12:00:00+01:00"),
        ("in 24 hours", "2026-10-24T12:00+02:00", "2026-10-25T11:00:00+01:00"),
        ("in 45 minutes", "2026-10-25T02:30+02:00", "2026-10-25T02:15:00+01:00"),
        ("in 45 minutes", "2026-03-29T01:30+01:00", "2026-03-29T03:15:00+02:00"),
        ("tomorrow at 2:30", "2026-03-28T12:00+01:00", "2026-03-29T03:30:00+02:00"),
        ("every day at 2:30", "2026-03-28T12:00+01:00", "2026-03-29T03:00:00+02:00"),
        # Of a repeated time, the first one counts, and that is past in the second pass.
        ("at 2:30", "2026-10-25T02:15+02:00", "2026-10-25T02:30:00+02:00"),
        ("at 2:30", "2026-10-25T02:15+01:00", "2026-10-26T02:30:00+01:00"),
        # At midnight in Berlin, it is still the day before in UTC.
        ("tomorrow at 9", "2026-11-27T23:30Z", "2026-11-29T09:00:00+01:00"),
    ],
)
def test_words_near_a_clock_change_and_near_midnight(text: str, now: str, time: str) -> None:
    assert first(text, now) == time


@for_each(
    ("text", "template"),
    [
        *((text, UNKNOWN) for text in (
            "every blue moon", "jeden Tag um 9", "next monday at 9", "every 2 days at 9", "",
            "every other day", "tomorrow at 9 and 10", "every monday to friday to sunday at 9",
            "at", "every", "in", "tomorrow 9", "on 3/4 at 9", "9", "every day at 9 or so",
        )),
        *((text, NO_TIME_OF_DAY) for text in ("every weekday", "every monday", "tomorrow",
          "on 3 March 2027", "on the 1st of every month", "every year on 3 march")),
        *((text, NO_DATE) for text in ("on 31 February at 9", "on 30 february 2027 at 9",
          "on the 32nd of every month at 9", "every 31 june at 9", "on 2027-02-30 at 9")),
        *((text, NO_INTERVAL) for text in ("every 30 seconds", "every 400 days", "every 0 min")),
        ("every day at 9 and 18:30", SEVERAL_MINUTES),
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_one_sentence(text: str, template: str) -> None:
    assert refusal(text) == template.format(text=text, examples=EXAMPLES)


def test_the_examples_of_the_refusal_and_of_the_page_are_schedules() -> None:
    page = (ROOT / "docs/cron.md").read_text().partition("| words | the job is due |")[2]
    rows = [line.split("|")[1] for line in page.partition("\n\n")[0].splitlines()[2:]]
    examples = [*re.findall("“(.+?)”", EXAMPLES), *re.findall("`(.+?)`", "".join(rows))]

    assert len(examples) == 30
    for text in examples:
        assert read(text).first(ms(NOW)) > ms(NOW), text


def test_a_refusal_names_the_part_that_is_wrong() -> None:
    for time in ("25", "13 pm", "0am", "9:60"):
        assert refusal(f"every day at {time}") == NO_TIME.format(text=time)
    assert refusal("every day at 9 Europe/Berln") == (
        "There is no time zone 'Europe/Berln': write one such as Europe/Berlin."
    )
    assert refusal("sometimes in Europe/Berln").startswith("“sometimes” is no schedule")
    assert refusal("every day at 9 " * 20) == "A schedule in words has at most 200 characters."


@for_each(
    ("text", "words", "message"),
    [
        ("every weekday at 9: What is new?", "every weekday at 9", "What is new?"),
        ("every weekday at 9 What is new at 9?", "every weekday at 9", "What is new at 9?"),
        ("every day at 9:30\nWhat is new:\n- a", "every day at 9:30", "What is new:\n- a"),
        ("“every day at 9” “What is new?”", "every day at 9", "What is new?"),
        ("'every day at 9' say \"hello\"", "every day at 9", 'say "hello"'),
        ("every hour at :05: Look.", "every hour at :05", "Look."),
        ("tomorrow at 9, 3 people come", "tomorrow at 9,", "3 people come"),
        ("tomorrow at 9 – call Ada: she waits", "tomorrow at 9", "call Ada: she waits"),
        ("in 45 minutes look at src/main", "in 45 minutes", "look at src/main"),
        ("in 45 minutes src/main is done", "in 45 minutes", "src/main is done"),
        ("at 9 in Asia/Tokyo get up", "at 9 in Asia/Tokyo", "get up"),
        ("0 9 * * MON-FRI 5 people", "0 9 * * MON-FRI", "5 people"),
        ("2027-01-31 09:00 Renew it.", "2027-01-31 09:00", "Renew it."),
        ("every day at 9", "every day at 9", ""),
        (f"every day at 9 {'word ' * 99}end", "every day at 9", f"{'word ' * 99}end"),
    ],
)
def test_a_message_follows_its_schedule(text: str, words: str, message: str) -> None:
    assert split_schedule(text, ms(NOW), BERLIN) == (words, message)


@for_each(
    ("text", "why"),
    [
        ("every monday: look", NO_TIME_OF_DAY.format(text="every monday")),
        ("every monday look", NO_TIME_OF_DAY.format(text="every monday")),
        ("every day at 9 and 18:30 look", SEVERAL_MINUTES.format(text="every day at 9 and 18:30")),
        ("tomorrow at 25 look", NO_TIME.format(text="25")),
        ("look at it", UNKNOWN.format(text="look at it", examples=EXAMPLES)),
        ("“sometimes” look", UNKNOWN.format(text="sometimes", examples=EXAMPLES)),
        ("0 9 * *: look", "cron '0 9 * *' has 4 fields and needs five: minute, hour, day of the "
         "month, month, day of the week."),
        ("", UNKNOWN.format(text="", examples=EXAMPLES)),
    ],
)  # fmt: skip
def test_a_message_without_a_schedule_is_refused(text: str, why: str) -> None:
    def due() -> int:
        return read(split_schedule(text, ms(NOW), BERLIN)[0]).first(ms(NOW))

    with pytest.raises(ScheduleRefused) as refused:
        due()
    assert str(refused.value) == why


# -- any text, any schedule -----------------------------------------------------------------------

WORDS = st.sampled_from(
    "every each day weekday monday tue and , to on the 1st 31st last first of month year in 45 a "
    "half hour minutes weeks at 9 18:30 9am 13pm noon tomorrow today march 29 feb 2027 UTC "
    "Europe/Berlin * */5 0 MON-FRI".split()
)


@given(text=st.lists(WORDS, max_size=9).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = read(text)
        result = in_words(schedule) if schedule.first(ms(NOW)) else ""
    except ScheduleRefused as refused:
        result = str(refused) if str(refused).endswith((".", "?")) else ""

    assert result


NUMBERS = st.sampled_from("0 1 2 3 4 5 6 7 MON SUN THU".split())
WEEKDAYS = st.one_of(
    st.sampled_from(["*", "MON-FRI", "1-5", "SAT,SUN", "1#1", "FRI#4", "0L", "7L", "SUN-THU"]),
    st.lists(NUMBERS, min_size=1, max_size=4).map(",".join),
)
DAYS = st.one_of(
    WEEKDAYS.map(lambda weekdays: f"* * {weekdays}"),
    st.lists(st.integers(1, 31).map(str), min_size=1, max_size=3).map(
        lambda days: f"{','.join(days)} * *"
    ),
    st.just("L * *"),
    st.tuples(st.integers(1, 28), st.integers(1, 12)).map("{0[0]} {0[1]} *".format),
)
HOURS = st.lists(st.integers(0, 23).map(str), min_size=1, max_size=3).map(",".join)
EXPRESSIONS = st.one_of(
    st.tuples(st.integers(0, 59), HOURS, DAYS).map("{0[0]} {0[1]} {0[2]}".format),
    st.integers(0, 59).map("{} * * * *".format),
)
#: Moments at and around changes of the clocks.
ZONES = st.sampled_from([BERLIN, "America/New_York", "America/Santiago", "Asia/Kolkata", "UTC"])
MOMENTS = st.integers(ms("2026-01-01T00:00Z"), ms("2028-01-01T00:00Z"))


@given(expression=EXPRESSIONS, zone=ZONES, now_ms=MOMENTS)
def test_the_words_of_an_expression_mean_the_same_due_times(
    expression: str, zone: str, now_ms: int
) -> None:
    schedule = Schedule(cron=expression, tz=zone)
    words = in_words(schedule)

    again = read_schedule(words, now_ms, zone)

    assert words != expression
    assert again.upcoming(now_ms, 4) == schedule.upcoming(now_ms, 4)
    assert in_words(again) == words


@given(seconds=st.integers(60, 366 * 24 * 3600))
def test_the_words_of_an_interval_mean_that_interval(seconds: int) -> None:
    assert read(in_words(Schedule(every_s=seconds))).every_s == seconds


@given(now_ms=MOMENTS, minutes=st.integers(1, 9999), zone=ZONES)
def test_minutes_from_now_are_elapsed_time_in_any_zone(
    now_ms: int, minutes: int, zone: str
) -> None:
    schedule = read_schedule(f"in {minutes} minutes", now_ms, zone)

    assert schedule.first(now_ms) == (now_ms // 1000 + minutes * 60) * 1000


@given(now_ms=MOMENTS, hour=st.integers(0, 23), minute=st.integers(0, 59), zone=ZONES)
def test_a_time_of_day_is_the_next_one_in_any_zone(
    now_ms: int, hour: int, minute: int, zone: str
) -> None:
    schedule = read_schedule(f"at {hour}:{minute:02}", now_ms, zone)

    due_ms, later = schedule.first(now_ms), datetime.fromisoformat(schedule.at or "")
    assert (later.hour, later.minute) == (hour, minute)
    assert now_ms < due_ms <= now_ms + 26 * 3_600_000  # a day with a change of the clocks
    with pytest.raises(ScheduleRefused):  # a day earlier, it is past
        replace(schedule, at=str(later - timedelta(days=1))).first(now_ms)
    assert read_schedule(in_words(schedule), now_ms, zone).at == schedule.at
