"""Delivers an account's replies through its adapter, in order, each with a receipt."""

from collections.abc import Collection
from dataclasses import replace

from remoteclaw.bridge.hooks import Hooks, MessageSending, MessageSent
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet.replies import Reply, ReplyReader
from remoteclaw.messages import Attachment
from remoteclaw.protocols import ChannelAdapter

__all__ = ["relay"]


async def relay(reader: ReplyReader, adapter: ChannelAdapter, hooks: Hooks) -> None:
    """Deliver until cancelled.

    The receipt follows the delivery: a crash between the two delivers that one message again.
    A message that a hook cancels has its receipt like any other.
    """
    async for reply in reader.replies():
        async with reader.held():  # a platform, or a hook, may take longer than a claim lasts
            sent, kept = await _deliver(reply, adapter, hooks)
        try:
            await reader.receipt(reply, kept=kept)
        except LeaseLost:
            continue  # another adapter has taken over, and delivers and records it
        if sent:
            await hooks.run("message_sent", sent)


async def _deliver(
    reply: Reply, adapter: ChannelAdapter, hooks: Hooks
) -> tuple[MessageSent | None, Collection[Attachment]]:
    """Deliver one message as hooks want it.

    Return what to tell them of it, and the files that could not be delivered.
    """
    if not reply.text and not reply.attachments:  # it only says that the turn is over
        await adapter.deliver(reply)
        return None, ()
    message = await hooks.sending(
        MessageSending(
            sid=reply.sid,
            turn=reply.turn,
            channel_id=reply.channel_id,
            thread_id=reply.thread_id,
            text=reply.text,
            is_error=reply.is_error,
            attachments=tuple(attachment.name for attachment in reply.attachments),
        )
    )
    try:
        changed = {"text": message.text} if message else {"text": "", "attachments": ()}
        kept = await adapter.deliver(replace(reply, **changed))
    except Exception as error:
        if message:
            failed = MessageSent(message, success=False, error=type(error).__name__)
            await hooks.run("message_sent", failed)
        raise
    return MessageSent(message, success=True) if message else None, kept or ()
