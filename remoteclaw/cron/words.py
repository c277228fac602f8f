"""Schedules in English words, such as "every weekday at 9": a closed grammar, read and written.

Each form means a time, an interval or a cron expression, so a job stores no words. `in_words()`
writes words that `read_schedule()` reads. Everything else is refused with examples: a guess that is
wrong would be noticed only when the job is not due.
"""

import re
from calendar import day_abbr, day_name, month_abbr, month_name
from collections.abc import Iterable, Set
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from remoteclaw.clock import named_zone
from remoteclaw.cron.schedule import Schedule, schedule_zone
from remoteclaw.errors import ScheduleRefused
from remoteclaw.tools.cron import MAX_INTERVAL_S, MIN_INTERVAL_S

EXAMPLES = (
    "“every weekday at 9”, “every Monday and Thursday at 9:15”, “every 20 minutes”, “on the 1st of "
    "every month at 8”, “tomorrow at noon”, “in 45 minutes”, “on 3 March at 14:00”, or five fields "
    "such as “0 9 * * MON-FRI”"
)
UNKNOWN = "“{text}” is no schedule: write for example {examples}."
NO_TIME_OF_DAY = "“{text}” lacks the time of day: write it as in “{text} at 9:00”."
SEVERAL_MINUTES = (
    "“{text}” has times with different minutes: a job takes only times such as 9:30 and 18:30, so "
    "add one for each minute."
)
NO_TIME = "“{text}” is no time of day: write 9:30, 18:00, 6 pm, noon or midnight."
NO_INTERVAL = "“{text}” is no interval for a job: it has 1 minute to 366 days."
NO_DATE = "“{text}” is no day of the calendar."

#: The marks around a quoted schedule or message.
_QUOTES = "\"'“”„‘’«»"
#: The longest form, with lists of weekdays or of days of the month, is shorter.
MAX_CHARS = 200

#: The lengths of units in seconds, the longest first.
_UNITS = {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
_DAY_S = _UNITS["day"]
_UNIT_NAMES = {
    **{name: unit for unit in _UNITS for name in (unit, f"{unit}s")},
    **dict.fromkeys(("h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("min", "mins"), "minute"),
    **dict.fromkeys(("s", "sec", "secs"), "second"),
}
#: The names of weekdays in cron expressions, from Monday.
_DAYS = [name.upper() for name in day_abbr]
_DAY_NAMES = {
    **{name.lower(): day for name, day in zip(day_name, range(7), strict=True)},
    **{name.lower(): day for name, day in zip(day_abbr, range(7), strict=True)},
    **{"tues": 1, "thur": 3, "thurs": 3},
}
#: Sets of weekdays with a name, by their numbers from Monday.
_SETS = {"day": frozenset(range(7)), "weekday": frozenset(range(5)), "weekend": frozenset((5, 6))}
_FIELD_OF_SET = {"day": "*", "weekday": "MON-FRI", "weekend": "SAT,SUN"}
_MONTHS = {name.lower(): number for number, name in enumerate(month_name) if name}
_MONTHS |= {name.lower(): number for number, name in enumerate(month_abbr) if name}
_MONTHS |= {"sept": 9}
_NTH = {"first": "#1", "second": "#2", "third": "#3", "fourth": "#4", "last": "L"}


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern for one of `names`, the longest one that fits."""
    return f"(?:{'|'.join(sorted(names, key=len, reverse=True))})"


_AREAS = (
    "Africa America Antarctica Arctic Asia Atlantic Australia Canada Etc Europe Indian Pacific US"
)
_ZONE = re.compile(rf"\(?(?:{_any_of(_AREAS.split())}/\S+|UTC)\)?", re.IGNORECASE)
_TIME = r"(?:noon|midnight|[0-9]{1,2}(?:[:.][0-9]{2})?(?: ?[ap]m)?)"
#: A time without `at` needs a mark of its own: in "tomorrow 2 people come", 2 is no time.
_MARKED = r"(?=noon|midnight|[0-9]{1,2}:|[0-9]{1,2} ?[ap]m)"
_TIMES = rf"(?:at |{_MARKED})(?P<times>{_TIME}(?:(?: and |, ?)(?:at )?{_TIME})*)"
_AND = r"(?:,? and |, ?)"
_DAY = _any_of(_DAY_NAMES)
_DAYS_IN_GENERAL = rf"(?:{_any_of(name.lower() for name in day_name)}s)"
_NUMBER = r"[0-9]{1,2}(?:st|nd|rd|th)?"
_MONTH = _any_of(_MONTHS)
_CALENDAR_DAY = rf"(?:(?P<d>{_NUMBER})(?: of)? (?P<m>{_MONTH})|(?P<m2>{_MONTH}) (?P<d2>{_NUMBER}))"
_UNIT = _any_of(_UNIT_NAMES)
_AMOUNT = rf"(?:(?:half )?an?|[0-9]{{1,4}}) ?{_UNIT}"
_FIELD = r"[0-9*][0-9*,/-]*"

# The forms that stand for themselves.
_EVERY_SO_OFTEN = re.compile(rf"(?:every|each) (?:(?P<n>[0-9]{{1,8}}) ?)?(?P<unit>{_UNIT})")
_EVERY_HOUR_AT = re.compile(r"(?:every|each) hour at :(?P<minute>[0-5][0-9])")
_AFTER = re.compile(rf"in (?P<amounts>{_AMOUNT}(?:(?: and |, | )?{_AMOUNT})*)")
_ISO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]\S*")
_FIELDS = re.compile(rf"{_FIELD} {_FIELD}(?: \S+)*")
# The forms of days, which need times; first those that recur.
_DAYS_THEN_TIMES = re.compile(rf"(?:(?P<days>.+?),? )??{_TIMES}")
_TIMES_THEN_DAYS = re.compile(rf"{_TIMES},? (?P<days>.+)")
_ON_DAYS = re.compile(
    rf"(?:every |each )(?P<set>day|weekday|weekend)|daily|(?:on )?(?P<sets>weekday|weekend)s"
    rf"|(?:every |each )(?P<days>{_DAY}(?:(?:{_AND}| to |-){_DAY})*)"
    rf"|(?:on )?(?P<general>{_DAYS_IN_GENERAL}(?:{_AND}{_DAYS_IN_GENERAL})*)"
)
_IN_MONTHS = re.compile(
    rf"(?:on )?the (?:(?P<d>{_NUMBER}(?:{_AND}(?:the )?{_NUMBER})*|last day)"
    rf"|(?P<nth>{_any_of(_NTH)}) (?P<day>{_DAY})) of (?:every|each|the) month"
)
_IN_YEARS = re.compile(rf"(?:every|each) (?:year on )?{_CALENDAR_DAY}")
_DATE = re.compile(rf"(?:on )?{_CALENDAR_DAY}(?:,? (?P<y>[0-9]{{4}}))?")
_ISO_DATE = re.compile(r"(?:on )?([0-9]{4})-([0-9]{2})-([0-9]{2})")
_WEEKDAY = re.compile(rf"(?:on )?({_DAY})")
_IN_DAYS = re.compile(r"in (an?|[0-9]{1,3}) (day|week)s?")

#: The number of years within which each day of a year comes, 29 February too.
_LEAP_YEARS = 9


class _Unknown(ScheduleRefused):
    """Raised for a text that has no form of the grammar."""


def read_schedule(text: str, now_ms: int, zone: str) -> Schedule:
    """Return the schedule that `text` means at `now_ms`, with its times in `zone`.

    A zone at the end of the text, such as Europe/Berlin, replaces `zone`. A time of day without a
    day, a weekday and a date without a year mean the next one. Raises `ScheduleRefused` with one
    sentence for the text's author. The schedule may still be past, or never due.
    """
    words = text.strip(f"{_QUOTES} \t\n.,;").split()
    if _ZONE.fullmatch(words[-1] if words[1:] else ""):
        named = words.pop().strip("()")
        words = words[:-1] if words[-1] == "in" else words
        spellings = (named, named.title(), named.upper())
        found = next(filter(named_zone, spellings), None)
        if found is None:
            read_schedule(" ".join(words), now_ms, zone)  # if it is no schedule, say that
        zone = found or named
    given = " ".join(words)
    if len(given) > MAX_CHARS:
        raise ScheduleRefused(f"A schedule in words has at most {MAX_CHARS} characters.")
    now = datetime.fromtimestamp(now_ms / 1000, tz=schedule_zone(zone))
    return replace(_Text(given, zone, now).schedule(), anchor_ms=now_ms)


def split_schedule(text: str, now_ms: int, zone: str) -> tuple[str, str]:
    """Return the schedule at the beginning of `text`, with single spaces, and the rest.

    The schedule ends with its quotes, its line or a colon, or else where no longer beginning is a
    schedule. Raises `ScheduleRefused` as `read_schedule()` does.
    """
    text = text.strip()
    if quoted := re.fullmatch(rf"[{_QUOTES}]([^{_QUOTES}]+)[{_QUOTES}](.*)", text, re.DOTALL):
        read_schedule(quoted[1], now_ms, zone)
        return " ".join(quoted[1].split()), _message(quoted[2])
    line = re.split(r"\n|:\s", text, maxsplit=1)[0]
    ends = [end for match in re.finditer(r"\S+", line) if (end := match.end()) <= MAX_CHARS]
    if re.match(rf"{_FIELD} {_FIELD} ", line):
        ends = ends[4:5] or ends[-1:]
    for end in reversed(ends):
        try:
            read_schedule(text[:end], now_ms, zone)
        except _Unknown:
            continue
        return " ".join(text[:end].split()), _message(text[end:])
    raise _unknown(line)


def _message(text: str) -> str:
    """Return the message after a schedule without what separates and quotes it."""
    text = text.lstrip(" \t\n:,–—-").rstrip()
    quoted = re.fullmatch(rf"[{_QUOTES}]([^{_QUOTES}]+)[{_QUOTES}]", text)
    return quoted[1] if quoted else text


class _Text:
    """A text that means a schedule."""

    def __init__(self, given: str, zone: str, now: datetime) -> None:
        self._given, self._zone, self._now = given, zone, now

    def schedule(self) -> Schedule:
        """Return the schedule."""
        given = self._given
        if _FIELDS.fullmatch(given) and (given.count(" ") == 4 or "*" in given):
            return Schedule(cron=given, tz=self._zone)
        if _ISO_TIME.fullmatch(given):
            return Schedule(at=given.upper().replace(" ", "T", 1), tz=self._zone)
        text = re.sub(r"\b([ap])\.m\b\.?", r"\1m", given.lower())
        if match := _EVERY_SO_OFTEN.fullmatch(text):
            unit = _UNIT_NAMES[match["unit"]]
            if match["n"] or unit in ("hour", "minute"):
                return self._interval(int(match["n"] or 1) * _UNITS[unit])
        if match := _EVERY_HOUR_AT.fullmatch(text):
            return Schedule(cron=f"{int(match['minute'])} * * * *", tz=self._zone)
        if match := _AFTER.fullmatch(text):
            return Schedule(at=self._after(match["amounts"]).isoformat(), tz=self._zone)
        return self._at_times(text)

    def _interval(self, seconds: int) -> Schedule:
        if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
            raise ScheduleRefused(NO_INTERVAL.format(text=self._given))
        return Schedule(every_s=seconds)

    def _after(self, amounts: str) -> datetime:
        """Return the time after `amounts`. Days and weeks keep the time of day."""
        days = seconds = 0
        for half, number, name in re.findall(rf"(half )?(an?|[0-9]+) ?({_UNIT})", amounts):
            length = _UNITS[_UNIT_NAMES[name]] // (2 if half else 1)
            count = int(number) if number.isdigit() else 1
            if length % _DAY_S:
                seconds += count * length
            else:
                days += count * length // _DAY_S
        moment = self._now.replace(microsecond=0) + timedelta(days=days)
        return (moment.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(self._now.tzinfo)

    def _at_times(self, text: str) -> Schedule:
        """Return the schedule of days, or of one day, and of the times on them."""
        match = _DAYS_THEN_TIMES.fullmatch(text) or _TIMES_THEN_DAYS.fullmatch(text)
        days = match["days"] if match else text
        fields = self._fields(days) if days else None
        dates = None if fields else self._dates(days)
        if fields is None and dates is None:
            raise _unknown(self._given)
        if match is None:
            raise ScheduleRefused(NO_TIME_OF_DAY.format(text=self._given))
        times = sorted({_time_of_day(each) for each in re.findall(_TIME, match["times"])})
        if fields:
            if len({time.minute for time in times}) > 1:
                raise ScheduleRefused(SEVERAL_MINUTES.format(text=self._given))
            hours = ",".join(str(time.hour) for time in times)
            return Schedule(cron=f"{times[0].minute} {hours} {fields}", tz=self._zone)
        if len(times) > 1:
            raise _unknown(self._given)
        moments = [datetime.combine(day, times[0], self._now.tzinfo) for day in dates or ()]
        if not moments:
            raise ScheduleRefused(NO_DATE.format(text=self._given))
        # By timestamps: in the hour that is repeated, both passes have the same time of day.
        now_s = self._now.timestamp()
        moment = next((each for each in moments if each.timestamp() > now_s), moments[-1])
        at = moment.replace(tzinfo=None).isoformat(timespec="minutes")
        return Schedule(at=at, tz=self._zone)

    def _fields(self, text: str) -> str | None:
        """Return the last three fields of an expression for days that recur; None for others."""
        if match := _ON_DAYS.fullmatch(text):
            if listed := match["days"] or match["general"]:
                return f"* * {self._weekdays(re.sub('days', 'day', listed))}"
            return f"* * {_FIELD_OF_SET[match['set'] or match['sets'] or 'day']}"
        if match := _IN_MONTHS.fullmatch(text):
            if match["nth"]:
                return f"* * {(_DAY_NAMES[match['day']] + 1) % 7}{_NTH[match['nth']]}"
            numbers = sorted({int(number) for number in re.findall("[0-9]+", match["d"])})
            self._check_days(1, numbers)
            return f"{','.join(map(str, numbers)) or 'L'} * *"
        if match := _IN_YEARS.fullmatch(text):
            day, month = _day_and_month(match)
            self._check_days(month, [day])
            return f"{day} {month} *"
        return None

    def _check_days(self, month: int, days: Iterable[int]) -> None:
        if not all(_is_day(2024, month, day) for day in days):  # 2024 has all days of a year
            raise ScheduleRefused(NO_DATE.format(text=self._given))

    def _weekdays(self, text: str) -> str:
        """Return a field for a list of weekdays and of ranges of them."""
        found: set[int] = set()
        for part in re.split(_AND, text):
            first, *others = (_DAY_NAMES[name] for name in re.split(" to |-", part))
            if others[1:]:
                raise _unknown(self._given)
            count = (others[0] - first) % 7 + 1 if others else 1
            found |= {(first + passed) % 7 for passed in range(count)}
        return _weekday_field(found)

    def _dates(self, text: str | None) -> list[date] | None:
        """Return the days that can be meant, the nearest first; None for no such form."""
        today = self._now.date()
        if text in (None, "today", "tomorrow"):
            near = [today, today + timedelta(days=1)]
            return near if text is None else [near[text == "tomorrow"]]
        if match := _WEEKDAY.fullmatch(text):
            ahead = (_DAY_NAMES[match[1]] - today.weekday()) % 7
            return [today + timedelta(days=days) for days in (ahead, ahead + 7)]
        if match := _IN_DAYS.fullmatch(text):
            count = int(match[1]) if match[1].isdigit() else 1
            return [today + timedelta(days=count * (7 if match[2] == "week" else 1))]
        if match := _ISO_DATE.fullmatch(text):
            years, month, day = [int(match[1])], int(match[2]), int(match[3])
        elif match := _DATE.fullmatch(text):
            years = [today.year + passed for passed in range(_LEAP_YEARS)]
            years = [int(match["y"])] if match["y"] else years
            day, month = _day_and_month(match)
        else:
            return None
        return [date(year, month, day) for year in years if _is_day(year, month, day)]


def _unknown(text: str) -> _Unknown:
    return _Unknown(UNKNOWN.format(text=text, examples=EXAMPLES))


def _time_of_day(text: str) -> time:
    clock, half = re.fullmatch(r"(.*?) ?([ap]m)?", text).groups()  # type: ignore[union-attr]
    clock = {"noon": "12", "midnight": "0"}.get(clock, clock)
    hour, minute = map(int, f"{clock.replace('.', ':')}:0".split(":")[:2])
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0) if 1 <= hour <= 12 else 24
    if hour > 23 or minute > 59:
        raise ScheduleRefused(NO_TIME.format(text=text))
    return time(hour, minute)


def _day_and_month(match: re.Match[str]) -> tuple[int, int]:
    number = match["d"] or match["d2"]
    return int(re.sub("[a-z]", "", number)), _MONTHS[match["m"] or match["m2"]]


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        return bool(date(year, month, day))
    except ValueError:
        return False


def _weekday_field(days: Set[int]) -> str:
    name = next((name for name, members in _SETS.items() if members == days), None)
    return _FIELD_OF_SET[name] if name else ",".join(_DAYS[day] for day in sorted(days))


# -- schedules as words ---------------------------------------------------------------------------


def in_words(schedule: Schedule) -> str:
    """Return a valid schedule as words, without its zone; an expression may have none.

    Then it is returned unchanged.
    """
    if schedule.at is not None:
        moment = datetime.fromisoformat(schedule.at)
        if moment.tzinfo is not None:
            # The host on which the job was added may know more time zones than this one.
            moment = moment.astimezone(named_zone(schedule.tz) or UTC)
        return f"on {moment.day} {month_name[moment.month]} {moment.year} at {moment:%H:%M}"
    if schedule.every_s is not None:
        return f"every {_amount(schedule.every_s)}"
    assert schedule.cron is not None, "one of the three is set"
    return _expression_in_words(schedule.cron) or schedule.cron


def _amount(seconds: int) -> str:
    for unit, length in _UNITS.items():
        count, rest = divmod(seconds, length)
        if not rest and count > 1:
            return f"{count} {unit}s"
        if not rest and count and unit in ("hour", "minute"):
            return unit
    return f"{seconds} seconds"


def _expression_in_words(expression: str) -> str | None:
    minute, hours, *fields = expression.upper().split()
    if not minute.isdigit():
        return None
    if [hours, *fields] == ["*"] * 4:
        return f"every hour at :{int(minute):02}"
    if not re.fullmatch("[0-9]+(,[0-9]+)*", hours) or (days := _days_in_words(*fields)) is None:
        return None
    times = (f"{hour:02}:{int(minute):02}" for hour in sorted(set(map(int, hours.split(",")))))
    return f"{days} at {_listed(times)}"


def _days_in_words(day: str, month: str, weekday: str) -> str | None:
    if (day, month) == ("*", "*"):
        return _weekdays_in_words(weekday)
    if weekday != "*":
        return None
    if month != "*":
        is_plain = day.isdigit() and month.isdigit()
        return f"every year on {int(day)} {month_name[int(month)]}" if is_plain else None
    if day == "L":
        return "on the last day of every month"
    if not re.fullmatch("[0-9]+(,[0-9]+)*", day):
        return None
    numbers = sorted(set(map(int, day.split(","))))
    return f"on the {_listed(map(_ordinal, numbers))} of every month"


def _weekdays_in_words(field: str) -> str | None:
    if match := re.fullmatch("([0-7]|[A-Z]{3})(#[1-4])|([0-7])(L)", field):
        number = _weekday_number(match[1] or match[3])
        nth = next(name for name, suffix in _NTH.items() if suffix == (match[2] or match[4]))
        return None if number is None else f"on the {nth} {_day(number)} of every month"
    numbers: set[int] = set()
    for part in field.replace("*", "0-6").split(","):
        first, _, last = part.partition("-")
        begin, end = _weekday_number(first), _weekday_number(last or first)
        if begin is None or end is None:
            return None
        numbers |= set(range(begin, end + 1))
    days = {(number - 1) % 7 for number in numbers}
    name = next((name for name, members in _SETS.items() if members == days), None)
    return f"every {name or _listed(day_name[day] for day in sorted(days))}"


def _weekday_number(text: str) -> int | None:
    """Return the number of a weekday in an expression, in which 0 and 7 are Sunday."""
    if text in _DAYS:
        return (_DAYS.index(text) + 1) % 7
    return int(text) if re.fullmatch("[0-7]", text) else None


def _day(number: int) -> str:
    return day_name[(number - 1) % 7]


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(items: Iterable[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
