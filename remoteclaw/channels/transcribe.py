"""Transcripts: what people say in recordings, written down before the agent is asked."""

import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.host.files import write_new
from remoteclaw.host.process import run_to_end
from remoteclaw.protocols import IncomingFile
from remoteclaw.runtimes.base import inherit

#: How long one recording may take, in seconds: what follows it in its chat waits.
TRANSCRIBE_S = 120.0
#: How much of a transcript is taken, in bytes: an hour of speech.
MAX_BYTES = 64_000
#: The endings by which programs know what they read, of types that say another word.
_ENDINGS = {"mpeg": "mp3", "mp4": "m4a", "x-m4a": "m4a", "x-wav": "wav", "vnd.wave": "wav"}


class NotUnderstood(Exception):
    """Raised for a recording without a transcript; its text is the reason, for owners."""


def is_recording(file: IncomingFile) -> bool:
    """Whether a file is to be listened to."""
    return file.mime_type.startswith("audio/")


async def transcript_of(
    file: IncomingFile, content: bytes, command: Sequence[str], *, timeout_s: float = TRANSCRIBE_S
) -> str:
    """Return what a command prints when it is given a recording. Raises `NotUnderstood`.

    It gets as little of our environment as agents do, and nothing of it is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="remoteclaw-") as directory:
        path = Path(directory) / f"recording{_ending(file)}"
        try:
            await asyncio.to_thread(write_new, path, content)
            status, printed = await run_to_end(
                [*command, str(path)],
                env=inherit(os.environ),
                timeout_s=timeout_s,
                most_bytes=MAX_BYTES,
            )
        except TimeoutError:
            raise NotUnderstood(f"the command took more than {timeout_s:.0f} s") from None
        except OSError as error:
            raise NotUnderstood(f"the command can't be run: {error.strerror}") from None
    if status:
        raise NotUnderstood(f"the command ended with status {status}")
    words = printed.decode("utf-8", "replace").replace("\0", "").strip()
    if not words:
        raise NotUnderstood("the command printed nothing")
    return words


def _ending(file: IncomingFile) -> str:
    """Return the ending of a name for a recording, of its type alone: names are people's."""
    kind = file.mime_type.partition("/")[2].partition(";")[0].strip()
    known = _ENDINGS.get(kind, kind)
    return f".{known}" if re.fullmatch("[a-z0-9]{1,8}", known) else ""
