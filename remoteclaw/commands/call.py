"""The input of a command, and its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.fleet import Fleet
from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import detect_runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command in a chat."""

    id: str
    """The message's own id: the same one again does nothing again."""
    rest: str
    """The text behind the command's name."""
    session: SessionKey
    """The session that the chat is about."""
    sender: str
    """The sender's id."""
    sender_name: str = ""
    """What they call themselves."""
    is_owner: bool
    """Whether an owner has written it."""
    can_answer: bool = True
    """Whether what agents ask people for can be answered this way."""
    reply_to: str = ""
    """The platform's id of the message that it replies to."""
    is_group: bool = False
    """Whether it was written in a group chat."""
    fleet: Fleet
    config: Config
    home: Home
    chat_with: Callable[[str], SessionKey] | None = None
    """Returns the session of this chat's user with another agent; None where a chat has one
    agent."""

    @property
    def agent(self) -> AgentConfig:
        """The settings of the session's agent."""
        return self.config.agent(self.session.agent)[1]

    async def workspace(self) -> Path:
        """Return where the session's next turn works.

        Raises `ConfigError` if it is bound to a project that is configured no more.
        """
        view = await self.fleet.sessions.view(self.session.sid)
        bound = self.config.agent(self.session.agent, view.project if view else None)
        return self.home.workspace_path(*bound)

    @property
    def runtime(self) -> str:
        """The name of the agent's runtime."""
        return self.agent.runtime or detect_runtime()[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a command."""

    text: str
    """What the person reads, as Markdown."""
    forward: str = ""
    """What the agent is to be sent then."""
    is_for_cli: bool = False
    """Whether that is a command of its CLI's own."""
    session: SessionKey | None = None
    """The session that the chat is about from now on, if the command has changed it."""
