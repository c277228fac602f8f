"""Handlers of sessions: finding, reading, following and changing them."""

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic.alias_generators import to_camel

from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.turns.inbound import RESET_S
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.writing import send_to_session, write
from remoteclaw.gateway.search import MAX_SESSIONS, search_records
from remoteclaw.gateway.session_access import current_session, find_session, may_see
from remoteclaw.gateway.traces import find_message, message_trace, read_trace
from remoteclaw.host.terminal import shortened
from remoteclaw.messages import reference, tool_label
from remoteclaw.session.record import as_markdown, count_messages, current_record, read_lines
from remoteclaw.tasks.branches import copyable
from remoteclaw.tools import sessions as contract

#: The maximum length of an item's text in a history, in characters: a little more than in a record.
MAX_ITEM_CHARS = 8100
#: The same for the output of a tool, in histories for agents, which the model has to read.
MAX_AGENT_TOOL_CHARS = 300
#: The recorded fields that only operators receive.
OPERATOR_FIELDS = (
    *("turn", "id", "argument", "input", "is_error", "since_ms", "seconds", "steps"),
    "is_terminal",
)
# -- finding and reading --------------------------------------------------------------------------


async def _search(call: Call, params: contract.SearchParams) -> contract.SessionsResult:
    if call.caller:
        return await _visible_sessions(call, params)
    requests = Counter(request.session.sid for request in await call.fleet.requests.waiting())
    is_narrowed = bool(params.filter or params.state or params.channel or params.agent)
    max_views = MAX_SESSIONS if is_narrowed or call.operator.agents else params.limit + 1
    newest = await call.fleet.sessions.list(limit=max_views)
    known = {view.sid for view in newest}
    # A session that waits for a person may be older than the newest `max_views`.
    older = await call.fleet.sessions.views([sid.encode() for sid in requests if sid not in known])
    views = [view for view in (*newest, *older) if call.operator.is_for(view.key.agent)]
    views.sort(key=lambda view: view.sid not in requests)
    matching = [view for view in views if _matches(view, params, requests)]
    searched = max_views if is_narrowed and len(newest) == max_views else None
    excerpts: Mapping[str, contract.Excerpt] = {}
    if params.filter:
        matches = await search_records(
            call.fleet.records, matching, params.filter, limit=params.limit + 1
        )
        excerpts = matches.excerpts
        named = params.filter
        matching = [view for view in matching if view.sid in excerpts or view.matches(named)]
        searched = matches.searched or searched
    used = await call.fleet.usage.by_session() if params.usage else {}
    channels = call.config.channels if call.operator.agents is None else ()
    return contract.SessionsResult(
        sessions=tuple(
            contract.FoundSession.of(
                view,
                **common_fields(view),
                is_self=view.key == call.session,
                model=view.model_in(call.config),
                context=_context(view),
                requests=requests[view.sid],
                usage=spent.plain() if (spent := used.get(view.sid)) else None,
                excerpt=excerpts.get(view.sid),
            )
            for view in matching[: params.limit]
        ),
        is_complete=len(matching) <= params.limit,
        searched=searched,
        channels=tuple(sorted({*channels, *(view.key.provider for view in views)})),
        agents=tuple(sorted({*call.config.agents, *(view.key.agent for view in views)})),
    )


async def _visible_sessions(call: Call, params: contract.SearchParams) -> contract.SessionsResult:
    """Return the sessions that an agent may see."""
    views: list[SessionView] = []
    for view in await call.fleet.sessions.list(limit=MAX_SESSIONS):
        if view.matches(params.filter or "") and await may_see(call, view):
            views.append(view)
            if len(views) > params.limit:
                break
    sessions = tuple(
        contract.FoundSession(
            **common_fields(view),
            is_self=view.key == call.session,
            label=view.label,
            title=view.title,
        )
        for view in views[: params.limit]
    )
    return contract.SessionsResult(sessions=sessions, is_complete=len(views) <= params.limit)


def _matches(view: SessionView, params: contract.SearchParams, requests: Mapping[str, int]) -> bool:
    states = {view.shown_status, "requests"} if requests[view.sid] else {view.shown_status}
    return (
        (params.state is None or params.state in states)
        and params.channel in (None, view.key.provider)
        and params.agent in (None, view.key.agent)
    )


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


async def _show(call: Call, params: contract.ShowParams) -> contract.SessionDetails:
    view = await (
        find_session(call, params.session_key) if params.session_key else current_session(call)
    )
    facts = {
        **common_fields(view),
        "turn": reference(view.sid, view.turn) if view.turn else None,
        "phase": view.phase,
        "host": view.host,
    }
    if call.caller:
        return contract.SessionDetails(**facts)
    used = await call.fleet.usage.session(view.key.agent, view.sid, also=call.config.agents)
    children = await call.fleet.sessions.children(view.sid)
    started = [child for child in children if call.operator.is_for(child.key.agent)]
    parent = view.parent if view.parent and call.operator.is_for(view.parent.agent) else None
    return contract.SessionDetails.of(
        view,
        **facts,
        model=view.model_in(call.config),
        context=_context(view),
        started_by=str(parent) if parent else None,
        has_started=tuple(
            contract.StartedTask(key=str(child.key), state=child.shown_status) for child in started
        ),
        worker=_worker(view.worker),
        conversations=dict(view.session_ids),
        identity=await _pending_identity(call, view),
        queue=_queue_settings(call, view, view.queue_settings),
        usage=used.plain() if used else None,
    )


async def _pending_identity(call: Call, view: SessionView) -> str | None:
    """Return which identity files have changed since the conversation began; None if none has."""
    try:
        return await call.fleet.identities.pending(call.config, call.home, view) or None
    except ConfigError:
        return None


def _context(view: SessionView) -> contract.ContextUse | None:
    return contract.ContextUse.of(view.size) if view.size else None


def _worker(label: str | None) -> str | None:
    """Return the process and host of a lease's owner; `label` has more to identify the process."""
    if label is None:
        return None
    host, _, rest = label.partition(" pid ")
    return f"process {rest.split()[0]} on {host}" if rest else label


def _queue_settings(
    call: Call, view: SessionView, own: QueueOverride | None
) -> contract.QueueSettings:
    effective = call.config.queue.of(view.key.provider, own)
    settings = {name: getattr(effective, name) for name in QueueOverride.model_fields}
    overrides = own.model_dump(exclude_none=True) if own else {}
    return contract.QueueSettings(**settings, own=tuple(map(to_camel, overrides)))


async def _history(call: Call, params: contract.AnyHistoryParams) -> contract.HistoryResult:
    view = await find_session(call, params.session_key)
    if params.ended_ms is None:
        record = await current_record(call.fleet.records, call.fleet.terminals, view.sid)
    else:
        record = await _ended_record(call, view.sid, params.ended_ms)
    return _page_of(view, record, params, for_agent=call.caller is not None)


async def _ended_record(call: Call, sid: str, ended_ms: int) -> bytes:
    """Return the record of an ended conversation. Raises `CallRefused`."""
    for one in await call.fleet.records.ended(sid):
        if one.at_ms == ended_ms:
            return one.record
    raise CallRefused(
        "NOT_FOUND",
        "This conversation is not kept any more: sessions.archive lists those that are.",
    )


def _page_of(
    view: SessionView,
    record: bytes,
    params: contract.SessionHistoryParams,
    *,
    for_agent: bool,
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
        tool=tool_label(recorded["name"]) if "name" in recorded else None,
        **({} if for_agent else {name: recorded.get(name) for name in OPERATOR_FIELDS}),
    )


async def _archive(call: Call, params: contract.SessionParams) -> contract.ArchiveResult:
    sid = await call.fleet.sessions.find(params.session_key)
    return contract.ArchiveResult(
        ended=tuple(
            contract.EndedConversation(
                ended_ms=one.at_ms, messages=count_messages(one.record), why=one.why
            )
            for one in await call.fleet.records.ended(sid)
        )
    )


async def _trace(call: Call, params: contract.TraceParams) -> contract.TraceResult:
    sid, entry_id = await find_message(call.fleet, params.what)
    outcomes = await read_trace(call.fleet, sid, entry_id, limit=params.limit)
    view = await call.fleet.sessions.view(sid)
    earlier = outcomes[-1].previous
    return contract.TraceResult(
        session_key=str(view.key) if view else None,
        messages=tuple(message_trace(sid, outcome) for outcome in outcomes),
        before=reference(sid, earlier) if earlier else None,
    )


# -- following and changing -----------------------------------------------------------------------


async def _stop(call: Call, params: contract.SessionParams) -> contract.Stopped:
    view = await find_session(call, params.session_key)
    unsent = await call.fleet.replies.unsent(view.key)
    stopped = await call.fleet.sessions.stop(view.sid, call=call.id)
    return contract.Stopped(stopped=stopped, unsent=unsent)


async def _retry(call: Call, params: contract.SessionParams) -> contract.Retried:
    view = await find_session(call, params.session_key)
    return contract.Retried(retried=await call.fleet.sessions.retry(view.sid))


async def _reset(call: Call, params: contract.ResetParams) -> contract.ResetResult:
    session = await call.fleet.sessions.key_of(params.session_key)
    async with call.waiting():  # a call that may not wait is refused before it has an effect
        entry_id = await call.fleet.inbound.end_conversation(session, params.reason, call=call.id)
        outcome = await call.fleet.outcomes.wait(session.sid, entry_id, timeout_s=RESET_S)
    if outcome is None:
        raise CallRefused(
            "TIMEOUT",
            "The conversation has not ended yet, because the running turn has not stopped or no "
            "worker is free. It ends as soon as possible, before any other message is answered.",
        )
    if outcome.status != "done":
        raise CallRefused(
            "UNAVAILABLE",
            "The conversation goes on: its workers died each time. Look at their logs.",
        )
    return contract.ResetResult(session_key=str(session))


async def _subscribe(call: Call, params: contract.SessionParams) -> contract.Subscribed:
    view = await find_session(call, params.session_key)
    await call.events.subscribe(view.sid, str(view.key))
    return contract.Subscribed(session_key=str(view.key))


async def _unsubscribe(call: Call, params: contract.SessionParams) -> contract.Subscribed:
    view = await find_session(call, params.session_key)
    call.events.unsubscribe(view.sid)
    return contract.Subscribed(session_key=str(view.key))


async def _label(call: Call, params: contract.LabelParams) -> contract.Labelled:
    view = await find_session(call, params.session_key)
    await call.fleet.sessions.label(view, params.label)
    return contract.Labelled(session_key=str(view.key), label=params.label)


async def _queue(call: Call, params: contract.QueueParams) -> contract.QueueSettings:
    view = await find_session(call, params.session_key)
    changes = params.model_dump(exclude={"session_key", "reset"}, exclude_none=True)
    own = await call.fleet.sessions.change_queue(view, changes, is_reset=params.reset)
    return _queue_settings(call, view, own)


async def _fork(call: Call, params: contract.ForkParams) -> contract.Forked:
    view = await find_session(call, params.session_key)
    key = view.key
    target = replace(  # an ordinary session, even if the other one is a task
        key, user=params.user or key.user, thread=params.thread_id or key.thread, task=None
    )
    if target == key:
        raise CallRefused(
            "INVALID_REQUEST",
            "The new session needs its own key: give another thread or another user.",
        )
    names = copyable(view.session_ids, is_busy=view.status != "idle")
    await call.fleet.sessions.fork(view, target, names, view.limits.of_fork)
    return contract.Forked(session_key=str(target))


async def _export(call: Call, params: contract.ExportParams) -> contract.Exported:
    sid = await call.fleet.sessions.find(params.session_key)
    if params.archived is None:
        record = await current_record(call.fleet.records, call.fleet.terminals, sid)
    else:
        ended = await call.fleet.records.ended(sid)
        if params.archived > len(ended):
            raise CallRefused(
                "NOT_FOUND",
                f"There is no ended conversation {params.archived} of {params.session_key!r}: "
                f"`remoteclaw sessions archive` lists {len(ended)}.",
            )
        record = ended[params.archived - 1].record
    is_markdown = params.format == "markdown"
    text = as_markdown(record) if is_markdown else record.decode("utf-8", "replace")
    return contract.Exported(text=text)


async def _forget(call: Call, params: contract.SessionParams) -> contract.Forgotten:
    sid = await call.fleet.sessions.find(params.session_key)
    return contract.Forgotten(was_recorded=await call.fleet.records.forget(sid))


HANDLERS: Mapping[str, Handler] = {
    "sessions.search": _search,
    "sessions.history": _history,
    "sessions.send": send_to_session,
    "sessions.show": _show,
    "sessions.write": write,
    "sessions.trace": _trace,
    "sessions.archive": _archive,
    "sessions.stop": _stop,
    "sessions.retry": _retry,
    "sessions.reset": _reset,
    "sessions.subscribe": _subscribe,
    "sessions.unsubscribe": _unsubscribe,
    "sessions.label": _label,
    "sessions.queue": _queue,
    "sessions.fork": _fork,
    "sessions.export": _export,
    "sessions.forget": _forget,
}
