"""The identity and the memory of a session's agent."""

from collections.abc import Sequence

from remoteclaw.bridge.freshness import kind_of
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.tool_policy import is_owner, subject_of
from remoteclaw.fleet.identities import Identities
from remoteclaw.fleet.memories import Memories
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import ChannelMessage, SessionKey, Turn
from remoteclaw.protocols import AgentIdentity


class SessionIdentity:
    """The identities of one session's conversations, as `IdentitySource`."""

    def __init__(self, lease: Lease, config: Config, home: Home) -> None:
        self._identities = Identities(lease.scripts)
        self._session, _ = lease.state.launch_of
        self._config = config
        self._home = home

    async def current(self, messages: Sequence[ChannelMessage]) -> AgentIdentity:
        """Return the identity of a conversation that begins now."""
        return await self._identities.current(
            self._config,
            self._home,
            self._session,
            is_direct=is_direct_chat(self._session, messages),
        )

    async def find(self, digest: str) -> AgentIdentity | None:
        """Return the identity with a digest; None if it is no longer stored."""
        return await self._identities.find(digest)

    async def keep(self, identity: AgentIdentity) -> bool:
        """Store an identity for a conversation; False if there is no room for it."""
        return await self._identities.keep(identity)


class SessionMemory:
    """The memory of a session's agent, as far as the session's turns may read it."""

    def __init__(self, lease: Lease, config: Config, home: Home) -> None:
        self._memories = Memories(lease.scripts, ToolCalls(lease.scripts, lease.waker))
        self._lease = lease
        self._config = config
        self._home = home

    def may_read(self, turn: Turn) -> bool:
        """Whether the agent may get its memory with a turn: in direct chats of owners.

        What owners have had it remember is not for the other people of a group, nor for a stranger
        in a direct chat.
        """
        session, limits = self._lease.session, self._lease.state.limits
        settings = self._config.agents.get(session.agent)
        if settings is None or not settings.memory or session.task is not None:
            return False
        messages = [entry.message for entry in turn.entries]
        if not is_direct_chat(session, messages):
            return False
        return is_owner(self._config, subject_of(session, turn.entries, limits))

    async def read(self) -> str:
        """Return the memory."""
        return (await self._memories.read(self._home, self._lease.session.agent)).text


def is_direct_chat(session: SessionKey, messages: Sequence[ChannelMessage]) -> bool:
    """Whether a session is a direct chat with one person, or a thread of it."""
    is_own = session.channel_id == session.user
    return not session.is_shared and (is_own or kind_of(session, messages) == "direct")
