"""The call of a command, and its reply."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.fleet import Fleet
from remoteclaw.messages import ChatPlace, SessionKey, person
from remoteclaw.runtimes import detect_runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """A command that a person sent in a chat, with what its handler needs."""

    id: str
    """The id of the message. Running the same command with the same id again has no effect."""
    arguments: str
    """The text after the command's name."""
    session: SessionKey
    """The session that the command applies to."""
    sender: str
    """The sender's id."""
    sender_name: str = ""
    """The sender's display name."""
    is_owner: bool
    """Whether the sender is an owner."""
    can_answer: bool = True
    """Whether the sender may answer requests of agents this way."""
    reply_to: str = ""
    """The platform's id of the message that the command replies to; empty if it replies to none."""
    is_group: bool = False
    """Whether the chat is a group."""
    withdrawn: int = 0
    """For `/stop`: the number of messages that it has withdrawn before they were queued."""
    fleet: Fleet
    config: Config
    home: Home
    chat_with: Callable[[str], Awaitable[SessionKey]] | None = None
    """Returns the sender's conversation with an agent; None in a chat that is one conversation."""

    @property
    def place(self) -> ChatPlace:
        """The chat of the command."""
        return self.session.place

    @property
    def person(self) -> str:
        """The sender, as CHANNEL:ID."""
        return person(self.place.provider, self.sender)

    @property
    def may_end_all(self) -> bool:
        """Whether the sender may end what the session does for other people."""
        channel = self.config.channel_of(self.session)
        is_open = channel.commands == "everyone" or not channel.owners
        return self.is_owner or is_open or not self.session.is_shared

    @property
    def agent(self) -> AgentConfig:
        """The settings of the session's agent."""
        return self.config.agent(self.session.agent)[1]

    async def workspace(self) -> Path:
        """Return the workspace of the session's next turn.

        Raises `ConfigError` if the session's project is not configured any more.
        """
        view = await self.fleet.sessions.view(self.session.sid)
        agent = self.config.agent(self.session.agent, view.project if view else None)
        return self.home.workspace_path(*agent)

    @property
    def runtime(self) -> str:
        """The name of the agent's runtime."""
        return self.agent.runtime or detect_runtime()[0]


@dataclass(frozen=True, slots=True)
class CommandReply:
    """The reply to a command."""

    text: str
    """The text for the person, in Markdown; empty for no message."""
    forward: str = ""
    """The text to send to the agent after the command; empty for none."""
    is_for_cli: bool = False
    """Whether `forward` is a command of the agent's CLI."""
    session: SessionKey | None = None
    """The conversation to which the sender changes; None for no other."""
