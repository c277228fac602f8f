"""The sections `[people.NAME]`, `[[budgets]]` and `[prices.MODEL]`."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.section import MAX_NUMBER, Section, check_ids
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.events import AgentUsage
from remoteclaw.messages import channel_name

#: The values of `of` that name no agent and no person.
_WHOLE = ("all", "person:*", "tree")


class PersonConfig(Section):
    """A person, who may write with several accounts and on several channels."""

    ids: Annotated[tuple[str, ...], BY_PEOPLE] = Field(max_length=100)
    """The person's ids, each as CHANNEL:ID, such as `telegram:1234`. In a terminal, with `send` and
    on the page, a person is `web:admin.NAME` or `web:user.NAME`."""
    language: Annotated[str | None, BY_PEOPLE] = None
    """The person's language as a BCP-47 tag, such as `de` or `pt-BR`."""

    @field_validator("ids")
    @classmethod
    def _check_ids(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("is empty: name at least one id, such as telegram:1234")
        for each in value:
            check_person(each)
        return value

    @field_validator("language")
    @classmethod
    def _check_language(cls, value: str | None) -> str | None:
        if value and not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", value):
            raise ValueError(f"must be a language tag such as de or pt-BR, not {value!r}")
        return value


class Budget(Section):
    """A limit on what agents may use: in dollars, tokens or minutes, whichever is reached first.

    All budgets that apply to a turn limit it.
    """

    of: Annotated[str, BY_PEOPLE]
    """Whose usage counts: `all`; `agent:NAME`; `person:NAME` or `person:CHANNEL:ID`; `person:*`,
    which is a budget for each person, except those with a budget of their own for the same time; or
    `tree`, a budget for each conversation with all tasks and branches below it."""
    usd: Annotated[float | None, BY_PEOPLE] = Field(default=None, ge=0.01, le=MAX_NUMBER)
    """US dollars. An agent whose CLI reports no cost needs `[prices]` for its models."""
    tokens: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=1, le=1_000_000_000_000)
    """Tokens that the model reads and writes, without those that it reads from a cache."""
    minutes: Annotated[int | None, BY_PEOPLE] = Field(default=None, ge=1, le=MAX_NUMBER)
    """Minutes of turns, without those in which they waited for people."""
    per: Annotated[Literal["day", "month"] | None, BY_PEOPLE] = None
    """The time after which the sum begins again, in the time zone of `[fleet] timezone`. The sum of
    a `tree`, which has no such time, begins again with a new conversation."""
    at_limit: Annotated[Literal["ask", "stop"], BY_PEOPLE] = "ask"
    """What happens at the limit. `ask`: an owner is asked, and messages wait. `stop`: messages are
    refused."""

    @field_validator("of")
    @classmethod
    def _check_of(cls, value: str) -> str:
        kind, colon, name = value.partition(":")
        if value not in _WHOLE and not (kind in ("agent", "person") and colon and name):
            raise ValueError(
                f"must be all, agent:NAME, person:NAME, person:CHANNEL:ID, person:* or tree, "
                f"not {value!r}"
            )
        if kind == "person" and ":" in name:
            check_person(name)
        return value

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.usd is None and self.tokens is None and self.minutes is None:
            raise ValueError(f"for {self.of!r} has no limit: set usd, tokens or minutes")
        if self.of == "tree" and self.per is not None:
            raise ValueError(
                "for 'tree' has per, but counts from a conversation's begin: remove it"
            )
        if self.of != "tree" and self.per is None:
            raise ValueError(f'for {self.of!r} has no per: set per = "day" or per = "month"')
        return self


class Price(Section):
    """The price of a model, for agents whose CLI reports no cost."""

    input: Annotated[float, BY_PEOPLE] = Field(ge=0, le=MAX_NUMBER)
    """US dollars for a million tokens that the model reads."""
    cached: Annotated[float | None, BY_PEOPLE] = Field(default=None, ge=0, le=MAX_NUMBER)
    """US dollars for a million tokens that it reads from a cache. Without it, as `input`."""
    output: Annotated[float, BY_PEOPLE] = Field(ge=0, le=MAX_NUMBER)
    """US dollars for a million tokens that it writes."""

    def cost_usd(self, usage: AgentUsage) -> float:
        """Return the cost of tokens in US dollars."""
        cached = self.input if self.cached is None else self.cached
        uncached = usage.input_tokens + usage.cache_write_tokens
        return (
            uncached * self.input
            + usage.cache_read_tokens * cached
            + usage.output_tokens * self.output
        ) / 1_000_000


def check_person(person: str) -> None:
    """Raise ValueError unless `person` is CHANNEL:ID."""
    channel, colon, id_ = person.partition(":")
    if not (channel and colon and id_) or id_ == "*":
        raise ValueError(f"has {person!r}: write CHANNEL:ID, such as telegram:1234")
    channel_name(channel)
    check_ids([id_])
