"""Events of an agent, and the result of its run."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal, Self

from remoteclaw.errors import ErrorCategory


@dataclass(frozen=True, slots=True)
class AgentUsage:
    """Tokens of one turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def new_tokens(self) -> int:
        """What was read and written, without what came from the provider's cache."""
        return self.input_tokens + self.cache_write_tokens + self.output_tokens

    def __add__(self, other: "AgentUsage") -> "AgentUsage":
        """Return the sum."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return AgentUsage(*(one + another for one, another in pairs))


@dataclass(frozen=True, slots=True)
class AgentRunResult:
    """The result of one turn of an agent."""

    text: str = ""
    session_id: str | None = None
    """The CLI's own id of the conversation, with which it can be resumed."""
    duration_ms: int = 0
    """Milliseconds that the turn took, from its begin at the bridge to the agent's last word."""
    usage: AgentUsage = field(default_factory=AgentUsage)
    aborted: bool = False
    total_cost_usd: float | None = None
    """This turn's cost in US dollars, where the CLI knows it."""
    num_turns: int | None = None
    """Model requests that the turn took, where the CLI counts them."""
    stop_reason: str | None = None
    error_subtype: str | None = None
    """The category of the failure, with `context_window` for an overflow; none on success."""
    permission_denials: tuple[str, ...] = ()
    """Names of the tools that the agent wanted and was not allowed to use."""

    def followed_by(self, after: "AgentRunResult") -> "AgentRunResult":
        """Return both as one: numbers are added, else the later one counts."""
        costs = [run.total_cost_usd for run in (self, after) if run.total_cost_usd is not None]
        counts = [run.num_turns for run in (self, after) if run.num_turns is not None]
        return replace(
            after,
            text="\n\n".join(filter(None, (self.text, after.text))),
            duration_ms=self.duration_ms + after.duration_ms,
            usage=self.usage + after.usage,
            total_cost_usd=sum(costs) if costs else None,
            num_turns=sum(counts) if counts else None,
            permission_denials=(*self.permission_denials, *after.permission_denials),
        )


@dataclass(frozen=True, slots=True)
class TextEvent:
    """More of the assistant's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextResetEvent:
    """The last `chars` characters of text were withdrawn; what follows replaces them.

    A CLI whose stream broke asks again without streaming and then reports the whole text.
    """

    chars: int


@dataclass(frozen=True, slots=True)
class ThinkingEvent:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseEvent:
    """The agent starts to use a tool."""

    tool_name: str
    tool_id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultEvent:
    """A tool came back."""

    tool_id: str
    output: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SteeredEvent:
    """The agent has taken up a message that it was given while it worked."""

    key: str
    """The name under which it was given."""


@dataclass(frozen=True, slots=True)
class AnswerEndEvent:
    """One answer is complete, and another follows in the same turn.

    A message that was given to the agent too late to change its answer gets one of its own.
    """


@dataclass(frozen=True, slots=True)
class Intent:
    """What an agent would do with a tool, in one vocabulary for all CLIs: that of `allow`.

    It says only what the CLI itself will do, never what a model claims about that.
    """

    tool: str
    """`Bash`, `Edit`, `Read`, `WebFetch`, `WebSearch`, or `mcp__SERVER__TOOL`."""
    command: str = ""
    """The command, as a shell is given it."""
    cwd: str = ""
    """The directory in which it runs, if that may be another than the workspace."""
    paths: tuple[str, ...] = ()
    """All files that it reads or changes, and directories that it looks through."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the agent's own to a person."""

    text: str
    header: str = ""
    """What it is about, in a word or two."""
    choices: tuple[tuple[str, str], ...] = ()
    """The answers that it proposes, each with what it means."""
    is_multiple: bool = False
    """Whether several can be chosen."""


@dataclass(frozen=True, slots=True)
class PermissionEvent:
    """The agent waits for the decision whether it may use a tool, or for answers."""

    id: str
    """The name under which it is answered (`AgentProcess.answer`)."""
    tool_name: str
    input: Mapping[str, Any]
    """The arguments of the tool."""
    server: str | None = None
    """The MCP server that has the tool, where the CLI itself tells; never taken from a title."""
    intent: Intent | None = None
    """What it is for, where that is certain."""
    shown: str = ""
    """What would be done, as people are shown it; the bridge says so."""
    whole: str = ""
    """The same with its middle, if that is left out there."""
    where: str = ""
    """The agent's workspace; the bridge says so."""
    questions: tuple[Question, ...] = ()
    """What it asks a person itself: no permission, but answers are wanted."""
    plan: str | None = None
    """The plan that it wants to go on with: a person approves it, or has it go on planning."""
    awaits_edits: bool = False
    """Whether the agent's permission to change files would allow it, or follow a plan; the bridge
    says so."""


@dataclass(frozen=True, slots=True)
class PermissionWithdrawnEvent:
    """The agent does not wait for a decision any more."""

    id: str


@dataclass(frozen=True, slots=True)
class FormEvent:
    """A form for a person was cancelled: nothing fills it in."""

    server: str
    """The MCP server that it is of; empty for the agent's own."""
    message: str
    """What it was to ask."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A step of an agent's plan."""

    text: str
    state: Literal["pending", "in_progress", "completed"]

    @classmethod
    def of(cls, text: str, state: Any) -> Self:
        """Return a step as a CLI tells it; one in a state that is unknown has yet to be done."""
        match state:
            case "completed":
                return cls(text, "completed")
            case "in_progress" | "inProgress":
                return cls(text, "in_progress")
        return cls(text, "pending")


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """The agent's plan, whole with each change."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """The tokens of the turn so far."""

    usage: AgentUsage


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something the person should know while they wait; not part of the answer."""

    message: str


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The turn failed. `detail` is what the CLI said, for logs and operators only."""

    category: ErrorCategory
    detail: str
    ends_agent: bool = False
    """Whether the process can't be trusted with another turn: its worker has to end it."""
    is_repaired: bool = False
    """Whether the CLI has taken out of the conversation what the failure came from."""
    retry_at_ms: int | None = None
    """The time when the provider takes requests again, in milliseconds since 1970, if known."""


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The turn is over: exactly one, always the last."""

    result: AgentRunResult
    ends_agent: bool = False
    """Whether the process can't be trusted with another turn, although this one is complete."""


AgentEvent = (
    TextEvent
    | TextResetEvent
    | ThinkingEvent
    | ToolUseEvent
    | ToolResultEvent
    | SteeredEvent
    | AnswerEndEvent
    | PermissionEvent
    | PermissionWithdrawnEvent
    | FormEvent
    | PlanEvent
    | UsageEvent
    | NoticeEvent
    | ErrorEvent
    | DoneEvent
)


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """A tool that an agent uses at the moment, as live text shows it."""

    tool: str
    """Its name."""
    argument: str
    """The argument that tells most, on one short line and without secrets; or nothing."""
    since_ms: int
    """Its start, in milliseconds since 1970."""
    seconds: float | None = None
    """Its duration; None while it runs."""
