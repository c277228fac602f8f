"""The handlers that write to a session: an agent's tool, and the method of operators."""

import contextlib
from collections.abc import AsyncIterator

from remoteclaw.clock import now_ms
from remoteclaw.commands.parse import parse, unescaped
from remoteclaw.commands.table import ALIASES, COMMANDS
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.chat_targets import agent_at
from remoteclaw.gateway.rights import check_sender
from remoteclaw.gateway.session_access import find_session, send_result, session_with_label
from remoteclaw.messages import Attachment, ChannelMessage, ChatPlace, SessionKey
from remoteclaw.tasks.entries import message_between, provenance_of_message
from remoteclaw.tasks.spawn import check_direction, check_hops
from remoteclaw.tools import sessions as contract

TOOL = "sessions_send"
NO_ANSWER_YET = (
    "There is no answer yet: sessions_history has it later. Until then, the same message again "
    "sends nothing, and waits for that answer."
)


async def send_to_session(call: Call, params: contract.SendToSessionParams) -> contract.SendResult:
    """Send a message to a session's agent, and wait for the answer."""
    if call.caller and params.session_key is not None:
        # Checked before the lookup: a turn may not see its parent session, but knows its key.
        with contextlib.suppress(ValueError):
            check_direction(call.caller, SessionKey.parse(params.session_key))
    view = await _target_session(call, params)
    target = view.key
    check_hops(call.config, call.caller)
    if call.caller:
        check_direction(call.caller, target)
    note = {
        "type": "message_sent",
        "tool": TOOL,
        "provider": "session",
        "to": str(target),
        "text": params.message,
        "mediaUrl": None,
        "ts": now_ms(),
    }
    sender = call.caller.session if call.caller else None
    message = message_between(sender, target, params.message, name=f"session-{call.id}")
    timeout_s = min(params.timeout, contract.SEND_WAIT_S)
    # A call that may not wait is refused before the message is sent.
    async with _permission_to_wait(call, view, timeout_s) as may_wait:
        entry_id, is_new = await call.fleet.calls.put_entry(
            call.caller,
            call.id,
            target,
            message,
            effect=note,
            provenance=provenance_of_message(call.caller),
        )
        if is_new:
            call.side_effects.append({**note, "callId": call.id})
        run_id = f"{target.sid}-{entry_id}"
        outcome = None
        if may_wait:
            wait = call.fleet.outcomes.wait
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                outcome = await wait(target.sid, entry_id, timeout_s=timeout_s)
    result = send_result(outcome, session_key=str(target), run_id=run_id)
    if timeout_s == 0 or result.status != "accepted":
        return result
    return result.model_copy(update={"note": NO_ANSWER_YET})


@contextlib.asynccontextmanager
async def _permission_to_wait(
    call: Call, target: SessionView, timeout_s: float
) -> AsyncIterator[bool]:
    """Yield whether a call may wait for an answer.

    Raises `CallRefused` if the target itself waits for the caller.
    """
    if timeout_s == 0:
        yield False
    elif call.caller is None:  # an operator's call occupies no worker
        async with call.waiting():
            yield True
    else:
        own, turn = call.caller.session, call.turn.id
        limit = call.fleet.wait_limit
        async with (
            call.waiting(),
            limit.hold(own.sid, turn, target, timeout_s=timeout_s) as verdict,
        ):
            if verdict == "circle":
                raise CallRefused(
                    "INVALID_REQUEST",
                    f"The session {target.key} waits for this one at the moment, so this one can't "
                    "wait for it: with timeout 0, it gets the message later.",
                )
            yield verdict == "free"


async def _target_session(call: Call, params: contract.SendToSessionParams) -> SessionView:
    """Return the session that a message is for, by its key or its label. Raises `CallRefused`."""
    if params.label is None and params.session_key is not None:
        return await find_session(call, params.session_key)
    if params.session_key is None and params.label is not None:
        return await session_with_label(call, params.label)
    raise CallRefused("INVALID_REQUEST", "sessions_send: name the session by sessionKey or label.")


async def write(call: Call, params: contract.WriteParams) -> contract.Written:
    """Send a message to a session as an operator, or to an agent as a sender."""
    if params.session_key is None:
        return await _write_as_sender(call, params)
    own = {"session_key", "message", "to_caller"}
    if others := params.model_dump(exclude=own, exclude_unset=True, by_alias=True):
        names = ", ".join(others)
        raise CallRefused(
            "INVALID_REQUEST",
            f"sessions.write: {names} can't be set with sessionKey: an operator's message is text.",
        )
    if not params.to_caller and not call.operator.has("admin"):
        raise CallRefused(
            "FORBIDDEN",
            "sessions.write needs a token with the scope admin to write in a chat; this one has "
            f"{call.operator.scope}: with toCaller, only the caller gets the answer.",
        )
    view = await find_session(call, params.session_key)
    target = view.key
    if target.task is not None:
        raise CallRefused(
            "INVALID_REQUEST",
            "This session works on a task and takes no messages: write in the session that gave it "
            "the task.",
        )
    command = parse(params.message)
    if command and command.name in {*COMMANDS, *ALIASES}:
        raise CallRefused(
            "INVALID_REQUEST",
            f"/{command.name} was not sent: only people in the chat can use commands. Put another "
            "slash in front to send it to the agent as a message.",
        )
    name = call.operator.name
    who = f"{name} on the page" if call.is_from_page else f"the operator {name}"
    message = target.message(
        id=f"written-{call.id}",
        text=unescaped(params.message),
        from_="operator",
        user_name=who,
        timestamp=now_ms(),
    )
    entry_id, _ = await call.fleet.calls.put_entry(
        None,
        call.id,
        target,
        message,
        effect=None,
        provenance=None,
        deliver="caller" if params.to_caller else "channel",
        people=call.people(target),
    )
    return contract.Written(session_key=str(target), run_id=f"{target.sid}-{entry_id}", who=who)


async def _write_as_sender(call: Call, params: contract.WriteParams) -> contract.Written:
    """Send a message to an agent, as a channel's adapter does."""
    if params.channel is None or params.from_ is None:
        raise CallRefused(
            "INVALID_REQUEST",
            "sessions.write: name the session by sessionKey, or the sender by channel and from.",
        )
    if params.to_caller:
        raise CallRefused(
            "INVALID_REQUEST", "sessions.write: toCaller is for messages to a sessionKey."
        )
    to = params.from_ if params.to is None else params.to
    place = ChatPlace(params.channel, params.account, to)
    name = await agent_at(call, params.agent_id, place, is_group=to != params.from_)
    message = ChannelMessage.checked(
        # A repeated call sends the same message.
        id=params.message_id or f"call-{call.id}",
        text=params.message,
        from_=params.from_,
        channel_id=to,
        provider=params.channel,
        account=params.account,
        thread_id=params.thread_id,
        timestamp=now_ms(),
        attachments=tuple(Attachment(**file.model_dump()) for file in params.files),
    )
    check_sender(call.config, call.operator, SessionKey.of(message, agent=name))
    accepted = await call.fleet.inbound.append(
        message,
        agent=name,
        deliver="caller",
        lane="background" if params.is_background else "agents",
    )
    return contract.Written(
        session_key=str(accepted.session),
        run_id=f"{accepted.session.sid}-{accepted.entry_id}",
        is_duplicate=accepted.is_duplicate,
    )
