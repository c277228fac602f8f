"""Backups: what `remoteclaw backup` puts into a file while everything runs, and what it leaves out.

Redis has the conversations, with a record from which a new agent goes on, and everything that
waits. Of the state directory, the configuration and the agents' identity files are needed; the
host's own id, logs and sockets must not be copied to another machine.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.config.load import parse_config
from remoteclaw.config.merge_patch import patch_toml
from remoteclaw.config.model import Config
from remoteclaw.config.rights import setting_paths
from remoteclaw.errors import ConfigError, RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.snapshot import save_snapshot
from remoteclaw.locations import AGENT_FILES, MEMORY_FILE
from remoteclaw.up.archive import FILES, SNAPSHOT, Manifest, write_archive

#: The name of the configuration in a backup, wherever the file is.
CONFIG = "remoteclaw.toml"
#: Files and directories of the state directory that have secrets, which a restored fleet needs: the
#: tokens of chat platforms, the key of the adapters' own secrets in Redis, the key of push
#: notifications, and the owner's token for the gateway.
SECRET_FILES = ("tokens", "adapter-state-key", "adapter-states", "push-token", "gateway-token")


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was written."""

    manifest: Manifest
    size: int
    """In bytes."""
    files: tuple[str, ...]
    """The files of the state directory that are in it."""
    workspaces: tuple[Path, ...]
    """The agents' workspaces, which are not in it."""


async def write_backup(
    fleet: Fleet, home: Home, config: Config, file: Path, *, with_secrets: bool
) -> Backup:
    """Write a backup of the fleet and of this state directory.

    Raises `RedisUnavailable` or `RedisRefused` without a snapshot, and `RemoteClawError` if the
    file can't be written.
    """
    left_out: list[str] = []
    files = dict(_files(home, AGENT_FILES, leaves_out=(MEMORY_FILE,)))
    if content := _configuration(home, left_out, with_secrets=with_secrets):
        files[CONFIG] = content
    for name in SECRET_FILES:
        found = dict(_files(home, name))
        if with_secrets:
            files |= found
        else:
            left_out += sorted(found)
    try:
        with _drafts(file) as drafts:
            snapshot = Path(drafts, "snapshot")
            at_ms = await fleet.scripts.now_ms()
            await save_snapshot(fleet.scripts.client, snapshot)
            manifest = write_archive(
                file,
                snapshot,
                files,
                at_ms=at_ms,
                host=config.fleet.name_of_host,
                server=await _server(fleet),
                database=fleet.scripts.database,
                has_secrets=with_secrets,
                left_out=tuple(left_out),
            )
    except OSError as error:
        raise RemoteClawError(f"{file} can't be written: {error.strerror or error}.") from None
    return _written(home, config, file, manifest)


def _drafts(file: Path) -> "TemporaryDirectory[str]":
    """Return a directory beside the file, so that the disk which has to have room is the same."""
    return TemporaryDirectory(prefix=".remoteclaw-backup-", dir=file.absolute().parent)


def _written(home: Home, config: Config, file: Path, manifest: Manifest) -> Backup:
    workspaces = {home.workspace_path(name, agent) for name, agent in config.agents.items()}
    names = (name.removeprefix(f"{FILES}/") for name in manifest.digests if name != SNAPSHOT)
    existing = tuple(sorted(path for path in workspaces if path.is_dir()))
    return Backup(manifest, file.stat().st_size, tuple(names), existing)


async def _server(fleet: Fleet) -> str:
    info = await fleet.scripts.call(fleet.scripts.client.info, "server")
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    return f"{name} {info.get('valkey_version') or info.get('redis_version')}"


def _files(
    home: Home, name: str, *, leaves_out: tuple[str, ...] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield a file of the state directory, or those in a directory there, with their contents."""
    top = home.path / name
    for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
        is_kept = path.name not in leaves_out and not path.name.startswith(".")
        if is_kept and path.is_file() and not path.is_symlink():
            yield path.relative_to(home.path).as_posix(), path.read_bytes()


def _configuration(home: Home, left_out: list[str], *, with_secrets: bool) -> bytes | None:
    """Return the content of the configuration file; add the settings that are left out.

    `[redis] url` names the server that the backup may have to replace, so it is always left out.
    """
    try:
        content = home.config_file.read_bytes()
    except FileNotFoundError:
        return None
    tree = tomllib.loads(content.decode())
    patch: dict[str, Any] = {}
    for setting, _ in setting_paths(Config, tree):
        is_secret = setting.declaration is not None and setting.declaration.secret
        is_url = setting.path == ("redis", "url")
        if is_url or (is_secret and not with_secrets):
            left_out.append(setting.name)
            _remove(patch, setting.path)
    result = patch_toml(content, patch)
    try:
        parse_config(result, home.config_file, {})
    except ConfigError as error:
        raise ConfigError(
            f"Without its secrets, the configuration would not be valid: {error} Use "
            "--with-secrets, or move the secrets out of it."
        ) from None
    return result


def _remove(patch: dict[str, Any], path: tuple[str, ...]) -> None:
    """Add the removal of a setting to a merge patch.

    An MCP server without its address is none, so it is removed as a whole.
    """
    if "mcp_servers" in path:
        path = path[: path.index("mcp_servers") + 2]
    *parents, last = path
    for name in parents:
        patch = patch.setdefault(name, {})
        if patch is None:
            return
    patch[last] = None
