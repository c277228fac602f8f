"""The progress of a turn of claude, read from its lines: plan, tokens so far, and cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.events import AgentEvent, AgentUsage, PlanEvent, PlanStep, UsageEvent
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: At most this many tasks are kept: claude may create any number, and people see the first few.
MAX_TASKS = 50


class Plan:
    """The tasks of one conversation, which claude creates and changes one by one.

    An older claude writes the whole list at each change, with its tool TodoWrite.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, PlanStep] = {}
        """The tasks, by claude's ids."""
        self._pending_updates: dict[str, dict[str, Any]] = {}
        """The arguments of TaskUpdate calls without a result, by the id of the call."""

    def begin(self) -> None:
        """Begin a turn: remove the tasks that were completed in earlier turns."""
        self._pending_updates.clear()
        self._tasks = {
            name: task for name, task in self._tasks.items() if task.state != "completed"
        }

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the plan if a line changes it; else nothing."""
        if message.get("parent_tool_use_id"):
            return []  # a subagent has a separate plan
        before = dict(self._tasks)
        for block in mappings(mapping(message.get("message")).get("content")):
            match block.get("type"):
                case "tool_use" if block.get("name") == "TodoWrite":
                    todos = mappings(mapping(block.get("input")).get("todos"))
                    self._tasks = {
                        str(number): PlanStep.of(text(todo.get("content")), todo.get("status"))
                        for number, todo in enumerate(todos[:MAX_TASKS])
                    }
                case "tool_use" if block.get("name") == "TaskUpdate":
                    self._pending_updates[text(block.get("id"))] = mapping(block.get("input"))
                case "tool_result":
                    self._take_result(block, mapping(message.get("tool_use_result")))
        return [PlanEvent(tuple(self._tasks.values()))] if self._tasks != before else []

    def _take_result(self, block: dict[str, Any], result: dict[str, Any]) -> None:
        """Apply the result of a tool: a created task, a changed task, or the list of all tasks."""
        change = self._pending_updates.pop(text(block.get("tool_use_id")), None)
        if change is not None and result.get("success"):
            self._change(text(change.get("taskId")), change)
        elif created := mapping(result.get("task")):
            self._add(created)
        elif listed := mappings(result.get("tasks")):
            self._tasks.clear()
            for task in listed:
                self._add(task)

    def _add(self, task: dict[str, Any]) -> None:
        name, subject = text(task.get("id")), text(task.get("subject"))
        if name and subject and (name in self._tasks or len(self._tasks) < MAX_TASKS):
            self._tasks[name] = PlanStep.of(subject, task.get("status"))

    def _change(self, name: str, change: dict[str, Any]) -> None:
        task = self._tasks.get(name)
        if task is None:
            return
        state = change.get("status") or task.state
        if state == "deleted":
            del self._tasks[name]
        else:
            self._tasks[name] = PlanStep.of(text(change.get("subject")) or task.text, state)


class TokensSoFar:
    """The tokens of a turn so far, summed over its requests to the model."""

    def __init__(self) -> None:
        self._finished = AgentUsage()
        """The tokens of the finished requests."""
        self._request = AgentUsage()
        """The tokens of the running request."""

    @property
    def context(self) -> int:
        """The number of tokens that the last request has read; 0 before the first."""
        read = self._request
        return read.input_tokens + read.cache_read_tokens + read.cache_write_tokens

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the sum if a line changes it; else nothing."""
        if message.get("type") != "stream_event" or message.get("parent_tool_use_id"):
            return []
        event = mapping(message.get("event"))
        match event.get("type"):
            case "message_start":
                self._finished += self._request
                self._request = usage_of(mapping(mapping(event.get("message")).get("usage")))
            case "message_delta":
                # Its other numbers are less complete than those of `message_start`.
                output_tokens = count(mapping(event.get("usage")).get("output_tokens"))
                self._request = replace(self._request, output_tokens=output_tokens)
            case _:
                return []
        return [UsageEvent(self._finished + self._request)]


def usage_of(usage: dict[str, Any]) -> AgentUsage:
    """Return the tokens of claude's `usage` object."""
    return AgentUsage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cache_read_tokens=count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count(usage.get("cache_creation_input_tokens")),
    )


@dataclass
class Costs:
    """The running totals from which the cost of each turn is computed.

    Claude reports the cost of its whole process, including asides, and no cost of a single aside.
    After an aside, a turn gets the share of the cost that matches its tokens, which claude reports
    for turn and process; the aside's share is not counted anywhere.
    """

    usd: float = 0.0
    """The cost of the process in US dollars at the end of the last turn."""
    weight: float = 0.0
    """The price-weighted tokens of the process at the end of the last turn."""
    has_asides: bool = False
    """Whether an aside was answered since the end of the last turn."""

    def of_turn(self, result: Mapping[str, Any]) -> float | None:
        """Return the cost of a turn in US dollars, from its final `result`; None if not reported.

        Updates the totals.
        """
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or not math.isfinite(total):
            return None
        models = mapping(result.get("modelUsage")).values()
        weight = sum(_weight(_of_model(mapping(model))) for model in models)
        spent, added = max(0.0, total - self.usd), weight - self.weight
        if self.has_asides and added > 0:
            spent *= min(1.0, _weight(usage_of(mapping(result.get("usage")))) / added)
        self.usd, self.weight, self.has_asides = float(total), weight, False
        return spent


def _of_model(usage: Mapping[str, Any]) -> AgentUsage:
    return AgentUsage(
        count(usage.get("inputTokens")),
        count(usage.get("outputTokens")),
        count(usage.get("cacheReadInputTokens")),
        count(usage.get("cacheCreationInputTokens")),
    )


def _weight(usage: AgentUsage) -> float:
    """Return the price of tokens, in input tokens, by the price ratios of claude's models."""
    written = usage.cache_write_tokens * 1.25 + usage.output_tokens * 5
    return usage.input_tokens + usage.cache_read_tokens * 0.1 + written
