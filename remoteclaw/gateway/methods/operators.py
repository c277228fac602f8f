"""Handlers of methods for operators: the fleet's status, messages to agents, subscriptions."""

from collections.abc import Mapping

from remoteclaw import __version__
from remoteclaw.clock import now_ms
from remoteclaw.config import tool_policy
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.turns.inbound import RESET_S
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.session_access import find_session, send_result
from remoteclaw.messages import ChannelMessage, SessionKey
from remoteclaw.tools.base import NoParams
from remoteclaw.tools.operators import (
    AgentAccepted,
    AgentParams,
    FleetStatus,
    Health,
    ResetParams,
    ResetResult,
    Retried,
    SessionParams,
    Stopped,
    Subscribed,
    WaitParams,
)
from remoteclaw.tools.sessions import SendResult


async def health(_call: Call, _params: NoParams) -> Health:
    """Report that the gateway answers."""
    return Health(status="ok", version=__version__)


async def status(call: Call, _params: NoParams) -> FleetStatus:
    """Report the state of the fleet."""
    workers = await call.fleet.workers.list()
    busy, _ = await call.fleet.sessions.busy(limit=1)
    return FleetStatus(
        workers=sum(view.is_ours for view in workers),
        hints=await call.fleet.workers.waiting(),
        busy_sessions=busy,
        dead_letters=await call.fleet.dead_letters.count(),
        has_sweeper=await call.fleet.workers.has_sweeper(),
        config_problem=watched.problem if (watched := call.watched_config) else None,
    )


async def agent(call: Call, params: AgentParams) -> AgentAccepted:
    """Send a message to an agent, as a channel's adapter does."""
    name, _ = call.config.agent(params.agent_id)
    message = ChannelMessage.checked(
        # A repeated call sends the same message.
        id=params.message_id or f"call-{call.id}",
        text=params.message,
        from_=params.from_,
        channel_id=params.from_ if params.to is None else params.to,
        provider=params.channel,
        account=params.account,
        thread_id=params.thread_id,
        timestamp=now_ms(),
    )
    check_sender(call, SessionKey.of(message, agent=name))
    accepted = await call.fleet.inbound.append(message, agent=name, deliver="caller")
    return AgentAccepted(
        session_key=str(accepted.session),
        run_id=f"{accepted.session.sid}-{accepted.entry_id}",
        is_duplicate=accepted.is_duplicate,
    )


def check_sender(call: Call, session: SessionKey) -> None:
    """Raise `CallRefused` for a message in an owner's name unless the token has the scope admin.

    In an owner's turn, the agent may use tools that require this scope of operators.
    """
    subject = tool_policy.Subject(
        agent=session.agent,
        channel=session.provider,
        chat_id=session.channel_id,
        is_group=session.channel_id != session.user,
        senders=(session.user,),
    )
    if tool_policy.is_owner(call.config, subject) and not call.operator.has("admin"):
        raise CallRefused(
            "FORBIDDEN",
            f"{session.user!r} is an owner on {session.provider}: to speak for an owner needs a "
            f"token with the scope admin; this one has {call.operator.scope}.",
        )


async def wait(call: Call, params: WaitParams) -> SendResult:
    """Wait for a message's outcome."""
    session, _, entry_id = params.run_id.partition("-")
    view = await find_session(call, session)
    outcome = await call.fleet.outcomes.read(view.sid, entry_id)
    if outcome is None:
        raise CallRefused(
            "NOT_FOUND", f"There is no run {params.run_id!r}, or its record has expired."
        )
    if not outcome.is_final and params.timeout > 0:
        async with call.waiting():
            waited = await call.fleet.outcomes.wait(view.sid, entry_id, timeout_s=params.timeout)
        outcome = waited or outcome
    return send_result(
        outcome if outcome.is_final else None,
        session_key=str(view.key),
        run_id=f"{view.sid}-{entry_id}",
    )


async def stop(call: Call, params: SessionParams) -> Stopped:
    """Stop a session's running turn and drop the messages that it has accepted so far."""
    view = await find_session(call, params.session_key)
    unsent = await call.fleet.replies.unsent(view.key)
    return Stopped(stopped=await call.fleet.sessions.stop(view.sid, call=call.id), unsent=unsent)


async def retry(call: Call, params: SessionParams) -> Retried:
    """Ask the agent of a postponed session again now."""
    view = await find_session(call, params.session_key)
    return Retried(retried=await call.fleet.sessions.retry(view.sid))


async def reset(call: Call, params: ResetParams) -> ResetResult:
    """End a session's conversation."""
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
    return ResetResult(session_key=str(session))


async def subscribe(call: Call, params: SessionParams) -> Subscribed:
    """Start sending a session's events over the call's connection."""
    view = await find_session(call, params.session_key)
    await call.events.subscribe(view.sid, str(view.key))
    return Subscribed(session_key=str(view.key))


async def unsubscribe(call: Call, params: SessionParams) -> Subscribed:
    """Stop sending a session's events over the call's connection."""
    view = await find_session(call, params.session_key)
    call.events.unsubscribe(view.sid)
    return Subscribed(session_key=str(view.key))


HANDLERS: Mapping[str, Handler] = {
    "health": health,
    "status": status,
    "agent": agent,
    "agent.wait": wait,
    "sessions.stop": stop,
    "sessions.retry": retry,
    "sessions.reset": reset,
    "sessions.subscribe": subscribe,
    "sessions.unsubscribe": unsubscribe,
}
