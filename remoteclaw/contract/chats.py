"""Methods that send to chats, and that do something in them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from remoteclaw.contract.base import (
    ChatId,
    Id,
    MessageId,
    Method,
    Params,
    Result,
    Target,
    Text,
)

__all__ = ["METHODS"]

#: How many chats one broadcast reaches at most.
MAX_TARGETS = 20
#: A path or an address.
Source = Annotated[str, Field(min_length=1, max_length=4096)]


class SendParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"to": "target", "mediaUrl": "media", "text": "message"}

    target: Target
    message: Text
    media: Source | None = None
    """A file to send with it: its path in the workspace, or an https address."""
    thread_id: Id | None = None


class ReplyParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"text": "message"}

    message: Text
    reply_to_id: MessageId | None = None
    """The message to quote; else the one that this turn answers."""


class ThreadReplyParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"text": "message"}

    message: Text
    thread_id: Id
    """The thread of the current chat."""


class BroadcastParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"text": "message"}

    targets: Annotated[
        tuple[Target, ...], Field(min_length=1, max_length=MAX_TARGETS, strict=False)
    ]
    message: Text


class SendAttachmentParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"to": "target", "media": "file", "message": "caption"}

    target: Target
    file: Source
    """Its path in the workspace, or an https address."""
    caption: Annotated[str, Field(max_length=4000)] = ""


class SendWithEffectParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"to": "target", "text": "message"}

    target: Target
    message: Text
    effect_id: Id
    """The platform's name for the effect."""


class Sent(Result):
    status: Literal["delivered", "accepted", "failed"]
    """`accepted`: it is stored and will be delivered once the channel's adapter is there."""
    channel: str
    target: str
    id: str
    """Its id on the reply stream of the channel and account."""
    message_id: str | None = None
    """The platform's name for it, where it tells."""
    error: str | None = None


class BroadcastResult(Result):
    results: tuple[Sent, ...]
    """One for each target, in their order."""


class ReactParams(Params):
    emoji: Annotated[str, Field(max_length=64)]
    """The emoji; an empty one takes the reaction away."""
    message_id: MessageId


class MessageParams(Params):
    message_id: MessageId


class ReadParams(Params):
    aliases: ClassVar[Mapping[str, str]] = {"to": "channelId"}

    channel_id: ChatId | None = None
    """A chat on this channel; else the current one."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class Done(Result):
    status: Literal["done"]


class ReadMessage(Result):
    id: str
    from_: Annotated[str, Field(serialization_alias="from")]
    text: str
    at: int
    """When, in milliseconds since 1970."""


class ReadResult(Result):
    messages: tuple[ReadMessage, ...]
    """Oldest first."""


METHODS = (
    Method(
        name="message.send",
        tool="message_send",
        title="Send a message",
        description="Send a message to a chat, on this channel or another one. "
        "To answer who writes to you, just answer: that needs no tool.",
        params=SendParams,
        result=Sent,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.reply",
        tool="message_reply",
        title="Reply to a message",
        description="Send a message to the current chat that quotes another message.",
        params=ReplyParams,
        result=Sent,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.threadReply",
        tool="message_thread_reply",
        title="Reply in a thread",
        description="Send a message to a thread of the current chat.",
        params=ThreadReplyParams,
        result=Sent,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.broadcast",
        tool="message_broadcast",
        title="Send a message to several chats",
        description="Send one message to several chats.",
        params=BroadcastParams,
        result=BroadcastResult,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.react",
        tool="message_react",
        title="React to a message",
        description="React to a message of the current chat with an emoji.",
        params=ReactParams,
        result=Done,
        scope="write",
        effect="operation",
    ),
    Method(
        name="message.delete",
        tool="message_delete",
        title="Delete a message",
        description="Delete a message of the current chat, where the platform allows it.",
        params=MessageParams,
        result=Done,
        scope="write",
        effect="operation",
        destroys=True,
    ),
    Method(
        name="message.sendAttachment",
        tool="message_send_attachment",
        title="Send a file",
        description="Send a file to a chat.",
        params=SendAttachmentParams,
        result=Sent,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.sendWithEffect",
        tool="message_send_with_effect",
        title="Send a message with an effect",
        description="Send a message with one of the platform's effects.",
        params=SendWithEffectParams,
        result=Sent,
        scope="write",
        effect="message",
    ),
    Method(
        name="message.pin",
        tool="message_pin",
        title="Pin a message",
        description="Pin a message of the current chat.",
        params=MessageParams,
        result=Done,
        scope="write",
        effect="operation",
    ),
    Method(
        name="message.read",
        tool="message_read",
        title="Read messages",
        description="Read the last messages of a chat from the platform.",
        params=ReadParams,
        result=ReadResult,
        scope="read",
    ),
)
