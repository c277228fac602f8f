"""The output of a terminal's program: the ring buffer that keeps it, and the pump that sends it.

The offset of a byte is the number of bytes before it, from the program's start.
"""

import os

#: How much of the last output is kept, in bytes.
RING_BYTES = 1024 * 1024
#: The maximum size of a read, and of the output in one message, in bytes.
MAX_PIECE_BYTES = 64 * 1024
#: The maximum size of the body of an attached client's message, in bytes: a picture, or input.
MAX_MESSAGE_BYTES = 1_100_000
#: The client gets TAKEN once the program has read this much input, in bytes: one for each key would
#: be too many messages.
REPORT_BYTES = 8 * 1024


class Ring:
    """The last output, from the offset `start` to the offset `end`."""

    def __init__(self):
        self.buffer = memoryview(bytearray(RING_BYTES))
        self.start = self.end = 0

    def read_from(self, descriptor):
        """Read once from a descriptor; return the number of bytes."""
        at = self.end % RING_BYTES
        count = os.readv(descriptor, [self.buffer[at : at + MAX_PIECE_BYTES]])
        self.end += count
        self.start = max(self.start, self.end - RING_BYTES)
        return count

    def piece(self, offset):
        """Return bytes from an offset on, up to the end of the output or of the buffer."""
        at = offset % RING_BYTES
        return self.buffer[at : at + min(self.end - offset, MAX_PIECE_BYTES)]


class Pump:
    """Sends the output to a client as fast as the client reads it."""

    def __init__(self, client, offset):
        client.max_body_bytes = MAX_MESSAGE_BYTES
        self.client, self.offset = client, offset
        self.pending = bytearray()
        self.taken = 0
        self.is_leaving = False

    def wants(self, ring):
        """Whether anything is to be sent."""
        if self.pending or self.is_leaving:
            return bool(self.pending)
        return self.offset < ring.end or self.taken >= REPORT_BYTES

    def flush(self, ring):
        """Send as much as the client's socket accepts without blocking."""
        while self.wants(ring):
            if not self.pending:
                self.fill(ring)
            try:
                del self.pending[: self.client.sock.send(self.pending)]
            except BlockingIOError:
                return
            except OSError:  # the client is gone, but its last input may still be unread
                self.pending.clear()
                self.is_leaving = True

    def fill(self, ring):
        """Put the next messages into `pending`."""
        if self.taken >= REPORT_BYTES:
            self.pending += b"TAKEN %d\n" % self.taken
            self.taken = 0
        self.offset = max(self.offset, ring.start)
        if piece := ring.piece(self.offset):
            self.pending += b"OUT %d %d\n" % (self.offset, len(piece))
            self.pending += piece
            self.offset += len(piece)
