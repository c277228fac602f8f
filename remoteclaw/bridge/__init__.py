"""The channel bridge: one turn from message to result, in ten steps. No Redis, no processes."""

from remoteclaw.bridge.bridge import ChannelBridge
from remoteclaw.bridge.hooks import Hooks

__all__ = ["ChannelBridge", "Hooks"]
