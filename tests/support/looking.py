"""The test platform (`tests.support.platform`) with a history in which its adapter can look.

python -m tests.support.looking URL DIRECTORY PROVIDER ACCOUNT TOKEN CLAIM_MS
"""

import asyncio
import sys
from collections.abc import Collection

from remoteclaw.protocols import Part, Reply, Sent
from tests.support.platform import PlatformAdapter, main, posts

AGAIN = "(perhaps a second time)\n"


class LookingPlatform(PlatformAdapter):
    """The adapter of one account, without keys."""

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Return the newest message with the text of `part`. The journal has the arguments."""
        await self._behaviour("find", part.content, reply.channel_id)
        self._journal.add("find", about=part.content, since_ms=since_ms, known=sorted(known))
        found = [
            post.id
            for post in posts(self._journal.read(), reply.channel_id)
            if post.by == "agent"
            and post.thread == reply.thread_id
            and post.text.removeprefix(AGAIN) == part.content
            and post.id not in known
        ]
        await self._stop("find after", part.content)
        return Sent(found[-1]) if found else None


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:], kind=LookingPlatform))
