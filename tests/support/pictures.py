"""Generated pictures for tests."""

import struct
import zlib


def png(width: int = 3, height: int = 2) -> bytes:
    """Return a red PNG picture."""
    row = b"\0" + b"\xff\0\0" * width
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(row * height)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
