"""Receives the files of a message, and of the message that it quotes; transcribes recordings."""

import asyncio
import logging
from dataclasses import dataclass, field

from remoteclaw.channels.transcribe import TranscriptionFailed, is_recording, transcribe
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import MessageRefused, PlatformRefused, RedisRefused, RemoteClawError
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.host.files import format_size
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES, Attachment, SessionKey
from remoteclaw.protocols import FileSource, Incoming, IncomingFile

#: Time limit of one attempt to fetch a file, in seconds. The conversation's later messages wait.
FETCH_S = 60.0
#: A file is fetched at most this many times.
MAX_FETCHES = 3

NOT_UNDERSTOOD = "I could not understand {name}{why}, so the agent gets only the file."
#: The note for the agent after a transcript, and the one that replaces a missing transcript.
TRANSCRIBED = "(A program transcribed this from the recording {name}; it may contain errors.)"
WITHOUT_TRANSCRIPT = "(The recording {name} could not be transcribed.)"
#: The line before a transcript of a recording that is quoted, and so perhaps another person's.
QUOTED_TRANSCRIPT = "(The quoted recording {name}:)"
#: The note for the agent about a file of the quoted message that it does not get, and a reason.
QUOTED_WITHOUT = "(It has the file {name}, which is not at hand: {why})"
NOT_KEPT = "it is not kept here any more."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceivedFiles:
    """The stored files of a message, and the transcripts of its recordings."""

    attachments: list[Attachment] = field(default_factory=list)
    transcripts: list[str] = field(default_factory=list)
    prompt_texts: list[str] = field(default_factory=list)
    """The texts for the agent: each transcript with a note, or a note that there is none."""
    problems: list[str] = field(default_factory=list)
    """Sentences for the sender about files that were refused or could not be transcribed."""
    quoted_notes: list[str] = field(default_factory=list)
    """Sentences for the agent about refused files of the quoted message."""

    @property
    def size(self) -> int:
        """The size of the stored files, in bytes."""
        return sum(attachment.size for attachment in self.attachments)

    def refuse(self, name: str, why: RemoteClawError, *, is_quoted: bool) -> None:
        """Note that the file `name` was refused, for the sender and, if it is quoted, the agent."""
        self.problems.append(f"The file {name} was not taken: {why}")
        if is_quoted:
            self.quoted_notes.append(QUOTED_WITHOUT.format(name=name, why=why))


async def receive_files(
    incoming: Incoming,
    source: FileSource,
    blobs: Blobs,
    session: SessionKey,
    channel: ChannelConfig,
    *,
    is_owner: bool,
) -> ReceivedFiles:
    """Store the files of `incoming`, and those that it quotes, and transcribe its recordings.

    If `is_owner`, a problem with a transcript includes its reason. Raises `RedisUnavailable`.
    """
    received = ReceivedFiles()
    max_bytes = channel.attachment_mb * 1024 * 1024
    for number, file in enumerate((*incoming.files, *incoming.quoted_files)):
        name, is_quoted = one_line(file.name, max_chars=60), number >= len(incoming.files)
        try:
            if number >= MAX_ATTACHMENTS:
                raise MessageRefused(f"a message has {MAX_ATTACHMENTS} files at most.")
            if (file.size or 0) > max_bytes:
                raise MessageRefused(f"a file here may have at most {format_size(max_bytes)}.")
            content = await _fetch(source, file)
            if len(content) > max_bytes:
                raise MessageRefused(f"a file here may have at most {format_size(max_bytes)}.")
            if is_quoted and len(content) > MAX_ATTACHMENTS_BYTES - received.size:
                raise MessageRefused("with the quoted files, the message is too large.")
            if channel.transcribe and is_recording(file):
                transcript = await transcribe(file, content, channel.transcribe)
                text = f"{transcript}\n{TRANSCRIBED.format(name=name)}"
                if is_quoted:
                    text = f"{QUOTED_TRANSCRIPT.format(name=name)}\n{text}"
                else:
                    received.transcripts.append(transcript)
                received.prompt_texts.append(text)
        except (MessageRefused, PlatformRefused) as refusal:
            received.refuse(name, refusal, is_quoted=is_quoted)
            continue
        except TranscriptionFailed as reason:
            log.warning("a recording has no transcript: %s", reason)
            why = f" ({reason})" if is_owner else ""
            received.problems.append(NOT_UNDERSTOOD.format(name=name, why=why))
            received.prompt_texts.append(WITHOUT_TRANSCRIPT.format(name=name))
        try:
            attachment = await blobs.put(session.sid, file.name, content, chat=session)
            received.attachments.append(attachment.model_copy(update={"is_quoted": is_quoted}))
        except (MessageRefused, RedisRefused) as refusal:
            received.refuse(name, refusal, is_quoted=is_quoted)
    return received


async def _fetch(source: FileSource, file: IncomingFile) -> bytes:
    """Return a file's content. Raises `PlatformRefused`, also after too many failed attempts."""
    for _ in range(MAX_FETCHES):
        try:
            async with asyncio.timeout(FETCH_S):
                return await source.fetch(file)
        except PlatformRefused:
            raise
        except (RemoteClawError, TimeoutError) as error:
            log.warning("a file can't be fetched yet: %s", error)
        await asyncio.sleep(1)
    raise PlatformRefused("it could not be fetched; send it again.")
