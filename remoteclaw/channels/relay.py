"""Delivers an account's replies through its adapter, in order, each with a receipt."""

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet.replies import ReplyReader
from remoteclaw.protocols import ChannelAdapter

__all__ = ["relay"]


async def relay(reader: ReplyReader, adapter: ChannelAdapter) -> None:
    """Deliver until cancelled.

    The receipt follows the delivery: a crash between the two delivers that one message again.
    """
    async for reply in reader.replies():
        await adapter.deliver(reply)
        try:
            await reader.receipt(reply)
        except LeaseLost:
            continue  # another adapter has taken over, and delivers and records it
