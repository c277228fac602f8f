"""A compaction of a turn's conversation on request, to make room after a refusal."""

import asyncio
import logging
from dataclasses import replace

from remoteclaw.bridge.delivery import MAX_SUMMARY_CHARS
from remoteclaw.bridge.run import Run
from remoteclaw.bridge.start import with_program
from remoteclaw.errors import AgentUnavailable, RemoteClawError
from remoteclaw.events import CompactionEvent, ErrorEvent
from remoteclaw.host.logs import frames_of

#: The longest wait for a compaction, in seconds. A summary of 150,000 tokens takes a minute or two,
#: and a CLI whose request fails repeats it for a minute; a person waits meanwhile.
COMPACTION_S = 600.0

log = logging.getLogger(__name__)


async def compact(run: Run, abort: asyncio.Event) -> CompactionEvent | ErrorEvent | None:
    """Have the agent of an ended turn summarize the conversation, unless `abort` is set meanwhile.

    Returns the finished compaction, else the agent's failure; None if it can't, or was stopped,
    which ends the agent.
    """
    if not run.setup.runtime.capabilities.compacts or run.session_id is None:
        return None
    compacting = asyncio.create_task(_compact(run))
    stop = asyncio.create_task(abort.wait())
    try:
        await asyncio.wait(
            (compacting, stop), timeout=COMPACTION_S, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        stop.cancel()
        is_done = compacting.done()
        if not is_done:
            compacting.cancel()
            await asyncio.wait((compacting,))
    if not is_done:
        await run.setup.agents.discard()
        return None
    end = compacting.result()
    if isinstance(end, CompactionEvent):
        return replace(end, summary=run.scrubber.text(end.summary, MAX_SUMMARY_CHARS))
    return end


async def _compact(run: Run) -> CompactionEvent | ErrorEvent | None:
    """Compact with the turn's agent, or with a new one if that has ended."""
    try:
        agent = await run.setup.agents.obtain(with_program(run), session_id=run.session_id)
        end = await agent.compact()
    except AgentUnavailable as failure:
        log.warning("turn %s: no agent for a compaction: %s", run.turn.reference, failure.category)
    except RemoteClawError:
        raise  # a lost lease
    except Exception as error:  # noqa: BLE001 - an agent's output is another program's
        log.error("turn %s: no compaction: %s", run.turn.reference, frames_of(error))
        await run.setup.agents.discard()
    else:
        if isinstance(end, CompactionEvent) and agent.session_id:
            # A fork begins where the conversation ends now.
            run.identity_mark = ""
            await run.remember(agent.session_id, agent.note)
        return end
    return None
