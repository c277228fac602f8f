"""Entries that a session writes on another one's stream: messages, and results of tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.fleet.caller import Caller
from remoteclaw.fleet.inbound import encode_entry
from remoteclaw.fleet.lease import Lease
from remoteclaw.fleet.task_tree import owed
from remoteclaw.fleet.turn import TaskResult
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import (
    ChannelMessage,
    Deliver,
    Provenance,
    ReplyPayload,
    SessionKey,
    ToolCall,
    Turn,
    hops_of,
    people_of,
    relays_of,
    via_of,
)
from remoteclaw.tasks.branches import conversation_now


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
    caller: Caller | None,
    parent: SessionKey,
    above: Sequence[SessionKey],
    *,
    is_branch: bool = False,
    knows_conversation: bool = False,
) -> Provenance:
    """Return where a task comes from: its parent, and those `above` it, nearest first.

    All of them get its result, or what comes of that. One that knows its parent's conversation is
    told what that is about now.
    """
    turn = caller.turn if caller else None
    return Provenance(
        by=str(parent),
        via=(*(key.sid for key in reversed(above)), parent.sid),
        hops=turn.hops + 1 if turn else 1,
        relays=turn.relays if turn else 0,
        parent=str(parent),
        branch_of=str(parent) if is_branch else None,
        now=conversation_now(turn.entries) if knows_conversation and turn else (),
    )


#: How much of a result another session gets, in characters.
MAX_RESULT = 100_000
CUT = "(… The rest is left out: sessions_history of {session} has more.)"
NO_RESULT = "(It ended without saying anything.)"
#: What is told of a turn without a complete answer; of how many of its tools, and how much of each
#: one's arguments, in characters.
PARTIAL = "(This is not a complete answer: its status is {status}.)"
PARTIAL_TOOLS = "(This is not a complete answer: its status is {status}. Its last tools:)"
MAX_TOOLS, MAX_INPUT = 10, 300


async def result_of(
    lease: Lease,
    turn: Turn,
    status: str,
    payloads: Sequence[ReplyPayload],
    tools: Sequence[ToolCall],
) -> TaskResult | None:
    """Return the turn's result for the session that has started this one, if it gets one.

    It has all that was answered since that session got a result. Of a turn that ended before its
    answer was complete, it has what was said, and of the `tools` the last ones.
    """
    asked, state = turn.entries[-1], lease.state
    told = asked.provenance.parent if asked.provenance else None
    parent = SessionKey.parse(told) if told else state.parent
    if asked.deliver != "parent" or parent is None:
        return None
    begun_as, earlier = await owed(lease)
    # It goes by the name under which the run was begun, also when it was retried.
    run = f"{lease.sid}-{begun_as or turn.id}"
    answers = [_words(answer) for answer in earlier]
    answers += [_words([in_outcome(payload) for payload in payloads]), _partial(status, tools)]
    message = ChannelMessage(
        id=f"result-{run}",
        text=_cut("\n\n".join(filter(None, answers)), lease.session),
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


def in_outcome(payload: ReplyPayload) -> dict[str, Any]:
    """Return a message as the outcome keeps it, for callers that wait for the reply."""
    said: dict[str, Any] = {"text": payload.text, "is_error": payload.is_error}
    if payload.attachments:
        said["attachments"] = [attachment.model_dump() for attachment in payload.attachments]
    return said


def _words(answer: Sequence[Mapping[str, Any]]) -> str:
    """Return what was said in a turn, as its outcome has it, with the names of its files."""
    text = "\n\n".join(part["text"] for part in answer if part["text"])
    files = [file["name"] for part in answer for file in part.get("attachments", ())]
    if files:
        text += f"\n\n(It also made files, which stay there: {', '.join(files)}.)"
    return text.strip()


def _partial(status: str, tools: Sequence[ToolCall]) -> str:
    """Return what is told of a turn that ended before its answer was complete."""
    if status == "done":
        return ""
    if not tools:
        return PARTIAL.format(status=status)
    lines = [PARTIAL_TOOLS.format(status=status)]
    for call in tools[-MAX_TOOLS:]:
        how = " (not ended)" if call.seconds is None else ""
        lines.append(f"- {one_line(call.name)}{how}: {one_line(call.input, most=MAX_INPUT)}")
    return "\n".join(lines)


def _cut(text: str, session: SessionKey) -> str:
    if len(text) > MAX_RESULT:
        text = f"{text[:MAX_RESULT]}\n\n{CUT.format(session=session)}"
    return text.strip() or NO_RESULT
