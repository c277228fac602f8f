"""A channel's process: delivers one account's replies to a file, and leaves receipts.

python -m tests.support.adapter URL ACCOUNT FILE
"""

import asyncio
import os
import sys

from remoteclaw.channels.relay import relay
from remoteclaw.fleet import Fleet
from remoteclaw.protocols import Reply


class Chat:
    """A platform that keeps all that it was sent."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def deliver(self, reply: Reply) -> None:
        """Add a line."""
        line = f"{reply.turn} {reply.attempt} {reply.index}\n"
        os.write(self._file, line.encode())


async def main(url: str, account: str, path: str) -> None:
    """Deliver until killed."""
    fleet = Fleet.open(url, lease_s=30)
    # With a token of its own, so that the next process needn't wait for this one's claim to end.
    reader = fleet.replies.reader("test", account, token=account)
    await relay(reader, Chat(path))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
