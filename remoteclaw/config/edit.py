"""Edits of the configuration file, by commands, operators and agents.

A change is checked before anything is written, and takes the file's place in one step: killed at
any moment, there is the old file or the new one. The last valid version that was replaced is kept
beside it, as `remoteclaw.toml.bak`.
"""

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.config.load import backup_of, overrides, parse_config, parse_toml
from remoteclaw.config.merge_patch import edited, json_size, merged, replacing
from remoteclaw.config.model import Config
from remoteclaw.config.rights import Difference, differences
from remoteclaw.config.secrets import redacted, without_hidden
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.host.locks import lock, lock_soon, replace_file

__all__ = ["ConfigFile", "FileChanged", "Plan", "Version"]

#: Largest size of the file, in bytes: every process reads it, again and again.
MOST_BYTES = 256 * 1024
#: Largest size of a change, as JSON in bytes: to write it between comments takes a second.
MOST_PATCH_BYTES = 32 * 1024
#: How many keys a refusal names.
MOST_NAMED = 12
#: How long a change waits for another one, in seconds: that takes milliseconds.
LOCK_S = 5.0

#: In place of a value, and equal to none.
_NO_VALUE = object()


class FileChanged(ConfigError):
    """Raised when the file has changed since the version that a change was made for."""


@dataclass(frozen=True, slots=True)
class Version:
    """The file's content at a time."""

    content: bytes
    """Empty where there is no file."""

    @property
    def hash(self) -> str:
        """The content's name."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that was checked and is not written yet."""

    before: Version
    after: Version
    patch: Mapping[str, Any]
    differences: tuple[Difference, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The settings that it changes."""
        return tuple(dict.fromkeys(one.name for one in self.differences))

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """Those of them that hold after a restart, each with what has to be restarted."""
        found = (
            (one.name, one.setting.restart)
            for one in self.differences
            if one.setting and one.setting.restart
        )
        return tuple(dict.fromkeys(f"{name}: restart {what}" for name, what in found))


class ConfigFile:
    """One configuration file."""

    def __init__(
        self,
        file: Path,
        environment: Mapping[str, str] = os.environ,
        *,
        check: Callable[[Config], None] = lambda _: None,
    ) -> None:
        """`check` imports the hooks that a change brings; it raises `ConfigError`."""
        self.file = file
        self._environment = environment
        self._check = check
        #: A link stays one: the file that it leads to is replaced.
        self._target = Path(os.path.realpath(file))
        self._lock_file = self._target.with_name(f".{self._target.name}.lock")
        self.backup = backup_of(file)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the file's lock, which editors don't take."""
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

    def read(self) -> Version:
        """Return the file's content; raises `ConfigError` if it can't be read."""
        try:
            found = self._target.stat()
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{self.file} is no regular file, so it can't be changed here.")
            return Version(self._target.read_bytes())
        except FileNotFoundError:
            return Version(b"")
        except OSError as error:
            raise ConfigError(f"{self.file} can't be read: {error.strerror}.") from None

    def usable(self, version: Version) -> Config | None:
        """Return the configuration of a version; None if it is not valid."""
        try:
            return self._parsed(version.content)
        except ConfigError:
            return None

    def _parsed(self, content: bytes) -> Config:
        return parse_config(content, self.file, self._environment)

    # -- planning a change ---------------------------------------------------------------------

    def patched(
        self, version: Version, patch: Mapping[str, Any], *, for_agent: bool = False
    ) -> Plan:
        """Return the change that a patch makes; raises `ConfigError` if the result is not valid.

        Raises `CallRefused`, before anything else is done with the patch, for settings that agents
        may not change.
        """
        if json_size(patch) > MOST_PATCH_BYTES:
            raise ConfigError(f"A change has {MOST_PATCH_BYTES // 1024} KB at most: make several.")
        # A file that is not valid was never shown, so no *** in the patch comes from it.
        config = self.usable(version)
        patch = without_hidden(patch, redacted(config) if config else {})
        before = parse_toml(version.content, self.file)
        found = tuple(differences(Config, before, merged(before, patch)))
        if for_agent:
            # What it names counts also where it changes nothing: else it could guess at secrets.
            _check_for_agents((*_named(patch), *found))
        content = edited(version.content, patch) if found else version.content
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{self.file} would be larger than {MOST_BYTES // 1024} KB.")
        after = self._parsed(content)
        if overrides(self._environment):
            # A mistake that an override hides here shows elsewhere.
            parse_config(content, self.file, {})
        if config is None or after.hooks != config.hooks:
            self._check(after)
        return Plan(version, Version(content), patch, found)

    def replaced(
        self, version: Version, wanted: Mapping[str, Any], *, for_agent: bool = False
    ) -> Plan:
        """Return the change to a whole configuration, in which secrets are as they were shown."""
        json_size(wanted)
        shown = redacted(self._parsed(version.content))
        patch = replacing(wanted, shown, parse_toml(version.content, self.file))
        return self.patched(version, patch, for_agent=for_agent)

    def overriding(self, plan: Plan) -> tuple[str, ...]:
        """Return the variables of this process that hide what a change changes."""
        made = {tuple(name.lower().split("__")[1:]): name for name in overrides(self._environment)}
        found = (
            made[hidden]
            for one in plan.differences
            for hidden in made
            if hidden == tuple(part.lower() for part in one.path)[: len(hidden)]
        )
        return tuple(dict.fromkeys(found))

    # -- writing -------------------------------------------------------------------------------

    async def write(self, plan: Plan) -> None:
        """Make a change; raises `FileChanged` if the file has changed since it was planned.

        The caller holds the lock.
        """
        writing = asyncio.create_task(asyncio.to_thread(self._write, plan))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))  # the lock is held until it is done
            raise

    def _write(self, plan: Plan) -> None:
        def check() -> None:
            if self.read().content != plan.before.content:
                raise FileChanged(
                    f"{self.file} has changed meanwhile: read it again, and change what it is now."
                )

        try:
            mode = self._target.stat().st_mode if self._target.exists() else 0o600
            if plan.before.content and self.usable(plan.before):
                replace_file(self.backup, plan.before.content, mode=mode)
            replace_file(self._target, plan.after.content, mode=mode, check=check)
        except OSError as error:
            raise self._unwritable(error) from None

    def keep(self, content: bytes) -> None:
        """Keep a valid version that an editor has replaced with a mistake. Raises OSError."""
        descriptor = lock(self._lock_file)
        if descriptor is None:
            return  # a change is being written, which keeps the version before it
        try:
            replace_file(self.backup, content)
        finally:
            os.close(descriptor)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._target} can't be changed ({error.strerror}): its directory must be one that "
            "RemoteClaw can write to."
        )


def _named(patch: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield each setting that a patch gives a value, whatever its value in the file."""
    return differences(Config, _without_values(patch), _without_nulls(patch))


def _without_nulls(patch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in patch.items()
        if value is not None
    }


def _without_values(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same tables with `_NO_VALUE` in place of each value."""
    return {
        name: _without_values(value) if isinstance(value, Mapping) else _NO_VALUE
        for name, value in patch.items()
        if value is not None
    }


def _check_for_agents(found: Sequence[Difference]) -> None:
    """Raise `CallRefused`, naming all of them, for settings that agents may not change.

    A name that is no setting is left to the check of the configuration, which names it.
    """
    closed = [one.name for one in found if one.setting and not one.setting.agents_may]
    if not closed:
        return
    names = list(dict.fromkeys(closed))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    raise CallRefused(
        "FORBIDDEN",
        f"Nothing was changed, because agents may not change {', '.join(names[:MOST_NAMED])}{more}:"
        " a person does, in the file or with `remoteclaw config set`.",
    )
