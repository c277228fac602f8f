"""Translations of an agent's ACP messages and log lines, without state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import AgentUsage, ContextSize, ErrorEvent, PlanEvent, PlanStep
from remoteclaw.runtimes.jsonrpc import RpcError, RpcMessage, RpcPeer
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The answer to a request for a permission without a decision.
CANCELLED = {"outcome": {"outcome": "cancelled"}}
#: The HTTP statuses of failures that opencode describes only by a name. `APIError` is any status,
#: but the text tells the others.
_STATUSES = {"ContextOverflowError": 413, "APIError": 400}


@dataclass(frozen=True, slots=True)
class LogNote:
    """The content of a line of an agent's log about a turn."""

    session: str | None = None
    """The id of the session; None if the line does not name it."""
    begun_message: str = ""
    """The id of the message that begins; empty if none does."""
    is_compaction: bool | None = None
    """Whether the current message is a summary of the conversation; None if the line is not about a
    message's text."""
    begins_request: bool = False
    """Whether a request for the current message begins; a second one repeats the first."""
    failure: ErrorEvent | None = None
    """The failure of a request to the model that the agent will retry."""
    wait_s: float = 0.0
    """The seconds until the retry; 0 if unknown."""


def usage_of(result: Mapping[str, Any]) -> AgentUsage:
    """Return the tokens that an agent reports with its answer to a prompt."""
    usage = mapping(result.get("usage"))
    quota = mapping(mapping(mapping(result.get("_meta")).get("quota")).get("token_count"))
    output = count(usage.get("outputTokens")) + count(usage.get("thoughtTokens"))
    return AgentUsage(
        input_tokens=count(usage.get("inputTokens")) or count(quota.get("input_tokens")),
        output_tokens=output or count(quota.get("output_tokens")),
        cache_read_tokens=count(usage.get("cachedReadTokens")),
        cache_write_tokens=count(usage.get("cachedWriteTokens")),
    )


async def deny(peer: RpcPeer, message: RpcMessage) -> None:
    """Answer a request without a decision: cancel a permission, refuse anything else."""
    if message.method == "session/request_permission" and message.id is not None:
        await peer.respond(message.id, CANCELLED)
    else:
        await peer.refuse(message)


def commands_of(message: RpcMessage) -> tuple[str, ...]:
    """Return the slash commands that a message announces, such as `/init`; usually none."""
    commands = mappings(mapping(message.params.get("update")).get("availableCommands"))
    names = (text(command.get("name")).partition(" ")[0] for command in commands)
    return tuple(f"/{name}" for name in dict.fromkeys(names) if name)


def cost_of(message: RpcMessage) -> float | None:
    """Return the cost of the session so far, in US dollars, if a message reports it."""
    update = mapping(message.params.get("update"))
    if update.get("sessionUpdate") != "usage_update":
        return None
    amount = mapping(update.get("cost")).get("amount")
    return float(amount) if isinstance(amount, int | float) and math.isfinite(amount) else None


def context_of(message: RpcMessage) -> ContextSize | None:
    """Return the size of the conversation, if a message reports it."""
    update = mapping(message.params.get("update"))
    used, limit = count(update.get("used")), count(update.get("size"))
    is_known = update.get("sessionUpdate") == "usage_update" and used and limit
    return ContextSize(used, limit) if is_known else None


def classify_rpc_error(error: RpcError) -> tuple[ErrorCategory, str]:
    """Return the category and the text of an error."""
    detail = " ".join(filter(None, (str(error), text(error.data.get("details")))))
    status = error.code if 400 <= error.code < 600 else None
    status = status or _STATUSES.get(text(error.data.get("errorName")))
    return classify_error(detail, status=status), detail or f"error {error.code}"


def error_event(error: RpcError, *, ends_agent: bool) -> ErrorEvent:
    """Return the event of an error, with the time at which the agent may be asked again."""
    category, detail = classify_rpc_error(error)
    may_wait = category in (ErrorCategory.USAGE_LIMIT, ErrorCategory.RETRYABLE)
    retry_at = retry_at_ms(detail) if may_wait else None
    return ErrorEvent(category, detail, ends_agent=ends_agent, retry_at_ms=retry_at)


def input_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool call; some agents report only a title and content."""
    if raw := mapping(call.get("rawInput")):
        return raw
    content = mappings(call.get("content"))
    return {"title": text(call.get("title"))} | ({"content": content} if content else {})


def plan_of(entries: list[dict[str, Any]]) -> PlanEvent:
    """Return the event of a plan."""
    return PlanEvent(
        tuple(PlanStep.of(text(entry.get("content")), entry.get("status")) for entry in entries)
    )
