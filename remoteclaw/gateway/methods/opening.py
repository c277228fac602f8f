"""The handler that opens terminals."""

import asyncio
from dataclasses import replace

from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.terminals.terminals import TerminalEnding
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.session_access import find_session
from remoteclaw.gateway.terminals.host_terminals import NOT_OPEN
from remoteclaw.gateway.terminals.viewers import terminal_of
from remoteclaw.host.load import Overloaded, check_load
from remoteclaw.host.safe_open import BadSubdir, parts_of
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.tools import terminals as contract
from remoteclaw.tty import ghostty
from remoteclaw.tty import input as terminal_input

#: The name of the main conversation with an agent.
MAIN = "main"
#: The same sentence for an unknown agent, an agent that the token is not for, and a bad `subdir`: a
#: caller can't find out which of them it was.
NO_PLACE = (
    "Nothing was opened: name an agent that this token may use, and in subdir, if at all, a "
    "directory below its workspace, such as `src/web`."
)
GONE = (
    "The conversation of this terminal does not exist any more: a message to the session begins "
    "a new one."
)
#: When a client should try again on an overloaded host, in seconds.
BUSY_S = 30.0
#: How long a call waits for the session's previous terminal to end, and the pause between two
#: attempts, in seconds.
ENDING_S, RETRY_S = 15.0, 0.1
NO_WORKER = "No worker is running that could open it: start one with `remoteclaw worker`."


async def open_terminal(call: Call, params: contract.OpenTerminalParams) -> contract.OpenedTerminal:
    """Open a terminal. If the session's previous terminal is ending, wait for its end first."""
    _check_agent_and_subdir(call, params)
    session, name = await _session_for(call, params)
    until = boottime() + ENDING_S
    while True:
        try:
            return await _open_now(call, params, session, name)
        except TerminalEnding:
            if boottime() >= until:
                raise
        await asyncio.sleep(RETRY_S)


async def _open_now(
    call: Call, params: contract.OpenTerminalParams, session: SessionKey, name: str
) -> contract.OpenedTerminal:
    settings = call.config.terminals
    prompt = terminal_input.cleaned(params.prompt).strip()
    if prompt and (problem := terminal_input.problem_of_input(prompt)):
        raise CallRefused("REFUSED", problem)
    view = await call.fleet.sessions.view(session.sid)
    before = await call.fleet.terminals.record(session.sid)
    is_open = before is not None and before.is_open
    if params.resume and before and before.conversation and not is_open:
        (before,) = await call.terminals.resumable.check([before])
        if not before.resumable:
            raise CallRefused("GONE", GONE)
    if not is_open and (problem := ghostty.problem()):
        raise CallRefused("UNAVAILABLE", problem)
    if not is_open and not any(each.is_ours for each in await call.fleet.workers.list()):
        raise CallRefused("UNAVAILABLE", NO_WORKER)
    host = (view.host if view else "") or call.home.host_id
    if not is_open and host == call.home.host_id:
        try:
            check_load(settings.max_load, settings.min_memory_mb)
        except Overloaded as problem:
            raise CallRefused("UNAVAILABLE", str(problem), retry_after_s=BUSY_S) from None
    # A postponed turn stays behind the terminal.
    if params.force and view and view.turn and not (is_open or view.is_postponed):
        await call.fleet.sessions.stop(session.sid, call=f"{call.id}-force")
    on_behalf_of = call.people(session)
    wish = TerminalWish(
        by=call.operator.name,
        cols=params.cols or settings.cols,
        rows=params.rows or settings.rows,
        subdir=params.subdir,
        prompt=prompt,
    )
    accepted = await call.fleet.terminals.open(
        session,
        wish,
        people=on_behalf_of,
        call=call.id,
        host=host,
        name=name,
        limits=settings,
    )
    record = await call.fleet.terminals.record(session.sid)
    if record is None:
        raise CallRefused("UNAVAILABLE", NOT_OPEN)
    is_new, after = not accepted.is_duplicate, await call.fleet.sessions.view(session.sid)
    turn = after.turn if is_new and after else None
    waits = turn not in (None, accepted.entry_id)
    terminal = terminal_of(call.terminals.newest_record(record))
    return contract.OpenedTerminal(terminal=terminal, created=is_new, waits=waits)


def _check_agent_and_subdir(call: Call, params: contract.OpenTerminalParams) -> None:
    """Raise `CallRefused` for an unknown agent, or a `subdir` that leads out of the workspace."""
    try:
        parts_of(params.subdir or "")
        call.config.agent(params.agent)
    except (BadSubdir, ConfigError):
        raise CallRefused("INVALID_REQUEST", NO_PLACE) from None


async def _session_for(call: Call, params: contract.OpenTerminalParams) -> tuple[SessionKey, str]:
    """Return the session whose terminal is opened, and its name for people."""
    if params.session is None:
        chat = await call.conversations.with_agent(params.agent)
        if params.name != MAIN:
            chat = replace(chat, thread=f"{chat.agent}.{params.name}")
        return chat, params.name
    if params.agent is not None:
        raise CallRefused(
            "INVALID_REQUEST", "terminals.open: name an agent or a session, not both."
        )
    view = await find_session(call, params.session)
    before = await call.fleet.terminals.record(view.sid)
    own = MAIN if view.key.provider == CHANNEL and view.key.thread is None else ""
    return view.key, view.label or own or (before.name if before else "") or view.title or ""
