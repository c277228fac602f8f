"""The section `[channels.web]`."""

from remoteclaw.config.model import AccountConfig, ChannelConfig

__all__ = ["WebConfig"]


class WebConfig(AccountConfig, ChannelConfig):
    """The page's chats."""
