"""The section `[approvals]`, and the tables `[….approvals]`."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.messages import ChatPlace


class ApprovalsConfig(Section):
    """Who answers what agents may not do by themselves, where, and how long a turn waits for it.

    Of several tables the narrowest that has a key decides it: the group's, the channel's, the
    agent's, `[approvals]`.
    """

    who: Annotated[Literal["owners", "sender"] | tuple[str, ...] | None, BY_PEOPLE] = None
    """`owners` of this installation, which is meant without it; with `sender`, also those whose
    messages the turn answers; or people by their ids, each as CHANNEL:ID."""
    hold_s: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=5, le=24 * 3600)
    """How long a turn waits for an answer and holds its worker, in seconds; without it, 600. Later,
    for a day, an answer wakes the session."""
    chat: Annotated[str | None, BY_PEOPLE] = None
    """The chat where people are asked, as CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT. Without it, or with
    "", they are asked in the conversation itself."""
    thread: Annotated[str | None, BY_PEOPLE] = None
    """The thread or topic of that chat."""

    @field_validator("who")
    @classmethod
    def _check_who(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for one in value if isinstance(value, tuple) else ():
            channel, colon, id_ = one.partition(":")
            if not (channel and colon and id_) or id_ == "*":
                raise ValueError(f"has {one!r}: name each person as CHANNEL:ID")
        return value

    @field_validator("chat")
    @classmethod
    def _check_chat(cls, value: str | None) -> str | None:
        if value:
            ChatPlace.parse(value)
        return value

    @model_validator(mode="after")
    def _check_thread(self) -> Self:
        if self.thread is not None and not self.chat:
            raise ValueError("has a thread and no chat: name the chat that it is of")
        return self
