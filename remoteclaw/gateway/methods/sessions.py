"""Handlers of sessions: the list, their history and status, and messages to them."""

import bisect
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.search import MAX_LOOKED_AT
from remoteclaw.gateway.session_access import answered, current, find, labelled, may_see
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import SessionKey
from remoteclaw.session.record import read_lines
from remoteclaw.tasks.entries import message_between, provenance_of_message
from remoteclaw.tasks.spawn import check_direction, check_hops
from remoteclaw.tools import sessions as contract
from remoteclaw.tools.base import NoParams

#: The longest text of one item of a history, in characters: a little more than a record has.
MAX_CHARS = 8100
#: The same of what a tool gave back, for an agent: it reads all that it is told.
MAX_OF_TOOL = 300
#: What agents are not told of what is recorded.
FOR_PEOPLE = ("turn", "id", "argument", "input", "is_error", "since_ms", "seconds", "steps")
TOOL = "sessions_send"
NO_ANSWER_YET = (
    "There is no answer yet: sessions_history has it later. The same message again sends nothing."
)


async def _list(call: Call, params: contract.ListParams) -> contract.SessionsResult:
    found: list[SessionView] = []
    for view in await call.fleet.sessions.list(limit=MAX_LOOKED_AT):
        if view.is_called(params.filter or "") and await may_see(call, view):
            found.append(view)
            if len(found) > params.limit:
                break
    told = tuple(
        contract.SessionSummary.of(
            view,
            **facts_of(view),
            is_self=view.key == call.session,
        )
        for view in found[: params.limit]
    )
    return contract.SessionsResult(sessions=told, is_complete=len(found) <= params.limit)


def facts_of(view: SessionView) -> dict[str, Any]:
    """Return what every method that is about sessions tells of one."""
    return {
        "key": str(view.key),
        "id": view.sid,
        "agent": view.key.agent,
        "channel": view.key.provider,
        "state": view.shown_status,
        "waiting": view.waiting,
        "last_message_ms": view.last_message_ms,
    }


async def _history(call: Call, params: contract.HistoryParams) -> contract.HistoryResult:
    view = await find(call, params.session_key)
    record = await call.fleet.records.of(view.sid)
    return history_of(view, record, params, for_agent=call.caller is not None)


def history_of(
    view: SessionView, record: bytes, params: contract.HistoryParams, *, for_agent: bool = False
) -> contract.HistoryResult:
    """Return a page of a record; an agent is told less of it."""
    items = [_item(line, for_agent=for_agent) for line in read_lines(record)]
    if for_agent:
        items = [item for item in items if item.role not in ("plan", "notice")]
    # A message that came during a turn stands behind its answer, and is older: by when it was
    # answered at the earliest, they are in order.
    moments = list(itertools.accumulate((item.at for item in items), max))
    end = bisect.bisect_left(moments, params.before) if params.before else len(items)
    first = max(end - params.limit, 0)
    # All of a moment stand on one page, or the next one would leave some out.
    first = bisect.bisect_left(moments, moments[first]) if first else 0
    return contract.HistoryResult(
        session_key=str(view.key),
        items=tuple(items[first:end]),
        before=moments[first] if first else None,
    )


def _item(recorded: Mapping[str, Any], *, for_agent: bool) -> contract.HistoryItem:
    role = str(recorded.get("role", ""))
    text = str(recorded.get("text") or recorded.get("output") or "")
    most = MAX_OF_TOOL if for_agent and role == "tool" else MAX_CHARS
    return contract.HistoryItem(
        at=int(recorded.get("at") or 0),
        role=role,
        text=shortened(text, most),
        from_=recorded.get("from"),
        from_id=recorded.get("from_id"),
        tool=recorded.get("name"),
        **({} if for_agent else {name: recorded.get(name) for name in FOR_PEOPLE}),
    )


async def _status(call: Call, params: contract.StatusParams) -> contract.StatusResult:
    view = await (find(call, params.session_key) if params.session_key else current(call))
    return contract.StatusResult(
        **facts_of(view),
        turn=f"{view.sid[:8]}-{view.turn}" if view.turn else None,
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


async def _send(call: Call, params: contract.SendParams) -> contract.SendResult:
    if call.caller and params.session_key is not None:
        # Before it is looked for: a turn knows whom it works for, and may not see more of them.
        with contextlib.suppress(ValueError):
            check_direction(call.caller, SessionKey.parse(params.session_key))
    view = await _target(call, params)
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
    call_id = await _unanswered(call, target, params.message) or call.id
    # Whether it can wait is known before anything is sent: a failure then has sent nothing.
    async with _waiting(call, view, timeout_s) as may_wait:
        entry_id = await call.fleet.calls.entry(
            call.caller,
            call_id,
            target,
            message,
            note=note,
            provenance=provenance_of_message(call.caller),
        )
        call.side_effects.append({**note, "callId": call_id})
        run_id = f"{target.sid}-{entry_id}"
        outcome = None
        if may_wait:
            wait = call.fleet.outcomes.wait
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                outcome = await wait(target.sid, entry_id, timeout_s=timeout_s)
    result = answered(outcome, session_key=str(target), run_id=run_id)
    if timeout_s == 0 or result.status != "accepted":
        return result
    return result.model_copy(update={"note": NO_ANSWER_YET})


async def _unanswered(call: Call, target: SessionKey, text: str) -> str | None:
    """Return the call by which this turn sent a session the same message, if it has no answer yet.

    A model that got no answer in time asks again; then it waits for the answer to the first call.
    """
    if call.caller is None:
        return None
    for note in await call.fleet.calls.side_effects(call.caller):
        if (note.get("tool"), note.get("to"), note.get("text")) != (TOOL, str(target), text):
            continue
        made = await call.fleet.calls.made(call.caller, note["callId"])
        outcome = made and await call.fleet.outcomes.read(target.sid, made[0])
        if outcome and not outcome.is_final:
            return str(note["callId"])
    return None


@contextlib.asynccontextmanager
async def _waiting(call: Call, target: SessionView, timeout_s: float) -> AsyncIterator[bool]:
    """Yield whether a call may wait for an answer; raises `CallRefused` if none can come."""
    if timeout_s == 0:
        yield False
    elif call.caller is None:  # it holds no worker
        yield True
    else:
        own, turn = call.caller.session, call.turn.id
        async with call.fleet.wait_limit.hold(
            own.sid, turn, target, timeout_s=timeout_s
        ) as verdict:
            if verdict == "circle":
                raise CallRefused(
                    "INVALID_REQUEST",
                    f"The session {target.key} waits for this one at the moment, so it can't be "
                    "waited for: with timeout 0, it gets the message later.",
                )
            yield verdict == "free"


async def _target(call: Call, params: contract.SendParams) -> SessionView:
    """Return the session that a message is for: by its key, or by its label."""
    if params.label is None and params.session_key is not None:
        return await find(call, params.session_key)
    if params.session_key is None and params.label is not None:
        return await labelled(call, params.label)
    raise CallRefused(
        "INVALID_REQUEST", "sessions_send: say which session: give sessionKey or label."
    )


HANDLERS: dict[str, Handler] = {
    "sessions.list": _list,
    "chat.history": _history,
    "sessions.send": _send,
    "sessions.status": _status,
    "agents.list": _agents,
}
