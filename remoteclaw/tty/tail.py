"""The tail of a program's raw output, for those who follow it each at their own pace.

It is kept once a client has asked for it: few do, and it is a fifth of a terminal's memory.
"""

import asyncio

#: How much is kept, in bytes.
MOST = 256 * 1024


class Tail:
    """The newest output, by its offset; a slow follower holds nothing back."""

    def __init__(self) -> None:
        self.end = 0
        """The offset of the next byte."""
        self.is_closed = False
        self._kept = bytearray()
        self._is_followed = False
        self._news = asyncio.Event()

    def put(self, offset: int, data: bytes) -> None:
        """Add what was printed at an offset."""
        if offset != self.end:
            self._kept.clear()
        if self._is_followed:
            self._kept += data
            del self._kept[:-MOST]
        self.end = offset + len(data)
        self._wake()

    def close(self) -> None:
        """End it: nothing more will come."""
        self.is_closed = True
        self._wake()

    def since(self, offset: int) -> bytes | None:
        """Return what was printed from an offset on; None if that is not kept, or not yet there."""
        self._is_followed = True
        first = self.end - len(self._kept)
        return bytes(self._kept[offset - first :]) if first <= offset <= self.end else None

    async def more(self) -> None:
        """Wait until there is more, or until there will be none."""
        if not self.is_closed:
            await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
