"""Places: chats as calls name them, with or without a channel.

Ids of some platforms have a colon. So the part before one is a channel only if that exists.
"""

import re
from dataclasses import dataclass

from remoteclaw.errors import CallRefused
from remoteclaw.fleet.replies import Readers
from remoteclaw.gateway.call import Call

__all__ = ["Place", "current_place", "place_of"]

#: How names of channels look, with or without an account.
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{1,30}(/.*)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A chat, and where it is."""

    provider: str
    account: str
    chat: str
    thread: str | None = None


def current_place(call: Call) -> Place:
    """Return the chat and thread of the session that a call is about."""
    session = call.session
    if session is None:
        raise CallRefused(
            "INVALID_REQUEST",
            f"{call.method.name} is about a session's chat: say by sessionKey which session's.",
        )
    return Place(session.provider, session.account, session.channel_id, session.thread)


def place_of(call: Call, readers: Readers, target: str) -> Place:
    """Return the chat that a call names: CHAT, CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT.

    Raises `CallRefused` with what there is, if there is no such channel or account.
    """
    name, colon, chat = target.partition(":")
    provider, slash, account = name.partition("/")
    channels = _channels(call, readers)
    if colon and provider in channels:
        if not chat:
            raise CallRefused("INVALID_REQUEST", f"Behind {name}: there is no chat.")
        if slash:
            _check_account(call, readers, provider, account)
        else:
            account = _account_of(call, readers, provider)
        return Place(provider, account, chat)
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
    return Place(session.provider, _account_of(call, readers, session.provider), target)


def _channels(call: Call, readers: Readers) -> set[str]:
    """Return the channels that there are: configured, the caller's own, or with an adapter."""
    own = {call.session.provider} if call.session else set()
    return {*call.config.channels, *own, *(provider for provider, _ in readers.until_ms)}


def _account_of(call: Call, readers: Readers, provider: str) -> str:
    """Return the account to use on a channel where none is named.

    That of the session, unless no adapter ever read for it and one does for another: a session of
    `send --channel console` is no console's.
    """
    accounts = readers.accounts(provider)
    if call.session and call.session.provider == provider:
        own = call.session.account
        if (provider, own) in readers.until_ms or not accounts:
            return own
    if len(accounts) == 1:
        return accounts[0]
    if not accounts or "default" in accounts:
        return "default"
    listed = ", ".join(f"{provider}/{account}" for account in accounts)
    raise CallRefused(
        "INVALID_REQUEST",
        f"{provider} has several accounts: write the target as one of {listed}, with :CHAT behind.",
    )


def _check_account(call: Call, readers: Readers, provider: str, account: str) -> None:
    """Refuse an account that no adapter has ever read: a message there would stay for ever."""
    known = {account for name, account in readers.until_ms if name == provider}
    if call.session and call.session.provider == provider:
        known.add(call.session.account)
    if account not in (known or {"default"}):
        listed = ", ".join(sorted(known or {"default"}))
        raise CallRefused(
            "INVALID_REQUEST", f"{provider} has no account {account[:40]!r}: there are {listed}."
        )
