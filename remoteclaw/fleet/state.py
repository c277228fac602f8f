"""The state of a session: the hash at `keys.state`, decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import orjson

from remoteclaw.config.model import Config, QueueOverride
from remoteclaw.fleet.keys import Lane
from remoteclaw.messages import SessionKey

#: The field with a session's own queue settings, which operators write.
QUEUE = "queue_settings"
#: The field with the model that people have chosen for a session.
MODEL = "model"
#: The field with the project that people have bound a session to.
PROJECT = "project"
#: The field that is there while a session's chat shows nothing of turns that run.
IS_QUIET = "is_quiet"
#: How long an idle session's state is kept, in milliseconds: longer than its CLI session id.
STATE_MS = 8 * 24 * 3600 * 1000
#: The depth of a task of which it isn't known: deeper than any session may be, so it may do least.
MAX_DEPTH = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What Redis keeps of a session, as it was at one moment. Times are Redis' (ms)."""

    key: SessionKey
    status: Literal["idle", "scheduled", "running"]
    lane: Lane
    """The queue that the session waits in when it waits."""
    host: str | None
    """The host that has its agent."""
    worker: str | None
    """The process that holds its lease, for people."""
    epoch: str
    queue: QueueOverride | None
    """Its own queue settings."""
    model: str | None
    """The chosen model; None for the agent's own."""
    project: str | None
    """The project that it is bound to; None where it works in its agent's workspace."""
    turn_project: str | None
    """The same, as it was when its last turn began."""
    is_quiet: bool
    """Whether its chat shows nothing of a turn before its answers."""
    last_entry: str | None
    """The entry that was accepted last."""
    busy_since_ms: int | None
    """When its first turn since it was idle began."""
    last_heard_ms: int
    """When the last turn about a person's message ended; 0 if never."""

    turn: str | None
    """The turn that is recorded and not finished."""
    taken: int
    """How many entries that turn is about, those that have joined it included; 0 without one."""
    attempt: int
    phase: str | None
    finished_turn: str | None
    """The turn that was finished last."""
    postponed: str | None
    """Why it waits although there is work, as an error's category; None if it doesn't."""
    postponed_until_ms: int | None

    terminal: dict[str, Any] | None
    """The terminal that the running turn has started (`fleet.terminal_state.TerminalPlace`)."""
    held: str | None
    """The process to which the lease was given with that terminal: its holder."""
    terminal_entry: str | None
    """The entry that opens, or has opened, a terminal, and is not finished."""

    has_remembered: bool
    """Whether its conversation ever had an id of a CLI, which may have expired since."""
    agent_process: dict[str, Any] | None
    """Where its agent's holder listens, and what it needs to be asked."""
    grant: str | None
    """The agent process that may call tools, and which tools (`Grant.decode`)."""
    reset_turn: str | None
    """The turn that ended a conversation last."""
    reset_reason: str | None

    label: str | None
    title: str | None
    """The first words of its conversation."""
    parent: SessionKey | None
    """The session that has started this one; None if people talk with it."""
    depth: int
    """How many sessions are above it."""
    branch_of: SessionKey | None
    """Of a branch: the session whose launch its agents repeat; that one is no branch."""
    branch_depth: int
    """How many sessions are above that one."""
    task_entry: str | None
    """The entry that its run is called by: its task, or what it was told after its last result."""
    retried_entry: str | None
    """The entry that this became when it was retried as a dead letter."""
    told_entry: str | None
    """What it was told last while its result was awaited."""

    @property
    def name(self) -> str:
        """What people call it: its label, else its title; empty if it has neither."""
        return self.label or self.title or ""

    def model_in(self, config: Config) -> str | None:
        """Return the model that its next turn asks for; None for the CLI's own choice."""
        agent = config.agents.get(self.key.agent)
        return self.model or (agent.model if agent else None)

    @property
    def is_branch(self) -> bool:
        """Whether it began as a copy of the conversation of the session that started it."""
        return self.branch_of is not None

    @property
    def launch_of(self) -> tuple[SessionKey, int]:
        """The session that its agents are launched like, and how many are above that."""
        return (self.branch_of, self.branch_depth) if self.branch_of else (self.key, self.depth)

    @property
    def agent_path(self) -> str | None:
        """Where its agent's holder listens, on its host: in the agent's run directory."""
        return None if self.agent_process is None else self.agent_process["path"]

    @classmethod
    def decode(cls, fields: Mapping[bytes, bytes], **more: Any) -> Self:
        """Return the state that is kept in these fields; `more` is what a subclass adds to it.

        Raises ValueError or KeyError if it can't be read.
        """
        text = {name.decode(): value.decode() for name, value in fields.items()}
        key = SessionKey.parse(text["key"])
        until_ms = _ms(text.get("postponed_until_ms"))
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
            taken=len(_ids(text.get("batch"))) + len(_ids(text.get("steered"))),
            attempt=int(text.get("attempt", 0)),
            phase=text.get("phase"),
            finished_turn=text.get("finished_turn"),
            postponed=text.get("postponed_reason") if until_ms else None,
            postponed_until_ms=until_ms,
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
            depth=int(text.get("depth", MAX_DEPTH if key.task else 0)),
            branch_of=SessionKey.parse(branch_of) if branch_of else None,
            branch_depth=int(text.get("branch_depth", 0)),
            task_entry=text.get("task_entry"),
            retried_entry=text.get("retried_entry"),
            told_entry=text.get("told_entry"),
            **more,
        )


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return a hash that a script returns as names and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _ids(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _ms(text: str | None) -> int | None:
    return int(text) if text else None
