"""The line below an answer: how many messages it answers, why it ended, and what it took."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["Usage", "duration", "ending"]


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
