"""Blobs: the contents of files that belong to messages and replies, one Redis string each.

A blob is stored before the message that names it, and expires if no message does. The script that
accepts a message also makes its blobs permanent; they are removed when the turn that answers the
message has ended.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from remoteclaw.clock import boottime
from remoteclaw.errors import MessageRefused, RedisRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.turns.inbound import APPEND_S
from remoteclaw.fleet.turns.leased_session import LeasedSession
from remoteclaw.host.files import mime_type_of
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment, SessionKey, file_name

#: One command transfers at most this many bytes, because each command has a time limit of 5 s.
PIECE_BYTES = 1024 * 1024
#: A blob that no message names expires after this time, in milliseconds.
UPLOAD_MS = 3600 * 1000
#: The bytes of files that one chat may store within an hour: half of the memory that files may take
#: of 512 MB, so that one chat leaves room for others.
MAX_BYTES_PER_HOUR = 150 * 1024 * 1024
TOO_MUCH = (
    "The file was refused: with it, this conversation would have more than 150 MB of files within "
    "an hour. Send it in an hour."
)
FULL = (
    "Redis has filled more than half of its memory, so only messages without files are accepted. "
    "Raise its maxmemory, or wait: memory is freed when messages are answered and delivered."
)
#: Results of `store.lua`. Any other result means that the chat has stored too much.
STORED, NO_ROOM = 1, 0
#: An agent's file is kept this long for its adapter and the caller, in milliseconds: one day longer
#: than the outcome that names it.
REPLY_MS = 8 * 24 * 3600 * 1000
#: A task's file is kept this long for the session that started the task, in milliseconds.
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
        lease: LeasedSession | None = None,
        chat: SessionKey | None = None,
    ) -> Attachment:
        """Store a file of the session `sid`; return the attachment by which a message names it.

        The file expires after `keep_ms` unless a message names it. `chat` is the session whose chat
        the hourly limit counts, with all of its threads and tasks; by default it counts for `sid`
        alone, and there is no limit for operators. The file is sent in pieces, because a large one
        can take longer than one command may.
        With a `lease`, raises `LeaseLost` once another worker holds the session.
        Raises `MessageRefused` if the file is too large, `RedisRefused` if there is no room for it,
        and `RedisUnavailable` if a piece is not stored within 10 s, or within the lease.
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
                sid=sid,
                chat_sid=counted,
                piece=piece,
                offset=offset,
                keep_ms=keep_ms,
                size=len(content),
                max_bytes=0 if sid == keys.OPERATOR else MAX_BYTES_PER_HOUR,
                epoch=lease.epoch if lease else None,
                blob=keys.blob(sid, attachment.blob),
                deadline=deadline,
            )
            if status != STORED:
                await self.drop(sid, [attachment])
                raise RedisRefused(FULL if status == NO_ROOM else TOO_MUCH)
            deadline = lease.stop_at if lease else boottime() + APPEND_S
        return attachment

    async def drop(self, sid: str, attachments: Sequence[Attachment]) -> None:
        """Remove the contents of files that no message names."""
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
        """Return a file's content; None if it is no longer stored.

        `deadline` returns the time on `boottime()` until which the next piece is tried; by default
        each piece has 10 s.
        """
        key = keys.blob(sid, attachment.blob)
        content = bytearray()
        while len(content) < attachment.size:
            end = min(len(content) + PIECE_BYTES, attachment.size) - 1
            piece_deadline = boottime() + APPEND_S if deadline is None else deadline()
            piece: bytes = await self._scripts.call(
                self._scripts.client.getrange, key, len(content), end, deadline=piece_deadline
            )
            if not piece:
                return None
            content += piece
        return bytes(content)


class SessionFiles:
    """Loads and stores the files of one session for its bridge, under the session's lease."""

    def __init__(self, blobs: Blobs, lease: LeasedSession) -> None:
        self._blobs = blobs
        self._lease = lease

    async def load(self, attachment: Attachment) -> bytes | None:
        """Return a file's content; None if it is no longer stored."""
        lease = self._lease
        return await self._blobs.get(lease.sid, attachment, deadline=lambda: lease.stop_at)

    async def store(self, name: str, content: bytes) -> Attachment:
        """Store a file that the agent sends, for the adapter and the caller."""
        # A task's file goes to the session that started the task, so no receipt of an adapter ever
        # removes it: it expires sooner instead.
        return await self._put(name, content, TASK_MS if self._lease.session.task else REPLY_MS)

    async def stage(self, name: str, content: bytes) -> Attachment:
        """Store a file for a request to people that is made next; it expires after an hour."""
        return await self._put(name, content, UPLOAD_MS)

    async def _put(self, name: str, content: bytes, keep_ms: int) -> Attachment:
        lease = self._lease
        return await self._blobs.put(
            lease.sid, name, content, keep_ms=keep_ms, lease=lease, chat=lease.session
        )
