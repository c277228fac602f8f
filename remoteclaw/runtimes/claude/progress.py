"""The progress of a turn of claude, read from its lines: plan, tokens so far, and totals."""

import math
from collections.abc import Mapping
from dataclasses import astuple, replace
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

    def __init__(self, before: AgentUsage | None = None) -> None:
        """`before` are the tokens of the turn's earlier answers."""
        self._before = before or AgentUsage()
        self._finished = AgentUsage()
        """The tokens of the finished requests."""
        self._request = AgentUsage()
        """The tokens of the running or last request."""
        self._is_running = False
        """Whether a request is running; claude adds it to its totals when it ends."""
        self._of_subagents: dict[str, AgentUsage] = {}
        """The tokens of the requests of subagents, by the id of the answer."""

    @property
    def of_answer(self) -> AgentUsage:
        """The tokens of the running answer."""
        return self._finished + self._request

    @property
    def unfinished(self) -> AgentUsage:
        """The tokens of the running request."""
        return self._request if self._is_running else AgentUsage()

    @property
    def context(self) -> int:
        """The number of tokens that the last request has read; 0 before the first."""
        return self._request.read_tokens

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the sum if a line changes it; else nothing."""
        if message.get("parent_tool_use_id"):
            answer = mapping(message.get("message"))
            if message.get("type") != "assistant" or not answer.get("usage"):
                return []
            self._of_subagents[text(answer.get("id"))] = usage_of(mapping(answer["usage"]))
            return [self._so_far]
        if message.get("type") != "stream_event":
            return []
        event = mapping(message.get("event"))
        match event.get("type"):
            case "message_start":
                self._finished += self._request
                self._request = usage_of(mapping(mapping(event.get("message")).get("usage")))
                self._is_running = True
            case "message_delta":
                # Its other numbers are less complete than those of `message_start`.
                output_tokens = count(mapping(event.get("usage")).get("output_tokens"))
                self._request = replace(self._request, output_tokens=output_tokens)
                self._is_running = False
            case _:
                return []
        return [self._so_far]

    @property
    def _so_far(self) -> UsageEvent:
        return UsageEvent(sum(self._of_subagents.values(), self._before + self.of_answer))


def usage_of(usage: dict[str, Any]) -> AgentUsage:
    """Return the tokens of claude's `usage` object."""
    return AgentUsage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cache_read_tokens=count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count(usage.get("cache_creation_input_tokens")),
    )


class Totals:
    """The totals of a claude process, whose growth is the usage of a turn.

    Claude reports them with the result of each turn. They include everything that the process has
    asked the model: also asides, subagents and summaries, of which claude reports nothing else.
    """

    def __init__(self) -> None:
        self._usage = AgentUsage()
        """The tokens at the end of the last turn."""
        self._cost_usd = 0.0
        """The cost in US dollars at the end of the last turn."""
        self._estimated = 0
        """The estimated tokens of the asides since then, which the next totals include."""

    def state(self) -> dict[str, Any]:
        """Return the state for `restore()`."""
        return {
            "usage": astuple(self._usage),
            "cost": self._cost_usd,
            "estimated": self._estimated,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the totals of a parked process."""
        self._usage, self._cost_usd = AgentUsage(*state["usage"]), state["cost"]
        self._estimated = state["estimated"]

    def estimate(self, context: int) -> AgentUsage:
        """Return an estimate for an aside that was answered after the last totals.

        `context` is the number of tokens that the last turn has read. The provider has most of
        them in its cache.
        """
        self._estimated += context
        return AgentUsage(cache_read_tokens=context)

    def growth(self, result: Mapping[str, Any]) -> tuple[AgentUsage, float | None]:
        """Return the tokens and the cost of a turn, from its final `result`, and keep the totals.

        Without totals in the result, the tokens are those that it reports for the turn itself. The
        cost is in US dollars; None if it is not reported.
        """
        models = mapping(result.get("modelUsage")).values()
        if not models:
            return usage_of(mapping(result.get("usage"))), None
        usage = sum((_of_model(mapping(model)) for model in models), AgentUsage())
        grown, self._usage = usage.since(self._usage), usage
        cost, spent = result.get("total_cost_usd"), None
        if isinstance(cost, int | float) and math.isfinite(cost):
            spent, self._cost_usd = max(0.0, cost - self._cost_usd), float(cost)
        return self._without_estimates(grown), spent

    def _without_estimates(self, usage: AgentUsage) -> AgentUsage:
        """Return `usage` without the tokens that were counted by an estimate."""
        cached = min(self._estimated, usage.cache_read_tokens)
        other = min(self._estimated - cached, usage.input_tokens)
        self._estimated = 0
        return replace(
            usage,
            input_tokens=usage.input_tokens - other,
            cache_read_tokens=usage.cache_read_tokens - cached,
        )


def _of_model(usage: Mapping[str, Any]) -> AgentUsage:
    return AgentUsage(
        count(usage.get("inputTokens")),
        count(usage.get("outputTokens")),
        count(usage.get("cacheReadInputTokens")),
        count(usage.get("cacheCreationInputTokens")),
    )
