"""The indicator of a chat: the session's activity while it works, and a turn's usage afterwards."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from remoteclaw.chat.paint import MarkdownPainter
from remoteclaw.clock import format_exact_duration
from remoteclaw.host.terminal import one_line

#: The frames of the animation.
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
#: The time for which a frame is shown, in seconds.
SPIN_S = 0.12
#: At most this many steps of a plan are shown.
MAX_PLAN_STEPS = 8


@dataclass(slots=True)
class _Activity:
    """The session's current activity: a turn, or waiting for one."""

    since: float
    """When the activity began, on the screen's clock."""
    tools: Sequence[Mapping[str, Any]] = ()
    plan: Sequence[Mapping[str, Any]] = ()
    tokens: int = 0
    messages: int = 1
    """The number of messages that the turn answers."""
    is_live: bool = False
    """Whether a turn is known to run; False while one is only waited for."""


class Indicator:
    """The lines that are shown while messages wait for their answers, or a turn runs."""

    def __init__(
        self,
        painter: MarkdownPainter,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._painter = painter
        self._clock = clock
        self._wall = wall
        self._activity: _Activity | None = None
        self._unanswered: set[str] = set()
        """The messages without an outcome: their entries, or their ids until they are accepted."""
        self._requests: set[str] = set()
        """The requests that wait for the person's answer."""
        self._ahead = 0
        """The number of messages that are answered before the newest one."""
        self._lag_s = 0.0
        """How far this machine's clock is ahead of the gateway's, in seconds."""

    @property
    def is_busy(self) -> bool:
        """Whether a message waits or a turn runs, so that the indicator is shown."""
        return bool(self._unanswered) or self._activity is not None

    def add_message(self, message_id: str) -> None:
        """Show that a message waits for an answer."""
        self._unanswered.add(message_id)
        if self._activity is None:
            self._activity = _Activity(self._clock())

    def accept_message(self, message_id: str, entry: str, ahead: int) -> None:
        """Record that a message is stored as `entry`, with `ahead` messages before it."""
        if message_id in self._unanswered:
            self._unanswered.discard(message_id)
            self._unanswered.add(entry)
        self._ahead = ahead

    def remove_messages(self, names: Iterable[str]) -> None:
        """Record that messages, named by their ids or entries, do not wait any more."""
        self._unanswered.difference_update(names)
        self._ahead = min(self._ahead, max(len(self._unanswered) - 1, 0))
        if not self._unanswered and self._activity and not self._activity.is_live:
            self._activity = None

    def add_request(self, request: str) -> None:
        """Show that the agent waits for the person to answer `request`."""
        self._requests.add(request)

    def remove_request(self, request: str) -> None:
        """Record that `request` is answered or void."""
        self._requests.discard(request)

    def resync(self, *, is_running: bool) -> None:
        """Hide a turn that ended while the connection was lost."""
        if not is_running and self._activity and self._activity.is_live:
            self.end_turn()

    def update(self, live: Mapping[str, Any]) -> None:
        """Show the state of the running turn (`session.live`)."""
        # The clocks of this machine and of the gateway may differ.
        self._lag_s = self._wall() - live.get("at", self._wall() * 1000) / 1000
        begun = self._clock() - max(0.0, self._seconds_since(live.get("since_ms")))
        self._activity = self._activity or _Activity(begun)
        self._activity.since = min(self._activity.since, begun)
        self._activity.is_live = True
        self._activity.tools = live.get("activity") or ()
        self._activity.plan = live.get("plan") or ()
        self._activity.tokens = int(live.get("tokens") or 0)
        self._activity.messages = int(live.get("messages") or 1)

    def end_turn(self) -> None:
        """Record that the turn is over. The remaining messages wait for another one."""
        self._requests.clear()
        self._activity = _Activity(self._clock()) if self._unanswered else None

    def lines(self, columns: int) -> list[str]:
        """Return the indicator's lines, painted: the plan, the tools and the status line."""
        activity = self._activity or _Activity(self._clock())
        elapsed = self._clock() - activity.since
        lines = []
        for step in activity.plan[:MAX_PLAN_STEPS]:
            mark = {"completed": "☑", "in_progress": "▸"}.get(str(step.get("state")), "☐")
            lines.append(self._fit(f"  {mark} {step.get('text', '')}", columns))
        running = [tool for tool in activity.tools if tool.get("seconds") is None]
        for tool in running or activity.tools[-1:]:
            took = tool.get("seconds")
            seconds = self._seconds_since(tool["since_ms"]) if took is None else took
            use = f"  ⎿ {tool['tool']} {tool['argument']}".rstrip()
            lines.append(self._fit(f"{use} ({_whole(seconds)})", columns))
        return [*lines, self._fit(self._status_line(activity, elapsed, columns - 1), columns)]

    def _status_line(self, activity: _Activity, elapsed: float, columns: int) -> str:
        """Return the elapsed time and the key that stops the turn, with details that fit."""
        spinner = SPINNER[int(elapsed / SPIN_S) % len(SPINNER)]
        state = ["waits for your answer" if self._requests else f"{spinner} {_whole(elapsed)}"]
        if activity.messages > 1:
            state.append(f"answers {activity.messages} messages")
        tokens = [f"{activity.tokens:,} tokens"] if activity.tokens else []
        ahead = []
        if self._ahead:
            ahead.append(f"{self._ahead} before it" if self._ahead > 1 else "one before it")
        candidates = [
            " · ".join(parts)
            for parts in (
                (*state, *tokens, *ahead, "Esc or Ctrl-C stops"),
                (*state, *tokens, *ahead, "Ctrl-C stops"),
                (*state, *ahead, "Ctrl-C stops"),
                (state[0], "Ctrl-C stops"),
            )
        ]
        return next((line for line in candidates if len(line) <= columns), candidates[-1])

    def _seconds_since(self, at_ms: float | None) -> float:
        """Return the seconds since a time of the gateway's clock; 0 for None."""
        return 0.0 if at_ms is None else self._wall() - self._lag_s - at_ms / 1000

    def _fit(self, text: str, columns: int) -> str:
        indent = len(text) - len(text.lstrip())
        text = self._painter.truncate(" " * indent + one_line(text), columns - 1)
        return self._painter.styled(text, "dim")


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The usage of a turn, as the line below its answer shows it."""

    seconds: float
    tokens: int
    """The tokens that were read and written, except those read from the provider's cache."""
    cost_usd: float | None

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Self:
        """Return the line for a turn's usage as the gateway reports it."""
        tokens = usage["inputTokens"] + usage["cacheWriteTokens"] + usage["outputTokens"]
        return cls(usage["durationMs"] / 1000, tokens, usage["costUsd"])

    def __str__(self) -> str:
        """Return the line, such as `12 s · 3,214 tokens · $0.03`."""
        parts = [_whole(self.seconds), *([f"{self.tokens:,} tokens"] if self.tokens else [])]
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.2f}" if self.cost_usd >= 0.01 else "< $0.01")
        return " · ".join(parts)


def ending(message: Mapping[str, Any]) -> str:
    """Return the line below an answer: the number of messages, an interruption, the usage.

    `message` is a turn's last message or its outcome.
    """
    count, usage = len(message.get("entries") or ()), message.get("usage")
    parts = [
        f"answers {count} messages" if count > 1 else "",
        "interrupted by a newer message" if message.get("status") == "interrupted" else "",
        str(UsageLine.of(usage)) if usage else "",
    ]
    return " · ".join(filter(None, parts))


def _whole(seconds: float) -> str:
    """Return a duration without fractions of a second: the line would flicker."""
    return format_exact_duration(int(max(seconds, 0.0)) * 1000)
