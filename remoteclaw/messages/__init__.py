"""Messages: the types that cross from chat to agent and back.

Messages that cross a process boundary are pydantic models; what lives inside one process is a
frozen dataclass.
"""

from remoteclaw.messages.chat import (
    MAX_ATTACHMENT_BYTES,
    MAX_ATTACHMENTS,
    MAX_ATTACHMENTS_BYTES,
    MAX_FILE_NAME_BYTES,
    MAX_NAME_CHARS,
    MAX_TEXT_BYTES,
    MAX_TIMESTAMP_MS,
    Attachment,
    ChannelMessage,
    Image,
    channel_name,
    file_name,
)
from remoteclaw.messages.mcp import OWN_SERVER, McpServerConfig
from remoteclaw.messages.result import (
    AgentDeliveryResult,
    McpSideEffects,
    ReplyPayload,
    SentTarget,
    ToolCall,
)
from remoteclaw.messages.session import SessionKey
from remoteclaw.messages.turn import (
    Deliver,
    Entry,
    Origin,
    Provenance,
    Turn,
    hops_of,
    people_of,
    person,
    stream_order,
    via_of,
)

__all__ = [
    "MAX_ATTACHMENTS",
    "MAX_ATTACHMENTS_BYTES",
    "MAX_ATTACHMENT_BYTES",
    "MAX_FILE_NAME_BYTES",
    "MAX_NAME_CHARS",
    "MAX_TEXT_BYTES",
    "MAX_TIMESTAMP_MS",
    "OWN_SERVER",
    "AgentDeliveryResult",
    "Attachment",
    "ChannelMessage",
    "Deliver",
    "Entry",
    "Image",
    "McpServerConfig",
    "McpSideEffects",
    "Origin",
    "Provenance",
    "ReplyPayload",
    "SentTarget",
    "SessionKey",
    "ToolCall",
    "Turn",
    "channel_name",
    "file_name",
    "hops_of",
    "people_of",
    "person",
    "stream_order",
    "via_of",
]
