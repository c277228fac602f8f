"""Edits of the configuration file, by commands, operators and agents.

A change is checked before anything is written, and replaces the file in one step: after a kill at
any moment, there is the old file or the new one. The last valid content that was replaced
here is kept beside the file, as `remoteclaw.toml.bak`.
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
from remoteclaw.config.merge_patch import check_json, edited, json_size, merged, replacing
from remoteclaw.config.model import Config
from remoteclaw.config.rights import Place, differences, places
from remoteclaw.config.secrets import HIDDEN, redacted, without_hidden
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.host.locks import lock_soon, replace_file

#: Largest size of the file, in bytes: every process reads it, again and again.
MAX_BYTES = 256 * 1024
#: Largest size of a change, as JSON in bytes: merging that much around comments takes about a
#: second.
MAX_PATCH_BYTES = 32 * 1024
#: How many keys a refusal names.
MAX_NAMED = 12
#: How long a change waits for another one, in seconds: a change takes milliseconds.
LOCK_S = 5.0


class FileChanged(ConfigError):
    """Raised when the file has changed since a change was planned."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """What the file contained when it was read, or contains after a change."""

    data: bytes
    """Empty if there is no file."""

    @property
    def hash(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change that was checked and is not written yet."""

    before: FileContent
    after: FileContent
    patch: Mapping[str, Any]
    differences: tuple[Place, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The settings that the change changes."""
        return tuple(dict.fromkeys(one.name for one in self.differences))

    @property
    def diff(self) -> str:
        """The settings before and after it, a line each: without secrets, and in ASCII.

        So no sign in it is another one, or none.
        """
        trees = (tomllib.loads(content.data.decode()) for content in (self.before, self.after))
        old, new = ({place.path: value for place, value in places(Config, tree)} for tree in trees)
        lines = []
        for place in dict.fromkeys(self.differences):
            is_shown = place.setting is not None and not place.setting.secret
            for sign, values in (("-", old), ("+", new)):
                if place.path in values:
                    value = values[place.path] if is_shown else HIDDEN
                    lines.append(f"{sign}{place.name} = {json.dumps(value, default=str)}")
        return "\n".join(lines)

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The changed settings that hold after a restart, each with what has to be restarted."""
        found = (
            (one.name, one.setting.restart)
            for one in self.differences
            if one.setting and one.setting.restart
        )
        return tuple(dict.fromkeys(f"{name}: restart {what}" for name, what in found))


class ConfigFile:
    """One configuration file."""

    def __init__(self, file: Path, environment: Mapping[str, str] = os.environ) -> None:
        self.file = file
        self._environment = environment
        #: A symlink is followed: the file that it leads to is replaced.
        self._target = Path(os.path.realpath(file))
        self._lock_file = self._target.with_name(f".{self._target.name}.lock")
        self.backup = backup_of(file)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the file's lock; text editors ignore it."""
        try:
            descriptor = await lock_soon(self._lock_file, wait_s=LOCK_S)
        except OSError as error:
            raise self._unwritable(error) from None
        if descriptor is None:
            raise ConfigError(f"{self.file} is being changed by another process: try again.")
        try:
            yield
        finally:
            os.close(descriptor)

    def read(self) -> FileContent:
        """Return the file's content; raises `ConfigError` if it can't be read."""
        try:
            found = self._target.stat()
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{self.file} is no regular file, so it can't be changed here.")
            return FileContent(self._target.read_bytes())
        except FileNotFoundError:
            return FileContent(b"")
        except OSError as error:
            raise ConfigError(f"{self.file} can't be read: {error.strerror}.") from None

    def config_or_none(self, content: FileContent) -> Config | None:
        """Return the configuration in a file's content; None if it is not valid."""
        try:
            return self._parsed(content.data)
        except ConfigError:
            return None

    def _parsed(self, data: bytes) -> Config:
        return parse_config(data, self.file, self._environment)

    # -- planning a change ---------------------------------------------------------------------

    def patched(
        self, content: FileContent, patch: Mapping[str, Any], *, for_agent: bool = False
    ) -> PlannedChange:
        """Return the change that a patch makes; raises `ConfigError` if the result is not valid.

        Raises `CallRefused` for settings that agents may not change, before that.
        """
        if json_size(patch) > MAX_PATCH_BYTES:
            raise ConfigError(f"A change has {MAX_PATCH_BYTES // 1024} KB at most: make several.")
        # Secrets are shown redacted, as ***. A file that is not valid was never shown, so no *** in
        # the patch comes from it.
        config = self.config_or_none(content)
        patch = without_hidden(patch, redacted(config) if config else {})
        before = parse_toml(content.data, self.file)
        found = tuple(differences(Config, before, merged(before, patch)))
        if for_agent:
            # Refuse unchanged values too, or an agent could test guesses of secrets.
            given = (place for place, value in places(Config, patch) if value not in (None, {}))
            _check_for_agents((*given, *found))
        data = edited(content.data, patch) if found else content.data
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{self.file} would be larger than {MAX_BYTES // 1024} KB.")
        self._parsed(data)
        return PlannedChange(content, FileContent(data), patch, found)

    def replaced(
        self, content: FileContent, wanted: Mapping[str, Any], *, for_agent: bool = False
    ) -> PlannedChange:
        """Return the change to a whole configuration, in which redacted secrets mean "unchanged".

        Raises as `patched()` does.
        """
        check_json(wanted)
        shown = redacted(self._parsed(content.data))
        patch = replacing(wanted, shown, parse_toml(content.data, self.file))
        return self.patched(content, patch, for_agent=for_agent)

    def overrides_hiding(self, plan: PlannedChange) -> tuple[str, ...]:
        """Return the environment variables of this process that hide what a change changes."""
        made = {tuple(name.lower().split("__")[1:]): name for name in overrides(self._environment)}
        found = (
            made[hidden]
            for one in plan.differences
            for hidden in made
            if hidden == tuple(part.lower() for part in one.path)[: len(hidden)]
        )
        return tuple(dict.fromkeys(found))

    # -- writing -------------------------------------------------------------------------------

    async def write(self, plan: PlannedChange) -> None:
        """Make a change; raises `FileChanged` if the file has changed since it was planned.

        The caller holds the lock.
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
                    f"{self.file} has changed meanwhile: read it again, and change what it is now."
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


def _check_for_agents(found: Iterable[Place]) -> None:
    """Raise `CallRefused`, naming all of them, for settings that agents may not change.

    Unknown names are reported by the validation of the configuration.
    """
    closed = [one.name for one in found if one.setting and not one.setting.agents_may]
    if not closed:
        return
    names = ", ".join(list(dict.fromkeys(closed))[:MAX_NAMED])
    raise CallRefused(
        "FORBIDDEN",
        f"Nothing was changed, because agents may not change {names}: a person does, in the file "
        "or with `remoteclaw config set`.",
    )
