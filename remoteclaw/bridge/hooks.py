"""Functions of the operator's that are called at moments of a turn.

They run in the order in which they were registered.
Each has a deadline, and one that fails or is late is logged and changes nothing.
"""

import asyncio
import contextlib
import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.config import HooksConfig
from remoteclaw.errors import ConfigError
from remoteclaw.messages import McpSideEffects, SessionKey

__all__ = ["AfterRuntimeExit", "AgentEnd", "BeforeRuntimeSpawn", "Hooks", "SpawnOverride"]

#: How long one hook may take, in seconds: the person waits for those before the turn.
DEADLINE_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BeforeRuntimeSpawn:
    """A turn is about to be given to an agent."""

    session: SessionKey
    runtime: str
    workspace: str


@dataclass(frozen=True, slots=True)
class SpawnOverride:
    """What a `before_runtime_spawn` hook may return; another result than last time restarts the
    agent, which goes on with the same conversation."""

    workspace: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AfterRuntimeExit:
    """A turn is over at the agent."""

    session: SessionKey
    output: str
    """What the agent answered, its first 64,000 characters."""
    side_effects: McpSideEffects


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

    def register(self, moment: str, function: Callable[[Any], Any]) -> None:
        """Add a function, which may be asynchronous, to a moment of `HooksConfig`."""
        self._hooks.setdefault(moment, []).append(function)

    async def run(self, moment: str, event: Any) -> list[Any]:
        """Call every hook of a moment; return what those gave back that didn't fail."""
        results = []
        for function in self._hooks.get(moment, ()):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    if inspect.iscoroutinefunction(function):
                        result = await function(event)
                    else:
                        result = await _in_daemon(function, event)
            except TimeoutError:
                log.error("hook %s took more than %d s and was left", _name(function), DEADLINE_S)
            except Exception:
                log.exception("hook %s failed", _name(function))
            else:
                if result is not None:
                    results.append(result)
        return results


async def _in_daemon(function: Callable[[Any], Any], event: Any) -> Any:
    """Call a function in a thread that nobody waits for when the process ends.

    `asyncio.to_thread` is waited for: one hook that hangs would hold its worker for good.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def call() -> None:
        result, error = None, None
        try:
            result = function(event)
        except Exception as raised:  # noqa: BLE001 - the caller of the hooks logs it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended without us
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=call, name=_name(function), daemon=True).start()
    return await done


def _imported(moment: str, reference: str) -> Callable[[Any], Any]:
    module_name, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"[hooks] {moment} names {reference!r}, which can't be imported: {error}. "
            'Write it as "module:function".'
        ) from None
    if not callable(function):
        raise ConfigError(f"[hooks] {moment} names {reference!r}, which is not a function.")
    hook: Callable[[Any], Any] = function
    return hook


def _name(function: Callable[[Any], Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', function)}"
