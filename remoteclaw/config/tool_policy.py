"""Tool policy: which tools an agent is offered, and which it may use in a turn.

A tool passes through steps: profiles, the lists of each table that applies, what subagents may not
do, what only owners may. A step only narrows what the steps before it left, so no table can give
what another one takes, and what isn't understood allows nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from remoteclaw.config.model import ChannelConfig, Config
from remoteclaw.config.tool_lists import (
    ToolsTable,
    Verdict,
    entry_for,
    most_specific,
    quoted,
    sender_table,
)
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.tools.base import Tool

__all__ = [
    "Ruling",
    "Subject",
    "allowed",
    "approval_rule",
    "is_owner",
    "listed",
    "may_see",
    "may_send",
    "rule",
    "subject_of",
]


#: What no subagent may: it works for another session, which speaks for it and keeps the clock.
NO_SUBAGENT = ("group:gateway", "agents_list", "session_status", "group:cron", "sessions_send")

#: What in a group is for owners, unless the table of the group or of its channel adds it: it takes
#: away or puts up what others have written.
MODERATES = ("message_delete", "message_pin")

#: What a subagent may not, in addition, that can have none of its own.
NO_LEAF = ("sessions_list", "sessions_history", "sessions_spawn", "subagents")


@dataclass(frozen=True, slots=True)
class Subject:
    """For whom an agent would use a tool, and where."""

    agent: str
    channel: str
    """The kind of channel, such as `telegram`."""
    chat_id: str
    is_group: bool
    senders: tuple[str | None, ...]
    """The ids of everybody whose messages the turn answers; None for what nobody has written, which
    has an unknown sender's rights at most. With no sender at all, the turn is nobody's likewise."""
    user: str | None = None
    """Whose session it is: what is denied to them is also denied to what nobody has written there,
    or they could have it done for them later."""
    depth: int = 0
    """0 for a conversation with people, 1 for a session that one has spawned, and so on."""
    people: tuple[str, ...] = ()
    """The people on whose behalf the clock or a task has written, as entries name them: the turn
    has their rights."""


def subject_of(session: SessionKey, entries: Iterable[Entry], *, depth: int = 0) -> Subject:
    """Return for whom, and where, a turn uses tools that answers these entries.

    What the clock or a task has written is on behalf of who made the job or asked for the task;
    what another session has written is nobody's. A chat counts as a group unless it is called like
    its one sender: that narrows at most.
    """
    entries = tuple(entries)
    senders = tuple(
        entry.message.from_ if entry.origin == "chat" else None
        for entry in entries
        if entry.origin == "chat" or not entry.people
    )
    behalf = dict.fromkeys(person for entry in entries for person in entry.people)
    people = {sender for sender in senders if sender is not None} or {session.user}
    return Subject(
        agent=session.agent,
        channel=session.provider,
        chat_id=session.channel_id,
        is_group=people != {session.channel_id},
        senders=senders,
        user=session.user,
        depth=depth,
        people=tuple(behalf),
    )


def may_see(
    config: Config,
    own: SessionKey,
    other: SessionKey,
    *,
    is_owner: bool,
    above: Sequence[SessionKey] = (),
) -> bool:
    """Whether a session's agent may look at, and write to, another session in a turn.

    `above` are the sessions that the other one was started by; `is_owner` says that the turn is on
    behalf of owners alone. Each way of seeing includes those that see less. Raises `ConfigError`
    if there is no such agent.
    """
    _, settings = config.agent(own.agent)
    sees = settings.sees_sessions or "agent"
    if sees != "self" and not is_owner:
        sees = "tree"
    if other == own or sees == "all":
        return True
    is_below = own in above and sees != "self"
    return is_below or (sees == "agent" and other.agent == own.agent)


def may_send(
    config: Config, own: SessionKey, channel: str, chat: str, *, account: str, is_owner: bool
) -> bool:
    """Whether a session's agent may send to a chat in a turn: to its own, for owners to any.

    Threads of its own chat are its own. Raises `ConfigError` if there is no such agent.
    """
    if is_owner or (channel, account, chat) == (own.provider, own.account, own.channel_id):
        return True
    _, settings = config.agent(own.agent)
    return not {"*", f"{channel}:*", f"{channel}:{chat}"}.isdisjoint(settings.sends_to)


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether an agent may use a tool."""

    tool: str
    allowed: bool
    rule: str
    """What decided, in the words of the configuration: `tools.profile = "messaging"`."""
    approval: str | None = None
    """The rule by which a person has to approve each call; None if there is none."""


def rule(config: Config, subject: Subject, tools: Iterable[Tool]) -> tuple[Ruling, ...]:
    """Return a ruling for each tool, in their order.

    For several senders, a tool is allowed that is allowed for each of them alone.
    Raises `ConfigError` if there is no such agent.
    """
    tools = tuple(tools)
    steps = [_steps(config, subject, voice) for voice in _voices(config, subject)]
    rulings = (_strictest([_pass(tool, one) for one in steps]) for tool in tools)
    return tuple(
        replace(ruling, approval=approval_rule(config, subject, tool)) if ruling.allowed else ruling
        for tool, ruling in zip(tools, rulings, strict=True)
    )


def approval_rule(config: Config, subject: Subject, tool: Tool) -> str | None:
    """Return the rule by which a person has to approve a call of a tool; None if there is none.

    For several senders, that is if it is so for one of them.
    Raises `ConfigError` if there is no such agent.
    """
    if not tool.approvable:
        return None
    agent, settings = config.agent(subject.agent)
    wide = [ToolsTable(f"agents.{agent}.tools", settings.tools), ToolsTable("tools", config.tools)]
    for voice in _voices(config, subject):
        own, *narrow = _channel_tables(config.channel(subject.channel), subject, voice.sender)
        tables = (table for table in (*narrow, own, *wide) if table.tools.approve is not None)
        decides = next(tables, None)
        entry = decides and entry_for(decides.tools.approve or (), tool)
        if decides and entry:
            return f"{decides.key}.approve has {quoted(entry)}"
    return None


def allowed(config: Config, subject: Subject, tools: Iterable[Tool]) -> frozenset[str]:
    """Return the names of the tools that `rule()` allows."""
    rulings = rule(config, subject, tools)
    return frozenset(ruling.tool for ruling in rulings if ruling.allowed)


def listed(
    config: Config, session: SessionKey, tools: Iterable[Tool], *, depth: int = 0
) -> frozenset[str]:
    """Return the tools that an agent is offered in a session, whoever writes the next turn.

    These are the tools that anybody may have it use in that chat, and that do something on such a
    channel: in a direct chat the person whose chat it is, in a group everybody. Each call is
    decided by its turn; a list that followed the turns would start the agent again, and its
    model's provider would read everything again.
    Raises `ConfigError` if there is no such agent.
    """
    lacks = profile_of(session.provider).lacks
    tools = tuple(tool for tool in tools if tool.tool not in lacks)
    is_group = session.user != session.channel_id
    anybody: set[str | None] = {session.user}
    if is_group:
        anybody |= {None, *config.channel(session.provider).named_ids()}
    subjects = (
        Subject(
            agent=session.agent,
            channel=session.provider,
            chat_id=session.channel_id,
            is_group=is_group,
            senders=(sender,),
            depth=depth,
        )
        for sender in anybody
    )
    return frozenset().union(*(allowed(config, subject, tools) for subject in subjects))


def is_owner(config: Config, subject: Subject) -> bool:
    """Return whether a turn is on behalf of owners alone; nobody's turn is no owner's."""
    return all(voice.ownership for voice in _voices(config, subject))


# ---------------------------------------------------------------------------------------------
# Steps

_Step = Callable[[Tool], Verdict | None]
"""Returns whether a tool may pass and by which rule; None if the step has nothing to say of it."""


def _pass(tool: Tool, steps: Iterable[_Step]) -> Ruling:
    """Return what becomes of a tool: what denies first decides, else what allows last."""
    why = 'tools.profile = "full"'
    for step in steps:
        verdict = step(tool)
        if verdict is None:
            continue
        may_pass, why = verdict
        if not may_pass:
            return Ruling(tool.tool, False, why)
    return Ruling(tool.tool, True, why)


def _strictest(rulings: Sequence[Ruling]) -> Ruling:
    return next((ruling for ruling in rulings if not ruling.allowed), rulings[0])


@dataclass(frozen=True, slots=True)
class _Voice:
    """One of those who have a part in a turn: each of them alone has to be allowed a tool."""

    sender: str | None
    """Whose tables apply, by their id on the turn's channel; None for an unknown sender."""
    ownership: str | None
    """The rule that makes them an owner."""


def _voices(config: Config, subject: Subject) -> list[_Voice]:
    """Return who has a part in a turn, at least one."""
    senders = sorted({sender for sender in subject.senders if sender is not None})
    voices = [_Voice(sender, _ownership(config, subject.channel, sender)) for sender in senders]
    for person in subject.people:
        channel, _, sender = person.partition(":")
        ownership = _ownership(config, channel, sender)
        voices.append(_Voice(sender if channel == subject.channel else None, ownership))
        if subject.user is not None:
            voices.append(_Voice(subject.user, ownership))
    if None in subject.senders or not voices:
        voices.append(_Voice(None, None))
        if subject.user is not None:
            voices.append(_Voice(subject.user, None))
    return voices


def _steps(config: Config, subject: Subject, voice: _Voice) -> list[_Step]:
    """Return the steps for one of those who have a part in a turn, in their order."""
    agent, settings = config.agent(subject.agent)
    everybody, own = (
        ToolsTable("tools", config.tools),
        ToolsTable(f"agents.{agent}.tools", settings.tools),
    )
    steps: list[_Step] = [everybody.by_profile, own.by_profile]
    steps += [everybody.by_lists, own.by_lists]
    tables = [*_channel_tables(config.channel(subject.channel), subject, voice.sender)]
    for table in tables:
        steps += [table.by_profile, table.by_lists]
    if subject.is_group and not voice.ownership:
        steps.append(partial(_for_moderator, tables=tables))
    is_leaf = subject.depth >= config.sessions.max_depth
    if subject.depth > 0:
        steps.append(partial(_for_subagent, is_leaf=is_leaf, agent=own))
    steps.append(partial(_for_owner, ownership=voice.ownership))
    return steps


def _for_subagent(tool: Tool, *, is_leaf: bool, agent: ToolsTable) -> Verdict | None:
    if entry_for(NO_SUBAGENT, tool):
        why = "not for subagents"
    elif is_leaf and entry_for(NO_LEAF, tool):
        why = "not for subagents that can have none"
    else:
        return None
    given = agent.added(tool)
    return (True, given) if given else (False, why)


def _for_moderator(tool: Tool, *, tables: Sequence[ToolsTable]) -> Verdict | None:
    if not entry_for(MODERATES, tool):
        return None
    given = next(filter(None, (table.added(tool) for table in tables)), None)
    return (True, given) if given else (False, "in groups owner only")


def _for_owner(tool: Tool, *, ownership: str | None) -> Verdict | None:
    if not tool.owner_only:
        return None
    return (True, ownership) if ownership else (False, "owner only")


def _ownership(config: Config, channel: str, sender: str | None) -> str | None:
    """Return the rule that makes a sender an owner; None if they aren't.

    Ids are compared as they are: no case, no normal form, no pattern.
    """
    owners = config.channel(channel).owners
    if sender is None:
        return None
    if owners is None:
        return f"the {channel} is its owner's" if profile_of(channel).is_owners else None
    return f"channels.{channel}.owners has {quoted(sender)}" if sender in owners else None


# ---------------------------------------------------------------------------------------------
# Tables


def _channel_tables(
    channel: ChannelConfig, subject: Subject, sender: str | None
) -> Iterator[ToolsTable]:
    """Yield the tables that apply to a sender on a channel."""
    key = f"channels.{subject.channel}"
    yield ToolsTable(f"{key}.tools", channel.tools)
    if subject.is_group and (found := most_specific(channel.groups, subject.chat_id)):
        chat, group = found
        group_key = f"{key}.groups.{quoted(chat)}"
        yield from sender_table(group_key, group.senders, sender)
        yield ToolsTable(f"{group_key}.tools", group.tools)
    yield from sender_table(key, channel.senders, sender)


# ---------------------------------------------------------------------------------------------
# Lists and tools
