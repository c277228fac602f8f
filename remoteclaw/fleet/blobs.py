"""Blobs: the contents of files that go with messages and replies, one Redis string each.

A blob is stored first and named by a message after. Accepting the message keeps its blobs until
the turn that answers it has ended, in the same script; what no message ever named goes by itself.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from remoteclaw.clock import boottime
from remoteclaw.errors import MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S
from remoteclaw.fleet.lease import Lease
from remoteclaw.host.files import mime_type_of
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment, SessionKey, file_name

#: How much is sent to Redis, or asked of it, at once, in bytes: each command has 5 s.
PIECE_BYTES = 1024 * 1024
#: How long a blob waits for the message that names it, in milliseconds.
UPLOAD_MS = 3600 * 1000
#: How many bytes of files one chat may store within an hour: half of what files may take of
#: 512 MB, so that one chat leaves room for the others.
MAX_OF_HOUR = 150 * 1024 * 1024
TOO_MUCH = (
    "The file is not taken: with it, this conversation would have more than 150 MB of files within "
    "an hour. Send it in an hour."
)
FULL = (
    "Redis has filled more than half of its memory, so no files are taken now, only words. "
    "Raise its maxmemory, or wait: what is answered and delivered makes room."
)
#: What the script answers of a piece.
STORED, NO_ROOM = 1, 0
#: How long an agent's file is kept for its adapter and the caller, in milliseconds: as long
#: as outcomes are, and a day.
REPLY_MS = 8 * 24 * 3600 * 1000
#: How long a task's file is kept, in milliseconds.
TASK_MS = 24 * 3600 * 1000


class Blobs:
    """Stores and reads blobs."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def put(
        self,
        sid: str,
        name: str,
        content: bytes,
        *,
        keep_ms: int = UPLOAD_MS,
        lease: Lease | None = None,
        chat: SessionKey | None = None,
    ) -> Attachment:
        """Store a file of a session's; return how a message or a reply names it.

        What threads and tasks of a `chat` store counts together; operators store what they like.
        It goes in pieces, because a slow line takes long for a large one. With a `lease`, it is
        refused once another worker holds the session (`LeaseLost`).
        Raises `MessageRefused` when it is too large, `RedisRefused` when there is no room for it,
        and `RedisUnavailable` when a piece is not stored in 10 s, or within the lease.
        """
        if len(content) > MAX_ATTACHMENT_BYTES:
            raise MessageRefused(
                f"The message was refused: a file has {len(content):,} bytes; "
                f"the limit is {MAX_ATTACHMENT_BYTES:,}."
            )
        name = file_name(name)
        attachment = Attachment(
            name=name,
            mime_type=mime_type_of(name, content),
            size=len(content),
            blob=uuid.uuid4().hex,
        )
        counted = replace(chat, thread=None, task=None).sid if chat else sid
        deadline = lease.stop_at if lease else boottime() + APPEND_S
        for offset in range(0, len(content) or 1, PIECE_BYTES):
            piece = content[offset : offset + PIECE_BYTES]
            status = await self._scripts.run(
                "store",
                keys={
                    "blob": keys.blob(sid, attachment.blob),
                    "stored": keys.stored(counted),
                    "state": keys.state(sid) if lease else None,
                },
                args={
                    "piece": piece,
                    "offset": offset,
                    "keep_ms": keep_ms,
                    "size": len(content),
                    "most_bytes": 0 if sid == keys.OPERATOR else MAX_OF_HOUR,
                    "epoch": lease.epoch if lease else None,
                },
                deadline=deadline,
            )
            if status != STORED:
                await self.drop(sid, [attachment])
                raise RedisRefused(FULL if status == NO_ROOM else TOO_MUCH)
            deadline = lease.stop_at if lease else boottime() + APPEND_S
        return attachment

    async def drop(self, sid: str, attachments: Sequence[Attachment]) -> None:
        """Remove the contents of files that no message has named."""
        if names := [keys.blob(sid, attachment.blob) for attachment in attachments]:
            await self._scripts.call(
                self._scripts.client.unlink, *names, deadline=boottime() + APPEND_S
            )

    async def get(
        self,
        sid: str,
        attachment: Attachment,
        *,
        deadline: Callable[[], float] | None = None,
    ) -> bytes | None:
        """Return a file's content; None if it is not kept any more.

        Each of its pieces is tried until `deadline`, on `boottime()`, or for 10 s.
        """
        key = keys.blob(sid, attachment.blob)
        content = bytearray()
        while len(content) < attachment.size:
            end = min(len(content) + PIECE_BYTES, attachment.size) - 1
            until = boottime() + APPEND_S if deadline is None else deadline()
            piece: bytes = await self._scripts.call(
                self._scripts.client.getrange, key, len(content), end, deadline=until
            )
            if not piece:
                return None
            content += piece
        return bytes(content)


class SessionFiles:
    """One session's files, as its bridge sees them while the session's lease is held."""

    def __init__(self, blobs: Blobs, lease: Lease) -> None:
        self._blobs = blobs
        self._lease = lease

    async def load(self, attachment: Attachment) -> bytes | None:
        """Return a file's content; None if it is not kept any more."""
        lease = self._lease
        return await self._blobs.get(lease.sid, attachment, deadline=lambda: lease.stop_at)

    async def store(self, name: str, content: bytes) -> Attachment:
        """Keep a file that the agent sends, for its adapter and the caller."""
        # No adapter's receipt removes what a task sends to the session that has started it.
        return await self._put(name, content, TASK_MS if self._lease.session.task else REPLY_MS)

    async def offer(self, name: str, content: bytes) -> Attachment:
        """Keep a file for what will be named after it, for an hour."""
        return await self._put(name, content, UPLOAD_MS)

    async def _put(self, name: str, content: bytes, keep_ms: int) -> Attachment:
        lease = self._lease
        return await self._blobs.put(
            lease.sid, name, content, keep_ms=keep_ms, lease=lease, chat=lease.session
        )
