"""Approvers: the people who may answer agents' requests, and the chat in which they are asked.

An answer is checked when it arrives, against the configuration of that moment, by ids only.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from remoteclaw.config.model import Budget, Config, RequestsConfig
from remoteclaw.config.tool_lists import quoted
from remoteclaw.config.tool_policy import is_owned_by
from remoteclaw.errors import ConfigError
from remoteclaw.messages import EVERYONE, ChatPlace, SessionKey
from remoteclaw.profiles import id_problem, profile_of, runs_in_gateway

#: The name of anyone who answers at the command line or through the gateway's admin methods.
OPERATOR = "operator"
#: Names that stand for all owners, and for a turn on nobody's behalf, among people as CHANNEL:ID.
OWNERS, NOBODY = "owners", "nobody"
#: How long a turn waits for an answer if no table has `hold_s`, in seconds.
HOLD_S = 600

NO_ACCOUNT = (
    "{key}.chat is {chat}, but nothing is sent there: there is no account {account} "
    "({there}). Name a chat of an account, or add it with `remoteclaw channel add {channel}`."
)


#: Why at the limit of a budget no owner is asked, or not everywhere.
NO_OWNERS = (
    "at its limit, an owner is asked only in the terminal and on the page, if their own chat "
    "reaches it, because no channel has owners; `remoteclaw requests` answers, too: set `owners` "
    "of a channel and `chat` in [requests]"
)
NO_OWNER_ANSWERS = (
    "nobody is asked at its limit, because `who` in [requests] names no owner, and only owners "
    "decide about budgets. Add an owner"
)
NO_CHAT = (
    "at its limit, an owner is asked only if their own chat reaches it, because [requests] has no "
    "chat. Set it, for example to telegram:ID"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """The settings for requests in one conversation."""

    who: Literal["owners", "sender"] | tuple[str, ...] = "owners"
    """The people who may answer, as in `RequestsConfig.who`."""
    hold_s: int = HOLD_S
    """How long a turn waits for an answer, in seconds."""
    chat: ChatPlace | None = None
    """The chat in which people are asked; None for the conversation's own."""

    def __str__(self) -> str:
        """Return a short description of who answers, and where."""
        by_group = {"owners": "owners answer", "sender": "owners and the sender answer"}
        by_name = f"{', '.join(self.who) or 'nobody'} may answer"
        text = by_group[self.who] if isinstance(self.who, str) else by_name
        return text + (f", asked in {self.chat}" if self.chat else "")


def request_settings(config: Config, session: SessionKey) -> RequestSettings:
    """Return the settings for a conversation, each from the narrowest table that has it."""
    requests = _merged_settings(config, session)
    return replace(requests, chat=None) if requests.chat == session.place else requests


def owners_place(config: Config, session: SessionKey) -> ChatPlace | None:
    """Return the chat in which owners are asked about a budget; None if none can be asked.

    It is the chat of `[requests]` for the conversation `session`; without one, the conversation's
    own if it is an owner's direct chat.
    """
    settings = _merged_settings(config, session)
    if not can_be_asked(config, session, ()) or _names_no_owner(config, settings.who):
        return None
    if settings.chat:
        return settings.chat
    is_chat = runs_in_gateway(session.provider) or (
        (session.provider, session.account) in config.accounts()
    )
    is_owners = not session.is_shared and is_owned_by(config, session.provider, session.user)
    return session.place if is_chat and is_owners else None


def unasked_budget(config: Config, budget: Budget) -> str | None:
    """Return why no owner may be asked at the limit of a budget; None if one is, or none shall.

    Without channels, owners are asked in the terminal and on the page. A table of a channel or a
    group can name a chat for its conversations only.
    """
    if budget.at_limit != "ask":
        return None
    kind, _, name = budget.of.partition(":")
    agents = [name] if kind == "agent" else list(config.agents)
    tables = [config.requests, *(config.agents[agent].requests for agent in agents)]
    if any(_names_no_owner(config, table.who) for table in tables):
        return NO_OWNER_ANSWERS
    if not config.accounts():
        return None
    if not any(settings.owners for settings in config.channels.values()):
        return NO_OWNERS
    has_chat = config.requests.chat or all(config.agents[agent].requests.chat for agent in agents)
    return None if has_chat else NO_CHAT


def _names_no_owner(config: Config, who: str | Sequence[str] | None) -> bool:
    """Whether `who` names the people who may answer, and none of them is an owner."""
    if who is None or isinstance(who, str):
        return False
    return not any(is_owned_by(config, *each.split(":", 1)) for each in who)


def _merged_settings(config: Config, session: SessionKey) -> RequestSettings:
    channel = config.channel(session.provider)
    is_direct = session.user == session.channel_id
    group = None if is_direct else channel.group_of(session.channel_id)
    agent = config.agents.get(session.agent)  # None if it is no longer configured
    sections = (config, agent, channel, group and group[1])
    tables = [section.requests for section in sections if section]
    requests = RequestSettings()
    for table in tables:
        chat = ChatPlace.parse(table.chat, table.thread) if table.chat else None
        requests = RequestSettings(
            who=requests.who if table.who is None else table.who,
            hold_s=table.hold_s or requests.hold_s,
            chat=requests.chat if table.chat is None else chat,
        )
    return requests


def can_be_asked(config: Config, session: SessionKey, people: Collection[str]) -> bool:
    """Whether any person may answer the requests of a turn; `people` are those it works for."""
    who = request_settings(config, session).who
    if who == "sender" and len(people) == 1:
        return True
    if not isinstance(who, str):
        return bool(who)
    has_owners = any(settings.owners for settings in config.channels.values())
    anyone = f"{profile_of(session.provider).owner_prefix or ''}-"
    return has_owners or is_owned_by(config, session.provider, anyone)


def may_answer(
    config: Config, session: SessionKey, who: str, people: Collection[str], *, is_owner: bool
) -> bool:
    """Whether `who` may answer a request of a session.

    `who` is a person as CHANNEL:ID, or `OPERATOR`; `people` are those for whom the turn works.
    `is_owner` says whether `who` is an owner.
    """
    if who == OPERATOR:
        return True
    match request_settings(config, session).who:
        case "owners":
            return is_owner
        case "sender":
            # A turn has only the rights that all its people have: nobody answers for others.
            return is_owner or set(people) == {who}
        case named:
            return who in named


def permission_holders(
    config: Config, session: SessionKey, people: Collection[str]
) -> Sequence[Sequence[str]]:
    """Return the people of a turn to whom permissions of its conversation must have been given.

    Each element is one of `people`, with the names under which a permission may be kept for that
    person. In a conversation of one person, all permissions are for that person.
    """
    if not session.is_shared:
        return [[EVERYONE]]
    if not people:
        return [[NOBODY]]
    return [
        [each, OWNERS] if is_owned_by(config, *each.split(":", 1)) else [each] for each in people
    ]


def new_holders(session: SessionKey, people: Collection[str], *, is_owner: bool) -> Sequence[str]:
    """Return the names under which a permission for the conversation is kept.

    It is for the `people` of the turn that asked. A permission that an owner gives, who `is_owner`,
    is for all owners as well.
    """
    if not session.is_shared:
        return [EVERYONE]
    return [*(people or [NOBODY]), *([OWNERS] if is_owner else [])]


def check_chats(config: Config) -> None:
    """Raise `ConfigError` for an approval chat that has no account, or an invalid id."""
    for key, table in _all_tables(config):
        if not table.chat:
            continue
        chat = ChatPlace.parse(table.chat)
        about = {"key": key, "chat": quoted(table.chat), "channel": chat.provider}
        accounts = config.accounts()
        if (chat.provider, chat.account) not in accounts:
            names = ", ".join("/".join(account) for account in accounts) or "none"
            raise ConfigError(
                NO_ACCOUNT.format(
                    **about, account=f"{chat.provider}/{chat.account}", there=f"there are {names}"
                )
            )
        if problem := id_problem(chat.provider, chat.chat, "chat"):
            raise ConfigError(f"{key}.chat is {quoted(table.chat)}, {problem}.")


def _all_tables(config: Config) -> Iterator[tuple[str, RequestsConfig]]:
    """Yield each `requests` table of a configuration, with its key."""
    yield "requests", config.requests
    for agent, settings in config.agents.items():
        yield f"agents.{agent}.requests", settings.requests
    for name, channel in config.channels.items():
        yield f"channels.{name}.requests", channel.requests
        for chat, group in channel.groups.items():
            yield f"channels.{name}.groups.{quoted(chat)}.requests", group.requests
