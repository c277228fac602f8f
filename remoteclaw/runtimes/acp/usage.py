"""The tokens and the cost of a part of a session over ACP."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remoteclaw.events import AgentEvent, AgentUsage, UsageEvent
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.acp.messages import usage_of

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp.runtime import AcpRuntime


class SessionUsage:
    """The tokens and the cost of a part of a session: of one turn, or of an aside."""

    def __init__(
        self, runtime: "AcpRuntime", spec: AgentSpec, session: str, cost_before: float | None
    ) -> None:
        """`cost_before` is the session's cost so far, in US dollars; None if it is not known."""
        self._runtime = runtime
        self._spec = spec
        self._session = session
        self._before = runtime.totals(spec, session)
        self._reported = AgentUsage()
        """The tokens that the agent has reported with its answers."""
        self._cost_before = self.cost = cost_before
        self._shown = AgentUsage()
        """The tokens of the last event."""

    def add(self, result: Mapping[str, Any]) -> None:
        """Add the tokens of the answer to a prompt."""
        self._reported += usage_of(result)

    def growth(self) -> list[AgentEvent]:
        """Return an event with the tokens so far; none if the agent has recorded no new ones."""
        after = self._before and self._runtime.totals(self._spec, self._session)
        usage = after[0].since(self._before[0]) if self._before and after else AgentUsage()
        if usage == self._shown:
            return []
        self._shown = usage
        return [UsageEvent(usage)]

    def measure(self) -> tuple[AgentUsage, float | None]:
        """Return the tokens and the cost so far; the cost is None if it is not known, or nothing.

        The first cost that is reported in a session of an earlier process, or in a copy, is not
        counted: it includes everything before.
        """
        usage = self._reported
        cost = self.cost - self._cost_before if self.cost and self._cost_before is not None else 0.0
        after = self._runtime.totals(self._spec, self._session)
        if self._before and after:
            recorded = after[0].since(self._before[0])
            if recorded.tokens >= usage.tokens:  # else the agent keeps no record of this session
                usage, cost = recorded, after[1] - self._before[1]
        return usage, cost if cost > 0 else None
