"""What can be asked of sessions: which there are, what was said; and a message to one of them."""

import bisect
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from remoteclaw.config import tool_policy
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable, UnknownSession
from remoteclaw.fleet.outcomes import Outcome
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.messages import ChannelMessage, Provenance, SessionKey
from remoteclaw.tools import sessions as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS", "answered", "check_hops", "find", "message_to", "now_ms", "provenance_of"]

#: How many sessions are looked at for a list at most.
MOST_LOOKED_AT = 1000
#: How much of one item of a history is told, in characters.
MOST_CHARS = 8000
TOOL = "sessions_send"
STILL_WORKING = (
    "There is no answer yet: its agent goes on with it. sessions_history has the answer later. The "
    "same message again sends nothing, and waits for this answer."
)
NO_WORKER = (
    "It was not waited for: as many turns wait already as there are workers, but one, so nobody "
    "would be left to answer. sessions_history has its answer later."
)


async def find(call: Call, named: str) -> SessionView:
    """Return a session that the caller may see; for others it is as if there were none."""
    view = None
    try:
        view = await call.fleet.sessions.view(await call.fleet.sessions.find(named))
    except UnknownSession:
        if call.caller is None:
            raise
    if view is None or not await _may_see(call, view):
        raise CallRefused("NOT_FOUND", f"There is no session {named!r} that this agent may see.")
    return view


async def _may_see(call: Call, view: SessionView) -> bool:
    if call.caller is None:
        return True
    own = call.caller.session
    above = await call.fleet.sessions.above(view) if view.parent else ()
    is_owner = call.caller.turn is not None and is_for_owner(call.config, call.caller)
    return tool_policy.may_see(call.config, own, view.key, above=above, is_owner=is_owner)


async def _own(call: Call, named: str | None) -> SessionView:
    """Return the named session, else the one that the call is about."""
    if named is None and call.session is None:
        raise CallRefused("INVALID_REQUEST", "Say which session: sessionKey is missing.")
    return await find(call, named or str(call.session))


async def _sees_parent(call: Call, view: SessionView) -> bool:
    assert view.parent is not None, "it has one"
    parent = await call.fleet.sessions.view(view.parent.sid)
    return parent is not None and await _may_see(call, parent)


async def _list(call: Call, params: contract.ListParams) -> contract.SessionsResult:
    wanted = (params.filter or "").casefold()
    found: list[SessionView] = []
    for view in await call.fleet.sessions.list(limit=MOST_LOOKED_AT):
        names = f"{view.key} {view.label or ''}".casefold()
        if wanted in names and await _may_see(call, view):
            found.append(view)
            if len(found) > params.limit:
                break
    parents = {
        view.sid: str(view.parent)
        for view in found
        if view.parent and await _sees_parent(call, view)
    }
    told = tuple(
        contract.SessionSummary(
            key=str(view.key),
            id=view.sid,
            agent=view.key.agent,
            channel=view.key.provider,
            state=view.status,
            waiting=view.waiting,
            last_message_ms=view.last_message_ms,
            is_self=view.key == call.session,
            label=view.label,
            parent=parents.get(view.sid),
        )
        for view in found[: params.limit]
    )
    return contract.SessionsResult(sessions=told, is_complete=len(found) <= params.limit)


async def _history(call: Call, params: contract.HistoryParams) -> contract.HistoryResult:
    view = await find(call, params.session_key)
    lines = (await call.fleet.sessions.record(view.sid)).splitlines()
    items = [_item(orjson.loads(line)) for line in lines]
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


def _item(recorded: Mapping[str, Any]) -> contract.HistoryItem:
    text = str(recorded.get("text") or recorded.get("output") or "")
    return contract.HistoryItem(
        at=int(recorded.get("at") or 0),
        role=str(recorded.get("role", "")),
        text=text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} …",
        from_=recorded.get("from"),
        from_id=recorded.get("from_id"),
        tool=recorded.get("name"),
    )


async def _status(call: Call, params: contract.StatusParams) -> contract.StatusResult:
    view = await _own(call, params.session_key)
    return contract.StatusResult(
        key=str(view.key),
        id=view.sid,
        agent=view.key.agent,
        channel=view.key.provider,
        state=view.status,
        waiting=view.waiting,
        last_message_ms=view.last_message_ms,
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
            _check_direction(call, SessionKey.parse(params.session_key))
    view = await _target(call, params)
    target = view.key
    check_hops(call)
    if call.caller:
        _check_direction(call, target)
    note = {
        "type": "message_sent",
        "tool": TOOL,
        "provider": "session",
        "to": str(target),
        "text": params.message,
        "mediaUrl": None,
        "ts": now_ms(),
    }
    message = message_to(call, target, params.message)
    timeout_s = min(params.timeout, contract.SEND_WAIT_S)
    call_id = await _unanswered(call, target, params.message) or call.id
    # Whether it can wait is known before anything is sent: a failure then has sent nothing.
    async with _waiting(call, view, timeout_s) as may_wait:
        entry_id = await call.fleet.effects.entry(
            call.caller, call_id, target, message, note=note, provenance=provenance_of(call)
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
    return result.model_copy(update={"note": STILL_WORKING if may_wait else NO_WORKER})


async def _unanswered(call: Call, target: SessionKey, text: str) -> str | None:
    """Return the call by which this turn has sent a session the same, if no answer came yet.

    A model that was told of no answer in time asks again: it waits for the first one's answer.
    """
    if call.caller is None:
        return None
    for note in await call.fleet.effects.noted(call.caller):
        if (note.get("tool"), note.get("to"), note.get("text")) != (TOOL, str(target), text):
            continue
        made = await call.fleet.effects.made(call.caller, note["callId"])
        outcome = made and await call.fleet.outcomes.read(target.sid, made[0])
        if outcome and not outcome.is_final:
            return str(note["callId"])
    return None


@contextlib.asynccontextmanager
async def _waiting(call: Call, target: SessionView, timeout_s: float) -> AsyncIterator[bool]:
    """Whether a call may wait for an answer. Raises `CallRefused` for one that would never come."""
    if timeout_s == 0:
        yield False
    elif call.caller is None:  # it holds no worker
        yield True
    else:
        own, turn = call.caller.session, call.turn.id
        async with call.fleet.waits.one(own.sid, turn, target, timeout_s=timeout_s) as verdict:
            if verdict == "circle":
                raise CallRefused(
                    "INVALID_REQUEST",
                    f"The session {target.key} waits for this one at the moment, so it can't be "
                    "waited for: with timeout 0, it gets the message later.",
                )
            yield verdict == "free"


async def _target(call: Call, params: contract.SendParams) -> SessionView:
    """Return the session that a message is for: by its key, or by its label."""
    if (params.session_key is None) == (params.label is None):
        raise CallRefused(
            "INVALID_REQUEST", "sessions_send: say which session: give sessionKey or label."
        )
    if params.session_key is not None:
        return await find(call, params.session_key)
    assert params.label is not None, "one of the two is there"
    agents = [call.session.agent] if call.session else [*call.config.agents]
    sids = [await call.fleet.sessions.labelled(agent, params.label) for agent in agents]
    views = [await call.fleet.sessions.view(sid) for sid in sids if sid]
    seen = [view for view in views if view and await _may_see(call, view)]
    if len(seen) > 1:
        raise CallRefused(
            "INVALID_REQUEST",
            f"Several agents have a session called {params.label!r}: give sessionKey.",
        )
    if not seen:
        raise CallRefused(
            "NOT_FOUND", f"There is no session called {params.label!r} that this agent may see."
        )
    return seen[0]


def _check_direction(call: Call, target: SessionKey) -> None:
    """Refuse a message to oneself, and to a session that waits for this one, at whatever remove."""
    assert call.caller is not None, "operators have no turn"
    if target == call.caller.session:
        raise CallRefused(
            "INVALID_REQUEST", "That is this session itself: it would wait for its own turn."
        )
    if target == call.caller.parent or target.sid in call.turn.via:
        raise CallRefused(
            "INVALID_REQUEST",
            f"The session {target} waits for what comes of this turn, or gets it: what you answer "
            "goes there by itself.",
        )


def check_hops(call: Call) -> None:
    """Refuse to set another turn going, if too many in a row were set going by the one before."""
    if call.caller and call.turn.hops >= call.config.sessions.max_hops:
        raise CallRefused(
            "FORBIDDEN",
            f"Sessions have set each other going {call.turn.hops} times in a row: a person has to "
            "write something first (max_hops in [sessions]).",
        )


def provenance_of(call: Call) -> Provenance | None:
    """Return where an entry comes from that a call puts on a session's stream."""
    if call.caller is None:
        return None
    own = call.caller.session
    via = (*call.turn.via, own.sid)
    return Provenance(by=str(own), via=tuple(dict.fromkeys(via)), hops=call.turn.hops + 1)


def answered(outcome: Outcome | None, *, session_key: str, run_id: str) -> contract.SendResult:
    """Return what became of a message; None stands for nothing yet."""
    if outcome is None:
        return contract.SendResult(status="accepted", session_key=session_key, run_id=run_id)
    reply = "\n\n".join(str(part.get("text", "")) for part in outcome.reply) or None
    is_done = outcome.status in ("done", "steered")
    return contract.SendResult(
        status="answered" if is_done else "failed",
        session_key=session_key,
        run_id=run_id,
        reply=reply if is_done else None,
        error=None if is_done else (reply or f"It was {outcome.status}."),
    )


def message_to(call: Call, target: SessionKey, text: str) -> ChannelMessage:
    """Return a message of another session's agent, as it stands on the target's stream."""
    sender = call.caller.session if call.caller else None
    return ChannelMessage.checked(
        id=f"session-{call.id}",
        text=text,
        from_=f"session:{sender.sid}" if sender else "operator",
        user_name=f"the session {sender}" if sender else "an operator",
        channel_id=target.channel_id,
        provider=target.provider,
        account=target.account,
        thread_id=target.thread,
        timestamp=now_ms(),
    )


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


HANDLERS: dict[str, Handler] = {
    "sessions.list": _list,
    "chat.history": _history,
    "sessions.send": _send,
    "sessions.status": _status,
    "agents.list": _agents,
}
