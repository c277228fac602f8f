"""Hooks: the operator's functions, called at moments of a turn.

They run in the order of the configuration. Each has a deadline, and one that fails or is late is
logged and changes nothing.
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

#: How long one hook may take, in seconds: the person waits for those before the turn.
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

    Another one than for the last turn restarts the agent, which continues the conversation.
    """

    workspace: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AfterRuntimeExit:
    """A turn is over at the agent."""

    session: SessionKey
    output: str
    """The agent's answer, its first 64,000 characters."""
    side_effects: McpSideEffects
    usage: AgentUsage
    """The tokens that the turn took."""
    duration_ms: int
    """Milliseconds that the turn took."""
    total_cost_usd: float | None
    """The cost of the turn in US dollars, where the CLI says so."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """A turn is over."""

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
        """Import the configured functions; raises `ConfigError` for one that isn't there."""
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
        """Call every hook of a moment; return what those gave back that didn't fail."""
        results = [await _call(function, event) for function in self._hooks.get(moment, ())]
        return [result for result in results if result is not None]


async def _call(function: Callable[[Any], Any], event: Any) -> Any:
    """Return what a hook gives back; None if it fails or is late."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            if inspect.iscoroutinefunction(function):
                return await function(event)
            result = await _in_daemon(function, event)
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        log.error("hook %s took more than %d s and was left", _name(function), DEADLINE_S)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task and task.cancelling():  # we are asked to stop, and not something in the hook
            raise
        log.error("hook %s was cancelled by something in it", _name(function))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of anybody's
        log.error("hook %s failed: %s", _name(function), frames_of(error))
    return None


async def _in_daemon(function: Callable[[Any], Any], event: Any) -> Any:
    """Call a function in a daemon thread, which does not delay the end of the process.

    Python waits for threads of `asyncio.to_thread`, so a hook that hangs would hold its worker.
    """
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()  # from now on it can't be cancelled

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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a module does
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
