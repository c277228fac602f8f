"""The state of a session: the hash at `keys.state`, decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import orjson

from remoteclaw.config.model import Config, QueueOverride
from remoteclaw.config.tool_policy import UNLIMITED, SessionLimits
from remoteclaw.errors import ErrorCategory
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
#: Why a session is postponed, as people read it, by the category of the error.
_POSTPONED_FOR = {
    ErrorCategory.USAGE_LIMIT: "the plan's limit",
    ErrorCategory.RETRYABLE: "model busy",
    ErrorCategory.UNREACHABLE: "model not reachable",
}
#: The state of an idle session is kept for this long, in milliseconds: longer than the CLI's
#: session id.
STATE_MS = 8 * 24 * 3600 * 1000
#: The limits of a task whose limits are unknown: a depth beyond any maximum, so that the task has
#: minimal rights.
OF_UNKNOWN_TASK = SessionLimits(depth=99)
#: A session, and the limits on its tools, with which an agent is launched.
Launch = tuple[SessionKey, SessionLimits]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """The state of a session at one moment. Times are in milliseconds on Redis' clock."""

    key: SessionKey
    status: Literal["idle", "scheduled", "running"]
    lane: Lane
    """The lane of the session's hints."""
    host: str | None
    """The host of the session's agent."""
    worker: str | None
    """The process that holds the lease, as text for people."""
    epoch: str
    queue: QueueOverride | None
    """The session's own queue settings."""
    model: str | None
    """The chosen model; None for the agent's model."""
    project: str | None
    """The project to which the session is bound; None for the agent's workspace."""
    turn_project: str | None
    """The value of `project` when the last turn began."""
    is_quiet: bool
    """Whether the session's chat shows only the answers of turns, without progress."""
    last_entry: str | None
    """The id of the last entry that was accepted."""
    busy_since_ms: int | None
    """The start of the first turn since the session was idle; None while it is idle."""
    last_heard_ms: int
    """The end of the last turn about a person's message; 0 if there was none."""

    turn: str | None
    """The id of the turn that was recorded and is not finished."""
    turn_entries: tuple[str, ...]
    """The ids of the entries of that turn, including those that joined it; empty without a turn."""
    attempt: int
    phase: str | None
    finished_turn: str | None
    """The id of the last turn that finished."""
    postponed: str | None
    """The category of the error for which the session or its kept batch is postponed; None if it
    isn't."""
    postponed_until_ms: int | None
    kept_size: int
    """The number of entries of the kept batch, which was postponed and waits behind the terminal; 0
    without one."""

    terminal: dict[str, Any] | None
    """The terminal that the running turn started (`fleet.terminal_state.TerminalPlace`)."""
    held: str | None
    """The holder of that terminal, a process to which the lease was given."""
    terminal_entry: str | None
    """The id of the unfinished entry that opens, or opened, a terminal."""

    has_remembered: bool
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
    branch_limits: SessionLimits
    """The limits of `branch_of`."""
    task_entry: str | None
    """The id of the entry that began the current run: the task, or the first message to the task
    after its last result."""
    retried_entry: str | None
    """The id of the entry as which `task_entry` was retried after it was a dead letter."""
    last_task_entry: str | None
    """The id of the last message to the task while its result was pending."""

    @property
    def postponed_for(self) -> str | None:
        """Why the session is postponed, as people read it; None if it isn't."""
        if self.postponed is None:
            return None
        words = self.postponed.replace("_", " ")
        return _POSTPONED_FOR.get(cast(ErrorCategory, self.postponed), words)

    @property
    def name(self) -> str:
        """The label or the title; empty if the session has neither."""
        return self.label or self.title or ""

    def model_in(self, config: Config) -> str | None:
        """Return the model of the session's next turn; None for the CLI's default."""
        agent = config.agents.get(self.key.agent)
        return self.model or (agent.model if agent else None)

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
    def decode(cls, fields: Mapping[bytes, bytes], **more: Any) -> Self:
        """Return the state from its hash in Redis; `more` are the fields of a subclass.

        Raises ValueError or KeyError if the hash is damaged.
        """
        text = {name.decode(): value.decode() for name, value in fields.items()}
        key = SessionKey.parse(text["key"])
        until_ms = _ms(text.get("postponed_until_ms") or text.get("kept_postponed_until_ms"))
        agent_process, queue, parent = map(text.get, ("agent_process", QUEUE, "parent"))
        branch_of = text.get("branch_of")
        return cls(
            key=key,
            status=cast(Literal["scheduled", "running"] | None, text.get("status")) or "idle",
            lane="background" if text.get("lane") == "background" else "agents",
            host=text.get("host"),
            worker=text.get("worker"),
            epoch=text.get("epoch", ""),
            queue=QueueOverride.model_validate_json(queue) if queue else None,
            model=text.get(MODEL),
            project=text.get(PROJECT),
            turn_project=text.get("turn_project"),
            is_quiet=IS_QUIET in text,
            last_entry=text.get("last_entry"),
            busy_since_ms=_ms(text.get("busy_since_ms")),
            last_heard_ms=_ms(text.get("last_heard_ms")) or 0,
            turn=text.get("turn"),
            turn_entries=_ids(text.get("batch")) + _ids(text.get("steered")),
            attempt=int(text.get("attempt", 0)),
            phase=text.get("phase"),
            finished_turn=text.get("finished_turn"),
            postponed=text.get("postponed_reason") or text.get("kept_postponed_reason")
            if until_ms
            else None,
            postponed_until_ms=until_ms,
            kept_size=len(_ids(text.get("kept_batch"))) + len(_ids(text.get("kept_steered"))),
            terminal=orjson.loads(text["terminal"]) if "terminal" in text else None,
            held=text.get("held"),
            terminal_entry=text.get("terminal_entry"),
            has_remembered="has_remembered" in text,
            agent_process=orjson.loads(agent_process) if agent_process else None,
            grant=text.get("grant"),
            reset_turn=text.get("reset_turn"),
            reset_reason=text.get("reset_reason"),
            label=text.get("label"),
            title=text.get("title"),
            parent=SessionKey.parse(parent) if parent else None,
            limits=_limits(text.get("limits"), OF_UNKNOWN_TASK if key.task else UNLIMITED),
            branch_of=SessionKey.parse(branch_of) if branch_of else None,
            branch_limits=_limits(text.get("branch_limits"), UNLIMITED),
            task_entry=text.get("task_entry"),
            retried_entry=text.get("retried_entry"),
            last_task_entry=text.get("last_task_entry"),
            **more,
        )


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the hash that a script returned as a flat list of names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _limits(text: str | None, unknown: SessionLimits) -> SessionLimits:
    return SessionLimits.model_validate_json(text) if text else unknown


def _ids(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _ms(text: str | None) -> int | None:
    return int(text) if text else None
