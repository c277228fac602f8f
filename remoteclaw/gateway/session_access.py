"""Access to the sessions that calls name, limited to those that the caller may see."""

from remoteclaw.errors import CallRefused, NotFound
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.gateway import rights
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.rights import is_for_owner
from remoteclaw.tools.sessions import SendResult


async def find_session(call: Call, named: str) -> SessionView:
    """Return the session that `named` refers to. Raises `CallRefused`.

    A session that the caller may not see is refused as if it did not exist.
    """
    view = None
    try:
        view = await call.fleet.sessions.named(named)
    except NotFound as error:
        if call.caller is None:
            raise CallRefused("NOT_FOUND", str(error)) from None
    if view is None or not await may_see(call, view):
        raise CallRefused("NOT_FOUND", f"There is no session {named!r} that this agent may see.")
    return view


async def current_session(call: Call) -> SessionView:
    """Return the session that a call is about if it names none. Raises `CallRefused`."""
    if call.session is None:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{call.method.name} is about a session: name the session by sessionKey.",
        )
    return await find_session(call, str(call.session))


async def session_with_label(call: Call, label: str) -> SessionView:
    """Return the session with a label that the caller may see. Raises `CallRefused`."""
    agents = [call.session.agent] if call.session else [*call.config.agents]
    sids = [await call.fleet.sessions.labelled(agent, label) for agent in agents]
    views = [await call.fleet.sessions.view(sid) for sid in sids if sid]
    visible = [view for view in views if view and await may_see(call, view)]
    if len(visible) > 1:
        raise CallRefused(
            "INVALID_REQUEST", f"Several agents have a session called {label!r}: give sessionKey."
        )
    if not visible:
        raise CallRefused(
            "NOT_FOUND", f"There is no session called {label!r} that this agent may see."
        )
    return visible[0]


async def may_see(call: Call, view: SessionView) -> bool:
    """Whether a caller may read a session and write to it."""
    if call.caller is None:
        return call.operator.is_for(view.key.agent)
    own = call.caller.session
    above = await call.fleet.sessions.ancestors(view) if view.parent else ()
    is_owner = call.caller.turn is not None and is_for_owner(call.config, call.caller)
    return rights.may_see(call.config, own, view.key, above=above, is_owner=is_owner)


def send_result(outcome: Outcome | None, *, session_key: str, run_id: str) -> SendResult:
    """Return the result of a message that was sent to a session; None if it has no outcome yet."""
    if outcome is None:
        return SendResult(status="accepted", session_key=session_key, run_id=run_id)
    reply = "\n\n".join(str(part.get("text", "")) for part in outcome.reply) or None
    is_done = outcome.status in ("done", "steered")
    return SendResult(
        status="answered" if is_done else "failed",
        session_key=session_key,
        run_id=run_id,
        reply=reply if is_done else None,
        error=None if is_done else (reply or f"It was {outcome.status}."),
    )
