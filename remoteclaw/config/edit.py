"""Edits of the configuration file, by commands, operators and agents.

A change is checked before anything is written, and replaces the file atomically: a kill at any
moment leaves the old file or the new one. `remoteclaw.toml.bak`, next to the file, keeps the last
valid content that such a change replaced.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.config.load import backup_of, overrides, parse_config, parse_toml
from remoteclaw.config.merge_patch import (
    apply_patch,
    check_json,
    json_size,
    patch_toml,
    replacement_patch,
)
from remoteclaw.config.model import Config
from remoteclaw.config.rights import SettingPath, differences, setting_paths
from remoteclaw.config.secrets import HIDDEN, redacted, without_hidden
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.host.locks import lock_async, replace_file

#: The maximum size of the file, in bytes. Every process reads the file again after each change.
MAX_BYTES = 256 * 1024
#: The maximum size of a change, as JSON in bytes. Merging 32 KB into a file with comments takes
#: about a second.
MAX_PATCH_BYTES = 32 * 1024
#: The maximum number of keys that a refusal names.
MAX_NAMED = 12
#: How long a change waits for another one, in seconds. A change takes milliseconds.
LOCK_S = 5.0


class FileChanged(ConfigError):
    """Raised when the file has changed since a change was planned."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of the file when it was read, or after a change."""

    data: bytes
    """Empty if the file is absent."""

    @property
    def hash(self) -> str:
        """The SHA-256 digest of the content, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change that has been checked and not yet written."""

    before: FileContent
    after: FileContent
    patch: Mapping[str, Any]
    differences: tuple[SettingPath, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The dotted paths of the changed settings."""
        return tuple(dict.fromkeys(setting.name for setting in self.differences))

    @property
    def diff(self) -> str:
        """The changed settings as a diff: a line for each old and each new value, without secrets.

        The text is ASCII, so that it has no invisible characters and no look-alikes.
        """
        trees = (tomllib.loads(content.data.decode()) for content in (self.before, self.after))
        old, new = (
            {setting.path: value for setting, value in setting_paths(Config, tree)}
            for tree in trees
        )
        lines = []
        for setting in dict.fromkeys(self.differences):
            is_shown = setting.declaration is not None and not setting.declaration.secret
            for sign, values in (("-", old), ("+", new)):
                if setting.path in values:
                    value = values[setting.path] if is_shown else HIDDEN
                    lines.append(f"{sign}{setting.name} = {json.dumps(value, default=str)}")
        return "\n".join(lines)

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The changed settings that only a restart applies, each with what has to be restarted."""
        restarts = (
            (setting.name, setting.declaration.restart)
            for setting in self.differences
            if setting.declaration and setting.declaration.restart
        )
        return tuple(dict.fromkeys(f"{name}: restart {part}" for name, part in restarts))


class ConfigFile:
    """A configuration file that can be changed."""

    def __init__(self, file: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self._environment = environment
        #: The file that a symbolic link leads to: a change replaces it and keeps the link.
        self._target = Path(os.path.realpath(file))
        self._lock_file = self._target.with_name(f".{self._target.name}.lock")
        self.backup = backup_of(file)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock of the file, which text editors ignore.

        Raises `ConfigError` if another process holds it for `LOCK_S`, or if it can't be taken.
        """
        try:
            descriptor = await lock_async(self._lock_file, wait_s=LOCK_S)
        except OSError as error:
            raise self._unwritable(error) from None
        if descriptor is None:
            raise ConfigError(f"{self.file} is being changed by another process: try again.")
        try:
            yield
        finally:
            os.close(descriptor)

    def read(self) -> FileContent:
        """Return the content of the file; raises `ConfigError` if it can't be read."""
        try:
            if not stat.S_ISREG(self._target.stat().st_mode):
                raise ConfigError(f"{self.file} is no regular file, so it can't be changed here.")
            return FileContent(self._target.read_bytes())
        except FileNotFoundError:
            return FileContent(b"")
        except OSError as error:
            raise ConfigError(f"{self.file} can't be read: {error.strerror}.") from None

    def config_or_none(self, content: FileContent) -> Config | None:
        """Return the configuration that `content` defines, or None if it is invalid."""
        try:
            return self._parsed(content.data)
        except ConfigError:
            return None

    def _parsed(self, data: bytes) -> Config:
        return parse_config(data, self.file, self._environment)

    # -- planning a change ---------------------------------------------------------------------

    def plan_patch(
        self, content: FileContent, patch: Mapping[str, Any], *, for_agent: bool = False
    ) -> PlannedChange:
        """Return the change that a merge patch makes to `content`.

        Raises `CallRefused` if `for_agent` is true and the patch has settings that agents may not
        change; else `ConfigError` if the patch is too large or the result is invalid.
        """
        if json_size(patch) > MAX_PATCH_BYTES:
            raise ConfigError(f"A change has {MAX_PATCH_BYTES // 1024} KB at most: make several.")
        # Clients see secrets as ***. They have never seen an invalid file, so a *** in the patch
        # can't come from it.
        config = self.config_or_none(content)
        patch = without_hidden(patch, redacted(config) if config else {})
        before = parse_toml(content.data, self.file)
        changed = tuple(differences(Config, before, apply_patch(before, patch)))
        if for_agent:
            # Refuse unchanged values too, or an agent could test guesses of secrets.
            given = (
                setting
                for setting, value in setting_paths(Config, patch)
                if value not in (None, {})
            )
            _check_for_agents((*given, *changed))
        data = patch_toml(content.data, patch) if changed else content.data
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{self.file} would be larger than {MAX_BYTES // 1024} KB.")
        self._parsed(data)
        return PlannedChange(content, FileContent(data), patch, changed)

    def plan_replacement(
        self, content: FileContent, wanted: Mapping[str, Any], *, for_agent: bool = False
    ) -> PlannedChange:
        """Return the change that turns `content` into the whole configuration `wanted`.

        A redacted secret in `wanted` stays as it is. Raises as `plan_patch()` does.
        """
        check_json(wanted)
        shown = redacted(self._parsed(content.data))
        patch = replacement_patch(wanted, shown, parse_toml(content.data, self.file))
        return self.plan_patch(content, patch, for_agent=for_agent)

    def overrides_hiding(self, plan: PlannedChange) -> tuple[str, ...]:
        """Return the environment variables that override settings of a planned change.

        Such a variable of this process hides the change.
        """
        variables = {
            tuple(name.lower().split("__")[1:]): name for name in overrides(self._environment)
        }
        hiding = (
            variables[path]
            for setting in plan.differences
            for path in variables
            if path == tuple(part.lower() for part in setting.path)[: len(path)]
        )
        return tuple(dict.fromkeys(hiding))

    # -- writing -------------------------------------------------------------------------------

    async def write(self, plan: PlannedChange) -> None:
        """Write a planned change to the file; the caller holds the lock.

        Raises `FileChanged` if the file has changed since the change was planned, and `ConfigError`
        if it can't be written.
        """
        writing = asyncio.create_task(asyncio.to_thread(self._write, plan))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))  # the lock is held until the change is written
            raise

    def _write(self, plan: PlannedChange) -> None:
        def check() -> None:
            if self.read().data != plan.before.data:
                raise FileChanged(
                    f"{self.file} has changed meanwhile: read it again and repeat the change."
                )

        try:
            mode = self._target.stat().st_mode if self._target.exists() else 0o600
            if plan.before.data and self.config_or_none(plan.before):
                replace_file(self.backup, plan.before.data, mode=mode)
            replace_file(self._target, plan.after.data, mode=mode, check=check)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._target} can't be changed ({error.strerror}): its directory must be one that "
            "RemoteClaw can write to."
        )


def _check_for_agents(settings: Iterable[SettingPath]) -> None:
    """Raise `CallRefused` if agents may not change some of the settings; it names all of these.

    The validation of the configuration reports unknown names.
    """
    closed = [
        setting.name
        for setting in settings
        if setting.declaration and not setting.declaration.agents_may
    ]
    if not closed:
        return
    names = ", ".join(list(dict.fromkeys(closed))[:MAX_NAMED])
    raise CallRefused(
        "FORBIDDEN",
        f"Nothing was changed, because agents may not change {names}: a person does, in the file "
        "or with `remoteclaw config set`.",
    )
