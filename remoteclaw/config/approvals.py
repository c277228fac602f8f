"""Who may answer what agents ask people for: looked at when an answer comes, by ids alone."""

from collections.abc import Collection

from remoteclaw.config.model import Config
from remoteclaw.config.tool_policy import is_owned_by

__all__ = ["OPERATOR", "can_be_asked", "may_answer"]

#: Who answers at the command line of the installation.
OPERATOR = "operator"


def can_be_asked(config: Config, channel: str) -> bool:
    """Whether there is anybody who may answer what is asked for in a channel's chats."""
    if config.approvals.who != "owners":
        return bool(config.approvals.who)
    has_owners = any(settings.owners for settings in config.channels.values())
    return has_owners or is_owned_by(config, channel, "-")


def may_answer(config: Config, who: str, people: Collection[str], *, is_owner: bool) -> bool:
    """Whether somebody (CHANNEL:ID) may answer a request on behalf of `people`."""
    if who == OPERATOR:
        return True
    match config.approvals.who:
        case "owners":
            return is_owner
        case "sender":
            return is_owner or who in people
        case named:
            return who in named
