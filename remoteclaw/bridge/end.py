"""The end of a turn: steps 7 to 10 of the bridge.

A failure gets its category and its sentence, side effects are collected, the conversation's id is
stored, and hooks run.
"""

import time
from dataclasses import replace

from remoteclaw.bridge.failures import MAX_REASON_CHARS, error_of, failure_text, remedy_of
from remoteclaw.bridge.hooks import AfterRuntimeExit, AgentEnd
from remoteclaw.bridge.run import Run
from remoteclaw.bridge.side_effects import repeats_of, side_effects_of
from remoteclaw.errors import ErrorCategory
from remoteclaw.messages import ReplyPayload
from remoteclaw.protocols import UNTOLD

#: Hooks receive at most this much of an answer, in characters.
MAX_HOOK_OUTPUT_CHARS = 64_000


# -- 7: errors ---------------------------------------------------------------------------------


async def classify_error(run: Run) -> None:
    """Set a failure's category on the result, and deliver a sentence about it."""
    # Measured here, because few CLIs report a duration, and none includes its start.
    duration_ms = round((time.monotonic() - run.started - run.people_s) * 1000)
    run.result = replace(run.result, duration_ms=duration_ms)
    # A stop after the complete answer is ignored.
    is_complete = run.delivered.has_ended and not run.result.aborted and run.error is None
    if not is_complete:
        run.error = error_of(run.error, overdue=run.overdue, is_stopped=run.abort.is_set())
    if run.error is None:
        return
    category = run.error.category
    is_stop = category is ErrorCategory.ABORTED
    # `AgentRunResult` calls this category "context_window".
    subtype = "context_window" if category is ErrorCategory.CONTEXT_OVERFLOW else str(category)
    aborted = run.result.aborted or is_stop
    run.result = replace(run.result, aborted=aborted, error_subtype=subtype)
    remedy = None
    if run.is_local:
        run.reason = run.scrubber.line(run.error.detail, MAX_REASON_CHARS)
        remedy = remedy_of(
            run.error,
            run.turn,
            reason=run.reason,
            spec=run.spec,
            runtime=run.setup.runtime,
            model_setting=run.model_setting,
        )
    text = failure_text(
        run.error,
        run.turn,
        overdue=run.overdue,
        zone=run.setup.zone,
        remedy=remedy,
        has_begun=run.delivery.has_begun,
        model=run.spec.model,
        model_setting=run.model_setting,
        breaks_off=run.delivered.has_words,
    )
    await run.delivery.deliver_notice(ReplyPayload(text, is_error=not is_stop, is_ours=True))


# -- 8: side effects ---------------------------------------------------------------------------


async def collect_side_effects(run: Run) -> None:
    """Collect the side effects in the turn's record, and those in the run directory."""
    written = run.side_effects.read() if run.side_effects else []
    recorded = await run.sources.effects() if run.sources.effects else []
    run.tool_effects = side_effects_of([*recorded, *written])
    if run.turn.entries[-1].deliver == "channel":
        run.repeated_by_tool = repeats_of(
            run.delivery.payloads, [*recorded, *written], run.turn.place
        )


# -- 9: session update -------------------------------------------------------------------------


async def update_session(run: Run) -> None:
    """Store the conversation's id, also after a stop; delete the id of an unknown conversation."""
    session_map = run.setup.session_map
    is_answered = not run.error or run.result.text or run.delivered.tool_calls
    if run.begins_anew and not is_answered:
        await run.setup.agents.discard()  # the earlier conversation stays
    elif run.error and run.error.category is ErrorCategory.SESSION_EXPIRED:
        await session_map.delete(run.map_name)
        await run.setup.agents.discard()
    elif run.fork_of and not is_answered:
        pass  # the CLI may not have saved the fork: the next turn forks again
    elif session_id := run.result.session_id:
        note = run.agent.note if run.agent else ""
        stored = run.known.identity if run.known else ""
        if run.delivered.compaction:
            run.identity_mark = ""  # the prompt is new anyway, so the next turn has the new files
        elif is_answered and not run.tells_memory:
            run.identity_mark = run.identity_mark.removeprefix(UNTOLD)
        is_new_identity = run.setup.identity is not None and run.identity_mark != stored
        if is_new_identity or (session_id, note) != (run.session_id, run.spec.note):
            await run.remember(session_id, note)


# -- 10: hooks after the exit ------------------------------------------------------------------


async def run_exit_hooks(run: Run) -> None:
    """Run the hooks with the agent's answer, and with the end of the turn."""
    session = run.turn.session
    exited = AfterRuntimeExit(
        session,
        run.result.text[:MAX_HOOK_OUTPUT_CHARS],
        run.tool_effects,
        usage=run.result.usage,
        duration_ms=run.result.duration_ms,
        total_cost_usd=run.result.total_cost_usd,
    )
    await run.setup.hooks.run("after_runtime_exit", exited)
    success = run.error is None
    ended = AgentEnd(session, run.turn.reference, success, run.result.duration_ms)
    await run.setup.hooks.run("agent_end", ended)
