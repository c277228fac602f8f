"""The events that an agent reports during a turn, and the turn's result."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal, Self

from remoteclaw.errors import ErrorCategory


def format_cost(usd: float | None) -> str | None:
    """Return a cost in US dollars as people read it; None if it is unknown."""
    if not usd:
        return None
    return f"${usd:,.2f}" if usd >= 0.1 else f"${usd:.4f}"


@dataclass(frozen=True, slots=True)
class AgentUsage:
    """Tokens of one turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def new_tokens(self) -> int:
        """The tokens that the model read and wrote, except those from the provider's cache."""
        return self.input_tokens + self.cache_write_tokens + self.output_tokens

    @property
    def read_tokens(self) -> int:
        """All tokens that the model read, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.read_tokens + self.output_tokens

    def __add__(self, other: "AgentUsage") -> "AgentUsage":
        """Return the sum, field by field."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return AgentUsage(*(left + right for left, right in pairs))

    def since(self, before: "AgentUsage") -> "AgentUsage":
        """Return the growth of a total since it was `before`; a field can't become negative."""
        pairs = zip(astuple(self), astuple(before), strict=True)
        return AgentUsage(*(max(0, now - then) for now, then in pairs))


@dataclass(frozen=True, slots=True)
class AgentRunResult:
    """The result of one turn of an agent."""

    text: str = ""
    session_id: str | None = None
    """The CLI's own id of the conversation, with which it can be resumed."""
    duration_ms: int = 0
    """Milliseconds from the turn's start in the bridge to the agent's last message, without those
    in which it waited for people."""
    usage: AgentUsage = field(default_factory=AgentUsage)
    aborted: bool = False
    total_cost_usd: float | None = None
    """The turn's cost in US dollars; None if the CLI does not report it."""
    num_turns: int | None = None
    """The number of requests to the model in this turn; None if the CLI does not report it."""
    stop_reason: str | None = None
    error_subtype: str | None = None
    """The category of the failure, `context_window` for an overflow; None on success."""
    permission_denials: tuple[str, ...] = ()
    """The names of the tools that the agent asked for and was denied."""

    def followed_by(self, after: "AgentRunResult") -> "AgentRunResult":
        """Merge this result with the one `after` it.

        Numbers are summed, texts and denials are joined, and all other fields are those of `after`.
        """
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
class AsideAnswer:
    """An agent's answer to an aside, a message that arrived during its turn."""

    text: str
    usage: AgentUsage | None = None
    """Its tokens; None if the CLI counts them with the turn, or does not report them."""
    cost_usd: float | None = None
    """The cost in US dollars; None if the CLI does not report it."""
    is_estimated: bool = False
    """Whether `usage` is an estimate."""


@dataclass(frozen=True, slots=True)
class TextEvent:
    """The next piece of the assistant's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextResetEvent:
    """The last `chars` characters of the answer are withdrawn; the next text replaces them.

    A CLI whose stream broke off repeats the request without streaming and reports the whole text.
    """

    chars: int


@dataclass(frozen=True, slots=True)
class ThinkingEvent:
    """The next piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseEvent:
    """The agent starts a tool call."""

    tool_name: str
    tool_id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultEvent:
    """A tool call has returned."""

    tool_id: str
    output: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SteeredEvent:
    """The agent has taken up a message that was sent to it during the turn."""

    key: str
    """The key under which the message was sent (`AgentProcess.steer`)."""


@dataclass(frozen=True, slots=True)
class AnswerEndEvent:
    """One answer is complete, and another one follows in the same turn.

    A message that arrives too late to change the current answer gets a separate one.
    """


@dataclass(frozen=True, slots=True)
class Intent:
    """The action of a tool call, in the same terms for all CLIs: those of the `allow` rules.

    It describes only what the CLI itself will do, never what the model claims about it.
    """

    tool: str
    """`Bash`, `Edit`, `Read`, `WebFetch`, `WebSearch`, or `mcp__SERVER__TOOL`."""
    command: str = ""
    """The command line for the shell."""
    cwd: str | None = ""
    """The directory in which the command runs; empty for the workspace, None if it isn't known."""
    paths: tuple[str, ...] = ()
    """All files that the tool reads or changes, and all directories that it searches."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that the agent asks a person."""

    text: str
    header: str = ""
    """The subject, in one or two words."""
    choices: tuple[tuple[str, str], ...] = ()
    """The proposed answers, each with its explanation."""
    is_multiple: bool = False
    """Whether several choices can be selected."""


#: What people read instead of a directory that the CLI doesn't tell.
UNKNOWN_PLACE = "a directory that the agent does not tell"


@dataclass(frozen=True, slots=True)
class PermissionEvent:
    """The agent waits for permission to use a tool, or for answers to its questions."""

    id: str
    """The id of the request, for `AgentProcess.answer`."""
    tool_name: str
    input: Mapping[str, Any]
    """The arguments of the tool."""
    server: str | None = None
    """The tool's MCP server, if the CLI itself reports it; never derived from a title."""
    intent: Intent | None = None
    """The action that the permission is for; None if it can't be determined reliably."""
    description: str = ""
    """The action as people read it, without the middle of a long text; set by the bridge."""
    full_description: str = ""
    """The action with that middle; empty if `description` is complete. Set by the bridge."""
    incomplete: str = ""
    """Why people can't see the whole action, and can only deny it; empty if they can. Set by the
    bridge."""
    workspace: str = ""
    """The agent's workspace; set by the bridge."""
    questions: tuple[Question, ...] = ()
    """The agent's questions: with any, the request asks for answers, not for a permission."""
    plan: str | None = None
    """The plan that the agent wants to carry out; a person approves it or has it revised."""
    awaits_edits: bool = False
    """Whether the permission to change files (`edits`) would allow the action or follow the plan;
    set by the bridge."""

    @property
    def place(self) -> str:
        """The directory in which it happens, as people read it."""
        if self.intent is None or self.intent.tool != "Bash":
            return self.workspace
        if self.intent.cwd is None:
            return UNKNOWN_PLACE
        return str(PurePath(self.workspace, self.intent.cwd))  # the CLI may tell a relative one


@dataclass(frozen=True, slots=True)
class PermissionWithdrawnEvent:
    """The agent has withdrawn a request for a permission."""

    id: str
    """The id of the request."""


@dataclass(frozen=True, slots=True)
class FormEvent:
    """A form for a person was cancelled, because RemoteClaw has no way to fill it in."""

    server: str
    """The MCP server that sent the form; empty if the agent itself did."""
    message: str
    """The text of the form."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A step of an agent's plan."""

    text: str
    state: Literal["pending", "in_progress", "completed"]

    @classmethod
    def of(cls, text: str, state: Any) -> Self:
        """Return a step from a CLI's report; an unknown `state` counts as pending."""
        match state:
            case "completed":
                return cls(text, "completed")
            case "in_progress" | "inProgress":
                return cls(text, "in_progress")
        return cls(text, "pending")


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """The agent's whole plan, reported again at each change."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """The tokens of the turn so far."""

    usage: AgentUsage


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """A notice for the waiting person that is not part of the answer."""

    message: str


@dataclass(frozen=True, slots=True)
class CompactionEvent:
    """The CLI replaces the beginning of its conversation by a summary, to make room."""

    phase: Literal["began", "done", "failed"]
    trigger: Literal["auto", "manual"] = "auto"
    before: int | None = None
    """The tokens of the conversation before; None if the CLI does not report them, as `after`."""
    after: int | None = None
    summary: str = ""
    """The summary, once it is done; empty if the CLI does not report it."""

    @property
    def change(self) -> str:
        """The tokens before and after, as people read them; empty if the CLI reports none."""
        if not self.before or not self.after:
            return ""
        return f"{self.before:,} → {self.after:,} tokens"


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The turn has failed. `detail` is the CLI's message, for logs and operators only."""

    category: ErrorCategory
    detail: str
    ends_agent: bool = False
    """Whether the process must not be used for another turn: the worker has to end it."""
    is_repaired: bool = False
    """Whether the CLI has removed the cause of the failure from the conversation."""
    retry_at_ms: int | None = None
    """When the provider accepts requests again, in milliseconds since 1970; None if unknown."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The end of a compaction on request."""

    done: CompactionEvent | None = None
    """The finished compaction; None if there is none, and the conversation is as before."""
    failure: ErrorEvent | None = None
    """The failure that the CLI reports instead."""
    is_empty: bool = False
    """Whether the conversation has nothing that could be summarized."""
    run: AgentRunResult = field(default_factory=AgentRunResult)
    """What was used for it, and what the CLI has said."""


@dataclass(frozen=True, slots=True)
class ContextSize:
    """The size of a conversation, in tokens."""

    used: int
    limit: int
    """The size from which on the model takes no more."""

    @property
    def percent(self) -> int:
        """The used part of the limit."""
        return round(100 * self.used / self.limit)


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The turn is over. Each turn reports exactly one, as its last event."""

    result: AgentRunResult
    ends_agent: bool = False
    """Whether the process must not be used for another turn, although this one is complete."""


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
    | CompactionEvent
    | ErrorEvent
    | DoneEvent
)


#: The activity of a CLI that summarizes its conversation.
MAKES_ROOM = "makes room in the conversation"


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """A tool call of the running turn, or a compaction, as live text shows it."""

    tool: str
    """The tool's name."""
    argument: str
    """The most informative argument, on one short line and without secrets; empty if none is."""
    since_ms: int
    """The start of the call, in milliseconds since 1970."""
    seconds: float | None = None
    """The duration of the call in seconds; None while it runs."""
