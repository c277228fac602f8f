"""Chats as calls name them, with or without a channel.

Some platforms' ids contain a colon, so the part before a colon is a channel only if such a channel
exists.
"""

import re

from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.fleet.replies import Readers
from remoteclaw.gateway.call import Call
from remoteclaw.gateway.consoles import CHANNEL, CHAT_ID
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import EVERYONE, ChatPlace, SessionKey

#: The form of CHANNEL or CHANNEL/ACCOUNT.
_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_-]{1,30}(/.*)?")


def current_place(call: Call) -> ChatPlace:
    """Return the chat and thread of the session that a call is about."""
    session = call.session
    if session is None:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{call.method.name} is about a session's chat: name the session by sessionKey.",
        )
    return session.place


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
    session = call.session
    if session is None:
        raise CallRefused(
            "INVALID_REQUEST", f"Write the target as CHANNEL:CHAT. There are the channels {listed}."
        )
    # Ids of this session's channel have no colon, so the part before it is meant to be a channel.
    if colon and _CHANNEL_NAME.fullmatch(name) and ":" not in session.channel_id:
        raise CallRefused(
            "INVALID_REQUEST",
            f"There is no channel {provider[:40]!r}: there are {listed}. A chat of this channel is "
            "named by its id alone.",
        )
    return ChatPlace(session.provider, _account_of(call, readers, session.provider), target)


def _channels(call: Call, readers: Readers) -> set[str]:
    """Return the channels that are configured, have an adapter, or belong to the session."""
    own = {call.session.provider} if call.session else set()
    return {*call.config.channels, *own, *(provider for provider, _ in readers.until_ms)}


def _account_of(call: Call, readers: Readers, provider: str, named: str | None = None) -> str:
    """Return the account to use on a channel: the account `named`, else the session's.

    An account that no adapter has ever read is refused if it is `named`, because a message there
    would stay undelivered for ever. If it is the session's, another account is used: a session of
    `send --channel console` has no console of its own.
    """
    session = call.session
    own = {session.account} if session and session.provider == provider else set()
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


def conversations_at(call: Call, place: ChatPlace) -> tuple[SessionKey, ...]:
    """Return the sessions to which a chat may belong: the shared one, or that of its one person.

    The sessions need not exist. A chat whose id is a person's id belongs to that person. A group in
    which each person has a session of their own belongs to none of these sessions.
    """
    settings = call.config.account(place.provider, place.account)
    agent_name = settings.agent if settings else None
    users = [place.chat, *([] if settings and settings.sessions == "person" else [EVERYONE])]
    if (place.provider, place.chat) == (CHANNEL, CHAT_ID):  # HOST or HOST.AGENT
        agent_name = place.account.partition(".")[2] or None
        users = [login_name()]
    try:
        agent, _ = call.config.agent(agent_name)
    except ConfigError:  # the agent is not configured any more
        return ()
    chat = (place.provider, place.account, place.chat)
    return tuple(SessionKey(agent, *chat, user, place.thread) for user in users)
