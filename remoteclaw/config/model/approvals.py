"""The section `[approvals]`."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import BY_PEOPLE

__all__ = ["ApprovalsConfig"]


class ApprovalsConfig(Section):
    """Who answers what agents may not do by themselves, and how long a turn waits for it."""

    who: Annotated[Literal["owners", "sender"] | tuple[str, ...], BY_PEOPLE] = "owners"
    """`owners` of this installation; with `sender`, also those whose messages the turn answers; or
    people by their ids, each as CHANNEL:ID."""
    hold_s: Annotated[int, BY_PEOPLE] = Field(default=600, ge=5, le=24 * 3600)
    """How long a turn waits for an answer and holds its worker, in seconds. Later, for a day, an
    answer wakes the session."""

    @field_validator("who")
    @classmethod
    def _check_who(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for one in value if isinstance(value, tuple) else ():
            channel, colon, id_ = one.partition(":")
            if not (channel and colon and id_) or id_ == "*":
                raise ValueError(f"has {one!r}: name each person as CHANNEL:ID")
        return value
