"""The registry of channels: the profile of each, and where its settings and its adapter are.

A channel is a line here, or comes with another package, whose entry point in the group
`remoteclaw.channels` is a `Channel`. A profile imports the vocabulary alone, so that the
configuration and the policy read it without loading an adapter.
"""

import functools
from dataclasses import dataclass
from importlib.metadata import entry_points

from remoteclaw.channels.console.profile import PROFILE as CONSOLE
from remoteclaw.channels.telegram.profile import PROFILE as TELEGRAM
from remoteclaw.channels.web.profile import PROFILE as WEB
from remoteclaw.channels.webhook.profile import PROFILE as WEBHOOK
from remoteclaw.errors import ConfigError
from remoteclaw.protocols import ChannelProfile

#: The group of entry points by which other packages bring channels.
ENTRY_POINTS = "remoteclaw.channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A channel that can be configured."""

    profile: ChannelProfile
    settings: str = ""
    """The class of its settings, as `module:Class`: a `ChannelConfig` that is an `AccountConfig`,
    too. Empty for a channel without an adapter of its own."""
    adapter: str = ""
    """The class of its adapter, a `PlatformAdapter`, likewise. It is imported when an account
    starts, and called with the account's settings."""
    extra: str = ""
    """The extra of RemoteClaw that installs the platform's library; its versions and their hashes
    are in `requirements.txt` beside the adapter."""
    is_gateways: bool = False
    """Whether each gateway runs its account, which is there without being configured."""
    sign_up: str = ""
    """How a person gets an account there, in a sentence; without it, `channel add` adds none."""


#: The channels by name, as messages and the configuration call them.
CHANNELS: dict[str, Channel] = {
    "console": Channel(profile=CONSOLE),
    "cli": Channel(profile=ChannelProfile(is_local=True)),  # on which `remoteclaw send` writes
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
        is_gateways=True,
    ),
    "webhook": Channel(
        profile=WEBHOOK,
        settings="remoteclaw.channels.webhook.settings:WebhookConfig",
        adapter="remoteclaw.channels.webhook.adapter:WebhookAdapter",
    ),
}

_UNKNOWN = ChannelProfile()


def channel_of(name: str) -> Channel | None:
    """Return a channel; None if there is none of that name.

    Raises `ConfigError` for one of another package that can't be imported.
    """
    return CHANNELS.get(name) or _installed(name)


@functools.cache
def _installed(name: str) -> Channel | None:
    """Return the channel that another package brings."""
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            found = entry.load()
        except Exception as error:  # noqa: BLE001 - the code is another package's
            raise ConfigError(
                f"The channel {name!r} can't be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}."
            ) from None
        if isinstance(found, Channel):
            return found
        raise ConfigError(f"The channel {name!r} can't be loaded: {entry.value} is no Channel.")
    return None


def is_gateways(channel: str) -> bool:
    """Whether each gateway runs the account of a channel."""
    return channel in CHANNELS and CHANNELS[channel].is_gateways


def profile_of(channel: str) -> ChannelProfile:
    """Return a channel's profile; one that is not known counts as one that can do everything.

    Its adapter refuses what it can't do. Whether an adapter runs makes no difference, so that the
    tools of a session stay the same.
    """
    found = channel_of(channel)
    return found.profile if found else _UNKNOWN
