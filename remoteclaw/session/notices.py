"""Notices: the sentences that RemoteClaw itself says in a turn, and the results that carry them."""

from dataclasses import replace

from remoteclaw.bridge.failures import unstartable
from remoteclaw.errors import ErrorCategory, Remedy, sentence
from remoteclaw.events import AgentRunResult
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import AgentDeliveryResult, McpSideEffects, ReplyPayload, Turn
from remoteclaw.profiles import profile_of

SECOND_TRY = "(I was interrupted while I worked on this. Here is my second try.)"
CONTEXT_LOST = "(I no longer have our earlier conversation. I go on from notes of it.)"
NOTHING_RUNS = "Nothing is running now."
COMMAND_DONE = "Done."
NOTHING_SAID = "(The agent finished without saying anything.)"
TOO_MANY = (
    "(I was busy, and I keep {cap} waiting messages at most. I left out {count}: send again what "
    "still matters.)"
)
RESET = "This is a new conversation. I no longer see the earlier one."


def failed_result(
    turn: Turn, category: ErrorCategory, detail: str = "", index: int = 0
) -> AgentDeliveryResult:
    """Return the result of a turn that was not given to an agent."""
    remedy = None
    if detail and profile_of(turn.session.provider).is_local:
        remedy = Remedy(one_line(detail))
        if category is ErrorCategory.NOT_INSTALLED:
            remedy = unstartable(turn.session.agent, detail)
    words = sentence(category, agent=turn.session.agent, reference=turn.reference, remedy=remedy)
    is_error = category is not ErrorCategory.ABORTED
    return AgentDeliveryResult(
        payloads=(ReplyPayload(words, index=index, is_error=is_error, is_ours=True),),
        run=AgentRunResult(error_subtype=str(category)),
        mcp=McpSideEffects(),
        error=detail,
        error_category=category,
    )


def notice_result(words: str) -> AgentDeliveryResult:
    """Return the result of a turn that was answered without an agent; `words` may be empty."""
    return AgentDeliveryResult(
        payloads=(ReplyPayload(words, is_ours=True),) if words else (),
        run=AgentRunResult(),
        mcp=McpSideEffects(),
        is_silent=True,
    )


def stop_result(turn: Turn) -> AgentDeliveryResult:
    """Return the answer to a command to stop; a turn that it stopped in the chat has said so."""
    asked = turn.entries[-1]
    return notice_result("" if asked.stopped and asked.deliver == "channel" else NOTHING_RUNS)


def superseded(result: AgentDeliveryResult, turn: Turn) -> AgentDeliveryResult:
    """Return the result of a turn that was stopped for a newer message, in words that say so."""
    category = ErrorCategory.SUPERSEDED
    words = sentence(category, agent=turn.session.agent, reference=turn.reference)
    *before, last = result.payloads
    payloads = (*before, replace(last, text=words))
    return replace(result, payloads=payloads, error_category=category)


def waiting_for_person(result: AgentDeliveryResult, words: str) -> AgentDeliveryResult:
    """Return the result of a turn that ended before a person answered, in words that say so."""
    if result.error_category is not ErrorCategory.ABORTED:
        return result
    *before, last = result.payloads
    payloads = (*before, replace(last, text=words, is_error=False))
    run = replace(result.run, aborted=False, error_subtype=None)
    return replace(result, payloads=payloads, run=run, error=None, error_category=None)


def with_notice(result: AgentDeliveryResult, words: str, *, index: int) -> AgentDeliveryResult:
    """Return a result with a notice as its last message; without another it has this `index`."""
    if result.payloads:
        index = result.payloads[-1].index + 1
    notice = ReplyPayload(words, index=index, is_ours=True)
    return replace(result, payloads=(*result.payloads, notice))
