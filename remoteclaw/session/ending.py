"""The end of an attempt: its outcome, its last messages and its entries, in one step."""

import logging
import time
from dataclasses import dataclass, replace
from functools import partial

from remoteclaw.clock import now_ms
from remoteclaw.config.model import RecordConfig
from remoteclaw.errors import ErrorCategory
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import Finished, RecordAppend
from remoteclaw.messages import AgentDeliveryResult
from remoteclaw.protocols import NOTHING_SEEN, Conversation
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.attempt import Attempt
from remoteclaw.session.moved_turn import answered_entries, moved_end, with_end_notice
from remoteclaw.session.notices import (
    COMMAND_DONE,
    MADE_ROOM,
    NOTHING_SAID,
    SUMMARIZED,
    TOO_MANY,
    end_early,
    failed_result,
    notice_result,
    stop_result,
    superseded,
    with_notice,
)
from remoteclaw.session.queue import BatchStep
from remoteclaw.session.record import added, lines_of
from remoteclaw.tasks.entries import in_outcome, result_of
from remoteclaw.telemetry import ENDS

#: An outcome keeps at most this much of a CLI's error message for operators, in characters.
MAX_DETAIL_CHARS = 500
#: The status of an outcome by the turn's error; that of any other error is "failed".
STATUS_BY_ERROR = {
    None: "done",
    ErrorCategory.ABORTED: "stopped",
    ErrorCategory.SUPERSEDED: "interrupted",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of an attempt, and how it is recorded."""

    result: AgentDeliveryResult
    status: str = ""
    """The outcome's status; if empty, it follows from the result's error."""
    is_recorded: bool = True
    """Whether the turn is added to the conversation's record."""
    was_asked: bool = False
    """Whether the agent was asked."""
    tells_summary: bool = False
    """Whether the result itself tells that the conversation was summarized."""
    record: RecordAppend | None = None
    """The lines that are added to the record if `is_recorded` is False; None for no lines."""


def without_agent(step: BatchStep, attempt: Attempt) -> Ending:
    """Return the ending of a batch that ends without asking the agent."""
    turn = attempt.turn
    match step:
        case BatchStep.STOP_NOTICE:
            return Ending(stop_result(turn), is_recorded=False)
        case BatchStep.DROPPED:
            text = TOO_MANY.format(count=len(turn.entries), cap=attempt.queue.cap)
            return Ending(notice_result(text), status="dropped")
        case BatchStep.REFUSED:
            return Ending(notice_result(attempt.batch.refusal or ""), status="dropped")
        case BatchStep.STOPPED:
            return Ending(failed_result(turn, ErrorCategory.ABORTED))
        case BatchStep.UNREADABLE:
            why = next(entry.unreadable for entry in turn.entries if entry.unreadable)
            return Ending(failed_result(turn, ErrorCategory.UNREADABLE, why), status="dead")
        case BatchStep.GIVEN_UP:
            return Ending(failed_result(turn, ErrorCategory.INTERRUPTED), status="dead")
        case _:
            raise AssertionError(f"{step} needs the conversation")


async def finish(
    lease: Lease, keeper: AgentKeeper, settings: RecordConfig, attempt: Attempt, ending: Ending
) -> Finished:
    """End the turn: write its outcome and last messages and remove its entries, in one step."""
    turn, reply, result = attempt.turn, attempt.reply, ending.result
    if attempt.is_superseded and result.error_category is ErrorCategory.ABORTED:
        result = superseded(result, turn)
    if attempt.permissions and attempt.permissions.lapsed:
        result = end_early(result, attempt.permissions.waiting_notice)
    if attempt.budgets:
        result = await attempt.budgets.settle(result)
    error = None
    status = ending.status or STATUS_BY_ERROR.get(result.error_category, "failed")
    if result.error_category is not None:
        detail = (result.error or "")[:MAX_DETAIL_CHARS]
        error = {"category": str(result.error_category), "detail": detail}
    elif status == "done" and not result.is_silent and all(p.is_ours for p in result.payloads):
        notice = COMMAND_DONE if turn.is_command else NOTHING_SAID
        result = with_notice(result, notice, index=reply.next_index)
    result = await with_end_notice(lease, attempt, result)
    recorded = result  # which has a line of its own about a summary
    result, has_untold_summary = _with_summary_notice(lease, attempt, ending, result)
    joined = attempt.joined(result.steered)
    entries = (*turn.left_out, *turn.entries, *joined)
    messages = [*reply.notices, *result.payloads]
    usage = attempt.usage
    if usage:  # however often the agent was asked, and even if the turn was stopped before the last
        usage = replace(usage, turns=1)
    answered = answered_entries(turn)
    lines = partial(
        lines_of,
        turn,
        joined,
        recorded,
        at_ms=now_ms(),
        notices=reply.notices,
        plan=reply.plan,
        by=lease.fallback_agent,
    )
    finished = await lease.turns.finish(
        status,
        reply=[in_outcome(payload) for payload in messages],
        error=error,
        agent_process=keeper.record(),
        first_index=reply.next_index,
        payloads=reply.final_payloads(
            result.payloads, [*answered, *result.steered], status=status, usage=usage
        ),
        taken_up=result.steered,
        answered=result.answered,
        blobs=[file.blob for entry in entries for file in entry.message.attachments],
        record=added(settings, lines) if ending.is_recorded else ending.record,
        moved=moved_end(turn, status, messages),
        task_result=await result_of(lease, turn, status, messages, result.tool_calls),
        is_about_person=ending.was_asked and any(entry.origin == "chat" for entry in entries),
        usage=usage,
        last_aside_note=attempt.told_beside,
        budgets=await attempt.budgets.applied() if attempt.budgets else (),
        conversations=_conversations_after(lease, turn.id, result.conversation, keeper),
        told_fallback=attempt.newly_told_fallback,
        has_untold_summary=has_untold_summary,
    )
    # The writes of phases were sent before the outcome, but may still be unanswered.
    await attempt.progress.settle()
    keeper.note_finished_turn(turn.id)
    _log(attempt, status, result.error_category, usage)
    return finished


def _conversations_after(
    lease: Lease, turn: str, name: str, keeper: AgentKeeper
) -> dict[str, Conversation]:
    """Return the changed conversations of the session map: what each has of the record.

    The conversation `name` has the `turn`. Another one without a note has the turns before it.
    """
    changed: dict[str, Conversation] = {}
    for each, conversation in lease.session_map.items():
        before = conversation.seen or (name and (keeper.finished_turn or NOTHING_SEEN))
        seen = turn if each == name else before
        if seen != conversation.seen:
            changed[each] = replace(conversation, seen=seen)
    return changed


def _with_summary_notice(
    lease: Lease, attempt: Attempt, ending: Ending, result: AgentDeliveryResult
) -> tuple[AgentDeliveryResult, bool]:
    """Return the result with `MADE_ROOM` behind the answer if there is a new summary.

    Also return whether its people have still to be told. Without an answer, the next turn tells it.
    """
    is_new = result.compaction is not None or lease.state.has_untold_summary
    texts = {payload.text for payload in (*attempt.reply.notices, *result.payloads)}
    if not is_new or lease.state.is_quiet or ending.tells_summary or SUMMARIZED in texts:
        return result, False
    last = attempt.turn.entries[-1]
    is_read_by_people = last.deliver == "channel" or last.origin == "chat"
    if not is_read_by_people:  # a task's result is for another agent
        return result, False
    if result.error_category or result.is_silent or not ending.was_asked:
        return result, True
    return with_notice(result, MADE_ROOM, index=attempt.reply.next_index), False


def _log(
    attempt: Attempt, status: str, category: ErrorCategory | None, usage: Usage | None
) -> None:
    """Log the end of a turn: its status, the seconds of its last attempt, and all its tokens."""
    turn = attempt.turn
    ENDS.log(
        log,
        reference=turn.references,
        session=turn.session.sid,
        agent=turn.session.agent,
        channel=turn.place.provider,
        outcome=status,
        category=category and str(category),
        seconds=round(time.monotonic() - attempt.began, 3),
        read=usage and usage.read_tokens,
        written=usage and usage.output_tokens,
    )
