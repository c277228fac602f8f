"""People's conversations: places of the channel `web`, each with one agent.

The first conversation with a person has no id: its place is `web:PERSON`, where agents write to the
person. The conversation with another agent has the agent's name as its id. The id of a further one
begins with the agent's name and a dot, or is of any form; then the first agent is meant.
"""

from dataclasses import dataclass

from remoteclaw.channels.web.profile import CHANNEL, person_id
from remoteclaw.config.chats import NO_FACTS, agent_of
from remoteclaw.config.model import Config
from remoteclaw.fleet.web import WebChats, chat_name
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.messages import DEFAULT_ACCOUNT, ChatPlace, SessionKey

#: The id by which clients name the first conversation.
FIRST = "_"


def person_of(operator: Operator) -> str:
    """Return the id of an operator in their conversations, which depends on their token alone."""
    return person_id(operator.name, is_admin=operator.has("admin"))


@dataclass(frozen=True, slots=True)
class Conversations:
    """The conversations of a person."""

    chats: WebChats
    person: str
    config: Config
    """The configuration with all agents."""
    own_config: Config | None = None
    """The configuration with the agents of the person's token; None for all."""

    async def with_agent(self, agent: str | None = None) -> SessionKey:
        """Return the conversation with an agent; None means the first agent.

        Raises `ConfigError` for an agent that is not configured, or that the token is not for.
        """
        config = self.own_config or self.config
        name = config.agent(agent)[0] if agent else _first_agent(config)
        return self._key(name, None if await self.agent_of(None) == name else name)

    async def named(self, id_: str) -> SessionKey:
        """Return the conversation with an id. Raises `ConfigError` as `with_agent()` does."""
        own_id = None if id_ == FIRST else id_
        config = self.own_config or self.config
        return self._key(config.agent(await self.agent_of(own_id))[0], own_id)

    async def has(self, key: SessionKey) -> bool:
        """Whether a session is, or will be, one of the conversations."""
        if key != self._key(key.agent, key.thread):
            return False
        # An empty conversation begins with the agent with which it was opened.
        return await self.chats.agent_of(chat_name(self.person, key.thread)) in (None, key.agent)

    async def agent_of(self, id_: str | None) -> str:
        """Return the agent of a conversation, or the one with which it would begin."""
        if stored := await self.chats.agent_of(chat_name(self.person, id_)):
            return stored
        named = (id_ or "").partition(".")[0]
        return named if named in self.config.agents else _first_agent(self.config)

    def _key(self, agent: str, id_: str | None) -> SessionKey:
        return SessionKey(agent, CHANNEL, DEFAULT_ACCOUNT, self.person, self.person, id_)


def _first_agent(config: Config) -> str:
    """Return the agent of the page, or the first one if the token is not for that."""
    page = ChatPlace(CHANNEL, DEFAULT_ACCOUNT, "")
    own = agent_of(config, page, NO_FACTS, is_group=False)
    return config.agent(own if own in config.agents else None)[0]
