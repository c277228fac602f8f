"""What a command is given, and what it returns."""

from dataclasses import dataclass

from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.fleet import Fleet
from remoteclaw.messages import SessionKey

__all__ = ["Answer", "Asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command in a chat."""

    id: str
    """The message's own id: the same one again does nothing again."""
    rest: str
    """The text behind the command's name."""
    session: SessionKey
    """The session that the chat is about."""
    is_owner: bool
    """Whether an owner has written it."""
    fleet: Fleet
    config: Config
    home: Home

    @property
    def agent(self) -> AgentConfig:
        """The settings of the session's agent."""
        return self.config.agent(self.session.agent)[1]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a command."""

    text: str
    """What the person reads, as Markdown."""
    forward: str = ""
    """What the agent is to be sent then."""
    session: SessionKey | None = None
    """The session that the chat is about from now on, if the command has changed it."""
