"""Entries that a session writes on another one's stream: the message, and where it comes from."""

from collections.abc import Sequence

from remoteclaw.clock import now_ms
from remoteclaw.fleet.caller import Caller
from remoteclaw.messages import ChannelMessage, Provenance, SessionKey

__all__ = ["message_between", "provenance_of_message", "provenance_of_task"]


def message_between(
    sender: SessionKey | None, target: SessionKey, text: str, *, name: str
) -> ChannelMessage:
    """Return a message of a session's agent, or of an operator, to another session.

    `name` is its id: the same one again is the same message. Raises `MessageRefused`.
    """
    return target.message(
        id=name,
        text=text,
        from_=f"session:{sender.sid}" if sender else "operator",
        user_name=f"the session {sender}" if sender else "an operator",
        timestamp=now_ms(),
    )


def provenance_of_message(caller: Caller | None) -> Provenance | None:
    """Return where a message to another session comes from; None for an operator's."""
    if caller is None:
        return None
    assert caller.turn is not None, "it was checked"
    own = caller.session
    via = dict.fromkeys((*caller.turn.via, own.sid))
    return Provenance(by=str(own), via=tuple(via), hops=caller.turn.hops + 1)


def provenance_of_task(
    caller: Caller | None, parent: SessionKey, above: Sequence[SessionKey]
) -> Provenance:
    """Return where a task comes from: its parent, and those `above` it, nearest first.

    All of them get its result, or what comes of that.
    """
    return Provenance(
        by=str(parent),
        via=(*(key.sid for key in reversed(above)), parent.sid),
        hops=caller.turn.hops + 1 if caller and caller.turn else 1,
        parent=str(parent),
    )
