"""Chats on platforms: the agent of each, and what is known of a group beside the configuration."""

from collections.abc import Sequence
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.chats import NO_FACTS, ChatFacts, agent_of
from remoteclaw.config.model import Config
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.pairings import field_of
from remoteclaw.fleet.turns.inbound import APPEND_S
from remoteclaw.messages import ChatPlace, SessionKey


class Chats:
    """The chats on platforms."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def agent(self, config: Config, place: ChatPlace, *, is_group: bool) -> str:
        """Return the name of the agent that answers in a chat, as `agent_of()` does.

        Raises `RedisUnavailable` and `RedisRefused`.
        """
        facts = await self.facts(place, is_group=is_group)
        return agent_of(config, place, facts, is_group=is_group)

    async def config_of(self, config: Config, session: SessionKey) -> Config:
        """Return the configuration that knows what contains the chat of a session.

        Whoever decides about a session by the tables of `groups` needs it.
        Raises `RedisUnavailable` and `RedisRefused`.
        """
        channel = config.channels.get(session.provider)
        is_group = session.user != session.channel_id
        wider = channel.groups.keys() - {"*"} if channel and is_group else ()
        if not wider or session.channel_id in wider:
            return config  # no table is for what contains the chat
        facts = await self.facts(session.place, is_group=True)
        return config.knowing(session.place, facts.within)

    async def facts(self, place: ChatPlace, *, is_group: bool) -> ChatFacts:
        """Return what is known of a chat; of a direct chat nothing is kept.

        Raises `RedisUnavailable` and `RedisRefused`.
        """
        if not is_group:
            return NO_FACTS
        (facts,) = await self.facts_of([place])
        return facts

    async def facts_of(self, groups: Sequence[ChatPlace]) -> Sequence[ChatFacts]:
        """Return what is known of each of several group chats. Raises as `facts()` does."""
        if not groups:
            return ()
        fields = [_field(place) for place in groups]
        paired, within = await self._scripts.run_pipeline(
            lambda ask: (ask.hmget(keys.PAIRED, fields), ask.hmget(keys.WITHIN, fields)),
            deadline=boottime() + APPEND_S,
        )
        return [
            ChatFacts(
                orjson.loads(pairing).get("agent") if pairing else None,
                tuple(orjson.loads(around)) if around else (),
            )
            for pairing, around in zip(paired, within, strict=True)
        ]

    async def note_within(self, place: ChatPlace, within: tuple[str, ...]) -> None:
        """Note the ids of what contains a chat, narrowest first; empty for none.

        Raises `RedisUnavailable` and `RedisRefused`.
        """
        client, value = self._scripts.client, [orjson.dumps(within)] if within else []
        write: Any = client.hset if within else client.hdel
        deadline = boottime() + APPEND_S
        await self._scripts.call(write, keys.WITHIN, _field(place), *value, deadline=deadline)


def _field(place: ChatPlace) -> str:
    return field_of(place.provider, place.account, place.chat)
