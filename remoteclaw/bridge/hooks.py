"""Hooks: the operator's functions, called at certain moments of a turn.

They run in the order of the configuration. A hook that fails or exceeds its deadline is logged and
ignored.
"""

import asyncio
import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.config.model import HooksConfig
from remoteclaw.errors import ConfigError
from remoteclaw.events import AgentUsage
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import McpSideEffects, SessionKey

#: The time limit of one hook, in seconds: the person waits for the hooks before a turn.
DEADLINE_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """A new agent process continues the conversation of an earlier one."""

    session: SessionKey
    runtime: str
    session_id: str
    """The CLI's own id of the conversation."""


@dataclass(frozen=True, slots=True)
class BeforeRuntimeSpawn:
    """A turn is about to be given to an agent."""

    session: SessionKey
    runtime: str
    workspace: str


@dataclass(frozen=True, slots=True)
class SpawnOverride:
    """The result of a `before_runtime_spawn` hook.

    If it differs from the last turn's, the agent is restarted and continues the conversation.
    """

    workspace: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AfterRuntimeExit:
    """The agent has ended its turn."""

    session: SessionKey
    output: str
    """The first 64,000 characters of the agent's answer."""
    side_effects: McpSideEffects
    usage: AgentUsage
    """The tokens that the turn has used."""
    duration_ms: int
    """The duration of the turn, in milliseconds."""
    total_cost_usd: float | None
    """The cost of the turn in US dollars; None if the CLI does not report it."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """A turn has ended."""

    session: SessionKey
    turn: str
    success: bool
    duration_ms: int


class Hooks:
    """The registered hooks."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[[Any], Any]]] = {}

    @classmethod
    def load(cls, config: HooksConfig) -> "Hooks":
        """Import the configured functions; raises `ConfigError` if one can't be imported."""
        hooks = cls()
        for moment in type(config).model_fields:
            for reference in getattr(config, moment):
                hooks.register(moment, _imported(moment, reference))
        return hooks

    def __contains__(self, moment: str) -> bool:
        """Whether a moment has a hook."""
        return moment in self._hooks

    def register(self, moment: str, function: Callable[[Any], Any]) -> None:
        """Add a function, which may be asynchronous, to a moment of `HooksConfig`."""
        self._hooks.setdefault(moment, []).append(function)

    async def run(self, moment: str, event: Any) -> list[Any]:
        """Call every hook of a moment; return their results, without None and failures."""
        results = [await _call(function, event) for function in self._hooks.get(moment, ())]
        return [result for result in results if result is not None]


async def _call(function: Callable[[Any], Any], event: Any) -> Any:
    """Return a hook's result; None if it fails or exceeds its deadline.

    A hook that goes on although it was cancelled is not waited for.
    """
    running = asyncio.create_task(_result_of(function, event))
    try:
        done, _ = await asyncio.wait((running,), timeout=DEADLINE_S)
    finally:
        running.cancel()
    if done:
        return running.result()
    log.error("hook %s took more than %d s and is ignored", _name(function), DEADLINE_S)
    return None


async def _result_of(function: Callable[[Any], Any], event: Any) -> Any:
    """Return a hook's result; None if it fails."""
    try:
        if inspect.iscoroutinefunction(function):
            return await function(event)
        result = await _in_daemon(function, event)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():  # this task itself is being cancelled
            raise
        log.error("hook %s was cancelled by its own code", _name(function))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any operator's code
        log.error("hook %s failed: %s", _name(function), frames_of(error))
    return None


async def _in_daemon(function: Callable[[Any], Any], event: Any) -> Any:
    """Call a function in a daemon thread, which does not delay the end of the process.

    Python waits for the threads of `asyncio.to_thread` at exit, so a hook that hangs would keep its
    worker from ending.
    """
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()  # makes it uncancellable

    def call() -> None:
        try:
            done.set_result(function(event))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller of the hooks logs it
            done.set_exception(error)

    threading.Thread(target=call, name=_name(function), daemon=True).start()
    return await asyncio.wrap_future(done)


def _imported(moment: str, reference: str) -> Callable[[Any], Any]:
    module_name, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"[hooks] {moment} names {reference!r}, which can't be imported: {why}. "
            'Write it as "module:function".'
        ) from None
    if not callable(function):
        raise ConfigError(f"[hooks] {moment} names {reference!r}, which is not a function.")
    hook: Callable[[Any], Any] = function
    return hook


def _name(function: Callable[[Any], Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"
