"""Handlers of terminals: opening, watching, typing, ending."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remoteclaw.channels.web.profile import CHANNEL
from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.sessions.state import FOR_BUDGET
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.fleet.terminals.terminals import TerminalEnding
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.session_access import find_session
from remoteclaw.gateway.terminals.dropped_files import DroppedFiles, typed_path
from remoteclaw.gateway.terminals.held_terminal import HeldTerminal
from remoteclaw.gateway.terminals.host_terminals import NOT_OPEN
from remoteclaw.gateway.terminals.viewers import TerminalViewers, terminal_of
from remoteclaw.host.load import Overloaded, check_load
from remoteclaw.host.safe_open import BadSubdir, parts_of
from remoteclaw.messages import Attachment, SessionKey, TerminalWish
from remoteclaw.runtimes import detect_runtime, terminal_problem
from remoteclaw.tools import terminals as contract
from remoteclaw.tty import ghostty, keys
from remoteclaw.tty import input as terminal_input
from remoteclaw.tty.input import PasteRefused
from remoteclaw.tty.keyboard import Typist
from remoteclaw.tty.keys import UnknownKey
from remoteclaw.tty.watch import WatchedTerminal

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
#: The most rows that a search finds: each is read from the emulator, which takes 0.1 ms.
MAX_FOUND_ROWS = 500
NO_WORKER = "No worker is running that could open it: start one with `remoteclaw worker`."
BUSY = (
    "The terminal is not known to be idle: parking it would cut off its work. Use force to end it "
    "anyway."
)
NO_KEYBOARD = "Take the keyboard first: then files go to the program."
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


async def _search(
    call: Call, params: contract.TerminalSearchParams
) -> contract.TerminalSearchResult:
    _, watching, record = await _attached(call, params.sid)
    found = watching.screen.search(params.text, max_rows=MAX_FOUND_ROWS)
    total = sum(row["count"] for row in found["rows"])
    return contract.TerminalSearchResult(sid=record.sid, total=total, **found)


async def _watch(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    viewers = call.terminals.watch(call.events, _typist(call), record)
    return terminal_of(viewers.record)


async def _leave(call: Call, params: contract.TerminalParams) -> contract.Terminal:
    record = await _record(call, params.sid)
    call.terminals.leave(call.events, record.sid, for_good=True)
    return terminal_of(call.terminals.newest_record(record))


# -- opening -----------------------------------------------------------------------------------


async def _open(call: Call, params: contract.OpenTerminalParams) -> contract.OpenedTerminal:
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
        agent = call.config.agents.get(session.agent)
        if agent and (lack := terminal_problem(agent.runtime or detect_runtime()[0])):
            raise CallRefused("UNAVAILABLE", lack)
    # A postponed turn stays behind the terminal.
    if params.force and view and view.turn and not (is_open or view.is_postponed):
        await call.fleet.sessions.stop(session.sid, call=f"{call.id}-force")
    on_behalf_of = call.people(session)
    if not is_open:
        await _check_budgets(call, session, view, on_behalf_of)
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


async def _check_budgets(
    call: Call, session: SessionKey, view: SessionView | None, people: Sequence[str]
) -> None:
    """Raise `CallRefused` if a budget is used up, or if the session waits for one."""
    above = await call.fleet.sessions.ancestors(view) if view else ()
    root = above[-1] if above else session
    why = await call.fleet.budgets.refusal(call.config, session, root, people)
    if not why and view and view.postponed == FOR_BUDGET:
        why = f"Messages of this session wait: {view.postponed_for}."
    if why:
        raise CallRefused("REFUSED", why)


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


async def _type(call: Call, params: contract.TypeParams) -> contract.Typed:
    terminal, watching, _ = await _attached(call, params.sid)
    text = _text_to_submit(params) if params.submit else None
    cleared = None
    with _typing(call, terminal.viewers) as is_new:
        if text is None:
            data = b"".join(_encoded(item, watching) for item in params.keys)
            if is_new:
                is_pasted = any(item.startswith("p:") for item in params.keys)
                await watching.type(data, is_pasted=is_pasted)
        elif is_new:
            cleared = await watching.submit(text, clear=params.clear)
    return contract.Typed.of(terminal_of(terminal.viewers.record), cleared=cleared or None)


async def _drop(call: Call, params: contract.DropParams) -> contract.Dropped:
    terminal, watching, record = await _attached(call, params.sid)
    viewers = terminal.viewers
    if not viewers.keyboard.is_held_by(_typist(call)):
        raise CallRefused("CONFLICT", NO_KEYBOARD)
    dropped = DroppedFiles(call.fleet.blobs, record.sid, Path(terminal.held.place.files))
    if viewers.has_typed(call.id):
        return contract.Dropped(sid=record.sid, paths=())
    async with call.transfers.slot(call.operator):
        paths = await dropped.place([Attachment(**each.model_dump()) for each in params.files])
    with _typing(call, viewers):  # another user may have the keyboard by now
        data = b"".join(watching.pasted(typed_path(path)) + b" " for path in paths)
        await watching.type(data, is_pasted=True)
    return contract.Dropped(sid=record.sid, paths=tuple(map(str, paths)))


def _text_to_submit(params: contract.TypeParams) -> str:
    """Return the text that `params` submit. Raises `CallRefused`."""
    kind, _, text = params.keys[0].partition(":")
    if len(params.keys) > 1 or kind != "p":
        raise CallRefused("INVALID_REQUEST", "terminals.type: submit needs one p:TEXT in keys.")
    if problem := terminal_input.problem_of_input(text):
        raise CallRefused("REFUSED", problem)
    return text


def _encoded(item: str, watching: WatchedTerminal) -> bytes:
    """Return the bytes of an item of `keys`.

    Raises `CallRefused`, `PasteRefused` or `UnknownKey`.
    """
    kind, _, value = item.partition(":")
    with contextlib.suppress(ValueError):  # b: is not hexadecimal
        match kind:
            case "t":
                return terminal_input.cleaned(value).replace("\n", "").replace("\t", "").encode()
            case "k":
                return keys.encode(value, watching.screen.modes)
            case "b":
                return keys.raw(bytes.fromhex(value))
            case "p":
                return watching.pasted(value)
    raise CallRefused(
        "INVALID_REQUEST", "terminals.type: keys are k:NAME, t:TEXT, b:HEX or p:TEXT."
    )


async def _resize(call: Call, params: contract.ResizeParams) -> contract.Terminal:
    terminal, _, _ = await _attached(call, params.sid)
    with _typing(call, terminal.viewers):
        terminal.resize(params.cols, params.rows)
    return terminal_of(terminal.viewers.record)


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


# -- sharing -----------------------------------------------------------------------------------


async def _share(call: Call, params: contract.ShareParams) -> contract.SharedTerminal:
    if call.operator.claims is not None:
        raise CallRefused(
            "FORBIDDEN",
            "A token that another application has signed can't share a terminal: a link ends with "
            "the token that made it, and such a token can't be looked up.",
        )
    _, _, record = await _attached(call, params.sid)
    token, link = await call.fleet.guest_links.create(
        record.sid,
        record.entry,
        by=call.operator.name,
        credential=call.operator.credential,
        valid_ms=params.minutes * 60_000,
    )
    hosts = call.config.gateway.hosts
    origin = f"https://{hosts[0]}" if hosts else call.terminals.address or ""
    return contract.SharedTerminal.of(link, token=token, url=f"{origin}/watch#{token}")


async def _links(call: Call, params: contract.TerminalParams) -> contract.GuestLinks:
    record = await _record(call, params.sid)
    links = await call.fleet.guest_links.of(record.entry)
    return contract.GuestLinks(links=tuple(map(contract.GuestLink.of, links)))


async def _unshare(call: Call, params: contract.UnshareParams) -> contract.GuestLinks:
    record, links = await _record(call, params.sid), call.fleet.guest_links
    ids = [link.id for link in await links.of(record.entry) if params.link in (None, link.id)]
    if not await links.revoke(*ids) and params.link:
        raise CallRefused("NOT_FOUND", f"{params.link[:40]!r} is no valid link of this terminal.")
    return await _links(call, contract.TerminalParams(sid=record.sid))


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
    "terminals.open": _open,
    "terminals.list": _list,
    "terminals.get": _get,
    "terminals.screen": _screen,
    "terminals.watch": _watch,
    "terminals.leave": _leave,
    "terminals.history": _history,
    "terminals.search": _search,
    "terminals.drop": _drop,
    "terminals.type": _type,
    "terminals.resize": _resize,
    "terminals.take": _take,
    "terminals.share": _share,
    "terminals.links": _links,
    "terminals.unshare": _unshare,
    "terminals.park": _park,
    "terminals.end": _end,
}
