"""The section `[queue]`."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.section import MAX_NUMBER, Section
from remoteclaw.config.rights import BY_AGENTS
from remoteclaw.messages import channel_name

QueueMode = Literal["aside", "collect", "followup", "steer", "interrupt"]
DropPolicy = Literal["old", "new", "summarize"]
PauseMs = Annotated[int, Field(ge=0, le=60_000)]
Cap = Annotated[int, Field(ge=0, le=MAX_NUMBER)]


class QueueOverride(Section):
    """Exceptions to `[queue]` for one channel or one session.

    The keys have the meaning that they have in `[queue]`; an absent key keeps the value of
    `[queue]`.
    """

    mode: Annotated[QueueMode | None, BY_AGENTS] = None
    """As in `[queue]`."""
    debounce_ms: Annotated[PauseMs | None, BY_AGENTS] = None
    """As in `[queue]`, in milliseconds."""
    cap: Annotated[Cap | None, BY_AGENTS] = None
    """As in `[queue]`; 0 for no limit."""
    drop: Annotated[DropPolicy | None, BY_AGENTS] = None
    """As in `[queue]`."""
    gather_ms: Annotated[PauseMs | None, BY_AGENTS] = None
    """As in `[queue]`, in milliseconds."""
    gather_most_ms: Annotated[PauseMs | None, BY_AGENTS] = None
    """As in `[queue]`, in milliseconds."""


class QueueConfig(Section):
    """What happens to messages that arrive during a turn of their session, or in a burst.

    A message to an idle session starts a turn at once, except for messages that people in a group
    or thread write to each other (`gather_ms`).
    """

    mode: Annotated[QueueMode, BY_AGENTS] = "aside"
    """What happens to a message that arrives during a turn. `aside`: the agent answers it during
    the turn, or decides whether it joins the turn, stops it, or waits; with an agent that can't do
    this, as `collect`. `collect`: the next turn answers all waiting messages together. `followup`:
    each message gets a turn of its own. `steer`: the message joins the running turn. `interrupt`:
    the message stops the running turn, and the next turn answers it."""
    asides: Annotated[int, Field(ge=1, le=100), BY_AGENTS] = 3
    """The maximum number of messages that are answered at the same time during one turn, in the
    mode `aside`."""
    aside_s: Annotated[int, Field(ge=1, le=600), BY_AGENTS] = 60
    """Seconds that an answer during a turn may take; after that, the message waits for the next
    turn."""
    debounce_ms: Annotated[PauseMs, BY_AGENTS] = 1000
    """Milliseconds without a new message before the next turn answers the waiting messages, because
    the person may still be typing."""
    cap: Annotated[Cap, BY_AGENTS] = 20
    """The maximum number of messages that wait for a busy session; 0 for no limit."""
    drop: Annotated[DropPolicy, BY_AGENTS] = "summarize"
    """Which messages are dropped if more than `cap` wait: the `old` or the `new` ones; the senders
    are notified. `summarize` drops the old ones and shows the agent the beginning of each."""
    gather_ms: Annotated[PauseMs, BY_AGENTS] = 1500
    """Milliseconds without a new message before an idle session answers messages that people in a
    group or thread write to each other; 0 to answer at once. It applies to a conversation that the
    people there share, in the modes that answer several messages together. A message to the agent
    doesn't wait."""
    gather_most_ms: Annotated[PauseMs, BY_AGENTS] = 5000
    """The maximum time, in milliseconds, that the first of these messages waits."""
    channels: Annotated[dict[str, QueueOverride], BY_AGENTS] = Field(default_factory=dict)
    """Exceptions for channels, by the channel's name."""

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, value: dict[str, QueueOverride]) -> dict[str, QueueOverride]:
        for name in value:
            channel_name(name)
        return value

    def of(self, channel: str, session: QueueOverride | None = None) -> "QueueConfig":
        """Return the settings of a session: the session's own, else its channel's, else these."""
        changes: dict[str, Any] = {}
        for override in (self.channels.get(channel), session):
            changes |= override.model_dump(exclude_none=True) if override else {}
        return self.model_copy(update=changes)
