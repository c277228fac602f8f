"""Branches: tasks that begin as a copy of the conversation that starts them."""

from collections.abc import Iterable, Sequence

from remoteclaw.errors import RemoteClawError
from remoteclaw.messages import Entry, Said
from remoteclaw.runtimes import create_cli_runtime

__all__ = ["conversation_now", "copyable"]

#: How much a branch is told of the turn that its conversation is in: the newest messages, and the
#: characters of each.
MOST_MESSAGES, MOST_CHARS = 20, 4000


def copyable(names: Iterable[str], *, is_busy: bool) -> list[str]:
    """Return those conversations, by their names in the session map, that a CLI can copy now.

    One at work is copied by a point behind its last finished turn, where there is such a thing.
    """
    return [name for name in names if _can_fork(name.partition("|")[0], is_busy=is_busy)]


def _can_fork(runtime: str, *, is_busy: bool) -> bool:
    try:
        can = create_cli_runtime(runtime).capabilities
    except RemoteClawError:  # of another version
        return False
    return can.forks and (can.has_points or not is_busy)


def conversation_now(entries: Sequence[Entry]) -> tuple[Said, ...]:
    """Return what a running turn is about, which no copy of its conversation has."""
    return tuple(
        Said(
            name=entry.message.user_name or entry.message.from_,
            id=entry.message.from_ if entry.origin == "chat" else None,
            text=_shortened(entry.message.text),
        )
        for entry in entries[-MOST_MESSAGES:]
    )


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} …"
