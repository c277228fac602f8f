"""The hand-over: what becomes of a terminal behind which a chat message waits.

Only proof of rest ends it for the message: it says that it is idle, nobody has looked for a while,
and nothing was typed that was not sent.
"""

from dataclasses import dataclass
from typing import Literal

from remoteclaw.protocols.terminal import Activity

#: What is done about it: the terminal is ended so that it can be opened again; nothing yet, because
#: it will be in a moment; or who has written is told why nothing comes.
Verdict = Literal["park", "soon", "tell"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a terminal when a message waits behind it."""

    activity: Activity
    waiting_for: str
    who: str
    """The writer, or else the person who has opened it."""
    viewers: int
    idle_s: float
    """For how long it has been idle."""
    alone_s: float
    """How long it has had no viewer."""
    has_draft: bool
    """Whether something may have been typed that was not sent."""
    same_s: float = 0.0
    """For how long it has done what it does now."""


def decide(standing: Standing, *, handover_s: float) -> Verdict:
    """Return what is done for a message that waits."""
    if standing.activity != "idle" or standing.viewers or standing.has_draft:
        return "tell"
    return "park" if min(standing.idle_s, standing.alone_s) >= handover_s else "soon"


def is_forgotten(standing: Standing, *, idle_s: float, waiting_s: float) -> bool:
    """Whether nobody has needed it for so long that it is ended, to be opened again.

    One that asks something, or doesn't say what it does, has the longer time.
    """
    if standing.viewers or standing.activity == "busy":
        return False
    if standing.activity == "idle":
        return min(standing.alone_s, standing.idle_s) >= idle_s
    return min(standing.alone_s, standing.same_s) >= waiting_s


def waits(standing: Standing) -> str:
    """Return what is said to whom has written a message that waits."""
    return (
        f"A terminal is open ({standing.who}, {_what(standing)}): your message waits. "
        "/take ends it."
    )


def needs_person(waiting_for: str) -> str:
    """Return what a chat is told while the agent waits for a person in its terminal."""
    what = f": {waiting_for}" if waiting_for else ""
    return f"The agent waits for a person in its terminal{what}."


def strayed(other: str) -> str:
    """Return why a terminal was ended that had another session's conversation open."""
    return f"it went to another session's conversation, which `remoteclaw attach {other[:8]}` opens"


def has_strayed(other: str) -> str:
    """Return what the chat of such a terminal is told."""
    return f"The terminal is ended as soon as it rests: {strayed(other)}."


def _what(standing: Standing) -> str:
    if standing.activity == "waiting":
        return "waiting for a person"
    if standing.activity == "idle" and standing.has_draft and not standing.viewers:
        return "with something typed and not sent"
    return "busy, as far as is known" if standing.activity == "unknown" else standing.activity
