"""The agent of a chat: by the configuration, and by what is known of the chat beside it."""

from collections.abc import Iterator
from dataclasses import dataclass

from remoteclaw.config.model import Config
from remoteclaw.messages import ChatPlace


@dataclass(frozen=True, slots=True)
class ChatFacts:
    """What is known of a group chat that the configuration doesn't say."""

    agent: str | None = None
    """The agent that an owner gave the group with `/pair as AGENT`; None for none."""
    within: tuple[str, ...] = ()
    """The ids of what contains the chat, such as a category and a server, narrowest first."""


#: For direct chats, and for groups of which nothing is known.
NO_FACTS = ChatFacts()


def agent_of(config: Config, place: ChatPlace, facts: ChatFacts, *, is_group: bool) -> str:
    """Return the name of the agent that answers in a chat.

    The narrowest source that names one decides: the group's table, `/pair as AGENT`, the tables of
    what contains the group, `*`, and the account. A pairing may name an agent that is no longer
    configured: its group then has no agent, since another one would work in another workspace.
    """
    named = _named(config, place, facts) if is_group else iter(())
    account = config.account(place.provider, place.account)
    return next(named, None) or config.agent(account.agent if account else None)[0]


def _named(config: Config, place: ChatPlace, facts: ChatFacts) -> Iterator[str]:
    groups = config.channel(place.provider).groups
    of_table = {name: table.agent for name, table in groups.items()}
    wider = map(of_table.get, (*facts.within, "*"))
    yield from filter(None, (of_table.get(place.chat), facts.agent, *wider))
