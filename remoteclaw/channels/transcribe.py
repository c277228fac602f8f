"""Transcribes recordings with a configured command, before the agent gets the message."""

import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.host.environment import inherit, past_proxies
from remoteclaw.host.files import write_new
from remoteclaw.host.process import run_to_end
from remoteclaw.protocols import IncomingFile

#: Time limit of one transcription, in seconds. The conversation's later messages wait for it.
TRANSCRIBE_S = 120.0
#: Output after this many bytes, an hour of speech, is cut off (`run_to_end`).
MAX_TRANSCRIPT_BYTES = 64_000
#: File extensions by MIME subtype, if the two differ: programs recognise a format by its extension.
_EXTENSIONS = {"mpeg": "mp3", "mp4": "m4a", "x-m4a": "m4a", "x-wav": "wav", "vnd.wave": "wav"}


class TranscriptionFailed(Exception):
    """Raised if a recording can't be transcribed. Its text is the reason, shown to owners only."""


def is_recording(file: IncomingFile) -> bool:
    """Whether a file is audio, by its MIME type."""
    return file.mime_type.startswith("audio/")


async def transcribe(
    file: IncomingFile, content: bytes, command: Sequence[str], *, timeout_s: float = TRANSCRIBE_S
) -> str:
    """Return what `command` prints for a recording. Raises `TranscriptionFailed`.

    The command gets the path of a temporary file as its last argument, and only those variables of
    the environment that agents also get.
    """
    with tempfile.TemporaryDirectory(prefix="remoteclaw-") as directory:
        path = Path(directory) / f"recording{_extension(file)}"
        try:
            await asyncio.to_thread(write_new, path, content)
            status, printed = await run_to_end(
                [*command, str(path)],
                env=past_proxies(inherit(os.environ)),
                timeout_s=timeout_s,
                max_bytes=MAX_TRANSCRIPT_BYTES,
            )
        except TimeoutError:
            raise TranscriptionFailed(f"the command took more than {timeout_s:.0f} s") from None
        except OSError as error:
            raise TranscriptionFailed(f"the command can't be run: {error.strerror}") from None
    if status:
        raise TranscriptionFailed(f"the command ended with status {status}")
    transcript = printed.decode("utf-8", "replace").replace("\0", "").strip()
    if not transcript:
        raise TranscriptionFailed("the command printed nothing")
    return transcript


def _extension(file: IncomingFile) -> str:
    """Return a file extension with its dot, from the MIME type: the file name is untrusted."""
    subtype = file.mime_type.partition("/")[2].partition(";")[0].strip()
    extension = _EXTENSIONS.get(subtype, subtype)
    return f".{extension}" if re.fullmatch("[a-z0-9]{1,8}", extension) else ""
