"""The channel bridge: runs one turn from message to result in ten steps, without Redis."""

from remoteclaw.bridge.bridge import ChannelBridge
from remoteclaw.bridge.delivery import DeliveryAdapter
from remoteclaw.bridge.directives import SILENT_REPLY_TOKEN
from remoteclaw.bridge.hooks import Hooks
from remoteclaw.bridge.prompt import build_system_prompt
from remoteclaw.bridge.session_map import FileSessionMap
from remoteclaw.bridge.side_effects import read_mcp_side_effects
from remoteclaw.bridge.time_limits import Limits

__all__ = [
    "SILENT_REPLY_TOKEN",
    "ChannelBridge",
    "DeliveryAdapter",
    "FileSessionMap",
    "Hooks",
    "Limits",
    "build_system_prompt",
    "read_mcp_side_effects",
]
