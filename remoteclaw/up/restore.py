"""Restores a backup into an empty state directory, where the fleet then starts paused."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.merge_patch import patch_toml
from remoteclaw.errors import RedisUnavailable, RemoteClawError, StateDirectoryError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.copying import copy_data
from remoteclaw.host.locks import replace_file
from remoteclaw.locations import AGENT_FILES
from remoteclaw.up.archive import Archive, Manifest
from remoteclaw.up.backup import CONFIG
from remoteclaw.up.embedded import EmbeddedRedis
from remoteclaw.up.lock import locked

#: The name of the snapshot in the server's directory.
SNAPSHOT = "restored.rdb"


@dataclass(frozen=True, slots=True)
class Restored:
    """A state directory to which a backup was restored."""

    manifest: Manifest
    config_file: Path | None
    """The configuration that was restored; None if the backup has none, or another one is used."""


async def restore(home: Home, file: Path, url: str = "") -> Restored:
    """Restore a backup into the state directory, with its data in the embedded Redis.

    With `url`, the data goes to that Redis, which must be empty, and the configuration names it.

    Raises `StateDirectoryError` if the directory is used, and `RemoteClawError` if the file or the
    other Redis can't be used; then the directory stays empty.
    """
    archive = Archive(file)
    home.create()
    with locked(home):
        if used := _used(home):
            raise StateDirectoryError(
                f"{home.path} is in use, it has {used}: name an empty directory in "
                "REMOTECLAW_HOME, or move this one away."
            )
        data = home.redis_data
        try:
            files = archive.extract(data / SNAPSHOT)
            if url:
                content = files.get(CONFIG, b"")
                files[CONFIG] = patch_toml(content, {"redis": {"url": url}})
            await _load(home, archive.manifest, url)
            return Restored(archive.manifest, _write(home, files))
        except BaseException:
            for path in (*data.iterdir(), home.path / AGENT_FILES):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            raise


def _used(home: Home) -> str:
    """Return a name in the state directory that an earlier use has left; empty if there is none."""
    kept = (home.path / CONFIG, home.path / AGENT_FILES, home.path / "tokens")
    stored = (path for path in home.redis_data.iterdir() if path.name not in ("lock", "server"))
    return next((path.name for path in (*kept, *stored) if path.exists()), "")


async def _load(home: Home, manifest: Manifest, url: str) -> None:
    """Load the snapshot into the embedded Redis, pause its fleet, and end the server again.

    With `url`, move the data to that Redis.
    """
    server = EmbeddedRedis(home)
    fleet = Fleet.open(f"unix://{home.redis_socket}")
    try:
        try:
            await server.start(snapshot=SNAPSHOT)
        except RedisUnavailable as error:
            raise RedisUnavailable(
                f"{server.program.name} can't load the snapshot, which {manifest.server} has "
                f"written: install a server of that kind, not an older one. ({error})"
            ) from None
        await fleet.restores.choose(manifest.database)
        await fleet.restores.prepare(manifest.at_ms)
        if url:
            await _move(fleet, url)
        else:
            await server.keep()
    finally:
        await fleet.aclose()
        with contextlib.suppress(ProcessLookupError):
            await server.stop()
    (home.redis_data / SNAPSHOT).unlink()


async def _move(fleet: Fleet, url: str) -> None:
    other = Fleet.open(url)
    try:
        await copy_data(fleet.scripts, other.scripts)
    finally:
        await other.aclose()


def _write(home: Home, files: dict[str, bytes]) -> Path | None:
    """Write the files of a backup; the configuration goes where this process looks for it."""
    written = None
    try:
        for name, content in files.items():
            path = home.config_file if name == CONFIG else home.path / name
            if name == CONFIG:
                if path.exists():  # REMOTECLAW_CONFIG names a file of the user's own
                    continue
                written = path
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content)
    except OSError as error:
        raise RemoteClawError(f"{home.path} can't be written: {error.strerror or error}.") from None
    return written
