"""Methods about the fleet as a whole: what runs, waits, was given up, is missing, and has cost."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Limit, Method, NoParams, Params, Result


class LaneLoad(Result):
    name: str
    """agents, which has what people send, or background."""
    workers: int
    """How many workers serve it."""
    hints: int
    """How many hints wait for one of them."""


class Worker(Result):
    name: str
    pid: int
    host: str
    state: str
    """started, idle, busy or suspended."""
    lanes: tuple[str, ...]
    is_ours: bool
    """Whether it was started as `remoteclaw worker`."""
    session_key: str | None = None
    """The session that it works on."""
    since_ms: int | None = None
    """Since when that has been at work."""


class SessionAtWork(Result):
    key: str
    agent: str
    label: str | None = None
    title: str | None = None
    state: Literal["scheduled", "running"]
    """scheduled: it waits for a worker."""
    lane: str
    waiting: int
    """How many messages wait for an answer, the running ones included."""
    since_ms: int | None = None
    """Since when it runs, or its oldest message waits."""
    postponed: str | None = None
    """Why it waits although a worker may be free, as an error's category."""
    postponed_until_ms: int | None = None


class WarmAgent(Result):
    session_key: str | None = None
    """None if that session has had another agent since."""
    since_ms: int
    """Since when it waits for the next message."""
    memory_bytes: int


class AdapterProcess(Result):
    pid: int
    host: str


class Adapter(Result):
    account: str
    """Its channel and name, such as telegram/default."""
    state: Literal["runs", "refused", "stopped"]
    name: str
    """What it is called on its platform; empty if that isn't known."""
    problem: str
    """What is wrong, in a sentence; empty if nothing is."""
    waiting: int
    """How many replies it has still to deliver."""
    by: AdapterProcess | None = None
    """The process that delivers."""
    standbys: tuple[AdapterProcess, ...]
    """The processes that would take over."""


class Problem(Result):
    subject: str
    text: str
    """What is wrong, and what to do."""


class FleetResult(Result):
    at_ms: int
    """The gateway's time; all times here are in milliseconds since 1970."""
    problems: tuple[Problem, ...]
    lanes: tuple[LaneLoad, ...]
    workers: tuple[Worker, ...]
    busy_sessions: int
    sessions: tuple[SessionAtWork, ...]
    """The first 50 of them: those first that a worker has."""
    agents: tuple[WarmAgent, ...]
    """The warm agents of this gateway's host, the longest waiting first."""
    adapters: tuple[Adapter, ...]
    dead_letters: int


class LettersParams(Params):
    limit: Limit = 50
    """How many of the oldest."""


class LetterParams(Params):
    id: Id


class Letter(Result):
    id: str
    session_key: str | None = None
    account: str | None = None
    """Of a reply: the account that it was for."""
    given_up_ms: int
    attempts: int
    category: str
    why: str
    """Why it was given up, in a sentence."""
    text: str | None = None
    """How it begins; absent if it can't be read."""
    files: int
    """How many files it has."""


class LettersResult(Result):
    letters: tuple[Letter, ...]
    """The oldest first."""
    count: int
    """How many there are in all."""


class Retried(Result):
    session_key: str | None = None
    run_id: str | None = None
    """What a message is tried again as; absent for a reply."""
    account: str | None = None
    """The account that sends a reply again; absent for a message."""


class Dropped(Result):
    id: str


class Finding(Result):
    subject: str
    ok: bool
    text: str
    """What was found; if it isn't right, also what to do."""


class DoctorResult(Result):
    host: str
    """The computer that was looked at: this gateway's."""
    at_ms: int
    findings: tuple[Finding, ...]


class UsageParams(Params):
    by: Literal["agent", "session", "day"] = "agent"
    """What to add up for."""
    days: Annotated[int, Field(ge=1, le=92)] = 30
    """How many days, today included, in the workers' time zone."""


class UsageRow(Result):
    name: str
    """The agent; the session's key, or its id if no more is known of it; the day as ISO 8601."""
    title: str | None = None
    """What the session is called."""
    turns: int
    input_tokens: int
    """Tokens that the model read and that were in no cache."""
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    duration_ms: int
    cost_usd: float | None
    """Where the agent's CLI says what a turn costs."""


class UsageResult(Result):
    rows: tuple[UsageRow, ...]
    """Days in their order; agents and sessions by how much they read and wrote."""


METHODS = (
    Method(
        name="fleet.status",
        description="Say what the fleet does: lanes, workers, sessions at work, warm agents of "
        "this host, adapters, and what is wrong.",
        params=NoParams,
        result=FleetResult,
        scope="read",
    ),
    Method(
        name="deadletters.list",
        description="List the messages and replies that were given up.",
        params=LettersParams,
        result=LettersResult,
        scope="read",
    ),
    Method(
        name="deadletters.retry",
        description="Retry a message that was given up in its session, or a reply in its chat.",
        params=LetterParams,
        result=Retried,
        scope="admin",
        effect="session",
    ),
    Method(
        name="deadletters.drop",
        description="Throw away a message or a reply that was given up, with its files.",
        params=LetterParams,
        result=Dropped,
        scope="admin",
        effect="session",
        destroys=True,
    ),
    Method(
        name="doctor",
        description="Check all that RemoteClaw needs on this gateway's host, as `remoteclaw "
        "doctor` does. It takes some seconds; who asks meanwhile gets the same answer.",
        params=NoParams,
        result=DoctorResult,
        scope="read",
    ),
    Method(
        name="usage",
        description="Add up the tokens, the time and the cost of turns by agent, session or day.",
        params=UsageParams,
        result=UsageResult,
        scope="read",
    ),
)
