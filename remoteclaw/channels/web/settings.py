"""The configuration section `[channels.web]`."""

from remoteclaw.config.model import AccountConfig, ChannelConfig


class WebConfig(AccountConfig, ChannelConfig):
    """The page's chats."""
