"""The test platform (`tests.support.platform`) with a history in which its adapter can look.

python -m tests.support.looking URL DIRECTORY PROVIDER ACCOUNT TOKEN CLAIM_MS
"""

import asyncio
import sys
from collections.abc import Collection

from remoteclaw.protocols import Part, Reply, Sent
from tests.support.platform import PlatformAdapter, main


class LookingPlatform(PlatformAdapter):
    """The adapter of one account, without keys."""

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Return the message with a part of the reply. The journal has the arguments."""
        return await self.look(reply, part, since_ms, known)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:], kind=LookingPlatform))
