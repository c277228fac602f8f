"""Tool policy: which tools an agent is offered, which it may use in a turn, and by which rule.

A tool passes through steps: profiles, the lists of each table that applies, what subagents may not
do, what only owners may. A step only narrows what the steps before it left, so no table can give
what another one takes, and what isn't understood allows nothing.
"""

import difflib
import fnmatch
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from remoteclaw.config.model import ChannelConfig, Config, Profile, SenderConfig, ToolsConfig
from remoteclaw.errors import ConfigError
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.tools.facts import ToolFacts

__all__ = [
    "Ruling",
    "Subject",
    "allowed",
    "check",
    "confirmed_by",
    "is_owner",
    "listed",
    "may_see",
    "may_send",
    "rule",
    "subject_of",
]

_T = TypeVar("_T")

#: Where the person at the terminal is the owner: whoever can write there has Redis itself.
CONSOLE = "console"

#: What each profile has.
PROFILES: Mapping[Profile, tuple[str, ...]] = {
    "full": ("*",),
    "messaging": (
        "group:messaging",
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "session_status",
    ),
    "limited": (
        "session_status",
        "agents_list",
        "sessions_list",
        "sessions_history",
        "message_reply",
        "message_thread_reply",
        "message_react",
        "message_read",
    ),
    "minimal": ("session_status",),
}

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
    confirm: str | None = None
    """The rule by which a person has to confirm each call; None if nobody has to."""


def rule(config: Config, subject: Subject, tools: Iterable[ToolFacts]) -> tuple[Ruling, ...]:
    """Return a ruling for each tool, in their order.

    For several senders, a tool is allowed that is allowed for each of them alone.
    Raises `ConfigError` if there is no such agent.
    """
    tools = tuple(tools)
    steps = [_steps(config, subject, voice) for voice in _voices(config, subject)]
    rulings = (_strictest([_pass(tool, one) for one in steps]) for tool in tools)
    return tuple(
        replace(ruling, confirm=confirmed_by(config, subject, tool)) if ruling.allowed else ruling
        for tool, ruling in zip(tools, rulings, strict=True)
    )


def confirmed_by(config: Config, subject: Subject, tool: ToolFacts) -> str | None:
    """Return the rule by which a person has to confirm a call of a tool; None if nobody has to.

    For several senders, that is if it is so for one of them.
    Raises `ConfigError` if there is no such agent.
    """
    if not tool.can_wait:
        return None
    agent, settings = config.agent(subject.agent)
    wide = [_Table(f"agents.{agent}.tools", settings.tools), _Table("tools", config.tools)]
    for voice in _voices(config, subject):
        own, *narrow = _channel_tables(config.channel(subject.channel), subject, voice.sender)
        tables = (table for table in (*narrow, own, *wide) if table.tools.confirm is not None)
        decides = next(tables, None)
        entry = decides and _entry(decides.tools.confirm or (), tool)
        if decides and entry:
            return f"{decides.key}.confirm has {_quoted(entry)}"
    return None


def allowed(config: Config, subject: Subject, tools: Iterable[ToolFacts]) -> frozenset[str]:
    """Return the names of the tools that `rule()` allows."""
    rulings = rule(config, subject, tools)
    return frozenset(ruling.tool for ruling in rulings if ruling.allowed)


def listed(
    config: Config, session: SessionKey, tools: Iterable[ToolFacts], *, depth: int = 0
) -> frozenset[str]:
    """Return the tools that an agent is offered in a session, whoever writes the next turn.

    These are the tools that anybody may have it use in that chat, and that do something on such a
    channel: in a direct chat the person whose chat it is, in a group everybody. Each call is
    decided by its turn; a list that followed the turns would start the agent again, and its
    model's provider would read everything again.
    Raises `ConfigError` if there is no such agent.
    """
    lacks = profile_of(session.provider).lacks
    tools = tuple(tool for tool in tools if tool.name not in lacks)
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


def check(config: Config, tools: Iterable[ToolFacts]) -> None:
    """Raise `ConfigError` for an entry of a list that names no tool, with the nearest that does.

    Such a denial would deny nothing, so this belongs behind each reading of the configuration.
    """
    tools = tuple(tools)
    known = sorted({tool.name for tool in tools}.union(*(tool.groups for tool in tools)))
    can_wait = [tool for tool in tools if tool.can_wait]
    for table in _all_tables(config):
        for entry in table.tools.confirm or ():
            if not any(_means(entry, tool) for tool in can_wait):
                names = ", ".join(tool.name for tool in can_wait)
                raise ConfigError(
                    f"{table.key}.confirm has {entry!r}, which can't wait for that: {names} can."
                )
        for name, entries in table.lists():
            for entry in entries:
                if not any(_means(entry, tool) for tool in tools):
                    near = difflib.get_close_matches(entry.lower(), known, n=1)
                    groups = ", ".join(one for one in known if one.startswith("group:"))
                    hint = f"did you mean {near[0]!r}?" if near else f"the groups are {groups}."
                    raise ConfigError(f"{table.key}.{name} has {entry!r}, which no tool is; {hint}")


# ---------------------------------------------------------------------------------------------
# Steps

_Verdict = tuple[bool, str]
_Step = Callable[[ToolFacts], _Verdict | None]
"""Returns whether a tool may pass and by which rule; None if the step has nothing to say of it."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A `tools` table, which makes two steps."""

    key: str
    tools: ToolsConfig

    def lists(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each list with its name."""
        yield "allow", self.tools.allow
        yield "deny", self.tools.deny
        yield "also_allow", self.tools.also_allow

    def by_profile(self, tool: ToolFacts) -> _Verdict | None:
        """Say whether the profile has a tool, or `also_allow` adds it."""
        profile = self.tools.profile
        if profile == "full":
            return None
        has_it = _entry(PROFILES[profile], tool) is not None
        if not has_it and (added := self.added(tool)):
            return True, added
        return has_it, f"{self.key}.profile = {_quoted(profile)}"

    def added(self, tool: ToolFacts) -> str | None:
        """Return the rule that adds a tool here; None if there is none."""
        entry = _entry(self.tools.also_allow, tool)
        return entry and f"{self.key}.also_allow has {_quoted(entry)}"

    def by_lists(self, tool: ToolFacts) -> _Verdict | None:
        """Say whether a tool is denied, or allowed by name, or not among those that are."""
        if entry := _entry(self.tools.deny, tool):
            return False, f"{self.key}.deny has {_quoted(entry)}"
        if not self.tools.allow:
            return None
        if entry := _entry(self.tools.allow, tool):
            return True, f"{self.key}.allow has {_quoted(entry)}"
        return False, f"{self.key}.allow doesn't have it"


def _pass(tool: ToolFacts, steps: Iterable[_Step]) -> Ruling:
    """Return what becomes of a tool: what denies first decides, else what allows last."""
    why = 'tools.profile = "full"'
    for step in steps:
        verdict = step(tool)
        if verdict is None:
            continue
        may_pass, why = verdict
        if not may_pass:
            return Ruling(tool.name, False, why)
    return Ruling(tool.name, True, why)


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
    everybody, own = _Table("tools", config.tools), _Table(f"agents.{agent}.tools", settings.tools)
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


def _for_subagent(tool: ToolFacts, *, is_leaf: bool, agent: _Table) -> _Verdict | None:
    if _entry(NO_SUBAGENT, tool):
        why = "not for subagents"
    elif is_leaf and _entry(NO_LEAF, tool):
        why = "not for subagents that can have none"
    else:
        return None
    given = agent.added(tool)
    return (True, given) if given else (False, why)


def _for_moderator(tool: ToolFacts, *, tables: Sequence[_Table]) -> _Verdict | None:
    if not _entry(MODERATES, tool):
        return None
    given = next(filter(None, (table.added(tool) for table in tables)), None)
    return (True, given) if given else (False, "in groups owner only")


def _for_owner(tool: ToolFacts, *, ownership: str | None) -> _Verdict | None:
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
        return "the console is its owner's" if channel == CONSOLE else None
    return f"channels.{channel}.owners has {_quoted(sender)}" if sender in owners else None


# ---------------------------------------------------------------------------------------------
# Tables


def _channel_tables(
    channel: ChannelConfig, subject: Subject, sender: str | None
) -> Iterator[_Table]:
    """Yield the tables that apply to a sender on a channel."""
    key = f"channels.{subject.channel}"
    yield _Table(f"{key}.tools", channel.tools)
    if subject.is_group and (found := _most_specific(channel.groups, subject.chat_id)):
        chat, group = found
        group_key = f"{key}.groups.{_quoted(chat)}"
        yield from _sender_table(group_key, group.senders, sender)
        yield _Table(f"{group_key}.tools", group.tools)
    yield from _sender_table(key, channel.senders, sender)


def _sender_table(
    key: str, senders: Mapping[str, SenderConfig], sender: str | None
) -> Iterator[_Table]:
    if found := _most_specific(senders, sender):
        name, settings = found
        yield _Table(f"{key}.senders.{_quoted(name)}.tools", settings.tools)


def _most_specific(tables: Mapping[str, _T], wanted: str | None) -> tuple[str, _T] | None:
    """Return the table with an id, else that of everybody without one."""
    name = wanted if wanted is not None and wanted in tables else "*"
    return (name, tables[name]) if name in tables else None


def _all_tables(config: Config) -> Iterator[_Table]:
    """Yield every `tools` table there is."""
    yield _Table("tools", config.tools)
    for agent, settings in config.agents.items():
        yield _Table(f"agents.{agent}.tools", settings.tools)
    for name, channel in config.channels.items():
        key = f"channels.{name}"
        yield _Table(f"{key}.tools", channel.tools)
        for sender in channel.senders:
            yield from _sender_table(key, channel.senders, sender)
        for chat, group in channel.groups.items():
            group_key = f"{key}.groups.{_quoted(chat)}"
            yield _Table(f"{group_key}.tools", group.tools)
            for sender in group.senders:
                yield from _sender_table(group_key, group.senders, sender)


def _quoted(text: str) -> str:
    """Return a text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------
# Lists and tools


def _entry(entries: Iterable[str], tool: ToolFacts) -> str | None:
    """Return the first entry that means a tool, as it is written."""
    return next((entry for entry in entries if _means(entry, tool)), None)


def _means(entry: str, tool: ToolFacts) -> bool:
    # The configuration lets no other sign of a pattern in than *.
    return entry.lower() in tool.groups or fnmatch.fnmatchcase(tool.name, entry.lower())
