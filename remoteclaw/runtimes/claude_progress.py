"""The progress of a turn of claude's, read from its lines: plan, tokens so far, and cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remoteclaw.events import AgentEvent, AgentUsage, PlanEvent, PlanStep, UsageEvent
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: How many tasks are kept: claude may make any number, and people see the first few.
MAX_TASKS = 50


class Plan:
    """The tasks of one conversation, which claude makes and changes one by one.

    An older claude writes the whole list with each change, with its tool TodoWrite.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, PlanStep] = {}
        """The tasks, by claude's names for them."""
        self._asked: dict[str, dict[str, Any]] = {}
        """Changes that claude has asked its tool for, by the id of the call."""

    def begin(self) -> None:
        """Begin a turn: what was done in an earlier one is no part of the plan any more."""
        self._asked.clear()
        self._tasks = {
            name: task for name, task in self._tasks.items() if task.state != "completed"
        }

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the plan, if a line changes it."""
        if message.get("parent_tool_use_id"):
            return []  # a subagent's own
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
                    self._asked[text(block.get("id"))] = mapping(block.get("input"))
                case "tool_result":
                    self._take_result(block, mapping(message.get("tool_use_result")))
        return [PlanEvent(tuple(self._tasks.values()))] if self._tasks != before else []

    def _take_result(self, block: dict[str, Any], result: dict[str, Any]) -> None:
        """Take what a tool came back with: a task that was made, one that was changed, or all."""
        change = self._asked.pop(text(block.get("tool_use_id")), None)
        if change is not None and result.get("success"):
            self._change(text(change.get("taskId")), change)
        elif made := mapping(result.get("task")):
            self._note(made)
        elif listed := mappings(result.get("tasks")):
            self._tasks.clear()
            for task in listed:
                self._note(task)

    def _note(self, task: dict[str, Any]) -> None:
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
    """The tokens of a turn, request by request."""

    def __init__(self) -> None:
        self._before = AgentUsage()
        """Of the requests to the model that are over."""
        self._request = AgentUsage()

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the sum, if a line changes it."""
        if message.get("type") != "stream_event" or message.get("parent_tool_use_id"):
            return []
        event = mapping(message.get("event"))
        match event.get("type"):
            case "message_start":
                self._before += self._request
                self._request = usage_of(mapping(mapping(event.get("message")).get("usage")))
            case "message_delta":
                # Of the rest it says less than the start did.
                written = count(mapping(event.get("usage")).get("output_tokens"))
                self._request = replace(self._request, output_tokens=written)
            case _:
                return []
        return [UsageEvent(self._before + self._request)]


def usage_of(usage: dict[str, Any]) -> AgentUsage:
    """Return tokens as claude tells them."""
    return AgentUsage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cache_read_tokens=count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count(usage.get("cache_creation_input_tokens")),
    )


@dataclass
class Costs:
    """The cost of turns: claude tells that of its whole process, with what was asked beside.

    It doesn't tell what an answer beside a turn has cost. A turn then has its part by tokens, which
    are told of both, and the rest is counted nowhere. These are the sums so far.
    """

    usd: float = 0.0
    weight: float = 0.0
    """The tokens, each kind at its price."""
    has_asides: bool = False
    """Whether something was answered beside a turn since the last one was counted."""

    def of_turn(self, result: Mapping[str, Any]) -> float | None:
        """Return what a turn cost in US dollars, by the result with which it ends."""
        total = result.get("total_cost_usd")
        if not isinstance(total, int | float) or not math.isfinite(total):
            return None
        models = mapping(result.get("modelUsage")).values()
        weight = sum(_weight(_of_model(mapping(model))) for model in models)
        spent, weighed = max(0.0, total - self.usd), weight - self.weight
        if self.has_asides and weighed > 0:
            spent *= min(1.0, _weight(usage_of(mapping(result.get("usage")))) / weighed)
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
    """Return the tokens as multiples of one that is read, by the prices of claude's models."""
    written = usage.cache_write_tokens * 1.25 + usage.output_tokens * 5
    return usage.input_tokens + usage.cache_read_tokens * 0.1 + written
