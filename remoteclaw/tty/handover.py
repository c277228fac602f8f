"""The hand-over of a session from an open terminal to a chat message that waits for it.

The terminal is ended for the message only if it is surely idle: its program reports that it is
idle, it has had no viewer for a while, and no typed text is unsent.
"""

from dataclasses import dataclass
from typing import Literal

from remoteclaw.protocols.terminal import Activity

#: "park" ends the terminal, which can be opened again later. "soon" does nothing yet, because the
#: terminal will be parked in a moment. "notify" tells the sender why the message waits.
Verdict = Literal["park", "soon", "notify"]


@dataclass(frozen=True, slots=True)
class TerminalStatus:
    """The facts about a terminal that decide whether it is ended."""

    activity: Activity
    waiting_for: str
    user: str
    """The user who types in it, or else the one who opened it."""
    viewers: int
    idle_s: float
    """For how long it has been idle."""
    unwatched_s: float
    """For how long it has had no viewer."""
    has_draft: bool
    """Whether there may be typed text that was not sent."""
    unchanged_s: float = 0.0
    """For how long its activity has been the current one."""
    quiet_s: float = 0.0
    """For how long the program has written nothing, and nobody has typed."""
    has_new_process: bool = True
    """Whether a process runs that the program didn't have when it was last known to be idle."""
    draft: str = ""
    """The text that is typed and not sent, as the screen shows it."""


def decide(status: TerminalStatus, *, handover_s: float) -> Verdict:
    """Return how to treat a message that waits for the terminal to end.

    The terminal is parked after `handover_s` seconds without activity and viewers.
    """
    if status.activity != "idle" or status.viewers or status.has_draft:
        return "notify"
    return "park" if min(status.idle_s, status.unwatched_s) >= handover_s else "soon"


def is_abandoned(status: TerminalStatus, *, idle_s: float, waiting_s: float) -> bool:
    """Whether a terminal has been unused for so long that it is parked.

    The limit is `idle_s` for an idle terminal, and for one that a person has left in a menu or
    with a draft; it is the longer `waiting_s` for one that waits for a person or may be at work.
    """
    if status.viewers or status.activity == "busy":
        return False
    if status.activity == "idle":
        return min(status.unwatched_s, status.idle_s) >= idle_s
    if status.activity == "unknown" and not status.has_new_process:
        return min(status.unwatched_s, status.quiet_s) >= idle_s
    return min(status.unwatched_s, status.unchanged_s) >= waiting_s


def waiting_notice(status: TerminalStatus) -> str:
    """Return the notice to the sender of a message that waits for the terminal to end."""
    return (
        f"A terminal is open ({status.user}, {_state_of(status)}): your message waits. "
        "/take ends it."
    )


def needs_person_notice(waiting_for: str) -> str:
    """Return the notice to a chat whose agent waits for a person in its terminal."""
    detail = f": {waiting_for}" if waiting_for else ""
    return f"The agent waits for a person in its terminal{detail}."


def draft_notice(draft: str) -> str:
    """Return the notice to the chat of a terminal that was parked with unsent text."""
    return (
        f"The terminal was closed, because nobody used it. This was typed and not sent:\n\n{draft}"
    )


def stray_reason(other: str) -> str:
    """Return why a terminal is ended that has opened the conversation of the session `other`."""
    return f"it went to another session's conversation, which `remoteclaw attach {other[:8]}` opens"


def stray_notice(other: str) -> str:
    """Return the notice to the chat of a terminal that will be ended for `stray_reason()`."""
    return f"The terminal is ended as soon as it is idle: {stray_reason(other)}."


def _state_of(status: TerminalStatus) -> str:
    if status.activity == "waiting":
        return "waiting for a person"
    if status.activity == "idle" and status.has_draft and not status.viewers:
        return "with something typed and not sent"
    return "busy, as far as is known" if status.activity == "unknown" else status.activity
