"""The section `[requests]`, and the tables `[….requests]`."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.messages import ChatPlace


class RequestsConfig(Section):
    """Who answers agents' requests, in which chat, and how long a turn waits for the answer.

    Each key is read from the narrowest table that has it: the group's, the channel's, the agent's,
    then `[requests]`.
    """

    who: Annotated[Literal["owners", "sender"] | tuple[str, ...] | None, BY_PEOPLE] = None
    """The people who may answer. `owners`, the default: the owners of this installation. `sender`:
    the owners and the people whose messages the turn answers. A list: only these people, each as
    CHANNEL:ID; an empty list is nobody."""
    hold_s: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=5, le=24 * 3600)
    """Seconds that a turn waits for an answer, during which it occupies its worker; by default 600.
    After that the turn ends, and an answer within a day wakes the session."""
    chat: Annotated[str | None, BY_PEOPLE] = None
    """The chat in which people are asked, as CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT. Without it, or
    with an empty text, they are asked in the chat of the conversation."""
    thread: Annotated[str | None, BY_PEOPLE] = None
    """The thread or topic of `chat` in which people are asked."""

    @field_validator("who")
    @classmethod
    def _check_who(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for person in value if isinstance(value, tuple) else ():
            channel, colon, id_ = person.partition(":")
            if not (channel and colon and id_) or id_ == "*":
                raise ValueError(f"has {person!r}: name each person as CHANNEL:ID")
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
            raise ValueError("has a thread and no chat: name the chat of the thread")
        return self


class AskingSection(Section):
    """A section with a table `requests`, whose former name is `approvals`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_former_name(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "approvals" not in value:
            return value
        if "requests" in value:
            raise ValueError("has `requests` and its former name `approvals`: keep `requests`")
        return {"requests" if key == "approvals" else key: each for key, each in value.items()}
