"""Handlers of agents' memories.

Only turns that are on behalf of owners alone have the tool (`owner_only`). If text of others may
have led to a call, such as a page of the web, a person has to allow it.
"""

import contextlib
from collections.abc import Sequence

import orjson

from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.bridge.untrusted import clean, clean_name
from remoteclaw.clock import local_time, now_ms
from remoteclaw.config.identity import MAX_MEMORY_BYTES
from remoteclaw.config.model import Config
from remoteclaw.config.requests import can_be_asked, request_settings
from remoteclaw.config.tool_policy import approval_rule, is_owned_by
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.memories import OPERATOR, Memory, with_line
from remoteclaw.fleet.requests.card import ShownCard, make_card, other_chat_note, request_args
from remoteclaw.fleet.requests.request import Change, MemoryLine, Request, new_id
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.rights import subject_of_caller
from remoteclaw.host.terminal import fenced, one_line
from remoteclaw.messages import Entry, people_of
from remoteclaw.session.identity import is_direct_chat
from remoteclaw.session.record import has_text_of_others, senders_of
from remoteclaw.tools import memory as contract

#: A line names at most this many people.
MAX_NAMED = 3
NOTICE = "(Remembered: {what} — `/memory undo` takes it back.)"
CARD = "**{agent}**{about} wants to remember something. {why}:\n\n{block}"
REQUESTED = (
    "Nothing was written yet: a person has to allow it within an hour. {why}. They are asked in "
    "the chat. Go on without waiting for it: you are told what becomes of it."
)
NOBODY = (
    "Nothing was written: {why}, so a person would have to allow it, and nobody can be asked here."
)
#: A line that is replaced would be quoted to the people of the chat.
NOT_HERE = (
    "Nothing was written: lines are replaced in a direct chat with an owner, because others read "
    "this one. Leave out replaces to add a line."
)
#: Why a person has to allow a call.
READ_WEB = (
    "This turn has read what others have written (the web, an MCP server, another chat, or a "
    "quoted or forwarded message)"
)
IN_TERMINAL = "RemoteClaw doesn't know what a terminal's program has read"
HAS_OTHERS = "This conversation has messages of people who are no owners"
HAS_QUOTES = "This conversation has quoted or forwarded messages"
NO_RECORD = "Others may have written in this conversation, of which there is no record"
BY_RULE = "The configuration says so ({rule})"


async def _write(call: Call, params: contract.MemoryWriteParams) -> contract.MemoryWritten:
    agent = _agent_with_memory(call)
    scrubber = Scrubber(secrets_of(call.config))
    text = clean(scrubber.line(params.text, contract.MAX_LINE_CHARS), max_chars=10_000).strip()
    replaces = " ".join((params.replaces or "").split())
    is_private = call.caller is None or is_direct_chat(
        call.caller.session, [entry.message for entry in call.turn.entries]
    )
    if replaces and not is_private:
        raise CallRefused("FORBIDDEN", NOT_HERE)
    if not text and not replaces:
        raise CallRefused("INVALID_REQUEST", "memory_write: text is empty: say what to remember.")
    zone = call.config.timezone_of(agent)
    date = local_time(now_ms(), zone).strftime("%Y-%m-%d")
    by = _source(call)
    line = f"- {date} ({by}): {text}" if text else ""
    if (why := await _why_to_ask(call, is_private=is_private)) is not None:
        wanted = MemoryLine(agent, line, replaces, by)
        return await _request(call, wanted, why=why, is_private=is_private)
    effect = {"type": "memory_written", "tool": "memory_write", "agent": agent, "text": line}
    memory = await call.fleet.memories.write_line(
        call.home,
        agent,
        line,
        replaces=replaces,
        by=by,
        call=call.id,
        caller=call.caller,
        effect=effect,
        is_private=is_private,
    )
    call.note(effect)
    what = f"“{text}”" if text else f"nothing more of “{one_line(replaces, max_chars=200)}”"
    await _tell(call, NOTICE.format(what=what))
    return contract.MemoryWritten(status="written", line=line, detail=_fill(memory))


def _agent_with_memory(call: Call) -> str:
    """Return the agent of the call's session. Raises `CallRefused` if it has no memory."""
    if call.session is None:
        raise CallRefused("INVALID_REQUEST", "memory.write: name the session whose agent it is.")
    agent, settings = call.config.agent(call.session.agent)
    if not settings.memory:
        raise CallRefused(
            "FORBIDDEN", f"{agent} has no memory: set [agents.{agent}] memory = true for one."
        )
    return agent


def _source(call: Call) -> str:
    """Return who has caused a call, and in which chat."""
    if call.caller is None:
        return OPERATOR
    place = call.turn.place
    names = dict.fromkeys(map(_name_of, call.turn.entries))
    shown = ", ".join([*names][:MAX_NAMED])
    return f"{shown}, {clean_name(place.provider)}:{clean_name(place.chat)}"


def _name_of(entry: Entry) -> str:
    return clean_name(entry.message.user_name or entry.message.from_)


async def _why_to_ask(call: Call, *, is_private: bool) -> str | None:
    """Return why a person has to allow a call; None if nobody has to."""
    if call.caller is None:
        return None
    if rule := approval_rule(call.config, subject_of_caller(call.caller), call.tool):
        return BY_RULE.format(rule=rule)
    if call.turn.has_read_web:
        return READ_WEB
    if call.caller.state.terminal_entry == call.turn.id:
        return IN_TERMINAL
    # Whoever has written before may have prepared what the agent does for an owner now: in this
    # chat, or in the one whose conversation this one is a copy of.
    record = await call.fleet.records.of(call.caller.session.sid)
    if not record and not is_private and not call.config.record.keep_ms:
        return NO_RECORD
    channel = call.caller.session.provider
    others = [each for each in senders_of(record) if not is_owned_by(call.config, channel, each)]
    if has_text_of_others(record):
        return HAS_QUOTES
    return HAS_OTHERS if others else None


async def _request(
    call: Call, line: MemoryLine, *, why: str, is_private: bool
) -> contract.MemoryWritten:
    """Ask people to allow a call; nothing is written yet."""
    assert call.caller is not None, "operators are not asked"
    if earlier := await call.fleet.calls.result_of(call.caller, call.id):
        return contract.MemoryWritten(**orjson.loads(earlier["result"]))
    memory = await call.fleet.memories.read(call.home, line.agent)
    _, what = with_line(
        memory.text, line.line, line.replaces, agent=line.agent, is_private=is_private
    )
    entries = call.turn.entries
    people = people_of(entries)
    is_in_chat = entries[-1].deliver == "channel"
    if not is_in_chat or not can_be_asked(call.config, call.caller.session, people):
        raise CallRefused("FORBIDDEN", NOBODY.format(why=why))
    request = Request(
        id=new_id(),
        session=call.caller.session,
        turn=call.turn.id,
        tool=call.tool.tool,
        what=what,
        where=f"the memory of {line.agent}",
        deliver=entries[-1].deliver,
        here=call.turn.place,
        chat=request_settings(call.config, call.caller.session).chat,
        people=people,
        change=Change(memory=line, changed=(f"the memory of {line.agent}",)),
    )
    answer = contract.MemoryWritten(
        status="requested", line=line.line, detail=REQUESTED.format(why=why)
    )
    effect = {"type": "memory_asked", "tool": call.tool.tool, "text": what}
    await call.fleet.calls.record_change(
        call.caller,
        call.id,
        answer.model_dump_json(by_alias=False),
        effect=effect,
        request_args=request_args(
            request, _card(request, entries, why), keep_ms=call.config.record.keep_ms
        ),
    )
    return answer


def _card(request: Request, entries: Sequence[Entry], why: str) -> ShownCard:
    about = other_chat_note(request, entries)
    block = fenced(request.what)
    text = CARD.format(agent=request.session.agent, about=about, why=why, block=block)
    return make_card(request, attempt=1, text=text)


async def _tell(call: Call, text: str) -> None:
    """Tell the chat of the caller's turn, if an adapter delivers messages there."""
    if call.caller is None:
        return
    place = call.turn.place
    if call.config.account(place.provider, place.account) is None:
        return
    with contextlib.suppress(CallRefused):  # Redis is full, and the line is written
        await call.fleet.calls.send_notice(place, text, name=f"{call.id} told", is_silent=True)


def _fill(memory: Memory) -> str:
    size = len(memory.text.encode())
    return f"The owner is told. The memory has {size:,} of {MAX_MEMORY_BYTES:,} bytes."


# -- for operators -----------------------------------------------------------------------------


async def _show(call: Call, params: contract.MemoryParams) -> contract.MemoryText:
    agent = _named(call.config, params.agent)
    return _text(call, agent, await call.fleet.memories.read(call.home, agent))


async def _replace(call: Call, params: contract.MemoryReplaceParams) -> contract.MemoryText:
    agent = _named(call.config, params.agent)
    memory = await call.fleet.memories.replace(
        call.home, agent, params.text, base=params.base, by=OPERATOR
    )
    return _text(call, agent, memory)


async def _undo(call: Call, params: contract.MemoryParams) -> contract.MemoryUndone:
    agent = _named(call.config, params.agent)
    change = await call.fleet.memories.undo(call.home, agent, call=call.id)
    return contract.MemoryUndone(
        undone=change.words if change else None, by=change.by if change else None
    )


def _named(config: Config, agent: str) -> str:
    try:
        return config.agent(agent)[0]
    except ConfigError as error:
        raise CallRefused("NOT_FOUND", str(error)) from None


def _text(call: Call, agent: str, memory: Memory) -> contract.MemoryText:
    return contract.MemoryText(
        agent=agent,
        text=memory.text,
        bytes=len(memory.text.encode()),
        max_bytes=MAX_MEMORY_BYTES,
        is_used=call.config.agents[agent].memory,
    )


HANDLERS: dict[str, Handler] = {
    "memory.write": _write,
    "memory.show": _show,
    "memory.replace": _replace,
    "memory.undo": _undo,
}
