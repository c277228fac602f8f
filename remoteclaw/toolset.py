"""The tools that agents are offered, as policy and prompts see them: names and groups.

What each does, and its parameters, stand in `tools`, which takes longer to import than a worker
should wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["TOOLS", "ToolFacts"]


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What policy knows of a tool."""

    name: str
    groups: frozenset[str]
    """Names of the groups that it belongs to, such as `group:cron`."""
    owner_only: bool
    """Whether an agent may use it for owners alone."""
    can_wait: bool = False
    """Whether its calls can be kept until a person confirms them."""


#: The tools whose calls can be kept, because what they change is in a file.
CAN_WAIT = frozenset(("gateway_config_apply", "gateway_config_patch"))


def _tools(group: str, names: str, *more: str, owner_only: bool = False) -> Iterator[ToolFacts]:
    groups = frozenset((group, "group:remoteclaw", *more))
    return (ToolFacts(name, groups, owner_only, name in CAN_WAIT) for name in names.split())


#: Every tool that RemoteClaw offers to agents.
TOOLS: tuple[ToolFacts, ...] = (
    *_tools(
        "group:sessions",
        "sessions_list sessions_history sessions_send sessions_spawn session_status",
    ),
    *_tools("group:agents", "agents_list"),
    *_tools("group:sessions", "subagents"),
    *_tools(
        "group:messaging",
        "message_send message_reply message_thread_reply message_broadcast message_react "
        "message_delete message_send_attachment message_send_with_effect message_pin message_read",
    ),
    *_tools(
        "group:cron",
        "cron_status cron_list cron_add cron_update cron_remove cron_run cron_runs",
        "group:automation",
        owner_only=True,
    ),
    *_tools(
        "group:gateway",
        "gateway_restart gateway_config_get gateway_config_apply gateway_config_patch "
        "gateway_config_schema",
        "group:automation",
        owner_only=True,
    ),
)
