"""Work: a session that works for another one, a task or a branch."""

from dataclasses import dataclass
from typing import Literal

from remoteclaw.messages.session import SessionKey

__all__ = ["Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A session that works for another one, at one moment. Times are Redis' (ms)."""

    session: SessionKey
    parent: str
    """The id of the session that has started it."""
    run: str
    """The name of its task, as the tools for tasks take it."""
    kind: Literal["task", "branch"]
    label: str | None = None
    state: str
    """running or waiting; else how it ended: done, failed, stopped or dead."""
    since_ms: int
    """When it was started."""
    age_ms: int
    """How long ago that was, or how long it took."""
    host: str | None = None
    """The host that has its agent, if that is another one than that of the session it works for."""
    tool: str = ""
    """The tool that its turn has used last."""
    argument: str = ""
    """The argument of it that tells most, without secrets."""
    said: str = ""
    """The end of what its turn has said last, without secrets."""
    progress: str = ""
    """How far it is, in its agent's own words."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("running", "waiting")
