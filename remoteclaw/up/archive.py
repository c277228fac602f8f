"""The archive of a backup: one tar file with a snapshot of Redis and files of the state directory.

Its first member is a manifest with the digest of each other member, so that a file which is damaged
or something else is recognized before anything is written.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import orjson

from remoteclaw import __version__
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.files import open_new

#: The form of the archive; a program that knows only earlier ones refuses it.
FORMAT = 1
#: The members: the manifest, the snapshot, and the directory of the files.
MANIFEST, SNAPSHOT, FILES = "remoteclaw-backup.json", "redis.rdb", "state"
#: The maximum size of the manifest, in bytes.
MAX_MANIFEST_BYTES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is in a backup."""

    version: str
    """The version of RemoteClaw that has written it."""
    at_ms: int
    """The time of the snapshot, in milliseconds since 1970."""
    host: str
    """The name of the host on which it was written."""
    server: str
    """The name and version of the server that has made the snapshot."""
    database: int = 0
    """The number of the fleet's database in the snapshot."""
    has_secrets: bool
    left_out: tuple[str, ...] = ()
    """The settings and files with secrets that are not in it."""
    digests: Mapping[str, str]
    """The SHA-256 of each other member, by name."""
    format: int = FORMAT


def write_archive(file: Path, snapshot: Path, files: Mapping[str, bytes], **facts: Any) -> Manifest:
    """Write an archive that only its user can read, in place of an earlier one at the same path.

    `files` are the contents of the files by their paths in the state directory, and `facts` those
    of the manifest. Raises OSError.
    """
    members: dict[str, Path | bytes] = {SNAPSHOT: snapshot}
    members |= {f"{FILES}/{name}": content for name, content in sorted(files.items())}
    digests = {name: _digest(content) for name, content in members.items()}
    manifest = Manifest(version=__version__, digests=digests, **facts)
    draft = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with open_new(draft) as output:
            with tarfile.open(fileobj=output, mode="w") as archive:
                _add(archive, MANIFEST, orjson.dumps(asdict(manifest)))
                for name, content in members.items():
                    _add(archive, name, content)
            output.flush()
            os.fsync(output.fileno())
        draft.rename(file)
    finally:
        draft.unlink(missing_ok=True)
    return manifest


def _digest(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o600
    if isinstance(content, bytes):
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
        return
    info.size = content.stat().st_size
    with content.open("rb") as opened:
        archive.addfile(info, opened)


class Archive:
    """An archive that is read: its manifest is valid, its members are not read yet."""

    def __init__(self, file: Path) -> None:
        """Read the manifest. Raises `RemoteClawError` if this is no backup that can be used."""
        self._file = file
        try:
            with tarfile.open(file, mode="r:") as archive:
                first = archive.next()
                if first is None or first.name != MANIFEST or first.size > MAX_MANIFEST_BYTES:
                    raise self._foreign()
                values = orjson.loads(_content(archive, first).read())
        except (tarfile.TarError, ValueError):
            raise self._foreign() from None
        except OSError as error:
            raise RemoteClawError(f"{file} can't be read: {error.strerror or error}.") from None
        try:
            if values["format"] > FORMAT or _numbers(values["version"]) > _numbers(__version__):
                raise RemoteClawError(
                    f"{file} was written by RemoteClaw {values['version']}, and this is "
                    f"{__version__}: update it, and restore again."
                )
            self.manifest = Manifest(**{**values, "left_out": tuple(values["left_out"])})
            if SNAPSHOT not in self.manifest.digests:
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._foreign() from None

    def extract(self, snapshot: Path) -> dict[str, bytes]:
        """Write the snapshot to a new file, and return the files of the state directory.

        Raises `RemoteClawError` if the archive is damaged or has anything else in it.
        """
        files, seen = {}, set()
        try:
            with tarfile.open(self._file, mode="r:") as archive:
                for member in self._members(archive):
                    seen.add(member.name)
                    source = _content(archive, member)
                    if member.name == SNAPSHOT:
                        with open_new(snapshot) as output:
                            digest = _copy(source, output)
                    else:
                        content = source.read()
                        digest = hashlib.sha256(content).hexdigest()
                        files[str(_inside(member.name))] = content
                    if digest != self.manifest.digests[member.name]:
                        raise ValueError(member.name)
            if seen != self.manifest.digests.keys():
                raise ValueError("a member is missing")
        except (tarfile.TarError, ValueError, KeyError, EOFError):
            raise RemoteClawError(
                f"{self._file} is damaged, so nothing was restored: use another backup."
            ) from None
        return files

    def _members(self, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        yield from (member for member in archive if member.name != MANIFEST)

    def _foreign(self) -> RemoteClawError:
        return RemoteClawError(f"{self._file} is no backup that `remoteclaw backup` has written.")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    if not member.isreg() or (opened := archive.extractfile(member)) is None:
        raise tarfile.ReadError(member.name)
    return opened  # type: ignore[return-value]


def _copy(source: BinaryIO, output: BinaryIO) -> str:
    digest = hashlib.sha256()
    while part := source.read(1 << 20):
        digest.update(part)
        output.write(part)
    return digest.hexdigest()


def _inside(name: str) -> PurePosixPath:
    """Return the path of a file in the state directory; raise ValueError for any other member."""
    path = PurePosixPath(name)
    if path.parts[0] != FILES or len(path.parts) < 2 or ".." in path.parts:
        raise ValueError(name)
    return path.relative_to(FILES)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as `(0, 3, 1)`."""
    return tuple(int(part) for part in version.split("+")[0].split(".") if part.isdecimal())
