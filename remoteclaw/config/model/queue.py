"""The section `[queue]`."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.section import MOST, Section
from remoteclaw.config.rights import BY_AGENTS
from remoteclaw.messages import channel_name

QueueMode = Literal["aside", "collect", "followup", "steer", "interrupt"]
DropPolicy = Literal["old", "new", "summarize"]
PauseMs = Annotated[int, Field(ge=0, le=60_000)]
Cap = Annotated[int, Field(ge=0, le=MOST)]


class QueueOverride(Section):
    """Exceptions from `[queue]` for one channel or one session; absent keys are no exceptions."""

    mode: Annotated[QueueMode | None, BY_AGENTS] = None
    debounce_ms: Annotated[PauseMs | None, BY_AGENTS] = None
    cap: Annotated[Cap | None, BY_AGENTS] = None
    drop: Annotated[DropPolicy | None, BY_AGENTS] = None
    gather_ms: Annotated[PauseMs | None, BY_AGENTS] = None
    gather_most_ms: Annotated[PauseMs | None, BY_AGENTS] = None


class QueueConfig(Section):
    """Messages that arrive while their session is busy, or in a burst.

    An idle session starts at once, but for what people say to each other in a group or thread.
    """

    mode: Annotated[QueueMode, BY_AGENTS] = "aside"
    """`aside` has the agent answer a new message beside its work, or say what else it is for;
    where the agent can't, it is `collect`, which answers all that waits in one turn. `followup`
    answers each message in its own. `steer` gives the new message to the agent while it works, and
    `interrupt` stops the running turn for it."""
    asides: Annotated[int, Field(ge=1, le=100), BY_AGENTS] = 3
    """How many messages are answered beside a turn at the same time."""
    aside_s: Annotated[int, Field(ge=1, le=600), BY_AGENTS] = 60
    """Seconds within which such an answer must be there; else the message waits."""
    debounce_ms: Annotated[PauseMs, BY_AGENTS] = 1000
    """Milliseconds without a new message before the waiting ones are answered: the person may still
    be typing."""
    cap: Annotated[Cap, BY_AGENTS] = 20
    """How many messages may wait for a busy session; 0 for any number."""
    drop: Annotated[DropPolicy, BY_AGENTS] = "summarize"
    """What goes beyond the cap: the `old` or the `new` messages, whose sender is told;
    `summarize` leaves out the old ones, but shows the agent how each of them began."""
    gather_ms: Annotated[PauseMs, BY_AGENTS] = 1500
    """Milliseconds without a new message before an idle session answers what people say to each
    other in a group or thread; 0 to answer at once. It is for conversations that all people there
    share, in the modes that answer together. What is said to the agent doesn't wait."""
    gather_most_ms: Annotated[PauseMs, BY_AGENTS] = 5000
    """How long the first of these messages waits at most, in milliseconds."""
    channels: Annotated[dict[str, QueueOverride], BY_AGENTS] = Field(default_factory=dict)
    """Exceptions for a channel, by its name."""

    @field_validator("channels")
    @classmethod
    def _check_channels(cls, value: dict[str, QueueOverride]) -> dict[str, QueueOverride]:
        for name in value:
            channel_name(name)
        return value

    def of(self, channel: str, session: QueueOverride | None = None) -> "QueueConfig":
        """Return a session's settings: its own, else its channel's, else these."""
        changes: dict[str, Any] = {}
        for override in (self.channels.get(channel), session):
            changes |= override.model_dump(exclude_none=True) if override else {}
        return self.model_copy(update=changes)
