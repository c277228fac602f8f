"""The session whose lease this process has: its state, and the writes that the lease allows.

The parts of a turn share it: what begins, moves, reports and ends it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.clock import boottime
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Value, Values
from remoteclaw.fleet.sessions.state import SessionState
from remoteclaw.fleet.sessions.usage import Usage, UsageScopes, usage_args
from remoteclaw.fleet.turns.inbound import RawEntry
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Conversation

#: The fractions of the lease after which the owner stops itself, and the holder kills the agent:
#: the owner stops first, and both act before another worker can acquire the lease.
STOP_FRACTION, KILL_FRACTION = 0.8, 0.9


async def never() -> bool:
    """Return False, for a process that no RQ worker has started."""
    return False


@dataclass(slots=True)
class LeasedSession:
    """A session whose lease this process has, until another worker acquires it."""

    sid: str
    epoch: str
    state: SessionState
    """The session's state when the lease was acquired, with the later changes of this owner."""
    session_map: dict[str, Conversation]
    """The CLIs' conversations, by `conversation_name()`."""
    host: str
    """The host that serves the session now."""
    gateway: str | None
    """The address of the host's gateway; None if it had none when the lease was acquired."""
    lease_s: float
    renewed_at: float
    """The time at which the last successful renewal was sent, on `boottime()`."""
    acquired_at: float
    """The time at which the lease was acquired, on `boottime()`."""
    acquired_ms: int
    """The same time on Redis' clock, in milliseconds."""
    scripts: Scripts
    waker: Waker
    label: str = ""
    """The label of this worker; empty without one."""
    is_leaving: Callable[[], Awaitable[bool]] = never
    """Whether this worker is asked to end."""
    newest_read: str = "0-0"
    """The id of the newest entry that `entries()` has read."""
    prefetched_entries: list[RawEntry] | None = None
    """The oldest entries, as they were read with the lease or by `wait()`, for the next
    `entries()`. A fenced write drops them, because it may have removed some of them."""
    usage_scopes: Callable[[], UsageScopes] | None = None
    """Returns whose usage the running turn's is, or that of the last one; None before a turn."""
    fallback_agent: str = ""
    """The agent that works in place of the session's in the running turn; empty if none does."""
    is_given_away: bool = False
    """Whether the lease was released because the next batch is postponed, or given to the holder of
    a terminal, or may have been."""

    @property
    def stop_at(self) -> float:
        """The time at which this process has to stop using the lease, on `boottime()`."""
        return self.renewed_at + STOP_FRACTION * self.lease_s

    @property
    def kill_at(self) -> float:
        """The time at which the holder kills the agent, on `boottime()`."""
        return self.renewed_at + KILL_FRACTION * self.lease_s

    @property
    def now_ms(self) -> int:
        """The time on Redis' clock, in milliseconds, by which all hosts count the same days."""
        return self.acquired_ms + round((boottime() - self.acquired_at) * 1000)

    @property
    def working_agent(self) -> str:
        """The agent that works in the running turn, and whose usage counts."""
        return self.fallback_agent or self.session.agent

    @property
    def session(self) -> SessionKey:
        """The session's key."""
        return self.state.key

    def usage_args(self, usage: Usage | None, *, payers: Sequence[str] | None = None) -> Values:
        """Return what a script needs to add usage of the session's turn, or of an aside.

        An aside has its own `payers`, the names of people.
        """
        scopes = UsageScopes(self.session.agent, self.sid)
        if self.usage_scopes:
            scopes = self.usage_scopes()
        if payers is not None:
            scopes = replace(scopes, payers=tuple(payers))
        scopes = replace(scopes, agent=self.working_agent)
        return usage_args(usage, scopes)

    async def run_fenced(self, name: str, /, **values: Value) -> Any:
        """Run the script `name`; raise `LeaseLost` if another worker holds the lease."""
        self.prefetched_entries = None
        own = {"sid": self.sid, "epoch": self.epoch}
        return await self.scripts.run(name, deadline=self.stop_at, **{**values, **own})
