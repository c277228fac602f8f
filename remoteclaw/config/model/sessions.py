"""The sections `[sessions]` and `[record]`."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from remoteclaw.config.model.section import Section, zone_name
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.messages import ChatKind


class ResetConfig(Section):
    """When a person's next message begins a new conversation; without a key, never.

    Of several such tables, the most specific one holds as a whole.
    """

    daily: Annotated[str | None, BY_PEOPLE] = None
    """The time of day that ends all conversations without a running turn, such as 04:00."""
    idle_minutes: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=1, le=7 * 24 * 60)
    """Minutes without a message after which a conversation ends."""
    timezone: Annotated[str | None, BY_PEOPLE] = None
    """The IANA time zone of `daily`, such as Europe/Berlin; else that of the worker's computer."""

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
    """Limits for sessions that start sessions, the end of conversations, and their archive."""

    max_depth: Annotated[int, BY_PEOPLE] = Field(default=1, ge=1, le=5)
    """How deep sessions may start sessions: with 1, a session that people talk with may start some,
    and those may not."""
    max_children: Annotated[int, BY_PEOPLE] = Field(default=5, ge=1, le=20)
    """How many unfinished sessions one session may have started."""
    max_tree: Annotated[int, BY_PEOPLE] = Field(default=10, ge=1, le=100)
    """How many unfinished sessions there may be below one conversation, at any depth."""
    max_hops: Annotated[int, BY_PEOPLE] = Field(default=30, ge=1, le=1000)
    """How many turns in a row may each be started by the one before; after that, a person or a cron
    job has to write first."""
    max_relays: Annotated[int, BY_PEOPLE] = Field(default=3, ge=1, le=1000)
    """The limit of turns in a row about results of tasks. A turn at the limit can start nothing new
    until a person or a cron job has written."""
    keep_archived: Annotated[int, BY_PEOPLE] = Field(default=10, ge=0, le=1000)
    """How many ended conversations of a session are kept, each for as long as a record is; the
    oldest go first."""
    reset: ResetConfig = ResetConfig()
    """When conversations end by themselves; `[channels.NAME.reset]` says it for a channel."""
    reset_by_kind: Annotated[dict[ChatKind, ResetConfig], BY_PEOPLE] = Field(default_factory=dict)
    """The same for a kind of chat: direct, group or thread."""


class RecordConfig(Section):
    """RemoteClaw's own record of each conversation, for an agent that has lost its own."""

    keep_days: Annotated[int, BY_PEOPLE] = Field(default=30, ge=0, le=3650)
    """Days for which it is kept after the last message; 0 for no record."""
    max_kb: Annotated[int, BY_PEOPLE] = Field(default=256, ge=8, le=16_384)
    """Kilobytes of one conversation's record: beyond that, its beginning is removed."""

    @property
    def keep_ms(self) -> int:
        """The same in milliseconds."""
        return self.keep_days * 24 * 3600 * 1000

    @property
    def page_ms(self) -> int:
        """Retention of the page's chats, in milliseconds: a day at least, because they deliver."""
        return max(self.keep_days, 1) * 24 * 3600 * 1000

    @property
    def history_ms(self) -> int:
        """How long is kept what passed through a chat, in milliseconds: a week at most."""
        return min(self.keep_days, 7) * 24 * 3600 * 1000
