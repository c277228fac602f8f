"""Handlers of terminals: watching, typing, ending."""

import contextlib
from collections.abc import Iterator, Mapping

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.terminal_state import TerminalRecord
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.consoles import CHANNEL
from remoteclaw.gateway.held_terminal import HeldTerminal
from remoteclaw.gateway.methods.console import kind_of_chat
from remoteclaw.gateway.methods.opening import open_terminal
from remoteclaw.gateway.session_access import find
from remoteclaw.gateway.viewers import Room, terminal_of
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between
from remoteclaw.tools import terminals as contract
from remoteclaw.tty import input as typing
from remoteclaw.tty import keys
from remoteclaw.tty.frames import Modes
from remoteclaw.tty.input import PasteRefused
from remoteclaw.tty.keyboard import Typist
from remoteclaw.tty.keys import UnknownKey
from remoteclaw.tty.watch import Watching

BUSY = (
    "The terminal is not known to be idle: parking it would cut off its work. Use force to end it "
    "anyway."
)
NOT_BEGUN = (
    "The terminal has not started: it waits behind a turn. `sessions.stop` stops that turn, and "
    "what waits."
)


async def _list(call: Call, params: contract.ListTerminalsParams) -> contract.TerminalList:
    seen = map(call.terminals.seen, await call.fleet.terminals.of_last_days())
    found = [
        record
        for record in sorted(seen, key=lambda each: (not each.is_open, -each.opened_ms))
        if record.agent in call.config.agents
        and params.agent in (None, record.agent)
        and params.state in (None, record.state)
    ]
    found = await call.terminals.resumable.look(found[: params.limit])
    return contract.TerminalList(terminals=tuple(map(terminal_of, found)))


async def _get(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    (record,) = await call.terminals.resumable.look([await _record(call, params.sid)])
    return terminal_of(record)


async def _screen(call: Call, params: contract.TerminalParams) -> contract.TerminalScreen:
    record = await _record(call, params.sid)
    if record.is_open:
        _, watching = await call.terminals.shown(record)
        screen = watching.screen
    else:
        screen = await call.terminals.last_screen(record)
    frame = screen.frame(None)
    assert frame is not None, "the whole is never nothing"
    return contract.TerminalScreen(sid=record.sid, frame=frame, text=screen.text())


async def _history(call: Call, params: contract.HistoryParams) -> contract.HistoryRows:
    _, watching, record = await _shown(call, params.sid)
    found = watching.screen.history(params.start, params.count)
    return contract.HistoryRows(sid=record.sid, **found)


async def _watch(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    room = call.terminals.watch(call.events, _who(call), record)
    return terminal_of(room.record)


async def _leave(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    call.terminals.leave(call.events, record.sid, for_good=True)
    return terminal_of(call.terminals.seen(record))


# -- typing ------------------------------------------------------------------------------------


async def _take(call: Call, params: contract.TakeParams) -> contract.Terminal:
    terminal, _, _ = await _shown(call, params.sid)
    room = terminal.room
    room.keyboard.take(_who(call), now=boottime(), force=params.force)
    room.seen()
    if params.cols and params.rows:
        terminal.resize(params.cols, params.rows)
    terminal.changed()
    return terminal_of(room.record)


async def _key(call: Call, params: contract.KeyParams) -> contract.Terminal:
    terminal, watching, _ = await _shown(call, params.sid)
    if (params.bytes is None) == (params.key is None):
        raise CallRefused("INVALID_REQUEST", "terminals.key: give bytes or key.")
    with _typing(call, terminal.room) as is_new:
        if params.bytes is not None:
            pressed = [params.bytes] if isinstance(params.bytes, int) else params.bytes
            data = keys.raw(pressed)
        else:
            names = [params.key] if isinstance(params.key, str) else params.key or []
            data = b"".join(keys.encode(name, watching.screen.modes) for name in names)
        if is_new:
            await watching.type(data)
    return terminal_of(terminal.room.record)


async def _type(call: Call, params: contract.TypeParams) -> contract.Terminal:
    terminal, watching, _ = await _shown(call, params.sid)
    if not terminal.room.keyboard.name:  # a connection that came back
        terminal.room.keyboard.take(_who(call), now=boottime())
        terminal.room.seen()
    with _typing(call, terminal.room) as is_new:
        modes = watching.screen.modes
        data = b"".join(_typed(each, modes) for each in params.keys)
        if is_new:
            await watching.type(data)
    return terminal_of(terminal.room.record)


def _typed(each: str, modes: Modes) -> bytes:
    kind, _, what = each.partition(":")
    match kind:
        case "t":
            return typing.cleaned(what).replace("\n", "").replace("\t", "").encode()
        case "k":
            return keys.encode(what, modes)
    raise CallRefused("INVALID_REQUEST", "terminals.type: keys are t:TEXT or k:NAME.")


async def _paste(call: Call, params: contract.PasteParams) -> contract.Terminal:
    terminal, watching, _ = await _shown(call, params.sid)
    with _typing(call, terminal.room) as is_new:
        if is_new:
            await watching.paste(params.text)
    return terminal_of(terminal.room.record)


async def _resize(call: Call, params: contract.ResizeParams) -> contract.Terminal:
    terminal, _, _ = await _shown(call, params.sid)
    with _typing(call, terminal.room):
        terminal.resize(params.cols, params.rows)
    return terminal_of(terminal.room.record)


async def _input(call: Call, params: contract.InputParams) -> contract.InputResult:
    record = await _record(call, params.sid)
    if not record.is_open:
        return await _as_message(call, record.key, params.text)
    if not call.operator.has("terminal"):
        raise CallRefused(
            "FORBIDDEN",
            "A terminal is open in this session: to type in it needs a token with the scope "
            f"terminal; this one has {call.operator.scope}.",
        )
    terminal, watching = await call.terminals.shown(record)
    if problem := typing.problem_of_input(params.text):
        raise CallRefused("REFUSED", problem)
    with _typing(call, terminal.room) as is_new:
        if is_new:
            await watching.submit(params.text)
    return contract.InputResult(submitted=True)


async def _as_message(call: Call, session: SessionKey, text: str) -> contract.InputResult:
    """Give a text to a session as a message of its user, or of an operator who isn't theirs."""
    if call.operator.has("admin"):
        message = session.message(
            id=f"input-{call.id}", text=text, timestamp=now_ms(), **kind_of_chat(session)
        )
        accepted = await call.fleet.inbound.append(
            message,
            agent=session.agent,
            deliver="channel" if session.provider == CHANNEL else "caller",
        )
        entry_id = accepted.entry_id
    else:
        message = message_between(None, session, text, name=f"input-{call.id}")
        entry_id = await call.fleet.calls.entry(
            None, call.id, session, message, note=None, provenance=None
        )
    return contract.InputResult(submitted=False, run_id=f"{session.sid}-{entry_id}")


@contextlib.contextmanager
def _typing(call: Call, room: Room) -> Iterator[bool]:
    """Type for a caller, unless another one does; what can't be typed is refused.

    Yields whether it was not typed yet: the same call may come again.
    """
    who = _who(call)
    room.keyboard.check(who, now=boottime())
    try:
        yield not room.has_typed(call.id)
        room.typed(call.id)
    except (PasteRefused, UnknownKey) as error:
        raise CallRefused("REFUSED", str(error)) from None
    finally:
        room.keyboard.used(who, now=boottime())


# -- ending ------------------------------------------------------------------------------------


async def _park(call: Call, params: contract.ParkParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    if record.is_open and record.activity != "idle" and not params.force:
        raise CallRefused("CONFLICT", BUSY)
    return await _ended(call, record)


async def _end(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    return await _ended(call, await _record(call, params.sid))


async def _ended(call: Call, record: TerminalRecord) -> contract.Terminal:
    """Ask a terminal's host to end it, which tells its viewers when it is ended."""
    if record.is_open and not await call.fleet.terminals.stop(record.sid):
        raise CallRefused("CONFLICT", NOT_BEGUN)
    return terminal_of(record)


# -- which -------------------------------------------------------------------------------------


async def _record(call: Call, named: str) -> TerminalRecord:
    """Return a session's terminal. Raises `CallRefused` where it never had one."""
    if known := call.terminals.known(named):
        return known
    view = await find(call, named)
    record = await call.fleet.terminals.record(view.sid)
    if record is None:
        raise CallRefused("NOT_FOUND", "This session has had no terminal within the last days.")
    return call.terminals.seen(record)


async def _shown(call: Call, named: str) -> tuple[HeldTerminal, Watching, TerminalRecord]:
    """Return a terminal that has a screen here."""
    record = await _record(call, named)
    return *await call.terminals.shown(record), record


def _who(call: Call) -> Typist:
    connection = id(call.subscriber) if call.subscriber else None
    return Typist(call.operator.known_as, call.operator.credential, connection)


HANDLERS: Mapping[str, Handler] = {
    "terminals.open": open_terminal,
    "terminals.list": _list,
    "terminals.get": _get,
    "terminals.screen": _screen,
    "terminals.watch": _watch,
    "terminals.leave": _leave,
    "terminals.history": _history,
    "terminals.input": _input,
    "terminals.key": _key,
    "terminals.type": _type,
    "terminals.paste": _paste,
    "terminals.resize": _resize,
    "terminals.take": _take,
    "terminals.park": _park,
    "terminals.end": _end,
}
