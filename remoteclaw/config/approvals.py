"""Approvers: who may answer what agents ask people for, and where they are asked.

This is checked when an answer comes, by ids alone.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from remoteclaw.config.model import ApprovalsConfig, Config
from remoteclaw.config.tool_lists import most_specific, quoted
from remoteclaw.config.tool_policy import is_owned_by
from remoteclaw.errors import ConfigError
from remoteclaw.messages import ChatPlace, SessionKey
from remoteclaw.profiles import profile_of

#: Who answers at the command line of the installation.
OPERATOR = "operator"
#: How long a turn waits where nothing says it, in seconds.
HOLD_S = 600

WITHOUT_ACCOUNT = (
    "{key}.chat is {chat}, but nothing is sent there: there is no account {account} "
    "({there}). Name a chat of an account, or add it with `remoteclaw channel add {channel}`."
)
NO_ID = "{key}.chat is {chat}, which is no chat there: ids have the form {form}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """The settings for what is asked for in one conversation."""

    who: Literal["owners", "sender"] | tuple[str, ...] = "owners"
    hold_s: int = HOLD_S
    chat: ChatPlace | None = None
    """Where people are asked instead of the conversation."""

    def __str__(self) -> str:
        """Return who answers, and where, in a few words."""
        who = {"owners": "owners answer", "sender": "owners and the sender answer"}
        named = f"{', '.join(self.who) or 'nobody'} may answer"
        told = who[self.who] if isinstance(self.who, str) else named
        return told + (f", asked in {self.chat}" if self.chat else "")


def approvals_of(config: Config, session: SessionKey) -> Approvals:
    """Return the settings for a conversation: of each, the narrowest table's that has it."""
    channel = config.channel(session.provider)
    is_direct = session.user == session.channel_id
    group = None if is_direct else most_specific(channel.groups, session.channel_id)
    agent = config.agents.get(session.agent)  # it may be configured no more
    sections = (config, agent, channel, group and group[1])
    tables = [section.approvals for section in sections if section]
    found = Approvals()
    for table in tables:
        chat = ChatPlace.parse(table.chat, table.thread) if table.chat else None
        found = Approvals(
            who=found.who if table.who is None else table.who,
            hold_s=table.hold_s or found.hold_s,
            chat=found.chat if table.chat is None else chat,
        )
    return replace(found, chat=None) if found.chat == session.place else found


def can_be_asked(config: Config, session: SessionKey) -> bool:
    """Whether there is anybody who may answer what is asked for in a conversation."""
    who = approvals_of(config, session).who
    if who != "owners":
        return bool(who)
    has_owners = any(settings.owners for settings in config.channels.values())
    anyone = f"{profile_of(session.provider).owner_prefix or ''}-"
    return has_owners or is_owned_by(config, session.provider, anyone)


def may_answer(
    config: Config, session: SessionKey, who: str, people: Collection[str], *, is_owner: bool
) -> bool:
    """Whether a person (CHANNEL:ID) may answer what is asked for in a session for `people`."""
    if who == OPERATOR:
        return True
    match approvals_of(config, session).who:
        case "owners":
            return is_owner
        case "sender":
            return is_owner or who in people
        case named:
            return who in named


def check_chats(config: Config) -> None:
    """Raise `ConfigError` for a chat whose adapter can't show what is asked for."""
    for key, table in _all_tables(config):
        if not table.chat:
            continue
        chat = ChatPlace.parse(table.chat)
        about = {"key": key, "chat": quoted(table.chat), "channel": chat.provider}
        accounts = config.accounts()
        if (chat.provider, chat.account) not in accounts:
            there = ", ".join("/".join(one) for one in accounts) or "none"
            raise ConfigError(
                WITHOUT_ACCOUNT.format(
                    **about, account=f"{chat.provider}/{chat.account}", there=f"there are {there}"
                )
            )
        form = profile_of(chat.provider).id_form
        if form and not re.fullmatch(form, chat.chat):
            raise ConfigError(NO_ID.format(**about, form=form))


def _all_tables(config: Config) -> Iterator[tuple[str, ApprovalsConfig]]:
    """Yield every table there is, with its key."""
    yield "approvals", config.approvals
    for agent, settings in config.agents.items():
        yield f"agents.{agent}.approvals", settings.approvals
    for name, channel in config.channels.items():
        yield f"channels.{name}.approvals", channel.approvals
        for chat, group in channel.groups.items():
            yield f"channels.{name}.groups.{quoted(chat)}.approvals", group.approvals
