"""Methods about the whole fleet: status, health, agents, dead letters and doctor."""

from typing import Literal

from remoteclaw.tools.base import Id, Limit, Method, NoParams, Params, Result, Tool
from remoteclaw.tools.failing import FailingAgent
from remoteclaw.tools.sessions import PauseFacts


class Health(Result):
    status: Literal["ok"]
    version: str


class AgentSummary(Result):
    id: str
    """The agent's name."""
    runtime: str
    """The agent's CLI."""
    model: str | None = None
    """The configured model; absent if the CLI chooses."""
    is_self: bool
    """Whether this is the agent of the call."""


class AgentsResult(Result):
    agents: tuple[AgentSummary, ...]


class LaneLoad(Result):
    name: str
    """`agents`, the lane of people's messages, or `background`; with `.LABEL`, that for the workers
    with a label."""
    workers: int
    """How many workers serve the lane."""
    hints: int
    """How many hints wait for one of these workers."""


class Worker(Result):
    name: str
    pid: int
    host: str
    state: str
    """`started`, `idle`, `busy` or `suspended`."""
    lanes: tuple[str, ...]
    """The lanes that the worker serves."""
    is_ours: bool
    """Whether the worker was started as `remoteclaw worker`, and gives signs of life."""
    silent_since_ms: int | None = None
    """Since when such a worker gives no sign of life; absent if it does. One that is neither should
    be ended."""
    session_key: str | None = None
    """The session that the worker has taken."""
    since_ms: int | None = None
    """Since when that session has been busy."""


class SessionAtWork(PauseFacts):
    key: str
    agent: str
    label: str | None = None
    title: str | None = None
    """The first words of the session's conversation."""
    state: Literal["scheduled", "running", "terminal"]
    """`scheduled`: the session waits for a worker. `terminal`: it is open in a terminal."""
    lane: str
    waiting: int
    """How many messages have no answer yet, including those of the running turn."""
    since_ms: int | None = None
    """Since when the session runs, or its oldest message waits."""


class WarmAgentInfo(Result):
    session_key: str | None = None
    """The session of the agent; absent if the session has a newer agent."""
    since_ms: int
    """Since when the agent waits for the next message."""
    memory_bytes: int
    """The memory that the agent's processes use."""


class AdapterProcess(Result):
    pid: int
    host: str


class Adapter(Result):
    account: str
    """The channel and the name of the account, such as telegram/default."""
    state: Literal["runs", "refused", "waits", "stopped"]
    """`refused`: the platform refuses the account, for instance its token. `waits`: it is tried
    again, for instance until the platform is reachable."""
    name: str
    """The account's name on the platform; empty if it is unknown."""
    problem: str
    """What is wrong, in a sentence; empty if nothing is."""
    waiting: int
    """How many replies are not delivered yet."""
    by: AdapterProcess | None = None
    """The process that delivers the replies."""
    standbys: tuple[AdapterProcess, ...]
    """The processes that would take over from it."""
    line: str
    """The account and its state on one line."""


class Problem(Result):
    subject: str
    """The part of the fleet that has the problem."""
    text: str
    """What is wrong, and what to do."""


class Today(Result):
    """What all agents have used today, in the time zone of the installation, as in `usage`."""

    turns: int
    cost_usd: float | None
    """The cost; null if no agent's CLI reports costs."""


class Host(Result):
    id: str
    name: str
    """The host's name; its id if another host has the same name."""
    workers: int
    gateways: int
    sweepers: int
    channels: int
    """How many of its processes run adapters of chat platforms."""
    versions: tuple[str, ...]
    """The versions of RemoteClaw that its processes run; more than one until all are restarted."""
    drained_ms: int | None = None
    """Since when the host is drained; absent if it isn't."""


class RedisMemory(Result):
    used_bytes: int
    limit_bytes: int
    """The limit that applies; 0 if there is none."""


class FleetResult(Result):
    at_ms: int
    """The gateway's time. All times in this result are in milliseconds since 1970."""
    host: str
    """The name of the gateway's computer, as in `workers`, `agents` and `adapters`."""
    running: int
    """How many turns run."""
    waiting: int
    """How many sessions wait for a worker."""
    waiting_since_ms: int | None = None
    """Since when the oldest of their messages waits."""
    postponed: int
    """How many sessions wait for a time, such as the end of a limit."""
    free_workers: int
    """How many workers have nothing to do."""
    open_requests: int
    """How many requests wait for an answer."""
    today: Today
    problems: tuple[Problem, ...]
    failing: tuple[FailingAgent, ...]
    """The agents of which turns failed within the last day."""
    hosts: tuple[Host, ...]
    memory: RedisMemory
    lanes: tuple[LaneLoad, ...]
    workers: tuple[Worker, ...]
    gateway: str | None = None
    """The address of a gateway on this host."""
    busy_sessions: int
    """How many sessions run or wait for a worker."""
    sessions: tuple[SessionAtWork, ...]
    """The first 50 busy sessions; running ones are first."""
    agents: tuple[WarmAgentInfo, ...]
    """The warm agents on the gateway's host, those that wait longest first."""
    adapters: tuple[Adapter, ...]
    dead_letters: int
    """The number of dead letters."""


class LettersParams(Params):
    limit: Limit = 50
    """The maximum number of dead letters, of which the oldest are returned."""


class LetterParams(Params):
    id: Id
    """The id of a dead letter."""


class Letter(Result):
    id: str
    session_key: str | None = None
    account: str | None = None
    """The account of a reply; absent for a message."""
    given_up_ms: int
    """When RemoteClaw gave it up, in milliseconds since 1970."""
    attempts: int
    """The number of attempts that were made."""
    category: str
    """The category of the failure."""
    why: str
    """Why it was given up, in a sentence."""
    text: str | None = None
    """The beginning of the text; absent if it is unreadable."""
    files: int
    """The number of its files."""


class LetterFile(Result):
    name: str
    mime_type: str
    size: int
    """The size, in bytes."""


class LetterDetails(Letter):
    """A dead letter with its whole `text`."""

    reference: str | None = None
    """The reference of the message, or of the turn that a reply answers."""
    detail: str
    """The reason of the failure as it was reported; may be empty."""
    attachments: tuple[LetterFile, ...]


class LettersResult(Result):
    letters: tuple[Letter, ...]
    """The dead letters, oldest first."""
    count: int
    """The number of all dead letters."""


class Retried(Result):
    session_key: str | None = None
    run_id: str | None = None
    """The id of the new message, for `outcomes.wait`; absent for a reply."""
    account: str | None = None
    """The account that sends the reply again; absent for a message."""


class Dropped(Result):
    id: str


class DoctorFinding(Result):
    subject: str
    """The part that was checked."""
    ok: bool
    """Whether nothing is wrong."""
    text: str
    """The result of the check; if something is wrong, also what to do."""
    absent: bool = False
    """Whether something optional is not there, which is no problem."""


class DoctorResult(Result):
    host: str
    """The computer that was checked, which is the gateway's."""
    at_ms: int
    """The time of the check, in milliseconds since 1970."""
    findings: tuple[DoctorFinding, ...]


METHODS = (
    Tool(
        name="agents.list",
        tool="agents_list",
        title="List agents",
        groups=("agents",),
        owner_only=False,
        approvable=False,
        description="List the agents with runtime and model; `isSelf` marks yours. Use it to "
        "choose an agentId for sessions_spawn.",
        params=NoParams,
        result=AgentsResult,
        scope="read",
        effect="none",
    ),
    Method(
        name="health",
        description="Return `ok` and the version of the gateway.",
        params=NoParams,
        result=Health,
        scope="read",
    ),
    Method(
        name="fleet.status",
        description="Show the state of the fleet: its numbers, problems, failed turns, lanes, "
        "workers, busy sessions, warm agents of this host, adapters and the number of dead "
        "letters.",
        params=NoParams,
        result=FleetResult,
        scope="read",
    ),
    Method(
        name="deadletters.list",
        description="List the dead letters: messages and replies that were given up.",
        params=LettersParams,
        result=LettersResult,
        scope="read",
    ),
    Method(
        name="deadletters.show",
        description="Show a dead letter with its whole text.",
        params=LetterParams,
        result=LetterDetails,
        scope="read",
    ),
    Method(
        name="deadletters.retry",
        description="Retry a dead letter: a message in its session, or a reply in its chat.",
        params=LetterParams,
        result=Retried,
        scope="admin",
        effect="session",
    ),
    Method(
        name="deadletters.drop",
        description="Delete a dead letter and its files.",
        params=LetterParams,
        result=Dropped,
        scope="admin",
        effect="session",
        destroys=True,
    ),
    Method(
        name="doctor",
        description="Check everything that RemoteClaw needs on this gateway's host, as `remoteclaw "
        "doctor` does. It takes some seconds; calls in the meantime return the same result.",
        params=NoParams,
        result=DoctorResult,
        scope="read",
    ),
)
