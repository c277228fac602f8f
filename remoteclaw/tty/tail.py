"""The newest raw output of a program, which several clients read at their own pace.

It is kept only after a client has asked for it: few clients do, and it takes a fifth of a
terminal's memory.
"""

import asyncio

#: How much output is kept, in bytes.
MAX_TAIL_BYTES = 256 * 1024


class Tail:
    """The newest output by offset. A slow reader misses output, and delays no other reader."""

    def __init__(self) -> None:
        self.end = 0
        """The offset of the next byte."""
        self.is_closed = False
        self._kept = bytearray()
        self._is_followed = False
        self._changed = asyncio.Event()

    def put(self, offset: int, data: bytes) -> None:
        """Add the output at `offset`; drop the output before a gap."""
        if offset != self.end:
            self._kept.clear()
        if self._is_followed:
            self._kept += data
            del self._kept[:-MAX_TAIL_BYTES]
        self.end = offset + len(data)
        self._wake()

    def close(self) -> None:
        """Note that there will be no more output."""
        self.is_closed = True
        self._wake()

    def since(self, offset: int) -> bytes | None:
        """Return the output from `offset` on; None if it is not kept or not printed yet.

        The first call starts the keeping of output.
        """
        self._is_followed = True
        first = self.end - len(self._kept)
        return bytes(self._kept[offset - first :]) if first <= offset <= self.end else None

    async def wait_for_more(self) -> None:
        """Wait for the next output or the end of the output."""
        if not self.is_closed:
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
