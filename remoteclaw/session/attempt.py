"""An attempt at a turn: what its steps hand on to each other, and how far its agent has come."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.turn import Batch
from remoteclaw.messages import Entry, Turn
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.asides import Beside
from remoteclaw.session.permission import Permissions
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.steering import Steering


class Progress:
    """The phases of one attempt: `spawned`, `output`, `tool`."""

    def __init__(self, lease: Lease, keeper: AgentKeeper, *, recorded: str | None) -> None:
        """`recorded` is the agent that was recorded as asked when the attempt began."""
        self._lease = lease
        self._keeper = keeper
        self._recorded = recorded
        self._phases: set[str] = set()
        self.asked = asyncio.Event()
        """Set once the agent gets the question."""
        self._notes: set[asyncio.Task[None]] = set()

    def restart(self) -> None:
        """Begin from the start: the agent is asked again."""
        self._phases.clear()

    @property
    def was_asked(self) -> bool:
        """Whether the agent got the question."""
        return "spawned" in self._phases

    @property
    def is_silent(self) -> bool:
        """Whether the agent is not known to have said or done anything since it was asked."""
        return not self._phases & {"output", "tool"}

    async def reached(self, phase: str, detail: str) -> None:
        """Record a phase: before the agent is asked, later ones beside its answer."""
        self._phases.add(phase)
        self.asked.set()
        if phase != "spawned":
            self._notes.add(asyncio.create_task(self._lease.turns.note_phase(phase, detail)))
        elif detail != self._recorded:
            await self._lease.turns.note_phase(phase, detail, agent_process=self._keeper.record())

    async def postponed(self, detail: str) -> None:
        """Record that the agent is asked again later: after a crash, as if it had not been."""
        await self.settle()
        await self._lease.turns.note_phase("postponed", detail)
        self._recorded = None

    async def settle(self) -> None:
        """Wait for what is still being recorded."""
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
    behind: Sequence[Entry]
    """The entries that were known to wait behind the turn when it began."""
    known: str
    """The newest entry that is known."""
    steering: Steering | None = None
    """Where the agent hears of newer messages from."""
    beside: Beside | None = None
    """What answers newer messages beside the turn."""
    told_beside: bytes | None = None
    """The last of what the agent was told of things said beside its turns."""
    abort: asyncio.Event = field(default_factory=asyncio.Event)
    is_superseded: bool = False
    """Whether it is stopped for a newer message."""
    permissions: Permissions | None = None
    """Asks people for permissions; None where nobody can be asked."""
    began: float = field(default_factory=time.monotonic)

    def joined(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return the entries with these ids that came while it ran."""
        return self.steering.taken(ids) if self.steering else ()
