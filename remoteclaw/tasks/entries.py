"""Entries that a session appends to another session's stream: messages and results of tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.fleet.sessions.task_tree import unreported_replies
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.fleet.turns.inbound import encode_entry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import TaskResult
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import (
    ChannelMessage,
    Deliver,
    Provenance,
    ReplyPayload,
    SessionKey,
    ToolCall,
    Turn,
    has_read_web,
    hops_of,
    payers_of,
    people_of,
    relays_of,
    via_of,
)
from remoteclaw.tasks.branches import quoted_messages


def message_between(
    sender: SessionKey | None, target: SessionKey, text: str, *, name: str
) -> ChannelMessage:
    """Return a message to `target` from the agent of `sender`; from an operator if that is None.

    `name` is the message's id; a message with the same id counts once. Raises `MessageRefused`.
    """
    return target.message(
        id=name,
        text=text,
        from_=f"session:{sender.sid}" if sender else "operator",
        user_name=f"the session {sender}" if sender else "an operator",
        timestamp=now_ms(),
    )


def provenance_of_message(caller: Caller | None) -> Provenance | None:
    """Return the origin of a message to another session; None for an operator's message."""
    if caller is None:
        return None
    assert caller.turn is not None, "the caller was checked"
    own = caller.session
    via = dict.fromkeys((*caller.turn.via, own.sid))
    turn = caller.turn
    return Provenance(
        by=str(own),
        via=tuple(via),
        hops=turn.hops + 1,
        relays=turn.relays,
        payers=payers_of(turn.entries),
        has_read_web=turn.has_read_web,
    )


def provenance_of_task(
    caller: Caller | None,
    parent: SessionKey,
    above: Sequence[SessionKey],
    *,
    is_branch: bool = False,
    knows_conversation: bool = False,
) -> Provenance:
    """Return the origin of a task: its `parent`, and the sessions `above` that, nearest first.

    All of them wait for the task's result. A task that `knows_conversation` also gets the messages
    that the parent's running turn answers.
    """
    turn = caller.turn if caller else None
    return Provenance(
        by=str(parent),
        via=(*(key.sid for key in reversed(above)), parent.sid),
        hops=turn.hops + 1 if turn else 1,
        relays=turn.relays if turn else 0,
        parent=str(parent),
        branch_of=str(parent) if is_branch else None,
        now=quoted_messages(turn.entries) if knows_conversation and turn else (),
        payers=payers_of(turn.entries) if turn else (),
        has_read_web=turn is not None and turn.has_read_web,
    )


#: The text of a result is cut to this many characters.
MAX_RESULT_CHARS = 100_000
CUT = "(… The rest is left out: sessions_history of {session} has more.)"
NO_RESULT = "(It ended without saying anything.)"
#: The notes in the result of a turn without a complete answer.
PARTIAL = "(This is not a complete answer: its status is {status}.)"
PARTIAL_TOOLS = "(This is not a complete answer: its status is {status}. Its last tools:)"
#: Such a result lists at most this many tool calls, the last ones, and the arguments of each cut to
#: this many characters.
MAX_TOOLS, MAX_INPUT_CHARS = 10, 300


async def result_of(
    lease: Lease,
    turn: Turn,
    status: str,
    payloads: Sequence[ReplyPayload],
    tools: Sequence[ToolCall],
) -> TaskResult | None:
    """Return the result of `turn` for the parent session; None if no session waits for one.

    The result contains all replies since the previous result. If the turn ended before its answer
    was complete, it contains the partial answer and the last of the `tools`.
    """
    last, state = turn.entries[-1], lease.state
    parent_key = last.provenance.parent if last.provenance else None
    parent = SessionKey.parse(parent_key) if parent_key else state.parent
    if last.deliver != "parent" or parent is None:
        return None
    first_entry, earlier = await unreported_replies(lease)
    # A run keeps the id with which it began, also when it is retried.
    run = f"{lease.sid}-{first_entry or turn.id}"
    answers = [_text_of(reply) for reply in earlier]
    answers += [_text_of([in_outcome(payload) for payload in payloads]), _partial(status, tools)]
    message = parent.message(
        id=f"result-{run}",
        text=_cut("\n\n".join(filter(None, answers)), lease.session),
        from_=f"session:{lease.sid}",
        user_name=f"the session {lease.session}",
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
        payers=payers_of(turn.entries),
        # Also that of an earlier turn, whose reply the result may have.
        has_read_web=state.web_turn is not None or has_read_web(turn.entries),
    )
    deliver: Deliver = "parent" if parent.task else "channel"
    people = people_of(turn.entries)
    return TaskResult(parent, encode_entry(message, deliver, "result", provenance, people))


def in_outcome(payload: ReplyPayload) -> dict[str, Any]:
    """Return a message in the form of the outcome, for callers that wait for the reply."""
    message: dict[str, Any] = {"text": payload.text, "is_error": payload.is_error}
    if payload.attachments:
        message["attachments"] = [attachment.model_dump() for attachment in payload.attachments]
    return message


def _text_of(reply: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a reply, in the form of the outcome, with the names of its files."""
    text = "\n\n".join(part["text"] for part in reply if part["text"])
    files = [file["name"] for part in reply for file in part.get("attachments", ())]
    if files:
        text += f"\n\n(It also made files, which stay there: {', '.join(files)}.)"
    return text.strip()


def _partial(status: str, tools: Sequence[ToolCall]) -> str:
    """Return the note about a turn that ended before its answer was complete; else nothing."""
    if status == "done":
        return ""
    if not tools:
        return PARTIAL.format(status=status)
    lines = [PARTIAL_TOOLS.format(status=status)]
    for call in tools[-MAX_TOOLS:]:
        how = " (not ended)" if call.seconds is None else ""
        arguments = one_line(call.input, max_chars=MAX_INPUT_CHARS)
        lines.append(f"- {one_line(call.name)}{how}: {arguments}")
    return "\n".join(lines)


def _cut(text: str, session: SessionKey) -> str:
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n\n{CUT.format(session=session)}"
    return text.strip() or NO_RESULT
