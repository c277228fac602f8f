"""A compaction of a conversation on request: after a refusal, for a person, or while it is idle."""

import asyncio
import logging
import time
from dataclasses import replace

from remoteclaw.bridge.delivery import MAX_SUMMARY_CHARS
from remoteclaw.bridge.run import Run
from remoteclaw.bridge.start import with_program
from remoteclaw.errors import AgentUnavailable, RemoteClawError
from remoteclaw.events import Compacted, ErrorEvent
from remoteclaw.host.logs import frames_of

#: The longest wait for a compaction, in seconds. A summary of 150,000 tokens takes a minute or two,
#: and a CLI whose request fails repeats it for a minute; a person waits meanwhile.
COMPACTION_S = 600.0
#: The longest wait for the end of an interrupted compaction, in seconds: it takes 0.1 s.
INTERRUPT_S = 2.0
#: The pause between two interruptions, in seconds: a CLI ignores one before it has begun.
INTERRUPT_AGAIN_S = 0.3

log = logging.getLogger(__name__)


async def compact(run: Run, abort: asyncio.Event, keep: str = "") -> Compacted:
    """Have a turn's agent summarize the conversation, unless `abort` is set meanwhile.

    `keep` says what the summary is to keep. An agent whose compaction can't be interrupted is ended
    when `abort` is set.
    """
    if not run.setup.runtime.capabilities.compacts:
        return Compacted()
    if run.session_id is None and run.fork_of is None:
        return Compacted(is_empty=True)
    compacting = asyncio.create_task(_compact(run, keep))
    stop = asyncio.create_task(abort.wait())
    try:
        await asyncio.wait(
            (compacting, stop), timeout=COMPACTION_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not compacting.done():
            await _interrupt(run, compacting)
    finally:
        stop.cancel()
        is_done = compacting.done()
        if not is_done:
            compacting.cancel()
            await asyncio.wait((compacting,))
    if not is_done:
        await run.setup.agents.discard()
        return Compacted()
    return compacting.result()


async def _interrupt(run: Run, compacting: asyncio.Task[Compacted]) -> None:
    """Interrupt a compaction, and wait until it has ended, if the agent can do that."""
    until = time.monotonic() + INTERRUPT_S
    can_interrupt = run.agent and run.setup.runtime.capabilities.compact_at
    while can_interrupt and run.agent and not compacting.done() and time.monotonic() < until:
        await run.agent.interrupt()
        await asyncio.wait((compacting,), timeout=INTERRUPT_AGAIN_S)


async def _compact(run: Run, keep: str) -> Compacted:
    """Compact with the conversation's agent, or with a new one if that has ended."""
    try:
        run.agent = agent = await run.setup.agents.obtain(
            with_program(run),
            session_id=run.session_id or run.fork_of,
            fork=run.fork_of is not None,
        )
        if run.callbacks.on_phase:  # after a crash, the next worker ends this agent first
            await run.callbacks.on_phase("spawned", run.setup.agents.description)
        made = await agent.compact(keep)
    except AgentUnavailable as failure:
        log.warning("turn %s: no agent for a compaction: %s", run.turn.reference, failure.category)
        return Compacted(failure=ErrorEvent(failure.category, str(failure)))
    except RemoteClawError:
        raise  # a lost lease
    except Exception as error:  # noqa: BLE001 - an agent's output is another program's
        log.error("turn %s: no compaction: %s", run.turn.reference, frames_of(error))
        await run.setup.agents.discard()
        return Compacted()
    if made.done is None:
        return made
    if agent.session_id:  # a fork begins where the conversation ends now
        run.identity_mark = ""
        await run.remember(agent.session_id, agent.note)
    summary = run.scrubber.text(made.done.summary, MAX_SUMMARY_CHARS)
    return replace(made, done=replace(made.done, summary=summary))
