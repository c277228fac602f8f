"""Activity in live text: the running tools, each with a short argument, and the plan."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.bridge.freshness import kind_of
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.clock import now_ms
from remoteclaw.config.model import ChannelConfig
from remoteclaw.events import MAKES_ROOM, PlanStep, ToolActivity, ToolUseEvent
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChannelMessage, SessionKey, tool_label

#: A compaction among the tools; no CLI has such an id.
COMPACTION_ID = "compaction of the conversation"
#: At most this many tools are shown, the last ones, if an agent uses several in parallel.
MAX_TOOLS = 5
#: The maximum lengths of a tool's name and argument, in characters: both fit on a terminal's line.
MAX_NAME_CHARS, MAX_ARGUMENT_CHARS = 60, 80
#: At most this many steps of a plan are shown, each with at most this many characters.
MAX_STEPS, MAX_STEP_CHARS = 20, 200

#: The most informative arguments, in this order, by the names that the CLIs use.
_MAIN_ARGUMENTS = ("command", "cmd", "pattern", "query", "url")
_PATH_ARGUMENTS = (
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "path",
    "paths",
    "dir_path",
)
#: A plain tool name. Unknown agents may send titles instead, which can contain arguments.
_NAME = re.compile(r"[\w.:/-]+")
A_TOOL = "a tool"
#: The shell that a CLI puts around a command.
_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z)?sh -l?c (?:(['\"])(.*)\1|(\w+))", re.DOTALL)


def label_of(
    event: ToolUseEvent, shown: str, scrubber: Scrubber, workspace: str
) -> tuple[str, str]:
    """Return a tool's name and main argument; without the argument if `shown` is "names"."""
    name = scrubber.line(tool_label(event.tool_name), MAX_NAME_CHARS)
    if shown == "names":
        return bare_name(name), ""
    argument = scrubber.line(_main_argument(event.input, workspace), MAX_ARGUMENT_CHARS)
    return name, "" if argument == name else argument


def bare_name(name: str) -> str:
    """Return `name` if it is a plain tool name, else `A_TOOL`: a title may contain arguments."""
    return name if _NAME.fullmatch(name) else A_TOOL


def shown_of_tools(
    channel: ChannelConfig, session: SessionKey, messages: Iterable[ChannelMessage] = ()
) -> Literal["arguments", "names", "off"]:
    """Return how much of the running tools a session's chat shows."""
    is_direct = kind_of(session, messages) == "direct"
    return channel.activity or ("arguments" if is_direct else "names")


def shown_plan(steps: Sequence[PlanStep], scrub: Callable[[str, int], str]) -> tuple[PlanStep, ...]:
    """Return the steps of a plan that live text shows, shortened and without secrets.

    Of a long plan, these begin with the step before the first unfinished one.
    """
    done = [step.state == "completed" for step in steps]
    first = max(0, min(done.index(False) - 1 if False in done else 0, len(steps) - MAX_STEPS))
    return tuple(
        PlanStep(one_line(scrub(step.text, MAX_STEP_CHARS), max_chars=MAX_STEP_CHARS), step.state)
        for step in steps[first : first + MAX_STEPS]
    )


def _main_argument(arguments: Mapping[str, Any], workspace: str) -> str:
    for name in _MAIN_ARGUMENTS:
        if value := _text(arguments.get(name)):
            return _without_shell(value)
    for name in _PATH_ARGUMENTS:
        if value := _text(arguments.get(name)):
            return value.replace(f"{workspace.rstrip('/')}/", "") or value
    return next(filter(None, map(_text, arguments.values())), "")


class Activity:
    """The running tools, and those that have ended since the agent last wrote text."""

    def __init__(
        self,
        label: Callable[[ToolUseEvent], tuple[str, str]],
        changed: Callable[[tuple[ToolActivity, ...]], None],
        *,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`label` returns a tool's name and argument; `changed` gets all tools after a change."""
        self._label = label
        self._changed = changed
        self._now_ms = now_ms
        self._tools: dict[str, ToolActivity] = {}

    def begin(self, event: ToolUseEvent) -> None:
        """Add a tool that the agent begins to use, and remove those that have ended."""
        self._add(event.tool_id, *self._label(event))

    def begin_compaction(self) -> None:
        """Add a compaction, which is shown like a tool."""
        self._add(COMPACTION_ID, MAKES_ROOM, "")

    def _add(self, tool_id: str, name: str, argument: str) -> None:
        self._tools = dict(self._running())
        self._tools[tool_id] = ToolActivity(name, argument, self._now_ms())
        while len(self._tools) > MAX_TOOLS:
            del self._tools[next(iter(self._tools))]
        self._changed(tuple(self._tools.values()))

    def end(self, tool_id: str) -> None:
        """Mark a tool, or the compaction, as ended, with its duration."""
        tool = self._tools.get(tool_id)
        if tool is None or tool.seconds is not None:
            return
        seconds = max(0, self._now_ms() - tool.since_ms) / 1000
        self._tools[tool_id] = replace(tool, seconds=seconds)
        self._changed(tuple(self._tools.values()))

    def clear_ended(self) -> None:
        """Remove the tools that have ended, because the agent writes text again."""
        running = dict(self._running())
        if len(running) < len(self._tools):
            self._tools = running
            self._changed(tuple(running.values()))

    def _running(self) -> Iterator[tuple[str, ToolActivity]]:
        return ((key, tool) for key, tool in self._tools.items() if tool.seconds is None)


def _text(value: Any) -> str:
    """Return an argument as text, a list of texts joined by spaces; empty for other types."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    return value.strip() if isinstance(value, str) else ""


def _without_shell(command: str) -> str:
    """Return a command without the shell that a CLI has put around it."""
    match = _SHELL.fullmatch(command)
    return (match[2] or match[3]) if match else command
