"""Freshness: whether a conversation is too old to be continued, and the kind of its chat.

Pure functions: the caller passes the time, in milliseconds since 1970.
"""

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import Literal

from remoteclaw.clock import named_zone
from remoteclaw.config.model import ResetConfig
from remoteclaw.messages import ChannelMessage, ChatKind, SessionKey

#: The reason why a conversation is too old: its daily time has passed, or it was idle too long.
Staleness = Literal["daily", "idle"]


def kind_of(session: SessionKey, messages: Iterable[ChannelMessage] = ()) -> ChatKind:
    """Return the kind of a session's chat, from the first message that has one.

    Without such a message, a chat is a group, unless its id is that of its user.
    """
    for message in messages:
        if message.chat_kind is not None:
            return message.chat_kind
    if session.thread is not None:
        return "thread"
    return "direct" if session.channel_id == session.user else "group"


def staleness(policy: ResetConfig, *, last_ms: int, now_ms: int) -> Staleness | None:
    """Return why a message begins a new conversation; None if it continues the old one.

    `last_ms` is the end of the last turn that answered a person. `now_ms` is the time at which the
    message arrived, so that waiting for a worker does not count.
    """
    if policy.daily and last_ms < _latest(policy.daily, policy.timezone, now_ms):
        return "daily"
    if policy.idle_minutes and now_ms - last_ms > policy.idle_minutes * 60_000:
        return "idle"
    return None


def _latest(time_of_day: str, zone_name: str | None, now_ms: int) -> int:
    """Return the last time at which it was `time_of_day`, by default in this computer's zone.

    If a change of the clocks repeats this time, the first occurrence counts. If it skips this time,
    the time is later by the skipped interval.
    """
    zone = named_zone(zone_name)
    wanted = time.fromisoformat(time_of_day)
    today = datetime.fromtimestamp(now_ms / 1000, tz=zone).date()
    # Several days are tried: clocks that go back over midnight repeat a date, and a zone may skip a
    # whole day.
    days = (today - timedelta(days=days) for days in range(-1, 3))
    moments = [datetime.combine(day, wanted, tzinfo=zone).timestamp() * 1000 for day in days]
    return max(int(moment) for moment in moments if moment <= now_ms)
