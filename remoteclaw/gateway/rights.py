"""Rights of an agent's turn: which tools it may use, and whether it is an owner's."""

from remoteclaw.config import tool_policy
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.caller import Caller
from remoteclaw.tools.base import Tool

__all__ = ["check_allowed", "is_for_owner", "subject_of_caller"]


def subject_of_caller(caller: Caller) -> tool_policy.Subject:
    """Return for whom, and where, the turn that a caller is in uses tools."""
    assert caller.turn is not None, "only a turn has senders"
    return tool_policy.subject_of(caller.session, caller.turn.entries, depth=caller.depth)


def is_for_owner(config: Config, caller: Caller) -> bool:
    """Whether the turn that a caller is in is on behalf of owners alone."""
    return tool_policy.is_owner(config, subject_of_caller(caller))


def check_allowed(config: Config, caller: Caller, tool: Tool) -> None:
    """Raise `CallRefused` unless a tool is granted to the process and allowed to its turn."""
    assert caller.turn is not None, "only a turn has senders"
    is_owner = True  # nothing more is said of a tool that the process was not granted
    if caller.grant is not None and tool.tool in caller.grant.tools:
        try:
            (ruling,) = tool_policy.rule(config, subject_of_caller(caller), [tool])
            # Entries that can't be read may be of people with fewer rights.
            if ruling.allowed and caller.turn.is_whole:
                return
            is_owner = is_for_owner(config, caller)
        except ConfigError:  # the agent is not configured any more
            pass
    why = "."
    if tool.owner_only and not is_owner:
        why = (
            ": it answers only to an owner, and this turn is not, or not only, an owner's. "
            "Say so in your answer."
        )
    raise CallRefused("FORBIDDEN", f"The policy doesn't allow {tool.tool} here{why}")
