"""Methods about what works for a session: tasks and branches, and how far they are."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Method, Params, Result, Tool
from remoteclaw.tools.operators import SessionParams


class ProgressParams(Params):
    progress: Annotated[str, Field(min_length=1, max_length=1000)]
    """A few words, on one line; 256 bytes are kept."""


class ProgressResult(Result):
    progress: str
    """What is shown now."""


class WorkItem(Result):
    run_id: str
    """The name of the task, as the tools for tasks take it."""
    session_key: str
    parent: str
    """The key or the id of the session that it works for."""
    kind: Literal["task", "branch"]
    label: str | None = None
    agent: str
    state: str
    """running or waiting; else how it ended: done, failed, stopped or dead."""
    since_ms: int
    """When it was started, in milliseconds since 1970."""
    seconds: float
    """How long ago that was, or how long it took."""
    host: str | None = None
    """The host that has its agent, if that is another one than that of the session it works for."""
    doing: str | None = None
    """The tool that it has used last, with the argument that tells most."""
    said: str | None = None
    """The end of what it has said last."""
    progress: str | None = None
    """How far it is, in its own words."""


class TreeResult(Result):
    session_key: str
    at_ms: int
    """When it was so, in milliseconds since 1970."""
    work: tuple[WorkItem, ...]
    """First what has not ended, the oldest first, then what ended within the last ten minutes, the
    newest first."""
    left_out: int
    """How many there are besides."""


METHODS = (
    Tool(
        name="sessions.progress",
        tool="session_progress",
        title="Tell progress",
        description="In a task: say how far the work is, to those who wait for it. It replaces "
        'what you said before. Example: {"progress": "3 of 7 files done"}.',
        groups=("sessions",),
        owner_only=False,
        approvable=False,
        params=ProgressParams,
        result=ProgressResult,
        scope="write",
        effect="session",
    ),
    Method(
        name="sessions.tree",
        description="Show what works for a session: the tasks and branches that it has started, "
        "and those that they have, with what each does now. Subscribers of the session get the "
        "same as the event `session.work` when it changes.",
        params=SessionParams,
        result=TreeResult,
        scope="read",
    ),
)
