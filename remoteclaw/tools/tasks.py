"""Methods about tasks, which are sessions that a session starts to work for it."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, Params, Result, Text, Tool
from remoteclaw.tools.budgets import BudgetState
from remoteclaw.tools.sessions import Label, SessionParams


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
    """`conversation`: it begins as a copy of this one (a branch), and only reads and thinks."""


class SpawnResult(Result):
    status: Literal["accepted"]
    """The task has begun, or will. Its result arrives as a message, however long it takes."""
    run_id: str
    """The task's id, with which `subagents` shows and cancels it."""
    child_session_key: str
    """The key of the task's session."""
    label: str | None = None
    """The label of the task's session."""
    knows: Literal["nothing", "notes", "conversation"]
    """What the task begins with: a copy of this conversation, notes of it, or nothing."""
    note: str | None = None
    """Why the task knows less than `knows` asked for."""


class SubagentsTarget(Params):
    run_id: Id | None = None
    """The runId from sessions_spawn or `tell`."""
    label: Label | None = None
    """Or its session's label."""


class SubagentsParams(Params):
    action: Literal["list", "status", "tell", "cancel"] = "list"
    """`status` shows a task with its result; `tell` sends it `message`, even if it has ended;
    `cancel` ends it and the tasks that it has started."""
    params: SubagentsTarget = Field(default_factory=SubagentsTarget)
    """Which task; without it, `cancel` ends all."""
    message: Text | None = None
    """The message for `tell`."""


class Subagent(Result):
    run_id: str
    session_key: str
    agent: str
    state: str
    """`accepted` or `running`, then how the task ended: `done`, `failed`, `stopped` or `dead`;
    `unknown` after a week."""
    started_ms: int
    """When the task was started, in milliseconds since 1970."""
    label: str | None = None
    parent: str | None = None
    """The session that has started the task, if it is not this session."""
    result: str | None = None
    """The task's result; only for the action `status`."""


class SubagentsResult(Result):
    action: str
    runs: tuple[Subagent, ...] = ()
    """The tasks, oldest first, each before the tasks that it has started."""
    cancelled: int = 0
    """How many entries of the tasks were stopped by `cancel`."""
    taken: Literal["joined", "waiting", "continued"] | None = None
    """What happened to the message of `tell`. `joined`: the running turn has it. `waiting`: the
    running turn may still take it in, else the next turn answers it. `continued`: the task had
    ended, and continues as another run with another runId and another result."""


#: A tool for tasks, which is for everybody.
_tool = partial(Tool, groups=("sessions",), owner_only=False, approvable=False)


class ProgressParams(Params):
    progress: Annotated[str, Field(min_length=1, max_length=1000)]
    """A few words, on one line; 256 bytes are kept."""


class ProgressResult(Result):
    progress: str
    """The text that is shown now."""


class WorkItem(Result):
    run_id: str
    """The task's id, as in `subagents`."""
    session_key: str
    parent: str
    """The key or the id of the session for which the task works."""
    kind: Literal["task", "branch"]
    label: str | None = None
    agent: str
    state: str
    """`running` or `waiting`, then how the task ended: `done`, `failed`, `stopped` or `dead`."""
    since_ms: int
    """When the task was started, in milliseconds since 1970."""
    seconds: float
    """The seconds since the start, or the duration of a task that has ended."""
    host: str | None = None
    """The host on which the task's agent runs, if it is another host than the parent's."""
    doing: str | None = None
    """The last tool that the task has used, with its main argument."""
    said: str | None = None
    """The end of the task's last text."""
    progress: str | None = None
    """The progress that the task has reported."""


class TreeResult(Result):
    session_key: str
    at_ms: int
    """The time of this state, in milliseconds since 1970."""
    work: tuple[WorkItem, ...]
    """The unfinished tasks, oldest first, then the tasks that have ended in the last ten minutes,
    newest first."""
    left_out: int
    """How many more tasks there are."""
    budgets: tuple[BudgetState, ...] = ()
    """The budget of the conversation with its tasks, if there is one."""


METHODS = (
    _tool(
        name="tasks.spawn",
        tool="sessions_spawn",
        title="Start a session",
        description="Have another session work on a task in the background while you go on "
        "('look into it meanwhile', 'in parallel'). Returns a runId at once; the "
        'result arrives here as a message. Example: {"prompt": "List the'
        ' dead links in docs/", "label": "links"}.',
        params=SpawnParams,
        is_about_session=True,
        result=SpawnResult,
        scope="write",
        effect="session",
    ),
    _tool(
        name="tasks.manage",
        tool="subagents",
        title="Manage background tasks",
        description="List, inspect, tell or cancel the background tasks that this session has "
        "started with sessions_spawn ('how far is it?', 'also look at the images', 'stop that'). "
        "Returns runId, session, state and label of each. A task that you tell something, running "
        'or ended, remembers its work. Example: {"action": "tell", "params": {"label": "links"}, '
        '"message": "Also check the images."}.',
        params=SubagentsParams,
        is_about_session=True,
        result=SubagentsResult,
        scope="write",
        effect="session",
    ),
    Tool(
        name="tasks.progress",
        tool="session_progress",
        title="Report progress",
        description="In a task: report how far the work is, to those who wait for it. It replaces "
        'your last report. Example: {"progress": "3 of 7 files done"}.',
        groups=("sessions",),
        owner_only=False,
        approvable=False,
        params=ProgressParams,
        result=ProgressResult,
        scope="write",
        effect="session",
    ),
    Method(
        name="tasks.tree",
        description="Show the unfinished tasks and branches of a session, at all depths, with what "
        "each does now, and those that ended recently. Subscribers of the session get the same as "
        "the event `session.work` after each change.",
        params=SessionParams,
        result=TreeResult,
        scope="read",
    ),
)
