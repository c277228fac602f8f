"""Chats as calls name them, with or without a channel.

Some platforms' ids contain a colon, so the part before a colon is a channel only if such a channel
exists.
"""

import re

from remoteclaw.channels.web.profile import CHANNEL, person_id
from remoteclaw.channels.web.settings import own_name
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.replies.replies import Readers
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.conversations import Conversations
from remoteclaw.gateway.rights import may_send
from remoteclaw.messages import EVERYONE, ChatPlace, SessionKey

#: The form of CHANNEL or CHANNEL/ACCOUNT.
_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_-]{1,30}(/.*)?")
#: A refusal names at most this many chats.
MAX_NAMED = 20


def current_place(call: Call) -> ChatPlace:
    """Return the chat and thread of the session that a call is about."""
    if call.place is None:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{call.method.name} is about a session's chat: name the session by sessionKey.",
        )
    return call.place


def target_place(call: Call, readers: Readers, target: str) -> ChatPlace:
    """Return the chat that a call names as CHAT, CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT.

    Raises `CallRefused` if there is no such channel or account; the message lists those that exist.
    """
    name, colon, chat = target.partition(":")
    provider, slash, account = name.partition("/")
    channels = _channels(call, readers)
    if colon and provider in channels:
        if not chat:
            raise CallRefused(
                "INVALID_REQUEST", f"The target {name}: names no chat after the colon."
            )
        named_account = account if slash else None
        return ChatPlace(provider, _account_of(call, readers, provider, named_account), chat)
    listed = ", ".join(sorted(channels)) or "none"
    own = call.place
    if own is None:
        raise CallRefused(
            "INVALID_REQUEST", f"Write the target as CHANNEL:CHAT. There are the channels {listed}."
        )
    # Ids of this session's channel have no colon, so the part before it is meant to be a channel.
    if colon and _CHANNEL_NAME.fullmatch(name) and ":" not in own.chat:
        raise CallRefused(
            "INVALID_REQUEST",
            f"There is no channel {provider[:40]!r}: there are {listed}. A chat of this channel is "
            "named only by its id.",
        )
    return ChatPlace(own.provider, _account_of(call, readers, own.provider), target)


def _channels(call: Call, readers: Readers) -> set[str]:
    """Return the channels that are configured, have an adapter, or belong to the session."""
    own = {call.place.provider} if call.place else set()
    return {*call.config.channels, *own, *(provider for provider, _ in readers.until_ms)}


def _account_of(call: Call, readers: Readers, provider: str, named: str | None = None) -> str:
    """Return the account to use on a channel: the account `named`, else the session's.

    An account that no adapter has ever read is refused if it is `named`, because a message there
    would stay undelivered forever. If it is the session's, another account is used.
    """
    here = call.place
    own = {here.account} if here and here.provider == provider else set()
    with_adapter = {account for name, account in readers.until_ms if name == provider}
    if named is not None:
        known = sorted(with_adapter | own) or ["default"]
        if named not in known:
            raise CallRefused(
                "INVALID_REQUEST",
                f"{provider} has no account {named[:40]!r}: there are {', '.join(known)}.",
            )
        return named
    if own and (own <= with_adapter or not with_adapter):
        return own.pop()
    accounts = readers.accounts(provider) or ["default"]
    if len(accounts) > 1 and "default" not in accounts:
        listed = ", ".join(f"{provider}/{account}" for account in accounts)
        raise CallRefused(
            "INVALID_REQUEST",
            f"{provider} has several accounts: write the target as one of {listed}, followed "
            "by :CHAT.",
        )
    return accounts[0] if len(accounts) == 1 else "default"


async def check_has_reader(call: Call, readers: Readers, place: ChatPlace) -> None:
    """Raise `CallRefused` for a chat that nobody can ever read; the message lists those to use.

    A chat platform refuses unknown chats itself. The channels of this computer store everything.
    """
    match place.provider:
        case "cli":
            raise CallRefused(
                "INVALID_REQUEST",
                "The chat of `remoteclaw send` shows only the answer: nothing was sent. Say it in "
                "your answer, or name another chat as CHANNEL:CHAT.",
            )
        case "web":
            paired = await call.fleet.pairings.list()  # each login makes a pairing
            persons = {each.id for each in paired if each.provider == "web"}
            persons.add(person_id(own_name(call.config), is_admin=True))
            if await _is_of_person(call, place.chat, persons):
                return
            chats = [
                (f"web:{person}", ChatPlace("web", place.account, person))
                for person in sorted(persons)
            ]
            why = "nobody has such a login"
        case _:
            return
    named = [name for name, chat in chats if _may_know(call, chat)][:MAX_NAMED]
    use = f"You can write to {', '.join(named)}." if named else "Say it in your answer."
    raise CallRefused(
        "NOT_FOUND",
        f"{place.provider}:{place.chat[:80]!r} can't be read by anybody, because {why}: nothing "
        f"was sent. {use}",
    )


async def _is_of_person(call: Call, person: str, persons: set[str]) -> bool:
    """Whether somebody of the page, or with a token, can read a person's chats."""
    signer = person.partition(".")[2].partition("/")[0]  # of a user of another application
    if person in persons or signer in call.config.gateway.jwt:
        return True
    tokens = await call.fleet.tokens.list()
    return any(
        person_id(each.name, is_admin=each.scope == "admin") == person for each in tokens
    ) or await call.fleet.web.has_chats(person)


def _may_know(call: Call, place: ChatPlace) -> bool:
    """Whether a refusal may name a chat, because the caller may send to it."""
    if call.caller is None:
        return True
    return may_send(call.config, call.caller, place)


async def conversations_at(call: Call, place: ChatPlace) -> tuple[SessionKey, ...]:
    """Return the sessions to which a chat may belong: the shared one, or that of its one person.

    The sessions need not exist. A chat whose id is a person's id belongs to that person. A group in
    which each person has a session of their own belongs to none of these sessions.
    """
    chats, settings = call.fleet.chats, call.config.account(place.provider, place.account)
    if place.provider == CHANNEL:
        conversations = Conversations(call.fleet.web, place.chat, call.config)
        agents = {place.chat: await conversations.agent_of(place.thread)}
    else:
        agents = {place.chat: await chats.agent(call.config, place, is_group=False)}
        if settings is None or settings.sessions != "person":
            agents[EVERYONE] = await chats.agent(call.config, place, is_group=True)
    chat = (place.provider, place.account, place.chat)
    return tuple(
        SessionKey(agent, *chat, user, place.thread)
        for user, agent in agents.items()
        if agent in call.config.agents  # it may not be configured any more
    )


async def agent_at(call: Call, named: str | None, place: ChatPlace, *, is_group: bool) -> str:
    """Return the agent that a call names, else the one that answers in a chat.

    Raises `ConfigError` if the agent is not configured.
    """
    name = named or await call.fleet.chats.agent(call.config, place, is_group=is_group)
    return call.config.agent(name)[0]
