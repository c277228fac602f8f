"""The files that come with a message, and of recordings a transcript."""

import asyncio
import logging
from dataclasses import dataclass, field

from remoteclaw.channels.transcribe import NotUnderstood, is_recording, transcript_of
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import MessageRefused, PlatformRefused, RedisRefused, RemoteClawError
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.host.files import size_in_words
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import MAX_ATTACHMENTS, Attachment, SessionKey
from remoteclaw.protocols import FileSource, Incoming, IncomingFile

#: Time limit of one file, in seconds, and the number of tries: what follows the file waits.
FETCH_S, TRIES = 60.0, 3

NOT_UNDERSTOOD = "I could not understand {name}{why}, and go on with the file alone."
#: What the agent reads behind a transcript, or in its place.
OF_PROGRAM = "(A program heard this in the recording {name}; words may be wrong.)"
WITHOUT = "(Nobody could write down what is said in the recording {name}.)"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Came:
    """What came with a message."""

    files: list[Attachment] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """What is spoken in them."""
    heard: list[str] = field(default_factory=list)
    """The same as the agent is told it."""
    problems: list[str] = field(default_factory=list)
    """Why files are left out or not understood."""


async def files_of(
    incoming: Incoming,
    source: FileSource,
    blobs: Blobs,
    session: SessionKey,
    channel: ChannelConfig,
    *,
    is_owner: bool,
) -> Came:
    """Store the files that came with a message, and have what is spoken in them written down.

    An owner (`is_owner`) is told why a recording has no transcript. Raises `RedisUnavailable`.
    """
    came = Came()
    most = channel.attachment_mb * 1024 * 1024
    for number, file in enumerate(incoming.files):
        name = one_line(file.name, most=60)
        try:
            if number >= MAX_ATTACHMENTS:
                raise MessageRefused(f"a message has {MAX_ATTACHMENTS} files at most.")
            if (file.size or 0) > most:
                raise MessageRefused(f"files have {size_in_words(most)} at most here.")
            content = await _fetch(source, file)
            if len(content) > most:
                raise MessageRefused(f"files have {size_in_words(most)} at most here.")
            if channel.transcribe and is_recording(file):
                words = await transcript_of(file, content, channel.transcribe)
                came.said.append(words)
                came.heard.append(f"{words}\n{OF_PROGRAM.format(name=name)}")
        except (MessageRefused, PlatformRefused) as refusal:
            came.problems.append(f"The file {name} was not taken: {refusal}")
            continue
        except NotUnderstood as reason:
            log.warning("a recording has no transcript: %s", reason)
            why = f" ({reason})" if is_owner else ""
            came.problems.append(NOT_UNDERSTOOD.format(name=name, why=why))
            came.heard.append(WITHOUT.format(name=name))
        try:
            came.files.append(await blobs.put(session.sid, file.name, content, chat=session))
        except (MessageRefused, RedisRefused) as refusal:
            came.problems.append(f"The file {name} was not taken: {refusal}")
    return came


async def _fetch(source: FileSource, file: IncomingFile) -> bytes:
    """Return a file's content. Raises `PlatformRefused`, also if it is not to be had."""
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(FETCH_S):
                return await source.fetch(file)
        except PlatformRefused:
            raise
        except (RemoteClawError, TimeoutError) as error:
            log.warning("a file can't be fetched yet: %s", error)
        await asyncio.sleep(1)
    raise PlatformRefused("it could not be fetched; send it again.")
