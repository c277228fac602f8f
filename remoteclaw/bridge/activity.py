"""Activity in live text: the running tools, each with a short argument, and the plan."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from remoteclaw.bridge.freshness import kind_of
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.clock import now_ms
from remoteclaw.config.model import ChannelConfig
from remoteclaw.events import PlanStep, ToolActivity, ToolUseEvent
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChannelMessage, SessionKey

#: How many tools are shown at once: the last ones, where an agent uses many beside each other.
MAX_TOOLS = 5
#: How long a name and an argument may be, in characters: both fit on a terminal's line.
MAX_NAME, MAX_ARGUMENT = 60, 80
#: How many steps of a plan are shown, and how long each may be, in characters.
MAX_STEPS, MAX_STEP = 20, 200

#: The arguments that say most, in this order, as the CLIs call them.
_TELLING = ("command", "cmd", "pattern", "query", "url")
_PATHS = ("file_path", "filePath", "absolute_path", "notebook_path", "path", "paths", "dir_path")
#: A name that is one. Agents of which nothing is known give titles, with arguments in them.
_NAME = re.compile(r"[\w.:/-]+")
A_TOOL = "a tool"
#: The shell with which a CLI runs a command.
_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z)?sh -l?c (?:(['\"])(.*)\1|(\w+))", re.DOTALL)


def label_of(
    event: ToolUseEvent, shown: str, scrubber: Scrubber, workspace: str
) -> tuple[str, str]:
    """Return a tool's name and the argument that tells most; none where `shown` is "names"."""
    name = scrubber.line(event.tool_name, MAX_NAME)
    if shown == "names":
        return bare_name(name), ""
    argument = scrubber.line(_telling(event.input, workspace), MAX_ARGUMENT)
    return name, "" if argument == name else argument


def bare_name(name: str) -> str:
    """Return a tool's name where its arguments are not shown: agents' titles may have some."""
    return name if _NAME.fullmatch(name) else A_TOOL


def shown_of_tools(
    channel: ChannelConfig, session: SessionKey, messages: Iterable[ChannelMessage] = ()
) -> Literal["arguments", "names", "off"]:
    """Return how much a session's chat is shown of tools that run."""
    is_direct = kind_of(session, messages) == "direct"
    return channel.activity or ("arguments" if is_direct else "names")


def shown_plan(steps: Sequence[PlanStep], scrub: Callable[[str, int], str]) -> tuple[PlanStep, ...]:
    """Return a plan as live text shows it: without secrets, short, and from what is not done on."""
    done = [step.state == "completed" for step in steps]
    first = max(0, min(done.index(False) - 1 if False in done else 0, len(steps) - MAX_STEPS))
    return tuple(
        PlanStep(one_line(scrub(step.text, MAX_STEP), most=MAX_STEP), step.state)
        for step in steps[first : first + MAX_STEPS]
    )


def _telling(arguments: Mapping[str, Any], workspace: str) -> str:
    for name in _TELLING:
        if value := _text(arguments.get(name)):
            return _without_shell(value)
    for name in _PATHS:
        if value := _text(arguments.get(name)):
            return value.replace(f"{workspace.rstrip('/')}/", "") or value
    return next(filter(None, map(_text, arguments.values())), "")


class Activity:
    """The tools that run, and those that have ended since the agent last said something."""

    def __init__(
        self,
        label: Callable[[ToolUseEvent], tuple[str, str]],
        changed: Callable[[tuple[ToolActivity, ...]], None],
        *,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`label` returns what is shown of a tool; `changed` gets all of it after each change."""
        self._label = label
        self._changed = changed
        self._now_ms = now_ms
        self._tools: dict[str, ToolActivity] = {}

    def begin(self, event: ToolUseEvent) -> None:
        """Show a tool that the agent begins to use, in place of those that have ended."""
        name, argument = self._label(event)
        self._tools = dict(self._running())
        self._tools[event.tool_id] = ToolActivity(name, argument, self._now_ms())
        while len(self._tools) > MAX_TOOLS:
            del self._tools[next(iter(self._tools))]
        self._changed(tuple(self._tools.values()))

    def end(self, tool_id: str) -> None:
        """Show how long a tool took."""
        tool = self._tools.get(tool_id)
        if tool is None or tool.seconds is not None:
            return
        seconds = max(0, self._now_ms() - tool.since_ms) / 1000
        self._tools[tool_id] = replace(tool, seconds=seconds)
        self._changed(tuple(self._tools.values()))

    def say(self) -> None:
        """Make room for text: what has ended is shown no more."""
        running = dict(self._running())
        if len(running) < len(self._tools):
            self._tools = running
            self._changed(tuple(running.values()))

    def _running(self) -> Iterator[tuple[str, ToolActivity]]:
        return ((key, tool) for key, tool in self._tools.items() if tool.seconds is None)


def _text(value: Any) -> str:
    """Return an argument as text: of a list of texts, all of them."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    return value.strip() if isinstance(value, str) else ""


def _without_shell(command: str) -> str:
    """Return a command without the shell that a CLI has put around it."""
    found = _SHELL.fullmatch(command)
    return (found[2] or found[3]) if found else command
