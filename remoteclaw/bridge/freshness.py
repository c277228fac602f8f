"""Freshness: when a conversation is too old to be continued, and what kind of chat it is in.

Pure functions: the caller gives the time, in milliseconds since 1970.
"""

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import Literal

from remoteclaw.clock import named_zone
from remoteclaw.config.model import ResetConfig
from remoteclaw.messages import ChannelMessage, ChatKind, SessionKey

#: The reason why a conversation is too old: its time of day has passed, or it was idle.
Staleness = Literal["daily", "idle"]


def kind_of(session: SessionKey, messages: Iterable[ChannelMessage] = ()) -> ChatKind:
    """Return the kind of chat that a session is in, as one of its messages says.

    Where none does, a chat counts as a group unless it is called like its one person, or like the
    console.
    """
    for message in messages:
        if message.chat_kind is not None:
            return message.chat_kind
    if session.thread is not None:
        return "thread"
    is_direct = session.channel_id in (session.user, session.provider)
    return "direct" if is_direct else "group"


def staleness(policy: ResetConfig, *, last_ms: int, now_ms: int) -> Staleness | None:
    """Return why a message begins a new conversation; None if it continues the old one.

    `last_ms` is when the last turn about a person's message ended, and `now_ms` when this message
    came: not when it is answered, so that waiting for a worker makes nothing old.
    """
    if policy.daily and last_ms < _latest(policy.daily, policy.timezone, now_ms):
        return "daily"
    if policy.idle_minutes and now_ms - last_ms > policy.idle_minutes * 60_000:
        return "idle"
    return None


def _latest(time_of_day: str, zone_name: str | None, now_ms: int) -> int:
    """Return when it was that time of day last, in a zone or in this computer's.

    Of a time that comes twice in a night, the first one counts. One that the clocks skip is as much
    later as they skip.
    """
    zone = named_zone(zone_name)
    wanted = time.fromisoformat(time_of_day)
    today = datetime.fromtimestamp(now_ms / 1000, tz=zone).date()
    # Where the clocks go back over midnight, today's may not have come although yesterday's date is
    # today's again; and a zone may have skipped a whole day.
    days = (today - timedelta(days=days) for days in range(-1, 3))
    moments = [datetime.combine(day, wanted, tzinfo=zone).timestamp() * 1000 for day in days]
    return max(int(moment) for moment in moments if moment <= now_ms)
