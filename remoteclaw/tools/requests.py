"""Methods about agents' requests to people. No agent has them, as it could answer itself."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result


class RequestsParams(Params):
    all: bool = False
    """Whether to list closed requests, too, which can't be answered any more."""


class RequestParams(Params):
    id: Id
    """The id of the request."""


class AnswerParams(Params):
    id: Id
    """The id of the request."""
    verdict: Literal["once", "conversation", "edits", "deny", "words"]
    """`once` allows this call, `conversation` also the same call later in the conversation, and
    `deny` refuses it. `words` answers a question with the text of `reason`. `edits` approves a plan
    and allows changes of files. For a budget, `once` allows half as much again, `conversation`
    lifts the limit until the period ends, and `deny` refuses messages until then."""
    reason: Annotated[str, Field(max_length=4000)] = ""
    """The reason of a denial, or the answer to a question: text, or numbers of its choices."""


class GivenAnswer(Result):
    verdict: str
    by: str
    """The person who answered, as CHANNEL:ID, or `operator`."""
    name: str
    """The name of the person, or of the operator's token."""
    at_ms: int
    """The time of the answer, in milliseconds since 1970."""
    words: str
    """The reason of a denial, or the answer to a question."""


class RequestedChange(Result):
    """The change of the configuration that a request is for; `what` of the request is its diff."""

    host: str
    """The host whose configuration file would be changed."""
    changed: tuple[str, ...]
    """The keys that would be changed."""
    needs_restart: tuple[str, ...]
    """The changed keys that need a restart, each with what has to be restarted."""
    became: str
    """The result of the change, in a sentence; empty until it is known."""


class RequestView(Result):
    """A request of an agent to people."""

    id: str
    session_key: str
    title: str | None = None
    """The session's label or title; null while it has none, and in events."""
    agent: str
    kind: Literal["tool", "question", "plan", "change", "budget"]
    """`tool`: to use a tool. `question`: an answer. `plan`: to continue with a plan (Markdown).
    `change`: to change the configuration. `budget`: to spend more than a budget allows."""
    tool: str
    """The name of the tool with which the agent asks, or which it wants to use."""
    what: str
    """The action as people see it: the command, the diff, the arguments, the question or the plan.
    `requests.show` returns all of a long one."""
    is_cut: bool
    """Whether the middle of `what` is left out."""
    is_again: bool
    """Whether an earlier attempt at the turn may have done the action already."""
    is_question: bool
    """Whether the answer is a text."""
    choices: tuple[str, ...] = ()
    """The answers that a question proposes, numbered from 1, or the labels of those about a
    budget."""
    is_multiple: bool = False
    """Whether several choices can be selected."""
    offered: tuple[tuple[str, str], ...]
    """The possible answers, each as a verdict or the number of a choice, with its label."""
    change: RequestedChange | None = None
    where: str
    """The directory of the action; the host for a change of the configuration."""
    chat: str | None = None
    """The chat in which people are asked, if it is not that of the conversation."""
    unshown: str | None = None
    """Why `chat` does not show the request."""
    people: tuple[str, ...]
    """The people on whose behalf the agent asks, each as CHANNEL:ID."""
    state: str
    """`open`: a turn waits for the answer. `lapsed`: no turn waits, but the request can still be
    answered. Other states, such as `answered`, `denied` or `expired`, are closed."""
    asked_ms: int
    """The time of the request, in milliseconds since 1970."""
    until_ms: int | None = None
    """When the current state ends, in milliseconds since 1970: when the turn stops waiting, when
    the request expires, or when an unused late answer expires."""
    answer: GivenAnswer | None = None


class RequestsResult(Result):
    """The result of `requests.list`."""

    requests: tuple[RequestView, ...]
    """The requests, oldest first."""


class AnswerResult(Result):
    counts: bool
    """False if the request was answered before, or is closed."""
    detail: str
    """The result of the answer, in a sentence."""


METHODS = (
    Method(
        name="requests.list",
        description="List the requests of agents that wait for an answer.",
        params=RequestsParams,
        result=RequestsResult,
        scope="read",
    ),
    Method(
        name="requests.show",
        description="Show a request of an agent, which may be closed.",
        params=RequestParams,
        result=RequestView,
        scope="read",
    ),
    Method(
        name="requests.answer",
        description="Answer a request of an agent, as the operator. The first answer counts.",
        params=AnswerParams,
        result=AnswerResult,
        scope="admin",
        effect="session",
    ),
)
