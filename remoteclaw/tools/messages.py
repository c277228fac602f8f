"""Methods that send messages to chats, read them, or act on them."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import ChatId, Id, MessageId, Params, Result, Target, Text, Tool

#: The maximum number of chats in one broadcast.
MAX_TARGETS = 20
#: A path in the workspace, or an https address.
Source = Annotated[str, Field(min_length=1, max_length=4096)]


class SendMessageParams(Params):
    target: Target
    message: Text
    """The text."""
    media: Source | None = None
    """A file to attach: a path in the workspace, or an https address."""
    thread_id: Id | None = None
    """A thread or topic of that chat."""


class ReplyParams(Params):
    message: Text
    """The text."""
    reply_to_id: MessageId | None = None
    """The message to quote; else the one that this turn answers."""


class ThreadReplyParams(Params):
    message: Text
    """The text."""
    thread_id: Id
    """A thread or topic of this chat."""


class BroadcastParams(Params):
    targets: Annotated[
        tuple[Target, ...], Field(min_length=1, max_length=MAX_TARGETS, strict=False)
    ]
    """The chats, as in message_send."""
    message: Text
    """The text."""


class SendAttachmentParams(Params):
    target: Target
    file: Source
    """The file's path in the workspace, or an https address."""
    caption: Annotated[str, Field(max_length=4000)] = ""
    """A text to send with the file."""


class SendWithEffectParams(Params):
    target: Target
    message: Text
    """The text."""
    effect_id: Id
    """The platform's name for the effect."""


class MessageSent(Result):
    status: Literal["delivered", "accepted", "failed"]
    """`delivered`: the platform has the message. `accepted`: the message is stored, and is
    delivered when the channel's adapter runs. `failed`: see `error`."""
    channel: str
    target: str
    """The id of the chat."""
    id: str
    """The message's id on the reply stream of the channel and account."""
    message_id: str | None = None
    """The message's id on the platform; absent if the platform reports none."""
    error: str | None = None
    """Why the message could not be sent."""


class BroadcastResult(Result):
    results: tuple[MessageSent, ...]
    """One result for each target, in the order of `targets`."""


class ReactParams(Params):
    emoji: Annotated[str, Field(max_length=64, pattern=r"^\P{Cc}*$")]
    """The emoji; an empty text removes the reaction."""
    message_id: MessageId


class MessageParams(Params):
    message_id: MessageId


class ReadParams(Params):
    channel_id: ChatId | None = None
    """A chat on this channel; else the current one."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """How many of the newest messages."""


class OperationDone(Result):
    status: Literal["done"]


class ReadReaction(Result):
    from_: Annotated[str, Field(serialization_alias="from")]
    """The id of the person who reacted."""
    name: str | None = None
    """The name that the person chose on the platform."""
    emoji: str


class ReadMessage(Result):
    id: str | None
    """The message's id in the chat; null if the platform has reported none."""
    more_ids: tuple[str, ...] = ()
    """The ids of the other parts of a message that was sent in several parts."""
    from_: Annotated[str, Field(serialization_alias="from")]
    """The sender's id on the platform; `you` for a message that RemoteClaw sent."""
    name: str | None = None
    """The name that the sender chose on the platform."""
    text: str
    at: int
    """The time of the message, in milliseconds since 1970."""
    thread: str | None = None
    """The thread or topic of the message."""
    files: tuple[str, ...] = ()
    """The names of the message's files."""
    replaces: str | None = None
    """The id of the message of which this is an edited version."""
    reactions: tuple[ReadReaction, ...] = ()
    """People's current reactions to the message, if the channel reports reactions."""


class ReadResult(Result):
    messages: tuple[ReadMessage, ...]
    """The messages, oldest first."""
    note: str | None = None
    """What is missing from the messages, and why."""


#: A tool for chats, which is for everybody.
_tool = partial(Tool, groups=("messaging",), owner_only=False, approvable=False)

METHODS = (
    _tool(
        name="message.send",
        tool="message_send",
        title="Send a message",
        description="Send a message to another chat, on this channel or another one ('tell "
        "Bob', 'post it in the group'). To answer the person who writes to you, "
        "just answer. Returns `status`: delivered, accepted (stored until the "
        'channel\'s adapter runs) or failed with `error`. Example: {"target": '
        '"telegram:12345", "message": "Lunch is ready"}.',
        params=SendMessageParams,
        result=MessageSent,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.reply",
        tool="message_reply",
        title="Reply to a message",
        description="Send a message to the current chat that quotes a message there. A plain "
        "answer needs no tool. Returns what message_send does. Example: "
        '{"message": "Yes, at noon", "replyToId": "812"}.',
        params=ReplyParams,
        is_about_session=True,
        result=MessageSent,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.threadReply",
        tool="message_thread_reply",
        title="Reply in a thread",
        description="Send a message to another thread or topic of the current chat. Returns "
        'what message_send does. Example: {"message": "Moved here", "threadId": '
        '"17"}.',
        params=ThreadReplyParams,
        is_about_session=True,
        result=MessageSent,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.broadcast",
        tool="message_broadcast",
        title="Broadcast a message",
        description="Send one message to several chats at once ('tell everybody'). Returns "
        "`results`, one per chat, as message_send does: if one failed, repeat "
        'only that one. Example: {"targets": ["telegram:1", "slack:C2"], '
        '"message": "Back at 3"}.',
        params=BroadcastParams,
        result=BroadcastResult,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.react",
        tool="message_react",
        title="React to a message",
        description="React to a message of the current chat with an emoji, instead of an "
        'answer. Example: {"emoji": "👍", "messageId": "812"}.',
        params=ReactParams,
        is_about_session=True,
        result=OperationDone,
        scope="write",
        effect="operation",
    ),
    _tool(
        name="message.delete",
        tool="message_delete",
        title="Delete a message",
        description="Delete a message of the current chat for everybody. Example: "
        '{"messageId": "812"}.',
        params=MessageParams,
        is_about_session=True,
        result=OperationDone,
        scope="write",
        effect="operation",
        destroys=True,
    ),
    _tool(
        name="message.sendAttachment",
        tool="message_send_attachment",
        title="Send a file",
        description="Send a file of the workspace, or from the web, to a chat: a picture, a "
        'PDF, a log. Returns what message_send does. Example: {"target": '
        '"telegram:12345", "file": "report.pdf"}.',
        params=SendAttachmentParams,
        result=MessageSent,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.sendWithEffect",
        tool="message_send_with_effect",
        title="Send with an effect",
        description="Send a message with one of the platform's effects, such as confetti; "
        "if it has no such effect, the message is sent without. Returns what message_send"
        ' does. Example: {"target": "12345", "message": "Done!", "effectId": '
        '"confetti"}.',
        params=SendWithEffectParams,
        result=MessageSent,
        scope="write",
        effect="message",
    ),
    _tool(
        name="message.pin",
        tool="message_pin",
        title="Pin a message",
        description="Pin a message of the current chat, so that people find it. Example: "
        '{"messageId": "812"}.',
        params=MessageParams,
        is_about_session=True,
        result=OperationDone,
        scope="write",
        effect="operation",
    ),
    _tool(
        name="message.read",
        tool="message_read",
        title="Read messages",
        description="Read the newest messages of a chat, oldest first: id, sender, text, time, "
        "reactions. Where the platform gives bots no history, these are the messages that passed "
        "through RemoteClaw, shortened, and `note` says so. Use it to find a message's id. "
        'Example: {"limit": 10}.',
        params=ReadParams,
        is_about_session=True,
        result=ReadResult,
        scope="read",
        effect="none",
    ),
)
