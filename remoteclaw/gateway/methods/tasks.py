"""Handlers of tasks: starting, messaging and cancelling them, their progress and their tree."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.gateway.budget_states import tree_budgets
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.chat_targets import check_has_reader, target_place
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.gateway.session_access import current_session, find_session, send_result
from remoteclaw.gateway.task_tree import tree_of
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.spawn import check_depth, check_hops, spawn
from remoteclaw.tasks.tell import tell
from remoteclaw.tools import tasks as contract
from remoteclaw.tools.sessions import SessionParams

#: The maximum length of a task's progress, in characters and in bytes of UTF-8.
MAX_PROGRESS_CHARS = 256
NO_PARENT = (
    "This session works for no other one, so nobody waits for its progress: say it in your answer."
)
AGENTS_ONLY = "Only the agent of a task reports its progress; `tasks.tree` shows it."


async def _spawn(call: Call, params: contract.SpawnParams) -> contract.SpawnResult:
    parent = await current_session(call)
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
        call.fleet.sessions,
        call.fleet.calls,
        call.fleet.task_trees,
        call.fleet.budgets,
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
        note=_NOTES_OF_LESS_KNOWN.get(knows) if params.knows == "conversation" else None,
    )


#: The note about a session that knows less than was requested, by what it knows.
_NOTES_OF_LESS_KNOWN = {
    "notes": "It begins with notes of what was said here: its agent can't copy the conversation.",
    "nothing": "Nothing could be copied. The branch gets the task and the messages of this turn.",
}


def _knows(basis: str) -> Literal["nothing", "notes", "conversation"]:
    return "conversation" if basis == "conversation" else "notes" if basis == "notes" else "nothing"


async def _new_session(call: Call, params: contract.SpawnParams, parent: SessionKey) -> SessionKey:
    """Return the key of a new session without its task.

    Agent and chat are the parent's unless the call names others. Raises `CallRefused`.
    """
    session = replace(parent, agent=_agent(call, params.agent_id, parent), task=None)
    return (
        await _with_chat(call, session, params.channel) if params.channel is not None else session
    )


def _agent(call: Call, wanted: str | None, parent: SessionKey) -> str:
    """Return the agent of a new session. Raises `CallRefused` if `parent` may not start it."""
    if wanted is None or wanted == parent.agent:
        return parent.agent
    call.config.agent(wanted)  # raises if the agent is not configured
    _, settings = call.config.agent(parent.agent)
    if call.caller and not {wanted, "*"}.intersection(settings.spawns):
        raise CallRefused(
            "FORBIDDEN",
            f"The agent {parent.agent!r} may start only sessions of its own: `spawns` in its table "
            f"names other agents.",
        )
    return wanted


async def _with_chat(call: Call, session: SessionKey, channel: str) -> SessionKey:
    """Return a session's key with the chat `channel`.

    Raises `CallRefused` for another chat unless the turn is an owner's, because other rules may
    hold there.
    """
    readers = await call.fleet.replies.readers()
    place = target_place(call, readers, channel)
    chat = (place.provider, place.account, place.chat)
    if chat == (session.provider, session.account, session.channel_id):
        return session
    moved = replace(
        session,
        provider=place.provider,
        account=place.account,
        channel_id=place.chat,
        thread=None,
    )
    if call.caller and not is_for_owner(call.config, call.caller):
        raise CallRefused("FORBIDDEN", "Only an owner's turn can start a session for another chat.")
    await check_has_reader(call, readers, place)
    return moved


async def _subagents(call: Call, params: contract.SubagentsParams) -> contract.SubagentsResult:
    own = await current_session(call)
    runs = [view async for view in _descendants(call, own)]
    target = params.params
    has_target = target.run_id is not None or target.label is not None
    if has_target:
        runs = [view for view in runs if _matches(view, target)]
        if not runs:
            raise CallRefused(
                "NOT_FOUND",
                "This session has no such task: the action list returns its tasks.",
            )
    elif params.action in ("status", "tell"):
        raise CallRefused("INVALID_REQUEST", f"subagents: {params.action} needs runId or label.")
    if params.action == "tell":
        return await _tell(call, params.message, own, runs)
    cancelled = 0
    if params.action == "cancel":
        to_cancel = runs if has_target else [view for view in runs if view.parent == own.key]
        for view in to_cancel:
            _check_is_current_run(view, target.run_id)
            cancelled += await call.fleet.sessions.stop(view.sid, wants_result=False)
    return contract.SubagentsResult(
        action=params.action,
        runs=tuple(
            [await _subagent(call, view, params.action == "status", own.key) for view in runs]
        ),
        cancelled=cancelled,
    )


async def _tell(
    call: Call, message: str | None, own: SessionView, runs: Sequence[SessionView]
) -> contract.SubagentsResult:
    """Send a message to a task; return its run, which may be a new one."""
    if message is None:
        raise CallRefused("INVALID_REQUEST", "subagents: tell needs message.")
    if len(runs) > 1:
        raise CallRefused("INVALID_REQUEST", "Several sessions have this label: give runId.")
    (child,) = runs
    if child.parent != own.key:
        raise CallRefused(
            "FORBIDDEN", f"Only the session that started this task can message it: {child.parent}."
        )
    check_hops(call.config, call.caller)
    side_effect = {
        "type": "session_told",
        "tool": "subagents",
        "to": child.label or str(child.key),
        "text": message,
        "ts": now_ms(),
    }
    result = await tell(
        call.fleet.sessions,
        call.fleet.calls,
        call.fleet.task_trees,
        call.fleet.outcomes,
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
    view = await call.fleet.sessions.view(child.sid) or child
    run = await _subagent(call, replace(view, task_entry=result.run), False, own.key)
    return contract.SubagentsResult(action="tell", runs=(run,), taken=result.place)


async def _descendants(call: Call, view: SessionView) -> AsyncIterator[SessionView]:
    """Yield the sessions that a session has started, and their descendants."""
    for child in await call.fleet.sessions.children(view.sid):
        yield child
        async for descendant in _descendants(call, child):
            yield descendant


def _matches(view: SessionView, target: contract.SubagentsTarget) -> bool:
    """Whether a session matches the run id and the label of `target`, if they are set.

    The id of an earlier run matches, too.
    """
    sid = target.run_id.partition("-")[0] if target.run_id else view.sid
    return sid == view.sid and target.label in (None, view.label)


def _check_is_current_run(view: SessionView, run_id: str | None) -> None:
    """Raise `CallRefused` if `run_id` is an earlier run: its session is in another one now."""
    if run_id not in (None, f"{view.sid}-{view.task_entry}"):
        raise CallRefused(
            "INVALID_REQUEST",
            f"That run has ended. The current run of its session is {view.sid}-{view.task_entry}.",
        )


async def _subagent(
    call: Call, view: SessionView, has_result: bool, own: SessionKey
) -> contract.Subagent:
    """Return a session's current run. It is done when all messages to it are answered."""
    entry_id = view.task_entry or "0-0"
    newest = view.last_task_entry or view.retried_entry or entry_id
    outcome = await call.fleet.outcomes.read(view.sid, newest)
    run_id = f"{view.sid}-{entry_id}"
    result = None
    if has_result and outcome and outcome.is_final:
        answer = send_result(outcome, session_key=str(view.key), run_id=run_id)
        result = answer.reply or answer.error
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
        raise CallRefused("INVALID_REQUEST", AGENTS_ONLY)
    own = await current_session(call)
    if own.parent is None:
        raise CallRefused("INVALID_REQUEST", NO_PARENT)
    line = Scrubber(secrets_of(call.config)).line(params.progress, MAX_PROGRESS_CHARS)
    progress = line.encode()[:MAX_PROGRESS_CHARS].decode(errors="ignore")
    above = await call.fleet.sessions.ancestors(own)
    await call.fleet.calls.store_progress(call.caller, call.id, progress, above=above)
    return contract.ProgressResult(progress=progress)


async def _tree(call: Call, params: SessionParams) -> contract.TreeResult:
    view = await find_session(call, params.session_key)
    tree = tree_of(str(view.key), await call.fleet.task_trees.read(view.sid))
    work = tuple(item for item in tree.work if call.operator.is_for(item.agent))
    budgets = await tree_budgets(call.fleet.sessions, call.fleet.budgets, call.config, view.key)
    return tree.model_copy(update={"work": work, "budgets": budgets})


HANDLERS: Mapping[str, Handler] = {
    "tasks.spawn": _spawn,
    "tasks.manage": _subagents,
    "tasks.progress": _progress,
    "tasks.tree": _tree,
}
