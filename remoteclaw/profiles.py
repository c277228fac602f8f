"""The registry of channels: the profile of each that RemoteClaw knows.

Adding a channel is its package in `channels/` and a line here. A profile imports the vocabulary
alone, so that the configuration and the policy read it without loading an adapter.
"""

from remoteclaw.channels.console.profile import PROFILE as CONSOLE
from remoteclaw.protocols import ChannelProfile

__all__ = ["CHANNELS", "profile_of"]

#: The profiles by the name of the channel, as messages and the configuration call it.
CHANNELS: dict[str, ChannelProfile] = {
    "console": CONSOLE,
    "cli": ChannelProfile(is_local=True),  # on which `remoteclaw send` writes
}

_UNKNOWN = ChannelProfile()


def profile_of(channel: str) -> ChannelProfile:
    """Return a channel's profile; one that is not registered counts as one that can do everything.

    Its adapter refuses what it can't do. Whether an adapter runs makes no difference, so that the
    tools of a session stay the same.
    """
    return CHANNELS.get(channel, _UNKNOWN)
