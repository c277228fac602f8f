"""Places: chats as calls name them, with or without a channel.

Ids of some platforms have a colon. So the part before one is a channel only if that exists.
"""

import re

from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.replies import Readers
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.consoles import CHANNEL, CHAT_ID
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import EVERYONE, ChatPlace, SessionKey

#: How names of channels look, with or without an account.
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{1,30}(/.*)?")


def current_place(call: Call) -> ChatPlace:
    """Return the chat and thread of the session that a call is about."""
    session = call.session
    if session is None:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{call.method.name} is about a session's chat: say by sessionKey which session's.",
        )
    return session.place


def place_of(call: Call, readers: Readers, target: str) -> ChatPlace:
    """Return the chat that a call names: CHAT, CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT.

    Raises `CallRefused` with what there is, if there is no such channel or account.
    """
    name, colon, chat = target.partition(":")
    provider, slash, account = name.partition("/")
    channels = _channels(call, readers)
    if colon and provider in channels:
        if not chat:
            raise CallRefused("INVALID_REQUEST", f"Behind {name}: there is no chat.")
        named = account if slash else None
        return ChatPlace(provider, _account_of(call, readers, provider, named), chat)
    listed = ", ".join(sorted(channels)) or "none"
    session = call.session
    if session is None:
        raise CallRefused(
            "INVALID_REQUEST", f"Write the target as CHANNEL:CHAT. There are the channels {listed}."
        )
    # Where ids have no colon, this is meant to be a channel.
    if colon and _CHANNEL.fullmatch(name) and ":" not in session.channel_id:
        raise CallRefused(
            "INVALID_REQUEST",
            f"There is no channel {provider[:40]!r}: there are {listed}. A chat of this channel is "
            "named by its id alone.",
        )
    return ChatPlace(session.provider, _account_of(call, readers, session.provider), target)


def _channels(call: Call, readers: Readers) -> set[str]:
    """Return the channels that there are: configured, the caller's own, or with an adapter."""
    own = {call.session.provider} if call.session else set()
    return {*call.config.channels, *own, *(provider for provider, _ in readers.until_ms)}


def _account_of(call: Call, readers: Readers, provider: str, named: str | None = None) -> str:
    """Return the account to use on a channel: the one that is named, else that of the session.

    One for which no adapter ever read is refused, since a message there would stay for ever; or if
    it is the session's, another one is used: a session of `send --channel console` is no console's.
    """
    session = call.session
    own = {session.account} if session and session.provider == provider else set()
    read = {account for name, account in readers.until_ms if name == provider}
    if named is not None:
        known = sorted(read | own) or ["default"]
        if named not in known:
            raise CallRefused(
                "INVALID_REQUEST",
                f"{provider} has no account {named[:40]!r}: there are {', '.join(known)}.",
            )
        return named
    if own and (own <= read or not read):
        return own.pop()
    accounts = readers.accounts(provider) or ["default"]
    if len(accounts) > 1 and "default" not in accounts:
        listed = ", ".join(f"{provider}/{account}" for account in accounts)
        raise CallRefused(
            "INVALID_REQUEST",
            f"{provider} has several accounts: write the target as one of {listed}, with :CHAT "
            "behind.",
        )
    return accounts[0] if len(accounts) == 1 else "default"


def conversations_at(call: Call, place: ChatPlace) -> tuple[SessionKey, ...]:
    """Return the sessions that may have a chat: the one that all share, or its one person's.

    Which there are, Redis knows. A chat that is called like a person is that person's; where each
    person of a group has a session, none has the chat.
    """
    settings = call.config.account(place.provider, place.account)
    named = settings.agent if settings else None
    users = [place.chat, *([] if settings and settings.sessions == "person" else [EVERYONE])]
    if (place.provider, place.chat) == (CHANNEL, CHAT_ID):  # an account for each agent of a host
        named = place.account.partition(".")[2] or None
        users = [login_name()]
    try:
        agent, _ = call.config.agent(named)
    except ConfigError:  # it is configured no more, so it is told nothing
        return ()
    there = (place.provider, place.account, place.chat)
    return tuple(SessionKey(agent, *there, user, place.thread) for user in users)
