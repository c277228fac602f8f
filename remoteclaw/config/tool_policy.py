"""Tool policy: which tools an agent is offered, and which it may use in a turn.

A tool passes through steps: profiles, the lists of each table that applies, the denials for
subagents, the owner rule. A step only narrows what the steps before it left, so no table can give
what another one takes, and what is not understood allows nothing.
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

#: What is denied to subagents: the session that they work for speaks and schedules for them.
NO_SUBAGENT = ("group:gateway", "agents_list", "session_status", "group:cron", "sessions_send")

#: What is for owners in a group, unless the group's or the channel's table adds it: it removes or
#: pins messages of other people.
MODERATES = ("message_delete", "message_pin")

#: What is also denied to a subagent that can have none of its own.
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
    """The ids of the people whose messages the turn answers; None for a message of no person. It
    has an unknown sender's rights, and so has a turn without any sender."""
    user: str | None = None
    """The session's user. What they are denied is denied to a message without a sender, too: they
    could have it sent later, by a cron job."""
    depth: int = 0
    """0 for a conversation with people, 1 for a session that one has spawned, and so on."""
    people: tuple[str, ...] = ()
    """The people behind a cron job or a task, as entries name them: the turn has their rights."""


def subject_of(session: SessionKey, entries: Iterable[Entry], *, depth: int = 0) -> Subject:
    """Return for whom, and where, a turn that answers these entries uses tools.

    An entry of a cron job or a task is on behalf of the people behind it; one of another session is
    on behalf of no person. A chat counts as a group unless its id is that of its only sender, which
    can only narrow the rights.
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
    steps = [_steps(config, subject, party) for party in _parties(config, subject)]
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
    for party in _parties(config, subject):
        own, *narrow = _channel_tables(config.channel(subject.channel), subject, party.sender)
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
    """Return the tools that an agent is offered in a session, the same ones in every turn.

    These are the tools that work on its channel and that any person in the chat may have it use: in
    a direct chat its user, in a group everyone. Each call is decided by its turn. A list that
    followed the turns would restart the agent and empty its provider's cache with each sender.
    Raises `ConfigError` if there is no such agent.
    """
    lacks = profile_of(session.provider).lacks
    tools = tuple(tool for tool in tools if tool.tool not in lacks)
    is_group = session.user != session.channel_id
    people: set[str | None] = {session.user}
    if is_group:
        people |= {None, *config.channel(session.provider).named_ids()}
    subjects = (
        Subject(
            agent=session.agent,
            channel=session.provider,
            chat_id=session.channel_id,
            is_group=is_group,
            senders=(sender,),
            depth=depth,
        )
        for sender in people
    )
    return frozenset().union(*(allowed(config, subject, tools) for subject in subjects))


def is_owner(config: Config, subject: Subject) -> bool:
    """Whether a turn is on behalf of owners alone, and of at least one."""
    return all(party.ownership for party in _parties(config, subject))


def is_owned_by(config: Config, channel: str, sender: str) -> bool:
    """Whether a sender on a channel is an owner."""
    return _ownership(config, channel, sender) is not None


# ---------------------------------------------------------------------------------------------
# Steps

_Step = Callable[[Tool], Verdict | None]
"""Returns whether a tool may pass, and by which rule; None if the step does not decide."""


def _pass(tool: Tool, steps: Iterable[_Step]) -> Ruling:
    """Return the ruling of the first step that denies a tool, else of the last that allows it."""
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
class _Party:
    """One party to a turn: a tool is allowed if it is allowed for each of them alone."""

    sender: str | None
    """The id on the turn's channel whose tables apply; None for an unknown sender."""
    ownership: str | None
    """The rule that makes this party an owner; None if there is none."""


def _parties(config: Config, subject: Subject) -> list[_Party]:
    """Return the parties to a turn, at least one."""
    senders = sorted({sender for sender in subject.senders if sender is not None})
    parties = [_Party(sender, _ownership(config, subject.channel, sender)) for sender in senders]
    for person in subject.people:
        channel, _, sender = person.partition(":")
        ownership = _ownership(config, channel, sender)
        parties.append(_Party(sender if channel == subject.channel else None, ownership))
        if subject.user is not None:
            parties.append(_Party(subject.user, ownership))
    if None in subject.senders or not parties:
        parties.append(_Party(None, None))
        if subject.user is not None:
            parties.append(_Party(subject.user, None))
    return parties


def _steps(config: Config, subject: Subject, party: _Party) -> list[_Step]:
    """Return the steps for one party to a turn, in their order."""
    agent, settings = config.agent(subject.agent)
    common = ToolsTable("tools", config.tools)
    own = ToolsTable(f"agents.{agent}.tools", settings.tools)
    steps: list[_Step] = [common.by_profile, own.by_profile]
    steps += [common.by_lists, own.by_lists]
    tables = [*_channel_tables(config.channel(subject.channel), subject, party.sender)]
    for table in tables:
        steps += [table.by_profile, table.by_lists]
    if subject.is_group and not party.ownership:
        steps.append(partial(_for_moderator, tables=tables))
    is_leaf = subject.depth >= config.sessions.max_depth
    if subject.depth > 0:
        steps.append(partial(_for_subagent, is_leaf=is_leaf, agent=own))
    steps.append(partial(_for_owner, ownership=party.ownership))
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
        profile = profile_of(channel)
        is_one = profile.is_owners or sender.startswith(profile.owner_prefix or sender + " ")
        return f"the {channel} is its owner's" if is_one else None
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
