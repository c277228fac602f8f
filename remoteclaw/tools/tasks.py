"""Methods about tasks: sessions that a session starts to work for it, and how far they are."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result, Text, Tool
from remoteclaw.tools.operators import SessionParams
from remoteclaw.tools.sessions import Label


class SpawnParams(Params):
    prompt: Text
    """The task, in full: the new session knows nothing of this conversation, unless `knows` says
    so."""
    agent_id: Id | None = None
    """Another agent, from agents_list."""
    channel: Id | None = None
    """Owners only: another chat to work for, as CHANNEL:CHAT."""
    label: Label | None = None
    """A name for the session, unique for its agent."""
    knows: Literal["nothing", "conversation"] = "nothing"
    """`conversation`: it begins as a copy of this one (a branch), and only looks and thinks."""


class SpawnResult(Result):
    status: Literal["accepted"]
    """It has begun, or will; its result comes as a message of its own, however long it takes."""
    run_id: str
    """Names the task: subagents shows and cancels it."""
    child_session_key: str
    label: str | None = None
    knows: Literal["nothing", "notes", "conversation"]
    """What it begins with: a copy of this conversation, notes of what was said here, or nothing."""
    note: str | None = None
    """Why that is less than was asked for."""


class SubagentsTarget(Params):
    run_id: Id | None = None
    """The runId from sessions_spawn or `tell`."""
    label: Label | None = None
    """Or its session's label."""


class SubagentsParams(Params):
    action: Literal["list", "status", "tell", "cancel"] = "list"
    """`status` shows a task with its result; `tell` gives it `message`, also when it has ended;
    `cancel` ends it and what it has started."""
    params: SubagentsTarget = Field(default_factory=SubagentsTarget)
    """Which task; without it, `cancel` ends all."""
    message: Text | None = None
    """What to tell it."""


class Subagent(Result):
    run_id: str
    session_key: str
    agent: str
    state: str
    """How its task ended (done, failed, stopped, dead), else running or accepted; unknown after
    a week."""
    started_ms: int
    """When it was started, in milliseconds since 1970."""
    label: str | None = None
    parent: str | None = None
    """The session that has started it, where that is not this one."""
    result: str | None = None
    """What it answered; only in `status`."""


class SubagentsResult(Result):
    action: str
    runs: tuple[Subagent, ...] = ()
    """Oldest first, each before those that it has started."""
    cancelled: int = 0
    """How many entries of them are stopped."""
    taken: Literal["joined", "waiting", "continued"] | None = None
    """Of `tell`: it joined the running turn; it waits, until that ends or takes it in; or the task
    had ended and goes on, with a runId and a result of its own."""


#: A tool for tasks; all may use it.
_tool = partial(Tool, groups=("sessions",), owner_only=False, approvable=False)


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
    _tool(
        name="sessions.spawn",
        tool="sessions_spawn",
        title="Start a session",
        description="Have another session work on a task in the background while you go on "
        "('look into it meanwhile', 'in parallel'). Returns a runId at once; the "
        'result comes to this session as a message. Example: {"prompt": "List the'
        ' dead links in docs/", "label": "links"}.',
        params=SpawnParams,
        is_about_session=True,
        result=SpawnResult,
        scope="write",
        effect="session",
    ),
    _tool(
        name="sessions.subagents",
        tool="subagents",
        title="Manage background tasks",
        description="List, inspect, tell or cancel the background tasks that this session has "
        "started with sessions_spawn ('how far is it?', 'also look at the images', 'stop that'). "
        "Returns runId, session, state and label of each. A task that you tell something, running "
        'or ended, remembers all before. Example: {"action": "tell", "params": {"label": "links"}, '
        '"message": "Also check the images."}.',
        params=SubagentsParams,
        is_about_session=True,
        result=SubagentsResult,
        scope="write",
        effect="session",
    ),
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
