"""Notices: RemoteClaw's own sentences in a turn, and the results that carry them."""

from dataclasses import replace

from remoteclaw.bridge.failures import unstartable
from remoteclaw.errors import ErrorCategory, Remedy, sentence
from remoteclaw.events import AgentRunResult, Compacted
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import AgentDeliveryResult, McpSideEffects, ReplyPayload, Turn
from remoteclaw.profiles import profile_of

SECOND_TRY = "(I was interrupted while I worked on this. Here is my second try.)"
CONTEXT_LOST = "(I no longer have our earlier conversation. I go on from notes of it.)"
SUMMARIZED = "(This conversation had become too long. I go on from a summary of it.)"
MADE_ROOM = (
    "(I have summarized our earlier conversation to make room; details of it may be missing.)"
)
NOTHING_TO_SUMMARIZE = (
    "There is nothing to summarize: this conversation has only begun, or was just summarized."
)
NOT_SUMMARIZED = (
    "I could not summarize this conversation{why}, so it continues as it is: try `/compact` again "
    "later, or begin an empty one with `/new`."
)
NOTHING_RUNS = "Nothing is running now."
COMMAND_DONE = "Done."
NOTHING_SAID = "(The agent finished without saying anything.)"
TOO_MANY = (
    "(I was busy, and I keep {cap} waiting messages at most. I left out {count}: send again what "
    "still matters.)"
)
RESET = "This is a new conversation. I no longer see the earlier one."


def failed_result(
    turn: Turn,
    category: ErrorCategory,
    detail: str = "",
    index: int = 0,
    *,
    is_for_all: bool = False,
) -> AgentDeliveryResult:
    """Return the result of a turn that failed before an agent answered.

    `detail` is the reason for the outcome; in a chat, only a person at this computer sees it,
    unless it `is_for_all`: it is about the chat, and has no secret. `index` is that of the message.
    """
    remedy = None
    if detail and (is_for_all or profile_of(turn.place.provider).is_local):
        remedy = Remedy(one_line(detail))
        if category is ErrorCategory.NOT_INSTALLED:
            remedy = unstartable(turn.session.agent, detail)
    text = sentence(category, agent=turn.session.agent, reference=turn.reference, remedy=remedy)
    is_error = category is not ErrorCategory.ABORTED
    return AgentDeliveryResult(
        payloads=(ReplyPayload(text, index=index, is_error=is_error, is_ours=True),),
        run=AgentRunResult(error_subtype=str(category)),
        mcp=McpSideEffects(),
        error=detail,
        error_category=category,
    )


def notice_result(text: str) -> AgentDeliveryResult:
    """Return the result of a turn that was answered without an agent; `text` may be empty."""
    return AgentDeliveryResult(
        payloads=(ReplyPayload(text, is_ours=True),) if text else (),
        run=AgentRunResult(),
        mcp=McpSideEffects(),
        is_silent=True,
    )


def compact_result(turn: Turn, made: Compacted, *, why: str = "") -> AgentDeliveryResult:
    """Return the reply to `/compact`. `why` is the reason of a failure, for a person at this
    computer."""
    if made.done:
        change = f": {made.done.change}" if made.done.change else ""
        return replace(notice_result(f"Summarized{change}."), compaction=made.done)
    if made.is_empty:
        return notice_result(NOTHING_TO_SUMMARIZE)
    is_told = why and profile_of(turn.place.provider).is_local
    text = NOT_SUMMARIZED.format(why=f" ({one_line(why).rstrip('.')})" if is_told else "")
    return notice_result(text)


def stop_result(turn: Turn) -> AgentDeliveryResult:
    """Return the reply to `/stop`; it is empty if the stopped turn has replied in the chat."""
    asked = turn.entries[-1]
    return notice_result("" if asked.stopped and asked.deliver == "channel" else NOTHING_RUNS)


def superseded(result: AgentDeliveryResult, turn: Turn) -> AgentDeliveryResult:
    """Return the result with the sentence about a turn that a newer message has replaced."""
    category = ErrorCategory.SUPERSEDED
    text = sentence(category, agent=turn.session.agent, reference=turn.reference)
    *before, last = result.payloads
    payloads = (*before, replace(last, text=text))
    return replace(result, payloads=payloads, error_category=category)


def end_early(result: AgentDeliveryResult, text: str) -> AgentDeliveryResult:
    """Return the result of a turn that RemoteClaw has ended: done, with `text` that says why."""
    if result.error_category is not ErrorCategory.ABORTED:
        return result
    *before, last = result.payloads
    payloads = (*before, replace(last, text=text, is_error=False))
    run = replace(result.run, aborted=False, error_subtype=None)
    return replace(result, payloads=payloads, run=run, error=None, error_category=None)


def with_notice(result: AgentDeliveryResult, text: str, *, index: int) -> AgentDeliveryResult:
    """Return the result with a notice as its last message; it has `index` if it is the only one."""
    if result.payloads:
        index = result.payloads[-1].index + 1
    notice = ReplyPayload(text, index=index, is_ours=True)
    return replace(result, payloads=(*result.payloads, notice))
