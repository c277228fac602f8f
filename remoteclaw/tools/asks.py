"""Methods about what agents ask people for. No agent has them: it would answer itself."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result


class AsksParams(Params):
    all: bool = False
    """Also those that can't be answered any more."""


class AskParams(Params):
    id: Id


class AnswerParams(Params):
    id: Id
    verdict: Literal["once", "conversation", "edits", "deny", "words"]
    """Allow it once, or for the conversation, or deny it; words answer a question; edits approve a
    plan, with changes of files."""
    reason: Annotated[str, Field(max_length=4000)] = ""
    """Why it is denied, or the answer to a question: words, or numbers of its choices."""


class Answered(Result):
    verdict: str
    by: str
    """CHANNEL:ID, or operator."""
    name: str
    """What they are called; of an operator with a token of their own, its name."""
    at_ms: int
    words: str
    """The reason of a denial, or the answer to a question."""


class ChangeAsked(Result):
    """A change of the configuration that is asked for; `what` is its diff."""

    host: str
    """The host whose file it changes."""
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    became: str
    """What became of it, in words; empty until something has."""


class Ask(Result):
    """What an agent asks people for."""

    id: str
    session_key: str
    agent: str
    kind: Literal["tool", "question", "plan", "change"]
    """What is wanted: to use a tool, an answer, to go on with a plan (Markdown), or to change the
    configuration."""
    tool: str
    what: str
    """What would be done, as people are shown it; `asks.show` leaves nothing of it out."""
    is_cut: bool
    """Whether the middle of that is left out here."""
    is_again: bool
    """Whether it may have been done already, by an attempt that was cut off."""
    is_question: bool
    """Whether words answer it."""
    choices: tuple[str, ...] = ()
    """The answers that a question proposes, numbered from 1."""
    is_multiple: bool = False
    """Whether several of them can be chosen."""
    offered: tuple[tuple[str, str], ...]
    """The answers that can be chosen, each with its label: a verdict, or the number of a choice."""
    change: ChangeAsked | None = None
    where: str
    """The directory that it would be done in."""
    chat: str | None = None
    """The chat where people are asked, if that is not the conversation itself."""
    unshown: str | None = None
    """Why that chat does not show it."""
    people: tuple[str, ...]
    """On whose behalf, each as CHANNEL:ID."""
    state: str
    asked_ms: int
    until_ms: int | None = None
    """Until when it can be answered, or what was allowed late passes, or the turn waits."""
    answer: Answered | None = None


class AsksResult(Result):
    """What `asks.list` has found."""

    asks: tuple[Ask, ...]
    """Oldest first."""


class AnswerResult(Result):
    counts: bool
    """False if it was answered before, or nothing waits for the answer any more."""
    detail: str
    """What became of it, in words."""


METHODS = (
    Method(
        name="asks.list",
        description="List what agents ask people for and waits for an answer.",
        params=AsksParams,
        result=AsksResult,
        scope="read",
    ),
    Method(
        name="asks.show",
        description="Show a request of an agent, also one that is closed.",
        params=AskParams,
        result=Ask,
        scope="read",
    ),
    Method(
        name="asks.answer",
        description="Answer a request of an agent, as the operator. The first answer counts.",
        params=AnswerParams,
        result=AnswerResult,
        scope="admin",
        effect="session",
    ),
)
