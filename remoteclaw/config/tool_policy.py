"""Tool policy: which tools a session's agent is shown, and which it may use in a turn.

A tool passes through steps: profiles, the lists of each table that applies, the denials for tasks,
the owner rule. Each step can only deny tools, so a table can't allow what another table denies, and
an entry that matches no tool allows nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from pydantic import BaseModel, ConfigDict

from remoteclaw.config.model import ChannelConfig, Config
from remoteclaw.config.tool_lists import StepVerdict, ToolsTable, entry_for, quoted, sender_table
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.tools.base import Tool

#: Tools that tasks don't have: the session that started a task sends and schedules on its behalf.
DENIED_TO_TASKS = ("group:gateway", "agents_list", "session_status", "group:cron", "sessions_send")

#: Tools that remove or pin other people's messages. In a group only owners have them, unless the
#: `also_allow` of the group's or the channel's table names them.
MODERATES = ("message_delete", "message_pin")

#: Tools that tasks which can't start tasks themselves don't have either.
DENIED_TO_LEAVES = ("sessions_list", "sessions_history", "sessions_spawn", "subagents")


class SessionLimits(BaseModel):
    """The limits on the tools of one session, whoever writes in it.

    They are stored in the session's state (`fleet/sessions/state.py`), and its forks, branches and
    tasks have them as well. They end with that state, like the CLI's conversation, when the session
    was idle for long (`STATE_MS`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may add a limit

    depth: int = 0
    """0 for a conversation with people, 1 for a task that it has started, and so on."""

    @property
    def of_fork(self) -> Self:
        """The limits of a fork, with which people talk."""
        return self.model_copy(update={"depth": 0})

    @property
    def of_task(self) -> Self:
        """The limits of a task or branch of the session."""
        return self.model_copy(update={"depth": self.depth + 1})


#: A session without limits of its own.
UNLIMITED = SessionLimits()


@dataclass(frozen=True, slots=True)
class Subject:
    """The people on whose behalf an agent would use a tool, and the chat of the turn."""

    agent: str
    channel: str
    """The channel's name, such as `telegram`."""
    chat_id: str
    is_group: bool
    senders: tuple[str | None, ...]
    """The ids of the people whose messages the turn answers; None for a message that no person has
    sent. Such a message, and a turn without senders, has the rights of an unknown sender."""
    user: str | None = None
    """The session's user. A message without a sender has none of the tools that the user is denied:
    else the user could have a cron job send it later."""
    limits: SessionLimits = UNLIMITED
    """The limits of the session."""
    people: tuple[str, ...] = ()
    """The people, as CHANNEL:ID, on whose behalf a cron job or a task works: the turn has their
    rights."""


def subject_of(
    session: SessionKey, entries: Iterable[Entry], limits: SessionLimits = UNLIMITED
) -> Subject:
    """Return the subject of a turn that answers `entries`.

    An entry of a cron job or a task is on behalf of its `people`, and an entry of another session
    on behalf of nobody. A chat counts as a group unless its id is that of its only sender, which
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
        limits=limits,
        people=tuple(behalf),
    )


@dataclass(frozen=True, slots=True)
class ToolRuling:
    """The decision whether an agent may use a tool."""

    tool: str
    allowed: bool
    rule: str
    """The rule that decided, such as `tools.profile = "messaging"`."""
    approval: str | None = None
    """The rule by which a person has to approve each call; None if no approval is needed."""


def rule_on_tools(
    config: Config, subject: Subject, tools: Iterable[Tool]
) -> tuple[ToolRuling, ...]:
    """Return the ruling on each tool, in the order of `tools`.

    A tool is allowed only if it is allowed for each sender alone. Raises `ConfigError` if the agent
    isn't configured.
    """
    tools = tuple(tools)
    steps_by_party = [_steps(config, subject, party) for party in _parties(config, subject)]
    rulings = (_strictest([_ruling(tool, steps) for steps in steps_by_party]) for tool in tools)
    return tuple(
        replace(ruling, approval=approval_rule(config, subject, tool)) if ruling.allowed else ruling
        for tool, ruling in zip(tools, rulings, strict=True)
    )


def approval_rule(config: Config, subject: Subject, tool: Tool) -> str | None:
    """Return the rule by which a person has to approve a call of a tool; None if nobody has to.

    Of several senders, it is enough if the rule applies to one of them. Raises `ConfigError` if the
    agent isn't configured.
    """
    if not tool.approvable:
        return None
    agent, settings = config.agent(subject.agent)
    wide = [ToolsTable(f"agents.{agent}.tools", settings.tools), ToolsTable("tools", config.tools)]
    for party in _parties(config, subject):
        channel_table, *narrow = _channel_tables(
            config.channel(subject.channel), subject, party.sender
        )
        tables = (*narrow, channel_table, *wide)
        narrowest = next((table for table in tables if table.tools.approve is not None), None)
        entry = narrowest and entry_for(narrowest.tools.approve or (), tool)
        if narrowest and entry:
            return f"{narrowest.key}.approve has {quoted(entry)}"
    return None


def allowed_tools(config: Config, subject: Subject, tools: Iterable[Tool]) -> frozenset[str]:
    """Return the names of the tools that `rule_on_tools()` allows."""
    rulings = rule_on_tools(config, subject, tools)
    return frozenset(ruling.tool for ruling in rulings if ruling.allowed)


def listed_tools(
    config: Config,
    session: SessionKey,
    tools: Iterable[Tool],
    limits: SessionLimits = UNLIMITED,
) -> frozenset[str]:
    """Return the names of the tools that an agent is shown in a session, the same in every turn.

    These are the tools that work on the session's channel and are allowed for any person in the
    chat: in a direct chat its user, in a group everyone. Each call is checked again for its turn. A
    list that depended on the turn's senders would restart the agent, and lose its provider's cache,
    at each change of the sender. Raises `ConfigError` if the agent isn't configured.
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
            limits=limits,
        )
        for sender in people
    )
    return frozenset().union(*(allowed_tools(config, subject, tools) for subject in subjects))


def is_owner(config: Config, subject: Subject) -> bool:
    """Whether a turn is only on behalf of owners, and of at least one."""
    return all(party.ownership for party in _parties(config, subject))


def is_owned_by(config: Config, channel: str, sender: str) -> bool:
    """Whether a sender on a channel is an owner."""
    return _ownership(config, channel, sender) is not None


# ---------------------------------------------------------------------------------------------
# Steps

_Step = Callable[[Tool], StepVerdict | None]
"""Returns whether a tool is allowed, and by which rule; None if the step doesn't decide."""


def _ruling(tool: Tool, steps: Iterable[_Step]) -> ToolRuling:
    """Return the ruling of the first step that denies a tool, else of the last that allows it."""
    rule = 'tools.profile = "full"'
    for step in steps:
        verdict = step(tool)
        if verdict is None:
            continue
        is_allowed, rule = verdict
        if not is_allowed:
            return ToolRuling(tool.tool, False, rule)
    return ToolRuling(tool.tool, True, rule)


def _strictest(rulings: Sequence[ToolRuling]) -> ToolRuling:
    return next((ruling for ruling in rulings if not ruling.allowed), rulings[0])


@dataclass(frozen=True, slots=True)
class _Party:
    """One of the people on whose behalf a turn is: a tool must be allowed for each of them."""

    sender: str | None
    """The id, on the turn's channel, whose tables apply; None for an unknown sender."""
    ownership: str | None
    """The rule that makes this party an owner; None if it is no owner."""


def _parties(config: Config, subject: Subject) -> list[_Party]:
    """Return the parties to a turn; there is at least one."""
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
    """Return the steps that apply to a party to a turn, in their order."""
    agent, settings = config.agent(subject.agent)
    common = ToolsTable("tools", config.tools)
    own = ToolsTable(f"agents.{agent}.tools", settings.tools)
    steps: list[_Step] = [common.by_profile, own.by_profile]
    steps += [common.by_lists, own.by_lists]
    tables = [*_channel_tables(config.channel(subject.channel), subject, party.sender)]
    for table in tables:
        steps += [table.by_profile, table.by_lists]
    if subject.is_group and not party.ownership:
        steps.append(partial(_by_moderation, tables=tables))
    is_leaf = subject.limits.depth >= config.sessions.max_depth
    if subject.limits.depth > 0:
        steps.append(partial(_by_depth, is_leaf=is_leaf, agent=own))
    if not settings.memory:
        steps.append(partial(_by_memory, agent=agent))
    steps.append(partial(_by_ownership, ownership=party.ownership))
    return steps


def _by_depth(tool: Tool, *, is_leaf: bool, agent: ToolsTable) -> StepVerdict | None:
    if entry_for(DENIED_TO_TASKS, tool):
        why = "not for subagents"
    elif is_leaf and entry_for(DENIED_TO_LEAVES, tool):
        why = "not for subagents that can start none"
    else:
        return None
    added = agent.added(tool)
    return (True, added) if added else (False, why)


def _by_moderation(tool: Tool, *, tables: Sequence[ToolsTable]) -> StepVerdict | None:
    if not entry_for(MODERATES, tool):
        return None
    added = next(filter(None, (table.added(tool) for table in tables)), None)
    return (True, added) if added else (False, "in groups owner only")


def _by_memory(tool: Tool, *, agent: str) -> StepVerdict | None:
    return (False, f"agents.{agent}.memory = false") if "memory" in tool.groups else None


def _by_ownership(tool: Tool, *, ownership: str | None) -> StepVerdict | None:
    if not tool.owner_only:
        return None
    return (True, ownership) if ownership else (False, "owner only")


def _ownership(config: Config, channel: str, sender: str | None) -> str | None:
    """Return the rule that makes a sender an owner; None if the sender is no owner.

    Ids are compared exactly: case counts, and nothing is normalized or a pattern.
    """
    owners = config.channel(channel).owners
    if sender is None:
        return None
    if owners is None:
        profile = profile_of(channel)
        has_prefix = bool(profile.owner_prefix) and sender.startswith(profile.owner_prefix or "")
        return f"the {channel} is its owner's" if has_prefix else None
    return f"channels.{channel}.owners has {quoted(sender)}" if sender in owners else None


# ---------------------------------------------------------------------------------------------
# Tables


def _channel_tables(
    channel: ChannelConfig, subject: Subject, sender: str | None
) -> Iterator[ToolsTable]:
    """Yield the tables that apply to a sender on a channel, the channel's own first."""
    key = f"channels.{subject.channel}"
    yield ToolsTable(f"{key}.tools", channel.tools)
    if subject.is_group and (found := channel.group_of(subject.chat_id)):
        chat, group = found
        group_key = f"{key}.groups.{quoted(chat)}"
        yield from sender_table(group_key, group.senders, sender)
        yield ToolsTable(f"{group_key}.tools", group.tools)
    yield from sender_table(key, channel.senders, sender)
