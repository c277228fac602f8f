"""Entries that a session writes on another one's stream: messages, and results of tasks."""

from collections.abc import Sequence

from remoteclaw.clock import now_ms
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.inbound import encode_entry
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.turn import TaskResult
from remoteclaw.messages import (
    ChannelMessage,
    Deliver,
    Provenance,
    ReplyPayload,
    SessionKey,
    Turn,
    hops_of,
    people_of,
    relays_of,
    via_of,
)

__all__ = ["message_between", "provenance_of_message", "provenance_of_task", "result_of"]


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
    turn = caller.turn
    return Provenance(by=str(own), via=tuple(via), hops=turn.hops + 1, relays=turn.relays)


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
        relays=caller.turn.relays if caller and caller.turn else 0,
        parent=str(parent),
    )


#: How much of a result another session gets, in characters.
MOST_RESULT = 100_000
CUT = "(… The rest is left out: sessions_history of {session} has more.)"
NO_RESULT = "(It ended without saying anything.)"


def result_of(
    lease: Lease, turn: Turn, status: str, payloads: Sequence[ReplyPayload]
) -> TaskResult | None:
    """Return the turn's result for the session that has started this one, if it gets one."""
    asked, state = turn.entries[-1], lease.state
    told = asked.provenance.parent if asked.provenance else None
    parent = SessionKey.parse(told) if told else state.parent
    if asked.deliver != "parent" or parent is None:
        return None
    # It goes by the name under which the task was begun, also when it was retried.
    run = f"{lease.sid}-{state.task_entry or turn.id}"
    message = ChannelMessage(
        id=f"result-{run}",
        text=_text_of(payloads, lease.session),
        from_=f"session:{lease.sid}",
        user_name=f"the session {lease.session}",
        channel_id=parent.channel_id,
        provider=parent.provider,
        account=parent.account,
        thread_id=parent.thread,
        timestamp=now_ms(),
    )
    provenance = Provenance(
        by=str(lease.session),
        via=tuple(sid for sid in via_of(turn.entries) if sid != parent.sid),
        hops=hops_of(turn.entries) + 1,
        relays=relays_of(turn.entries) + 1,
        run=run,
        status=status,
        label=state.label,
    )
    deliver: Deliver = "parent" if parent.task else "channel"
    people = people_of(turn.entries)
    return TaskResult(parent, encode_entry(message, deliver, "result", provenance, people))


def _text_of(payloads: Sequence[ReplyPayload], session: SessionKey) -> str:
    text = "\n\n".join(payload.text for payload in payloads if payload.text)
    files = [file.name for payload in payloads for file in payload.attachments]
    if files:
        text += f"\n\n(It also made files, which stay there: {', '.join(files)}.)"
    if len(text) > MOST_RESULT:
        text = f"{text[:MOST_RESULT]}\n\n{CUT.format(session=session)}"
    return text.strip() or NO_RESULT
