"""The rights of a call: an agent's tools, sessions and chats, and an operator's senders."""

from collections.abc import Sequence
from dataclasses import replace

from remoteclaw.config import tool_policy
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.messages import ChatPlace, SessionKey
from remoteclaw.tools.base import Tool


def subject_of_caller(caller: Caller) -> tool_policy.Subject:
    """Return on whose behalf, and where, the caller's turn uses tools."""
    assert caller.turn is not None, "only a turn has senders"
    session, limits = caller.state.launch_of
    return tool_policy.subject_of(session, caller.turn.entries, limits)


def is_for_owner(config: Config, caller: Caller) -> bool:
    """Whether the caller's turn is only on behalf of owners."""
    return tool_policy.is_owner(config, subject_of_caller(caller))


def check_sender(config: Config, operator: Operator, session: SessionKey) -> None:
    """Raise `CallRefused` for a message in an owner's name unless the token has the scope admin.

    In an owner's turn, the agent may use tools that require this scope of operators.
    """
    subject = tool_policy.Subject(
        agent=session.agent,
        channel=session.provider,
        chat_id=session.channel_id,
        is_group=session.channel_id != session.user,
        senders=(session.user,),
    )
    if tool_policy.is_owner(config, subject) and not operator.has("admin"):
        raise CallRefused(
            "FORBIDDEN",
            f"{session.user!r} is an owner on {session.provider}: to speak for an owner needs a "
            f"token with the scope admin; this one has {operator.scope}.",
        )


def check_allowed(config: Config, caller: Caller, tool: Tool) -> None:
    """Raise `CallRefused` unless a tool is granted to the process and allowed in its turn."""
    assert caller.turn is not None, "only a turn has senders"
    is_owner = True  # a refusal of a tool that was not granted does not mention owners
    if caller.grant is not None and tool.tool in caller.grant.tools:
        try:
            (ruling,) = tool_policy.rule_on_tools(config, subject_of_caller(caller), [tool])
            # Unreadable entries of the turn may be from people with fewer rights.
            if ruling.allowed and caller.turn.is_whole:
                return
            is_owner = is_for_owner(config, caller)
        except ConfigError:  # the agent is not configured any more
            pass
    reason = "."
    if tool.owner_only and not is_owner:
        reason = (
            ": it answers only to an owner, and this turn is not, or not only, an owner's. "
            "Say so in your answer."
        )
    raise CallRefused("FORBIDDEN", f"The policy doesn't allow {tool.tool} here{reason}")


def check_branch(config: Config, caller: Caller, tool: Tool) -> None:
    """Raise `CallRefused` if a branch that may only read calls a tool that changes something."""
    if not caller.state.is_branch or tool.effect == "none":
        return
    _, settings = config.agent(caller.session.agent)
    if settings.branches == "read":
        raise CallRefused(
            "FORBIDDEN",
            f"A branch may only read: {tool.tool} changes something. Say in your answer what is to "
            "be done (branches in the agent's table allows more).",
        )


def may_see(
    config: Config,
    own: SessionKey,
    other: SessionKey,
    *,
    is_owner: bool,
    above: Sequence[SessionKey] = (),
) -> bool:
    """Whether the agent of session `own` may read, and write to, session `other` in a turn.

    `above` are the ancestors of `other` in its tree of tasks. `is_owner` is set if the turn is on
    behalf of owners alone. Raises `ConfigError` if the agent is not configured.
    """
    _, settings = config.agent(own.agent)
    sees = settings.sees_sessions or "agent"
    if sees != "self" and not is_owner:
        sees = "tree"
    if other == own or sees == "all":
        return True
    is_below = own in above and sees != "self"
    return is_below or (sees == "agent" and other.agent == own.agent)


def may_send(config: Config, caller: Caller, to: ChatPlace) -> bool:
    """Whether the caller's turn may send to a chat.

    It may send to its own chat and its threads, to the chats of `sends_to`, and on behalf of owners
    alone to any. Raises `ConfigError` if the agent is not configured.
    """
    assert caller.turn is not None, "only a turn sends"
    if is_for_owner(config, caller) or is_same_chat(caller.turn.place, to):
        return True
    _, settings = config.agent(caller.session.agent)
    chats = {"*", f"{to.provider}:*", f"{to.provider}:{to.chat}"}
    return not chats.isdisjoint(settings.sends_to)


def is_same_chat(one: ChatPlace, other: ChatPlace) -> bool:
    """Whether two places are in the same chat, in any of its threads."""
    return replace(one, thread=None) == replace(other, thread=None)
