"""The state of a session: the hash at `keys.state`, decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from remoteclaw.config.model import Config, QueueOverride
from remoteclaw.config.tool_policy import UNLIMITED, SessionLimits
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ContextSize
from remoteclaw.fleet import hashes
from remoteclaw.fleet.keys import Lane
from remoteclaw.messages import SessionKey

#: The field with the session's own queue settings.
QUEUE = "queue_settings"
#: The field with the model that a person chose for the session.
MODEL = "model"
#: The field with the project to which a person bound the session.
PROJECT = "project"
#: The field that exists while the session's chat shows only the answers of turns.
IS_QUIET = "is_quiet"
#: Why a session is postponed, or a fallback answers, as people read it, by the error's category.
_POSTPONED_FOR = {
    ErrorCategory.USAGE_LIMIT: "the plan's limit",
    ErrorCategory.RETRYABLE: "model busy",
    ErrorCategory.UNREACHABLE: "model not reachable",
    ErrorCategory.BILLING: "no credit left",
    ErrorCategory.UNKNOWN_MODEL: "unknown model",
}
#: The reason of a session that waits for a budget, which is no failure of its agent.
FOR_BUDGET = "budget"
#: The state of an idle session is kept for this long, in milliseconds: longer than the CLI's
#: session id.
STATE_MS = 8 * 24 * 3600 * 1000
#: The limits of a task whose limits are unknown: a depth beyond any maximum, so that the task has
#: minimal rights.
OF_UNKNOWN_TASK = SessionLimits(depth=99)
#: A session, and the limits on its tools, with which an agent is launched.
Launch = tuple[SessionKey, SessionLimits]


@dataclass(frozen=True, slots=True)
class ConversationSize:
    """The size of one conversation, in tokens, and what was tried to reduce it while it is idle."""

    size: ContextSize
    conversation: str
    """The CLI's id of the conversation."""
    attempts: int = 0
    """How many compactions in a row have not succeeded at about this size."""
    attempted_at: int = 0
    """The used tokens at the first of them."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the size from its stored form; raises ValueError if it is damaged."""
        used, limit, attempts, attempted_at, conversation = text.split(" ", 4)
        size = ContextSize(int(used), int(limit))
        return cls(size, conversation, int(attempts), int(attempted_at))

    def __str__(self) -> str:
        """Return the stored form."""
        numbers = (self.size.used, self.size.limit, self.attempts, self.attempted_at)
        return f"{' '.join(map(str, numbers))} {self.conversation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """The state of a session at one moment. Times are in milliseconds on Redis' clock."""

    key: SessionKey
    status: Literal["idle", "scheduled", "running"] = "idle"
    lane: Lane = "agents"
    """The lane of the session's hints."""
    host: str | None
    """The host of the session's agent."""
    worker: str | None
    """The process that holds the lease, as text for people."""
    epoch: str = ""
    queue_settings: QueueOverride | None
    """The session's own queue settings."""
    model: str | None
    """The chosen model; None for the agent's model."""
    project: str | None
    """The project to which the session is bound; None for the agent's workspace."""
    turn_project: str | None
    """The value of `project` when the last turn began."""
    is_quiet: bool = False
    """Whether the session's chat shows only the answers of turns, without progress."""
    last_entry: str | None
    """The id of the last entry that was accepted."""
    busy_since_ms: int | None
    """The start of the first turn since the session was idle; None while it is idle."""
    last_heard_ms: int = 0
    """The end of the last turn about a person's message; 0 if there was none."""

    turn: str | None
    """The id of the turn that was recorded and is not finished."""
    turn_entries: tuple[str, ...]
    """The ids of the entries of that turn, including those that joined it; empty without a turn."""
    web_turn: str | None = None
    """The id of the last turn that has read what others have written, such as a web page."""
    attempt: int = 0
    phase: str | None
    finished_turn: str | None
    """The id of the last turn that finished."""
    fallback: dict[str, Any] | None = None
    """Who was asked last in place of the session's agent or its model: `by`, a fallback as in the
    configuration, `why`, a category, and `until_ms`, if known; None if nobody is."""
    told_fallback: str | None = None
    """The fallback of which the chat knows that it answers."""
    postponed: str | None
    """The category of the error for which the session or its kept batch is postponed, or
    `FOR_BUDGET`; None if it isn't."""
    postponed_until_ms: int | None
    budget_told: str | None = None
    """The budgets about whose limit the chat was told while messages wait, each on a line with how
    often owners have allowed half as much again."""
    budget_name: str | None
    """The name of the budget for which the session waits; None if it waits for none."""
    kept_size: int
    """The number of entries of the kept batch, which was postponed and waits behind the terminal; 0
    without one."""

    terminal: dict[str, Any] | None
    """The terminal that the running turn started (`fleet.terminal_state.TerminalPlace`)."""
    held: str | None
    """The holder of that terminal, a process to which the lease was given."""
    terminal_entry: str | None
    """The id of the unfinished entry that opens, or opened, a terminal."""

    context: ConversationSize | None = None
    """The size of the conversation after its last turn; None if the CLI does not report it."""
    has_untold_summary: bool = False
    """Whether the conversation was summarized, and its people have not been told yet."""
    has_remembered: bool = False
    """Whether the conversation ever had a CLI's session id, which may have expired since."""
    agent_process: dict[str, Any] | None
    """The address of the agent's holder, and the secret for it."""
    grant: str | None
    """The agent process that may call tools, and the tools (`Grant.decode`)."""
    reset_turn: str | None
    """The id of the last turn that ended a conversation."""
    reset_reason: str | None

    label: str | None
    title: str | None
    """The beginning of the conversation's first message."""
    parent: SessionKey | None
    """The session that started this one; None if people chat with this session."""
    limits: SessionLimits
    """The limits on the session's tools."""
    branch_of: SessionKey | None
    """The session whose launch the agents of a branch repeat, which is no branch itself; None if
    this session is no branch."""
    branch_limits: SessionLimits = UNLIMITED
    """The limits of `branch_of`."""
    task_entry: str | None
    """The id of the entry that began the current run: the task, or the first message to the task
    after its last result."""
    retried_entry: str | None
    """The id of the entry as which `task_entry` was retried after it was a dead letter."""
    last_task_entry: str | None
    """The id of the last message to the task while its result was pending."""

    @property
    def has_read_web(self) -> bool:
        """Whether the running turn has read what others have written, or an earlier one of a task,
        whose result has the replies of several."""
        return self.web_turn is not None and (
            self.web_turn == self.turn or self.key.task is not None
        )

    @property
    def postponed_for(self) -> str | None:
        """Why the session is postponed, as people read it; None if it isn't."""
        if self.postponed == FOR_BUDGET:
            return f"{self.budget_name} is used up"
        return self.postponed and _words(self.postponed)

    @property
    def fallback_by(self) -> str | None:
        """The fallback that answers in place of the session's agent or its model; None if none."""
        return self.fallback["by"] if self.fallback else None

    @property
    def fallback_for(self) -> str | None:
        """Why a fallback answers, as people read it; None if none does."""
        return _words(self.fallback["why"]) if self.fallback else None

    @property
    def fallback_until_ms(self) -> int | None:
        """When the provider of the session's agent accepts requests again, if that is known."""
        return self.fallback["until_ms"] if self.fallback else None

    @property
    def name(self) -> str:
        """The label or the title; empty if the session has neither."""
        return self.label or self.title or ""

    def model_in(self, config: Config) -> str | None:
        """Return the model of the session's next turn; None for the CLI's default."""
        agent = config.agents.get(self.key.agent)
        of_task = agent.task_model if agent and self.is_background else None
        return self.model or of_task or (agent.model if agent else None)

    @property
    def is_background(self) -> bool:
        """Whether no person talks here: in a task, unless it is a branch, and in a session to which
        only cron jobs and other sessions have written."""
        if self.key.task:
            return not self.is_branch
        return self.lane == "background" and not self.last_heard_ms

    @property
    def is_branch(self) -> bool:
        """Whether the session began with a copy of its parent's conversation."""
        return self.branch_of is not None

    @property
    def launch_of(self) -> Launch:
        """The session whose launch this session's agents repeat, and that session's limits."""
        return (self.branch_of, self.branch_limits) if self.branch_of else (self.key, self.limits)

    @property
    def agent_path(self) -> str | None:
        """The address of the agent's holder on its host; None without an agent."""
        return None if self.agent_process is None else self.agent_process["path"]

    @classmethod
    def decode(cls, stored: Mapping[bytes, bytes], **more: Any) -> Self:
        """Return the state from its hash in Redis; `more` are the fields of a subclass.

        Raises ValueError or KeyError if the hash is damaged.
        """
        batch, steered, kept, kept_steered, until_ms, kept_until_ms, reason, kept_reason = [
            stored.get(name, b"").decode()
            for name in (
                *(b"batch", b"steered", b"kept_batch", b"kept_steered", b"postponed_until_ms"),
                *(b"kept_postponed_until_ms", b"postponed_reason", b"kept_postponed_reason"),
            )
        ]
        resumes = until_ms or kept_until_ms
        key = SessionKey.parse(stored[b"key"].decode())
        unknown = OF_UNKNOWN_TASK if key.task else UNLIMITED
        return hashes.decode(
            cls,
            stored,
            key=key,
            turn_entries=_ids(batch) + _ids(steered),
            postponed=(reason or kept_reason or None) if resumes else None,
            postponed_until_ms=int(resumes) if resumes else None,
            kept_size=len(_ids(kept)) + len(_ids(kept_steered)),
            **({} if stored.get(b"limits") else {"limits": unknown}),
            **more,
        )


def _words(category: str) -> str:
    return _POSTPONED_FOR.get(cast(ErrorCategory, category), category.replace("_", " "))


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the hash that a script returned as a flat list of names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _ids(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
