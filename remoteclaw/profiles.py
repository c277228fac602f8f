"""The registry of channels: the profile of each, and the classes of its settings and its adapter.

A channel is an entry of `CHANNELS`, or a `Channel` that another package adds (`extensions.py`). A
profile imports only the vocabulary, so that the configuration and the policy can read it without
loading an adapter.
"""

import re
from dataclasses import dataclass
from typing import Literal

from remoteclaw.channels.matrix.profile import PROFILE as MATRIX
from remoteclaw.channels.slack.profile import PROFILE as SLACK
from remoteclaw.channels.telegram.profile import PROFILE as TELEGRAM
from remoteclaw.channels.web.profile import ADMIN, USER
from remoteclaw.channels.web.profile import PROFILE as WEB
from remoteclaw.channels.webhook.profile import PROFILE as WEBHOOK
from remoteclaw.errors import ConfigError
from remoteclaw.extensions import load_extension
from remoteclaw.protocols import ChannelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel that can be configured."""

    profile: ChannelProfile
    settings: str = ""
    """The class of the channel's settings, as `module:Class`: a subclass of both `ChannelConfig`
    and `AccountConfig`. Empty for a channel without an adapter."""
    adapter: str = ""
    """The class of the channel's `PlatformAdapter`, as `module:Class`. It is imported when an
    account starts, and called with the account's settings."""
    extra: str = ""
    """The extra of RemoteClaw that installs the platform's library, with the versions and hashes in
    `requirements.txt` next to the adapter; empty if it needs none."""
    runs_in_gateway: bool = False
    """Whether each gateway runs the channel's account, even if it isn't configured."""
    sign_up: str = ""
    """How to get an account on the platform, in a sentence; empty if `channel add` adds none."""
    sign_in: str = ""
    """The channel's `SignIn`, as `module:name`, with which `channel add` gets the account's
    secrets; empty if it asks for them."""


#: The channels, by the name that they have in messages and in the configuration.
CHANNELS: dict[str, Channel] = {
    # The channel of `remoteclaw send` in scripts: whoever runs it can also write to Redis.
    "cli": Channel(
        profile=ChannelProfile(
            person_form=WEB.person_form, owner_prefix=WEB.owner_prefix, is_local=True
        )
    ),
    "matrix": Channel(
        profile=MATRIX,
        settings="remoteclaw.channels.matrix.settings:MatrixConfig",
        adapter="remoteclaw.channels.matrix.adapter:MatrixAdapter",
        extra="matrix",
        sign_up="Make an account for it on any Matrix homeserver, for example in Element.",
        sign_in="remoteclaw.channels.matrix.sign_in:sign_in",
    ),
    "slack": Channel(
        profile=SLACK,
        settings="remoteclaw.channels.slack.settings:SlackConfig",
        adapter="remoteclaw.channels.slack.adapter:SlackAdapter",
        extra="slack",
        sign_up="It is an app in your workspace, with two tokens.",
    ),
    "telegram": Channel(
        profile=TELEGRAM,
        settings="remoteclaw.channels.telegram.settings:TelegramConfig",
        adapter="remoteclaw.channels.telegram.adapter:TelegramAdapter",
        extra="telegram",
        sign_up="Write /newbot to @BotFather in Telegram: it tells you the token of a new bot.",
    ),
    "web": Channel(
        profile=WEB,
        settings="remoteclaw.channels.web.settings:WebConfig",
        runs_in_gateway=True,
    ),
    "webhook": Channel(
        profile=WEBHOOK,
        settings="remoteclaw.channels.webhook.settings:WebhookConfig",
        adapter="remoteclaw.channels.webhook.adapter:WebhookAdapter",
    ),
}

_UNKNOWN = ChannelProfile()


def channel_of(name: str) -> Channel | None:
    """Return the channel of a name; None if there is none.

    Raises `ConfigError` if the channel of another package can't be used.
    """
    if name in CHANNELS:
        return CHANNELS[name]
    channel = load_extension("channel", name)
    if channel is None or isinstance(channel, Channel):
        return channel
    raise ConfigError(f"The channel {name!r} can't be used: {channel!r:.100} is no Channel.")


def runs_in_gateway(channel: str) -> bool:
    """Whether each gateway runs the account of a channel."""
    return channel in CHANNELS and CHANNELS[channel].runs_in_gateway


def profile_of(channel: str) -> ChannelProfile:
    """Return the profile of a channel; that of an unknown channel has no restrictions.

    An adapter refuses what it can't do. The profile doesn't depend on a running adapter, so that
    the tools of a session stay the same.
    """
    known = channel_of(channel)
    return known.profile if known else _UNKNOWN


def id_problem(
    channel: str, id_: str, noun: Literal["id", "chat", "group", "person"] = "id"
) -> str:
    """Return why an id isn't that of a `noun` of a channel, as the end of a sentence, else "".

    A `group` is a key of the setting `groups`, so it may also be what contains chats.
    """
    profile = profile_of(channel)
    form = (profile.person_form if noun == "person" else None) or profile.id_form
    forms = [form, profile.container_form if noun == "group" else None]
    is_one = form is None or any(each and re.fullmatch(each, id_) for each in forms)
    if not is_one and form == WEB.person_form:
        return f"which is no {noun} there: write {channel}:{ADMIN}{id_} or {channel}:{USER}{id_}"
    return "" if is_one else f"which is no {noun} there: ids have the form {form}"
