"""Handlers of terminals: watching, typing, ending."""

import contextlib
from collections.abc import Iterator, Mapping

from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.opening import open_terminal
from remoteclaw.gateway.session_access import find_session
from remoteclaw.gateway.terminals.held_terminal import HeldTerminal
from remoteclaw.gateway.terminals.viewers import TerminalViewers, terminal_of
from remoteclaw.messages import SessionKey
from remoteclaw.tasks.entries import message_between
from remoteclaw.tools import terminals as contract
from remoteclaw.tty import input as terminal_input
from remoteclaw.tty import keys
from remoteclaw.tty.frames import Modes
from remoteclaw.tty.input import PasteRefused
from remoteclaw.tty.keyboard import Typist
from remoteclaw.tty.keys import UnknownKey
from remoteclaw.tty.watch import WatchedTerminal

BUSY = (
    "The terminal is not known to be idle: parking it would cut off its work. Use force to end it "
    "anyway."
)
NOT_BEGUN = (
    "The terminal has not started: it waits until a turn has ended. `sessions.stop` stops that "
    "turn, and everything that waits for it."
)


async def _list(call: Call, params: contract.ListTerminalsParams) -> contract.TerminalList:
    recent = await call.fleet.terminals.recent()
    newest = map(call.terminals.newest_record, recent)
    records = [
        record
        for record in sorted(newest, key=lambda each: (not each.is_open, -each.opened_ms))
        if record.agent in call.config.agents
        and params.agent in (None, record.agent)
        and params.state in (None, record.state)
    ]
    records = await call.terminals.resumable.check(records[: params.limit])
    return contract.TerminalList(terminals=tuple(map(terminal_of, records)))


async def _get(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    (record,) = await call.terminals.resumable.check([await _record(call, params.sid)])
    return terminal_of(record)


async def _screen(call: Call, params: contract.TerminalParams) -> contract.TerminalScreen:
    record = await _record(call, params.sid)
    if record.is_open:
        _, watching = await call.terminals.attached(record)
        screen = watching.screen
    else:
        screen = await call.terminals.last_screen(record)
    frame = screen.frame(None)
    assert frame is not None, "a whole screen is never None"
    return contract.TerminalScreen(sid=record.sid, frame=frame, text=screen.text())


async def _history(call: Call, params: contract.TerminalHistoryParams) -> contract.HistoryRows:
    _, watching, record = await _attached(call, params.sid)
    history = watching.screen.history(params.start, params.count)
    return contract.HistoryRows(sid=record.sid, **history)


async def _watch(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    viewers = call.terminals.watch(call.events, _typist(call), record)
    return terminal_of(viewers.record)


async def _leave(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    call.terminals.leave(call.events, record.sid, for_good=True)
    return terminal_of(call.terminals.newest_record(record))


# -- typing ------------------------------------------------------------------------------------


async def _take(call: Call, params: contract.TakeParams) -> contract.Terminal:
    terminal, _, _ = await _attached(call, params.sid)
    viewers = terminal.viewers
    viewers.keyboard.take(_typist(call), now=boottime(), force=params.force)
    viewers.refresh()
    if params.cols and params.rows:
        terminal.resize(params.cols, params.rows)
    terminal.status_changed()
    return terminal_of(viewers.record)


async def _key(call: Call, params: contract.KeyParams) -> contract.Terminal:
    terminal, watching, _ = await _attached(call, params.sid)
    if (params.bytes is None) == (params.key is None):
        raise CallRefused("INVALID_REQUEST", "terminals.key: give bytes or key.")
    with _typing(call, terminal.viewers) as is_new:
        if params.bytes is not None:
            pressed = [params.bytes] if isinstance(params.bytes, int) else params.bytes
            data = keys.raw(pressed)
        else:
            names = [params.key] if isinstance(params.key, str) else params.key or []
            data = b"".join(keys.encode(name, watching.screen.modes) for name in names)
        if is_new:
            await watching.type(data)
    return terminal_of(terminal.viewers.record)


async def _type(call: Call, params: contract.TypeParams) -> contract.Terminal:
    terminal, watching, _ = await _attached(call, params.sid)
    if not terminal.viewers.keyboard.name:  # nobody types, as after the typist has reconnected
        terminal.viewers.keyboard.take(_typist(call), now=boottime())
        terminal.viewers.refresh()
    with _typing(call, terminal.viewers) as is_new:
        modes = watching.screen.modes
        data = b"".join(_encoded(key, modes) for key in params.keys)
        if is_new:
            await watching.type(data)
    return terminal_of(terminal.viewers.record)


def _encoded(key: str, modes: Modes) -> bytes:
    """Return the bytes of `t:TEXT` or `k:NAME`. Raises `CallRefused` or `UnknownKey`."""
    kind, _, value = key.partition(":")
    match kind:
        case "t":
            return terminal_input.cleaned(value).replace("\n", "").replace("\t", "").encode()
        case "k":
            return keys.encode(value, modes)
    raise CallRefused("INVALID_REQUEST", "terminals.type: keys are t:TEXT or k:NAME.")


async def _paste(call: Call, params: contract.PasteParams) -> contract.Terminal:
    terminal, watching, _ = await _attached(call, params.sid)
    with _typing(call, terminal.viewers) as is_new:
        if is_new:
            await watching.paste(params.text)
    return terminal_of(terminal.viewers.record)


async def _resize(call: Call, params: contract.ResizeParams) -> contract.Terminal:
    terminal, _, _ = await _attached(call, params.sid)
    with _typing(call, terminal.viewers):
        terminal.resize(params.cols, params.rows)
    return terminal_of(terminal.viewers.record)


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
    terminal, watching = await call.terminals.attached(record)
    if problem := terminal_input.problem_of_input(params.text):
        raise CallRefused("REFUSED", problem)
    cleared = ""
    with _typing(call, terminal.viewers) as is_new:
        if is_new:
            cleared = await watching.submit(params.text, clear=params.clear)
    return contract.InputResult(submitted=True, cleared=cleared)


async def _as_message(call: Call, session: SessionKey, text: str) -> contract.InputResult:
    """Send a text to a session: with the scope admin as its user, else as an operator."""
    if call.operator.has("admin"):
        message = session.message(id=f"input-{call.id}", text=text, timestamp=now_ms())
        accepted = await call.fleet.inbound.append(
            message,
            agent=session.agent,
            deliver="channel" if session.provider == CHANNEL else "caller",
        )
        entry_id = accepted.entry_id
    else:
        message = message_between(None, session, text, name=f"input-{call.id}")
        entry_id, _ = await call.fleet.calls.put_entry(
            None, call.id, session, message, note=None, provenance=None
        )
    return contract.InputResult(submitted=False, run_id=f"{session.sid}-{entry_id}")


@contextlib.contextmanager
def _typing(call: Call, viewers: TerminalViewers) -> Iterator[bool]:
    """Hold the keyboard for a call, and yield whether the call has not typed yet.

    Clients may repeat a call by its id. Raises `CallRefused` if another client types, or if the
    input can't be typed.
    """
    typist = _typist(call)
    viewers.keyboard.check(typist, now=boottime())
    try:
        yield not viewers.has_typed(call.id)
        viewers.note_typed(call.id)
    except (PasteRefused, UnknownKey) as error:
        raise CallRefused("REFUSED", str(error)) from None
    finally:
        viewers.keyboard.note_use(typist, now=boottime())


# -- ending ------------------------------------------------------------------------------------


async def _park(call: Call, params: contract.ParkParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    if record.is_open and record.activity != "idle" and not params.force:
        raise CallRefused("CONFLICT", BUSY)
    return await _ask_to_end(call, record)


async def _end(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    return await _ask_to_end(call, await _record(call, params.sid))


async def _ask_to_end(call: Call, record: TerminalRecord) -> contract.Terminal:
    """Ask a terminal's host to end it. Its viewers are notified once it has ended."""
    if record.is_open and not await call.fleet.terminals.stop(record.sid):
        raise CallRefused("CONFLICT", NOT_BEGUN)
    return terminal_of(record)


# -- lookup ------------------------------------------------------------------------------------


async def _record(call: Call, named: str) -> TerminalRecord:
    """Return a session's terminal. Raises `CallRefused` if it has had none recently."""
    if record_here := call.terminals.held_record(named):
        return record_here
    view = await find_session(call, named)
    record = await call.fleet.terminals.record(view.sid)
    if record is None:
        raise CallRefused("NOT_FOUND", "This session has had no terminal within the last days.")
    return call.terminals.newest_record(record)


async def _attached(call: Call, named: str) -> tuple[HeldTerminal, WatchedTerminal, TerminalRecord]:
    """Return a terminal that this gateway is attached to. Raises `CallRefused`."""
    record = await _record(call, named)
    return *await call.terminals.attached(record), record


def _typist(call: Call) -> Typist:
    connection = id(call.subscriber) if call.subscriber else None
    return Typist(call.operator.name, call.operator.credential, connection)


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
