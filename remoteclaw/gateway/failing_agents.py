"""The agents of which turns failed lately, in the form that clients receive."""

from collections.abc import Mapping, Sequence

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet.sessions.sessions import Sessions
from remoteclaw.fleet.turns.failed import FailedTurns, FailingAgent
from remoteclaw.tools import failing as contract

#: At most this many characters of a reason are shown.
MAX_REASON_CHARS = 200


async def failing_agents(
    agents: Sequence[FailingAgent],
    failed_turns: FailedTurns,
    sessions: Sessions,
    *,
    hosts: Mapping[str, str],
    scrubber: Scrubber,
) -> tuple[contract.FailingAgent, ...]:
    """Return `agents` with the newest failed turn of each category.

    `hosts` are the names of hosts by their ids; the `scrubber` hides secrets in reasons.
    """
    newest = [turn for agent in agents for turn, _ in agent.by_category]
    reasons = dict(zip(newest, await failed_turns.reasons(newest), strict=True))
    found = await sessions.views([turn.sid.encode() for turn in newest])
    views = {view.sid: view for view in found}
    return tuple(
        contract.FailingAgent(
            agent=agent.agent,
            failed=len(agent.failed),
            answered=agent.answered,
            in_a_row=agent.in_a_row,
            line=agent.line,
            categories=tuple(
                contract.FailedTurns(
                    category=turn.category,
                    count=count,
                    at_ms=turn.at_ms,
                    reference=turn.reference,
                    session_key=str(view.key) if (view := views.get(turn.sid)) else None,
                    title=view.name if view else None,
                    host=hosts.get(turn.host_id, turn.host_id),
                    reason=scrubber.line(reasons[turn], MAX_REASON_CHARS),
                )
                for turn, count in agent.by_category
            ),
        )
        for agent in agents
    )
