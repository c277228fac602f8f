"""Limits on sessions that set each other going: how far down, how often, and in which direction."""

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.messages import SessionKey

__all__ = ["check_depth", "check_direction", "check_hops"]


def check_depth(config: Config, parent: SessionView) -> None:
    """Refuse a task to a session that is too far down."""
    if parent.depth >= config.sessions.max_depth:
        raise CallRefused(
            "FORBIDDEN",
            "A session this far down can't start another one (max_depth in [sessions]).",
        )


def check_hops(config: Config, caller: Caller | None) -> None:
    """Refuse to set another turn going after too many in a row without a person."""
    if caller and caller.turn and caller.turn.hops >= config.sessions.max_hops:
        raise CallRefused(
            "FORBIDDEN",
            f"Sessions have set each other going {caller.turn.hops} times in a row: a person has "
            "to write something first (max_hops in [sessions]).",
        )


def check_direction(caller: Caller, target: SessionKey) -> None:
    """Refuse a message to oneself, and to a session that waits for this one, even indirectly."""
    assert caller.turn is not None, "it was checked"
    if target == caller.session:
        raise CallRefused(
            "INVALID_REQUEST", "That is this session itself: it would wait for its own turn."
        )
    if target == caller.parent or target.sid in caller.turn.via:
        raise CallRefused(
            "INVALID_REQUEST",
            f"The session {target} waits for what comes of this turn, or gets it: what you answer "
            "goes there by itself.",
        )
