"""The output of a terminal's program: the ring that keeps it, and the pump that sends it.

Every byte has a number, its offset.
"""

import os

#: How much output is kept, in bytes.
RING_BYTES = 1024 * 1024
#: The most output in one message, in bytes, and read at once.
PIECE_BYTES = 64 * 1024
#: The longest body of an attached client's message, in bytes: a picture or a piece of input.
MESSAGE_BYTES = 256 * 1024
#: How much the program has taken before a client is told, in bytes: one key is not worth a message.
TOLD_BYTES = 8 * 1024


class Ring:
    """The last output, and which bytes of all those were."""

    def __init__(self):
        self.buffer = memoryview(bytearray(RING_BYTES))
        self.start = self.end = 0

    def read_from(self, descriptor):
        """Read once from a descriptor; return how many bytes came."""
        at = self.end % RING_BYTES
        count = os.readv(descriptor, [self.buffer[at : at + PIECE_BYTES]])
        self.end += count
        self.start = max(self.start, self.end - RING_BYTES)
        return count

    def piece(self, offset):
        """Return the bytes from an offset on, as many as lie together."""
        at = offset % RING_BYTES
        return self.buffer[at : at + min(self.end - offset, PIECE_BYTES)]


class Pump:
    """A client that is sent the output, at its own pace."""

    def __init__(self, client, offset):
        client.most = MESSAGE_BYTES
        self.client, self.offset = client, offset
        self.pending = bytearray()
        self.taken = 0
        self.is_leaving = False

    def wants(self, ring):
        """Whether there is something to send."""
        if self.pending or self.is_leaving:
            return bool(self.pending)
        return self.offset < ring.end or self.taken >= TOLD_BYTES

    def flush(self, ring):
        """Send what the client takes now."""
        while self.wants(ring):
            if not self.pending:
                self.fill(ring)
            try:
                del self.pending[: self.client.sock.send(self.pending)]
            except BlockingIOError:
                return
            except OSError:  # it has gone, but what it typed last may yet be to be read
                self.pending.clear()
                self.is_leaving = True

    def fill(self, ring):
        """Write the next messages."""
        if self.taken >= TOLD_BYTES:
            self.pending += b"TAKEN %d\n" % self.taken
            self.taken = 0
        self.offset = max(self.offset, ring.start)
        if piece := ring.piece(self.offset):
            self.pending += b"OUT %d %d\n" % (self.offset, len(piece))
            self.pending += piece
            self.offset += len(piece)
