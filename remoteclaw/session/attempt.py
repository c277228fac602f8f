"""An attempt at a turn: the state that its steps share, and the phases that its agent reaches."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.cooling import Failure
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Batch
from remoteclaw.messages import Entry, Turn
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.asides import TurnAsides
from remoteclaw.session.budgets import TurnBudgets
from remoteclaw.session.fallbacks import Choice
from remoteclaw.session.permission import Permissions
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.steering import Steering


class Progress:
    """The phases of one attempt: `spawned`, `output`, `tool`."""

    def __init__(self, lease: Lease, keeper: AgentKeeper, *, recorded: str | None) -> None:
        """`recorded` describes the agent that was recorded with the attempt's start, if any."""
        self._lease = lease
        self._keeper = keeper
        self._recorded = recorded
        self._phases: set[str] = set()
        self.asked = asyncio.Event()
        """Set once the agent receives the turn's prompt."""
        self._notes: set[asyncio.Task[None]] = set()

    def restart(self) -> None:
        """Forget the phases, because the agent is asked again."""
        self._phases.clear()

    @property
    def was_asked(self) -> bool:
        """Whether the agent received the turn's prompt."""
        return "spawned" in self._phases

    @property
    def is_silent(self) -> bool:
        """Whether the agent has neither written text nor used a tool since it was asked."""
        return not self._phases & {"output", "tool"}

    async def reached(self, phase: str, detail: str) -> None:
        """Record a phase: `spawned` at once, later phases in tasks that don't delay the answer."""
        if phase == "web":  # recorded before the agent can use what it reads
            await self._lease.turns.note_web()
            return
        self._phases.add(phase)
        self.asked.set()
        if phase != "spawned":
            self._notes.add(asyncio.create_task(self._lease.turns.note_phase(phase, detail)))
        elif detail != self._recorded:
            await self._lease.turns.note_phase(phase, detail, agent_process=self._keeper.record())

    async def postponed(self, detail: str) -> None:
        """Record that the agent is asked again later; after a crash it counts as not asked."""
        await self.start_over()
        await self._lease.turns.note_phase("postponed", detail)

    async def start_over(self) -> None:
        """Prepare for another agent, because the one that was asked has done nothing."""
        await self.settle()
        self._recorded = None

    async def settle(self) -> None:
        """Wait until all phases are recorded."""
        notes, self._notes = self._notes, set()
        await asyncio.gather(*notes)


@dataclass(slots=True)
class Attempt:
    """The values that the steps of one attempt at a turn share."""

    batch: Batch
    turn: Turn
    queue: QueueConfig
    reply: TurnReply
    progress: Progress
    waiting_after: Sequence[Entry]
    """The entries that waited after the turn's own when it began."""
    newest_known: str
    """The id of the newest entry that this worker has read."""
    steering: Steering | None = None
    """The newer messages that the agent receives while the turn runs; None if it takes none."""
    asides: TurnAsides | None = None
    """Puts newer messages to the agent while the turn runs; None if the agent can't answer them."""
    told_beside: bytes | None = None
    """The last note of an aside that the agent received with the turn's prompt."""
    abort: asyncio.Event = field(default_factory=asyncio.Event)
    choices: Sequence[Choice] = ()
    """Who is asked, in this order."""
    own: Choice | None = None
    """The session's agent itself; None if it can't be built."""
    failure: Failure | None = None
    """Why the session's agent can't answer; None while it can."""
    newly_told_fallback: str | None = None
    """The fallback that the turn has told its chat about, empty for the agent itself; None if there
    was nothing to tell."""
    is_superseded: bool = False
    """Whether the turn is being stopped because a newer message replaces it."""
    interrupting: "asyncio.Task[None] | None" = None
    """Checks whether a newer message may interrupt the turn."""
    permissions: Permissions | None = None
    """Asks people for permissions; None if no person can be asked."""
    budgets: TurnBudgets | None = None
    """The budgets that limit the turn; None if none does."""
    began: float = field(default_factory=time.monotonic)

    def interrupt(self) -> None:
        """Stop the turn, because a newer message replaces it."""
        self.is_superseded = True
        self.abort.set()

    @property
    def usage(self) -> Usage | None:
        """The usage of all attempts so far; None if no agent was asked."""
        return (self.batch.spent + self.reply.spent) or None

    @property
    def joined_so_far(self) -> tuple[Entry, ...]:
        """The messages that have joined the turn."""
        return self.steering.joined if self.steering else ()

    def joined(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return those entries with `ids` that joined the turn while it ran."""
        return self.steering.taken(ids) if self.steering else ()
