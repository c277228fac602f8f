"""The sections `[sessions]` and `[record]`."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from remoteclaw.config.model.section import Section, zone_name
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.messages import ChatKind


class ResetConfig(Section):
    """When a conversation ends by time, so that a person's next message begins a new one.

    A table without keys: never. Of several such tables, only the most specific one applies, as a
    whole: the channel's, else that of the kind of chat, else `[sessions.reset]`.
    """

    daily: Annotated[str | None, BY_PEOPLE] = None
    """The time of day, such as 04:00, at which conversations without a running turn end."""
    idle_minutes: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=1, le=7 * 24 * 60)
    """Minutes after the end of the last turn at which a conversation ends."""
    timezone: Annotated[str | None, BY_PEOPLE] = None
    """The IANA time zone of `daily`, such as Europe/Berlin. Without it, that of the worker's
    computer."""

    @field_validator("daily")
    @classmethod
    def _check_time(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
            raise ValueError(f"must be a time of day such as 04:00, not {value!r}")
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and zone_name(value)


class SessionsConfig(Section):
    """Limits of tasks, the end of conversations by time, and the archive of ended conversations."""

    max_depth: Annotated[int, BY_PEOPLE] = Field(default=1, ge=1, le=5)
    """The maximum depth of tasks. With 1, a session that people talk with may start tasks, and
    tasks may not start any."""
    max_children: Annotated[int, BY_PEOPLE] = Field(default=5, ge=1, le=20)
    """The maximum number of unfinished tasks that one session has started."""
    max_tree: Annotated[int, BY_PEOPLE] = Field(default=10, ge=1, le=100)
    """The maximum number of unfinished tasks below one conversation, at all depths."""
    max_hops: Annotated[int, BY_PEOPLE] = Field(default=30, ge=1, le=1000)
    """The maximum number of turns in a row that agents have started, each by the turn before it. At
    the limit, a turn can start nothing until a person or a cron job writes a message."""
    max_relays: Annotated[int, BY_PEOPLE] = Field(default=3, ge=1, le=1000)
    """The maximum number of turns in a row that answer results of tasks. At the limit, a turn can
    start nothing until a person or a cron job writes a message."""
    keep_archived: Annotated[int, BY_PEOPLE] = Field(default=10, ge=0, le=1000)
    """How many ended conversations of each session are kept, the newest ones, and each for
    `keep_days` of `[record]`; 0 for none."""
    reset: ResetConfig = ResetConfig()
    """When conversations end by time; `[channels.NAME.reset]` replaces it for a channel."""
    reset_by_kind: Annotated[dict[ChatKind, ResetConfig], BY_PEOPLE] = Field(default_factory=dict)
    """When conversations end by time in one kind of chat: `direct`, `group` or `thread`."""


class RecordConfig(Section):
    """RemoteClaw's own transcript of each conversation.

    A new agent process continues from it if the CLI has lost its own transcript.
    """

    keep_days: Annotated[int, BY_PEOPLE] = Field(default=30, ge=0, le=3650)
    """Days for which a record is kept after the last message; 0 for no record."""
    max_kb: Annotated[int, BY_PEOPLE] = Field(default=256, ge=8, le=16_384)
    """The maximum size of a record, in kilobytes; beyond it, the oldest messages are removed."""

    @property
    def keep_ms(self) -> int:
        """`keep_days` in milliseconds."""
        return self.keep_days * 24 * 3600 * 1000

    @property
    def page_ms(self) -> int:
        """The retention of the page's chats, in milliseconds.

        At least a day, because the page's replies are delivered from them.
        """
        return max(self.keep_days, 1) * 24 * 3600 * 1000

    @property
    def history_ms(self) -> int:
        """The retention of messages that pass through a chat, in milliseconds; at most a week."""
        return min(self.keep_days, 7) * 24 * 3600 * 1000
