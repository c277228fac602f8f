"""Notices: RemoteClaw's own words in a turn."""

from dataclasses import replace

from remoteclaw.errors import ErrorCategory, sentence
from remoteclaw.events import AgentRunResult
from remoteclaw.messages import AgentDeliveryResult, McpSideEffects, ReplyPayload, Turn

__all__ = ["failure", "in_words", "said", "superseded"]


def failure(
    turn: Turn, category: ErrorCategory, detail: str = "", index: int = 0
) -> AgentDeliveryResult:
    """Return the result of a turn that was not given to an agent."""
    words = sentence(category, agent=turn.session.agent, reference=turn.reference)
    is_error = category is not ErrorCategory.ABORTED
    return AgentDeliveryResult(
        payloads=(ReplyPayload(words, index=index, is_error=is_error, is_ours=True),),
        run=AgentRunResult(error_subtype=str(category)),
        mcp=McpSideEffects(),
        error=detail,
        error_category=category,
    )


def said(words: str) -> AgentDeliveryResult:
    """Return the result of a turn in which nobody but us said something, or nothing at all."""
    return AgentDeliveryResult(
        payloads=(ReplyPayload(words, is_ours=True),) if words else (),
        run=AgentRunResult(),
        mcp=McpSideEffects(),
        is_silent=True,
    )


def superseded(result: AgentDeliveryResult, turn: Turn) -> AgentDeliveryResult:
    """Return the result of a stopped turn in words that say for what it was stopped."""
    category = ErrorCategory.SUPERSEDED
    words = sentence(category, agent=turn.session.agent, reference=turn.reference)
    return replace(in_words(result, words), error_category=category)


def in_words(result: AgentDeliveryResult, words: str) -> AgentDeliveryResult:
    """Return a failed turn's result with other words about the failure."""
    *before, last = result.payloads
    return replace(result, payloads=(*before, replace(last, text=words)))
