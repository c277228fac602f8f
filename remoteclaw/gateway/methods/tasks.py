"""Handlers of tasks: starting, cancelling, their progress, and the tree of all."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.sessions import SessionView
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.chat_targets import place_of
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.gateway.session_access import answered, current, find
from remoteclaw.gateway.task_tree import tree_of
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.spawn import check_depth, check_hops, spawn
from remoteclaw.tasks.tell import tell
from remoteclaw.tools import tasks as contract
from remoteclaw.tools.operators import SessionParams

#: How much is kept of what an agent says of its progress, in characters and in bytes.
MAX_PROGRESS = 256
FOR_NOBODY = (
    "This session works for no other one, so nobody waits for its progress: say it in your answer."
)
FOR_AGENTS = "Only the agent of a task says how far it is: `sessions.tree` shows what it has said."


async def _spawn(call: Call, params: contract.SpawnParams) -> contract.SpawnResult:
    parent = await current(call)
    check_hops(call.config, call.caller)
    check_depth(call.config, parent)
    session = await _new_session(call, params, parent.key)
    side_effect = {
        "type": "session_spawned",
        "tool": "sessions_spawn",
        "to": params.label or session.agent,
        "text": params.prompt,
        "ts": now_ms(),
    }
    started, entry_id, knows = await spawn(
        call.fleet,
        call.config,
        call.caller,
        call.id,
        prompt=params.prompt,
        parent=parent,
        session=session,
        label=params.label,
        people=call.people(parent.key),
        side_effect=side_effect,
        knows_conversation=params.knows == "conversation",
    )
    call.note(side_effect)
    return contract.SpawnResult(
        status="accepted",
        run_id=f"{started.sid}-{entry_id}",
        child_session_key=str(started),
        label=params.label,
        knows=_knows(knows),
        note=_LESS.get(knows) if params.knows == "conversation" else None,
    )


#: What is said of a session that knows less than was asked for, by what it begins with.
_LESS = {
    "notes": "It begins with notes of what was said here: its agent can't copy the conversation.",
    "nothing": "Nothing could be copied: it is told what this turn is about, and the task.",
}


def _knows(told: str) -> Literal["nothing", "notes", "conversation"]:
    return "conversation" if told == "conversation" else "notes" if told == "notes" else "nothing"


async def _new_session(call: Call, params: contract.SpawnParams, parent: SessionKey) -> SessionKey:
    """Return agent, chat and user of a new session: its parent's, unless the call names others."""
    session = replace(parent, agent=_agent(call, params.agent_id, parent), task=None)
    return await _at(call, session, params.channel) if params.channel is not None else session


def _agent(call: Call, wanted: str | None, parent: SessionKey) -> str:
    """Return the agent of a new session. Raises `CallRefused` for one that it may not start."""
    if wanted is None or wanted == parent.agent:
        return parent.agent
    call.config.agent(wanted)  # raises, if there is none
    _, settings = call.config.agent(parent.agent)
    if call.caller and not {wanted, "*"}.intersection(settings.spawns):
        raise CallRefused(
            "FORBIDDEN",
            f"The agent {parent.agent!r} may start only sessions of its own: `spawns` in its table "
            f"names other agents.",
        )
    return wanted


async def _at(call: Call, here: SessionKey, channel: str) -> SessionKey:
    """Return a session's key with another place. Another channel has other rules: owners only."""
    there = place_of(call, await call.fleet.replies.readers(), channel)
    names = (there.provider, there.account, there.chat)
    if names == (here.provider, here.account, here.channel_id):
        return here
    moved = replace(
        here, provider=there.provider, account=there.account, channel_id=there.chat, thread=None
    )
    if call.caller and not is_for_owner(call.config, call.caller):
        raise CallRefused("FORBIDDEN", "Only an owner's turn can start a session for another chat.")
    return moved


async def _subagents(call: Call, params: contract.SubagentsParams) -> contract.SubagentsResult:
    own = await current(call)
    runs = [view async for view in _below(call, own)]
    target = params.params
    is_named = target.run_id is not None or target.label is not None
    if is_named:
        runs = [view for view in runs if _is_named(view, target)]
        if not runs:
            raise CallRefused(
                "NOT_FOUND",
                "This session has no such task: the action list has those that there are.",
            )
    elif params.action in ("status", "tell"):
        raise CallRefused("INVALID_REQUEST", f"subagents: {params.action} needs runId or label.")
    if params.action == "tell":
        return await _tell(call, params.message, own, runs)
    cancelled = 0
    if params.action == "cancel":
        tops = runs if is_named else [view for view in runs if view.parent == own.key]
        for view in tops:
            _check_not_earlier(view, target.run_id)
            cancelled += await call.fleet.sessions.stop(view.sid, wants_result=False)
    return contract.SubagentsResult(
        action=params.action,
        runs=tuple([await _told(call, view, params.action == "status", own.key) for view in runs]),
        cancelled=cancelled,
    )


async def _tell(
    call: Call, message: str | None, own: SessionView, runs: Sequence[SessionView]
) -> contract.SubagentsResult:
    """Tell a task something; return its run, which may be another one than before."""
    if message is None:
        raise CallRefused("INVALID_REQUEST", "subagents: tell needs message.")
    if len(runs) > 1:
        raise CallRefused("INVALID_REQUEST", "Several sessions have this label: give runId.")
    (child,) = runs
    if child.parent != own.key:
        raise CallRefused(
            "FORBIDDEN", f"Only the session that has started it can tell it that: {child.parent}."
        )
    check_hops(call.config, call.caller)
    side_effect = {
        "type": "session_told",
        "tool": "subagents",
        "to": child.label or str(child.key),
        "text": message,
        "ts": now_ms(),
    }
    told = await tell(
        call.fleet,
        call.config,
        call.caller,
        call.id,
        text=message,
        parent=own,
        child=child,
        people=call.people(own.key),
        side_effect=side_effect,
    )
    call.note(side_effect)
    now = await call.fleet.sessions.view(child.sid) or child
    run = await _told(call, replace(now, task_entry=told.run), False, own.key)
    return contract.SubagentsResult(action="tell", runs=(run,), taken=told.place)


async def _below(call: Call, view: SessionView) -> AsyncIterator[SessionView]:
    """Yield the sessions that a session has started, and those that they have."""
    for child in await call.fleet.sessions.children(view.sid):
        yield child
        async for other in _below(call, child):
            yield other


def _is_named(view: SessionView, target: contract.SubagentsTarget) -> bool:
    """Whether a session is the one that is meant: by all that is said of it.

    Names of its earlier runs are names of it, too.
    """
    sid = target.run_id.partition("-")[0] if target.run_id else view.sid
    return sid == view.sid and target.label in (None, view.label)


def _check_not_earlier(view: SessionView, run_id: str | None) -> None:
    """Refuse to cancel a run that has ended: its session does something else by now."""
    if run_id not in (None, f"{view.sid}-{view.task_entry}"):
        raise CallRefused(
            "INVALID_REQUEST",
            f"That run has ended. What its session does now is {view.sid}-{view.task_entry}.",
        )


async def _told(
    call: Call, view: SessionView, has_result: bool, own: SessionKey
) -> contract.Subagent:
    """Return what is known of a session's run; it is done when all that it was told is."""
    entry_id = view.task_entry or "0-0"
    newest = view.told_entry or view.retried_entry or entry_id
    outcome = await call.fleet.outcomes.read(view.sid, newest)
    run_id = f"{view.sid}-{entry_id}"
    result = None
    if has_result and outcome and outcome.is_final:
        told = answered(outcome, session_key=str(view.key), run_id=run_id)
        result = told.reply or told.error
    state = outcome.status if outcome else "unknown"
    return contract.Subagent(
        run_id=run_id,
        session_key=str(view.key),
        agent=view.key.agent,
        state="done" if state == "steered" else state,
        started_ms=int(entry_id.partition("-")[0]),
        label=view.label,
        parent=str(view.parent) if view.parent != own else None,
        result=result,
    )


async def _progress(call: Call, params: contract.ProgressParams) -> contract.ProgressResult:
    if call.caller is None:
        raise CallRefused("INVALID_REQUEST", FOR_AGENTS)
    own = await current(call)
    if own.parent is None:
        raise CallRefused("INVALID_REQUEST", FOR_NOBODY)
    line = Scrubber(secrets_of(call.config)).line(params.progress, MAX_PROGRESS)
    progress = line.encode()[:MAX_PROGRESS].decode(errors="ignore")
    above = await call.fleet.sessions.above(own)
    await call.fleet.calls.progress(call.caller, call.id, progress, above=above)
    return contract.ProgressResult(progress=progress)


async def _tree(call: Call, params: SessionParams) -> contract.TreeResult:
    view = await find(call, params.session_key)
    return tree_of(str(view.key), await call.fleet.work.below(view.sid))


HANDLERS: Mapping[str, Handler] = {
    "sessions.spawn": _spawn,
    "sessions.subagents": _subagents,
    "sessions.progress": _progress,
    "sessions.tree": _tree,
}
