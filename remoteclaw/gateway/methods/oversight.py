"""Handlers of methods with which operators supervise sessions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from pydantic.alias_generators import to_camel

from remoteclaw.clock import now_ms
from remoteclaw.commands.parse import parse, unescaped
from remoteclaw.commands.table import ALIASES, COMMANDS
from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.sessions import common_fields, history_of
from remoteclaw.gateway.search import MAX_SESSIONS, search_records
from remoteclaw.gateway.session_access import find_session
from remoteclaw.gateway.traces import find_message, message_trace, read_trace
from remoteclaw.messages import reference
from remoteclaw.session.record import as_markdown, count_messages, current_record
from remoteclaw.tasks.branches import copyable
from remoteclaw.tools import oversight as contract
from remoteclaw.tools.operators import SessionParams
from remoteclaw.tools.sessions import HistoryResult


async def _search(call: Call, params: contract.SearchParams) -> contract.SearchResult:
    requests = Counter(request.session.sid for request in await call.fleet.requests.waiting())
    is_narrowed = bool(params.query or params.state or params.channel or params.agent)
    max_views = MAX_SESSIONS if is_narrowed else params.limit + 1
    newest = await call.fleet.sessions.list(limit=max_views)
    known = {view.sid for view in newest}
    # A session that waits for a person may be older than the newest `max_views`.
    older = await call.fleet.sessions.views([sid.encode() for sid in requests if sid not in known])
    views = sorted([*newest, *older], key=lambda view: view.sid not in requests)
    matching = [view for view in views if _matches(view, params, requests)]
    searched = max_views if is_narrowed and len(newest) == max_views else None
    excerpts: Mapping[str, contract.Excerpt] = {}
    if params.query:
        matches = await search_records(call.fleet, matching, params.query, limit=params.limit + 1)
        excerpts = matches.excerpts
        matching = [each for each in matching if each.sid in excerpts or each.matches(params.query)]
        searched = matches.searched or searched
    used = await call.fleet.usage.by_session() if params.usage else {}
    return contract.SearchResult(
        sessions=tuple(
            contract.FoundSession.of(
                view,
                **common_fields(view),
                model=view.model_in(call.config),
                requests=requests[view.sid],
                usage=spent.plain() if (spent := used.get(view.sid)) else None,
                excerpt=excerpts.get(view.sid),
            )
            for view in matching[: params.limit]
        ),
        is_complete=len(matching) <= params.limit,
        searched=searched,
        channels=tuple(sorted({*call.config.channels, *(view.key.provider for view in views)})),
        agents=tuple(sorted({*call.config.agents, *(view.key.agent for view in views)})),
    )


def _matches(view: SessionView, params: contract.SearchParams, requests: Mapping[str, int]) -> bool:
    is_in_state = (
        bool(requests[view.sid])
        if params.state == "requests"
        else view.shown_status == params.state
    )
    return (
        (params.state is None or is_in_state)
        and params.channel in (None, view.key.provider)
        and params.agent in (None, view.key.agent)
    )


async def _show(call: Call, params: SessionParams) -> contract.SessionDetails:
    view = await find_session(call, params.session_key)
    used = await call.fleet.usage.session(view.key.agent, view.sid)
    started = await call.fleet.sessions.children(view.sid)
    return contract.SessionDetails.of(
        view,
        **common_fields(view),
        model=view.model_in(call.config),
        started_by=str(view.parent) if view.parent else None,
        has_started=tuple(
            contract.StartedTask(key=str(child.key), state=child.shown_status) for child in started
        ),
        worker=_worker(view.worker),
        turn=f"{view.sid[:8]}-{view.turn}" if view.turn else None,
        phase=view.phase if view.turn else None,
        conversations=dict(view.session_ids),
        queue=_queue_settings(call, view, view.queue),
        usage=used.plain() if used else None,
    )


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


async def _archive(call: Call, params: SessionParams) -> contract.ArchiveResult:
    sid = await call.fleet.sessions.find(params.session_key)
    return contract.ArchiveResult(
        ended=tuple(
            contract.EndedConversation(
                ended_ms=one.at_ms, messages=count_messages(one.record), why=one.why
            )
            for one in await call.fleet.records.ended(sid)
        )
    )


async def _archived(call: Call, params: contract.ArchivedParams) -> HistoryResult:
    view = await find_session(call, params.session_key)
    for one in await call.fleet.records.ended(view.sid):
        if one.at_ms == params.ended_ms:
            return history_of(view, one.record, params)
    raise CallRefused(
        "NOT_FOUND",
        "This conversation is not kept any more: sessions.archive lists those that are.",
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
    await call.fleet.sessions.fork(view, target, names)
    return contract.Forked(session_key=str(target))


async def _export(call: Call, params: contract.ExportParams) -> contract.Exported:
    sid = await call.fleet.sessions.find(params.session_key)
    if params.archived is None:
        record = await current_record(call.fleet, sid)
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


async def _forget(call: Call, params: SessionParams) -> contract.Forgotten:
    sid = await call.fleet.sessions.find(params.session_key)
    return contract.Forgotten(was_recorded=await call.fleet.records.forget(sid))


async def _write(call: Call, params: contract.WriteParams) -> contract.Written:
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
        note=None,
        provenance=None,
        deliver="channel",
        people=call.people(target),
    )
    return contract.Written(session_key=str(target), run_id=f"{target.sid}-{entry_id}", who=who)


HANDLERS: Mapping[str, Handler] = {
    "sessions.search": _search,
    "sessions.show": _show,
    "sessions.archive": _archive,
    "sessions.archived": _archived,
    "sessions.trace": _trace,
    "sessions.label": _label,
    "sessions.queue": _queue,
    "sessions.write": _write,
    "sessions.fork": _fork,
    "sessions.export": _export,
    "sessions.forget": _forget,
}
