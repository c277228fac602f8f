"""Reach of a session's agent: which sessions it sees, and which chats it sends to."""

from collections.abc import Sequence

from remoteclaw.config.model import Config
from remoteclaw.messages import SessionKey

__all__ = ["may_see", "may_send"]


def may_see(
    config: Config,
    own: SessionKey,
    other: SessionKey,
    *,
    is_owner: bool,
    above: Sequence[SessionKey] = (),
) -> bool:
    """Whether a session's agent may look at, and write to, another session in a turn.

    `above` are the sessions above the other one; `is_owner` says that the turn is on behalf of
    owners alone. Raises `ConfigError` if there is no such agent.
    """
    _, settings = config.agent(own.agent)
    sees = settings.sees_sessions or "agent"
    if sees != "self" and not is_owner:
        sees = "tree"
    if other == own or sees == "all":
        return True
    is_below = own in above and sees != "self"
    return is_below or (sees == "agent" and other.agent == own.agent)


def may_send(
    config: Config, own: SessionKey, channel: str, chat: str, *, account: str, is_owner: bool
) -> bool:
    """Whether a session's agent may send to a chat in a turn: to its own, for owners to any.

    Threads of its own chat are its own. Raises `ConfigError` if there is no such agent.
    """
    if is_owner or (channel, account, chat) == (own.provider, own.account, own.channel_id):
        return True
    _, settings = config.agent(own.agent)
    return not {"*", f"{channel}:*", f"{channel}:{chat}"}.isdisjoint(settings.sends_to)
