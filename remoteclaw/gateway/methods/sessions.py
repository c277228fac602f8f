"""Handlers of sessions: their list, history and status, and messages to them."""

import bisect
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.search import MAX_SESSIONS
from remoteclaw.gateway.session_access import (
    current_session,
    find_session,
    may_see,
    send_result,
    session_with_label,
)
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import SessionKey, reference
from remoteclaw.session.record import current_record, read_lines
from remoteclaw.tasks.entries import message_between, provenance_of_message
from remoteclaw.tasks.spawn import check_direction, check_hops
from remoteclaw.tools import sessions as contract
from remoteclaw.tools.base import NoParams

#: The maximum length of an item's text in a history, in characters: a little more than in a record.
MAX_ITEM_CHARS = 8100
#: The same for the output of a tool, in histories for agents, which the model has to read.
MAX_AGENT_TOOL_CHARS = 300
#: The recorded fields that only operators receive.
OPERATOR_FIELDS = (
    *("turn", "id", "argument", "input", "is_error", "since_ms", "seconds", "steps"),
    "is_terminal",
)
TOOL = "sessions_send"
NO_ANSWER_YET = (
    "There is no answer yet: sessions_history has it later. Until then, the same message again "
    "sends nothing, and waits for that answer."
)


async def _list(call: Call, params: contract.ListSessionsParams) -> contract.SessionsResult:
    views: list[SessionView] = []
    for view in await call.fleet.sessions.list(limit=MAX_SESSIONS):
        if view.matches(params.filter or "") and await may_see(call, view):
            views.append(view)
            if len(views) > params.limit:
                break
    sessions = tuple(
        contract.SessionSummary.of(
            view,
            **common_fields(view),
            is_self=view.key == call.session,
        )
        for view in views[: params.limit]
    )
    return contract.SessionsResult(sessions=sessions, is_complete=len(views) <= params.limit)


def common_fields(view: SessionView) -> dict[str, Any]:
    """Return the fields that all results about sessions have in common."""
    return {
        "key": str(view.key),
        "id": view.sid,
        "agent": view.key.agent,
        "channel": view.key.provider,
        "state": view.shown_status,
        "waiting": view.waiting,
        "last_message_ms": view.last_message_ms,
    }


def pause_of(view: SessionView) -> dict[str, Any]:
    """Return the fields of results about a session whose messages may be postponed."""
    return dict(contract.PauseFacts.of(view))


async def _history(call: Call, params: contract.SessionHistoryParams) -> contract.HistoryResult:
    view = await find_session(call, params.session_key)
    record = await current_record(call.fleet, view.sid)
    return history_of(view, record, params, for_agent=call.caller is not None)


def history_of(
    view: SessionView,
    record: bytes,
    params: contract.SessionHistoryParams,
    *,
    for_agent: bool = False,
) -> contract.HistoryResult:
    """Return a page of a record, shortened if it is `for_agent`."""
    items = [_item(line, for_agent=for_agent) for line in read_lines(record)]
    if for_agent:
        items = [item for item in items if item.role not in ("plan", "notice")]
    # A message that arrived during a turn is recorded after the turn's answer, with an older time.
    # So pages are cut by the running maximum of the times, which is in order.
    moments = list(itertools.accumulate((item.at for item in items), max))
    end = bisect.bisect_left(moments, params.before) if params.before else len(items)
    first = max(end - params.limit, 0)
    # Items of one moment are on one page, because the next page ends before that moment.
    first = bisect.bisect_left(moments, moments[first]) if first else 0
    return contract.HistoryResult(
        session_key=str(view.key),
        items=tuple(items[first:end]),
        before=moments[first] if first else None,
    )


def _item(recorded: Mapping[str, Any], *, for_agent: bool) -> contract.HistoryItem:
    role = str(recorded.get("role", ""))
    text = str(recorded.get("text") or recorded.get("output") or "")
    max_chars = MAX_AGENT_TOOL_CHARS if for_agent and role == "tool" else MAX_ITEM_CHARS
    return contract.HistoryItem(
        at=int(recorded.get("at") or 0),
        role=role,
        text=shortened(text, max_chars),
        from_=recorded.get("from"),
        from_id=recorded.get("from_id"),
        tool=recorded.get("name"),
        **({} if for_agent else {name: recorded.get(name) for name in OPERATOR_FIELDS}),
    )


async def _status(call: Call, params: contract.StatusParams) -> contract.StatusResult:
    view = await (
        find_session(call, params.session_key) if params.session_key else current_session(call)
    )
    return contract.StatusResult(
        **common_fields(view),
        turn=reference(view.sid, view.turn) if view.turn else None,
        phase=view.phase,
        host=view.host,
    )


async def _agents(call: Call, params: NoParams) -> contract.AgentsResult:
    own = call.session.agent if call.session else None
    return contract.AgentsResult(
        agents=tuple(
            contract.AgentSummary(
                id=name,
                runtime=settings.runtime or "the first that is installed",
                model=settings.model,
                is_self=name == own,
            )
            for name, settings in call.config.agents.items()
        )
    )


async def _send(call: Call, params: contract.SendToSessionParams) -> contract.SendResult:
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
            note=note,
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


HANDLERS: dict[str, Handler] = {
    "sessions.list": _list,
    "sessions.history": _history,
    "sessions.send": _send,
    "sessions.status": _status,
    "agents.list": _agents,
}
