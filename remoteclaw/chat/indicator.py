"""The indicator of a chat: what the session does, above the input line; what it took, below."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from remoteclaw.chat.paint import Painter
from remoteclaw.host.terminal import one_line

#: The pictures of the indicator, one after another.
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
#: How long each of them stands, in seconds.
SPIN_S = 0.12
#: How many lines of a plan are shown.
MAX_PLAN = 8


@dataclass(slots=True)
class _Work:
    """What the session does at the moment."""

    since: float
    """When it began, on the screen's clock."""
    tools: Sequence[Mapping[str, Any]] = ()
    plan: Sequence[Mapping[str, Any]] = ()
    tokens: int = 0
    messages: int = 1
    """How many messages it answers."""
    is_live: bool = False
    """Whether a turn is known to run, and not only waited for."""


class Indicator:
    """What is shown while messages wait for their answers, or a turn runs."""

    def __init__(
        self,
        painter: Painter,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._painter = painter
        self._clock = clock
        self._wall = wall
        self._work: _Work | None = None
        self._unanswered: set[str] = set()
        """What was sent and has no outcome yet, by the names that the chat gives it."""
        self._asks: set[str] = set()
        """The requests that wait for the person's answer."""
        self._ahead = 0
        self._lag = 0.0
        """How many seconds this machine's clock is ahead of the gateway's."""

    @property
    def is_busy(self) -> bool:
        """Whether something is going on, so that the indicator moves."""
        return bool(self._unanswered) or self._work is not None

    def waits(self, name: str) -> None:
        """Show, from now on, that an answer is waited for."""
        self._unanswered.add(name)
        if self._work is None:
            self._work = _Work(self._clock())

    def accepted(self, name: str, entry: str, ahead: int) -> None:
        """Note that a message is stored under an entry, with others before it."""
        if name in self._unanswered:
            self._unanswered.discard(name)
            self._unanswered.add(entry)
        self._ahead = ahead

    def answered(self, names: Iterable[str]) -> None:
        """Note that these messages have their outcome."""
        self._unanswered.difference_update(names)
        self._ahead = min(self._ahead, max(len(self._unanswered) - 1, 0))
        if not self._unanswered and self._work and not self._work.is_live:
            self._work = None

    def asks(self, request: str) -> None:
        """Show, until it is closed, that the agent waits for the person."""
        self._asks.add(request)

    def closed(self, request: str) -> None:
        """Note that a request is answered, or is over."""
        self._asks.discard(request)

    def opened(self, *, is_running: bool) -> None:
        """Note whether the session works, after a time in which nothing was heard of it."""
        if not is_running and self._work and self._work.is_live:
            self.ended()

    def live(self, told: Mapping[str, Any]) -> None:
        """Take what is told of a turn that runs."""
        # The clock of this machine may be another one than the agent's.
        self._lag = self._wall() - told.get("at", self._wall() * 1000) / 1000
        begun = self._clock() - max(0.0, self._ago(told.get("since_ms")))
        self._work = self._work or _Work(begun)
        self._work.since = min(self._work.since, begun)
        self._work.is_live = True
        self._work.tools = told.get("activity") or ()
        self._work.plan = told.get("plan") or ()
        self._work.tokens = int(told.get("tokens") or 0)
        self._work.messages = int(told.get("messages") or 1)

    def ended(self) -> None:
        """Note that the turn is over; what has no outcome yet is waited for."""
        self._asks.clear()
        self._work = _Work(self._clock()) if self._unanswered else None

    def lines(self, columns: int) -> list[str]:
        """Return its plan, its tools and its last line, painted."""
        work = self._work or _Work(self._clock())
        elapsed = self._clock() - work.since
        lines = []
        for step in work.plan[:MAX_PLAN]:
            mark = {"completed": "☑", "in_progress": "▸"}.get(str(step.get("state")), "☐")
            lines.append(self._fit(f"  {mark} {step.get('text', '')}", columns))
        running = [tool for tool in work.tools if tool.get("seconds") is None]
        for tool in running or work.tools[-1:]:
            took = tool.get("seconds")
            seconds = self._ago(tool["since_ms"]) if took is None else took
            what = f"  ⎿ {tool['tool']} {tool['argument']}".rstrip()
            lines.append(self._fit(f"{what} ({duration(max(seconds, 0.0))})", columns))
        return [*lines, self._fit(self._last_line(work, elapsed, columns - 1), columns)]

    def _last_line(self, work: _Work, elapsed: float, room: int) -> str:
        """Return how long it takes and what stops it, with as much else as there is room for."""
        spinner = SPINNER[int(elapsed / SPIN_S) % len(SPINNER)]
        words = ["waits for your answer" if self._asks else f"{spinner} {duration(elapsed)}"]
        if work.messages > 1:
            words.append(f"answers {work.messages} messages")
        tokens = [f"{work.tokens:,} tokens"] if work.tokens else []
        ahead = []
        if self._ahead:
            ahead.append(f"{self._ahead} before it" if self._ahead > 1 else "one before it")
        choice = [
            " · ".join(parts)
            for parts in (
                (*words, *tokens, *ahead, "Esc or Ctrl-C stops"),
                (*words, *tokens, *ahead, "Ctrl-C stops"),
                (*words, *ahead, "Ctrl-C stops"),
                (words[0], "Ctrl-C stops"),
            )
        ]
        return next((line for line in choice if len(line) <= room), choice[-1])

    def _ago(self, at_ms: float | None) -> float:
        """Return how many seconds ago something was, which the gateway tells."""
        return 0.0 if at_ms is None else self._wall() - self._lag - at_ms / 1000

    def _fit(self, words: str, columns: int) -> str:
        lead = len(words) - len(words.lstrip())
        words = self._painter.cut(" " * lead + one_line(words), columns - 1)
        return self._painter.styled(words, "dim")


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a turn, as the line below its answer shows it."""

    seconds: float
    tokens: int
    """What was read and written, without what came from the provider's cache."""
    cost_usd: float | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Return what the gateway says that a turn has taken."""
        tokens = told["inputTokens"] + told["cacheWriteTokens"] + told["outputTokens"]
        return cls(told["durationMs"] / 1000, tokens, told["costUsd"])

    def __str__(self) -> str:
        """Return it as words: `12 s · 3,214 tokens · $0.03`."""
        words = [duration(self.seconds), *([f"{self.tokens:,} tokens"] if self.tokens else [])]
        if self.cost_usd:
            words.append(f"${self.cost_usd:.2f}" if self.cost_usd >= 0.01 else "< $0.01")
        return " · ".join(words)


def ending(told: Mapping[str, Any]) -> str:
    """Return what stands below an answer: of how many messages, why it ends so, what it took."""
    count, usage = len(told.get("entries") or ()), told.get("usage")
    words = [
        f"answers {count} messages" if count > 1 else "",
        "interrupted by a newer message" if told.get("status") == "interrupted" else "",
        str(Usage.of(usage)) if usage else "",
    ]
    return " · ".join(filter(None, words))


def duration(seconds: float) -> str:
    """Return a duration as people say it: `4 s`, `2 min 5 s`, `1 h 3 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
