"""Edits of the configuration file, by commands, operators and agents.

A change is checked before anything is written, and takes the file's place in one step: whoever
reads it, and whenever this is killed, there is the old file or the new one. The version before is
kept beside it, as `remoteclaw.toml.last-good`.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from remoteclaw.clock import boottime
from remoteclaw.config.load import overrides, parse_config, parse_toml, parse_tree
from remoteclaw.config.merge_patch import (
    check_depth,
    check_patch,
    edited,
    merged,
    replacing,
    without_hidden,
)
from remoteclaw.config.model import Config
from remoteclaw.config.redact import redacted
from remoteclaw.config.rights import Difference, differences
from remoteclaw.errors import CallRefused, ConfigError

__all__ = ["ConfigFile", "FileChanged", "Plan", "Version"]

#: How large the file may become, in bytes: everything reads it, again and again.
MOST_BYTES = 256 * 1024
#: How large agents may make it, and with how many tables for channels: the rest is for people.
MOST_BYTES_OF_AGENTS, MOST_CHANNELS_OF_AGENTS = 128 * 1024, 200
#: How many keys a refusal names.
MOST_NAMED = 12
#: How long it is waited while somebody else changes the file, in seconds: that takes milliseconds.
LOCK_S = 5.0


#: In place of the environment, where the file alone is meant.
_NO_OVERRIDES: Mapping[str, str] = {}

#: In place of a value, and the same as none.
_NO_VALUE = object()


class FileChanged(ConfigError):
    """Raised when the file is not any more what a change was made for."""


@dataclass(frozen=True, slots=True)
class Version:
    """What the file has at a time."""

    content: bytes
    """Nothing where there is no file."""

    @property
    def hash(self) -> str:
        """Names the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that was checked, and not made yet."""

    before: Version
    after: Version
    config: Config
    """What holds with it, overrides included."""
    patch: Mapping[str, Any]
    """What makes the one of the other."""
    differences: tuple[Difference, ...]
    is_good_before: bool
    """Whether the file could be used as it was."""

    @property
    def paths(self) -> tuple[str, ...]:
        """What it changes."""
        return tuple(dict.fromkeys(one.name for one in self.differences))

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """What it changes that holds after a restart, each with what has to be started anew."""
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
        """`check` looks at hooks that a change brings; it raises `ConfigError`."""
        self.file = file
        self._environment = environment
        self._check = check
        #: A link stays one: what changes is the file that it leads to.
        self._target = Path(os.path.realpath(file))
        self.last_good = self._target.with_name(f"{self._target.name}.last-good")
        self._kept = self._stamp()
        self.broken = self._target.with_name(f"{self._target.name}.broken")

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Be the only one that changes the file; editors take no part in this."""
        try:
            descriptor = self._open_lock()
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            until = boottime() + LOCK_S
            while not _lock(descriptor):
                if boottime() > until:
                    raise ConfigError(f"{self.file} is being changed by somebody else: try again.")
                await asyncio.sleep(0.01)
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        path = self._target.with_name(f".{self._target.name}.lock")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def read(self) -> Version:
        """Return what the file has now."""
        try:
            found = self._target.stat()
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{self.file} is no regular file, so it can't be changed here.")
            return Version(self._target.read_bytes())
        except FileNotFoundError:
            return Version(b"")
        except OSError as error:
            raise ConfigError(f"{self.file} can't be read: {error.strerror}.") from None

    # -- what a change would be ----------------------------------------------------------------

    def usable(self, version: Version) -> tuple[Config | None, str]:
        """Return the configuration that a version is, or what is wrong with it."""
        try:
            return parse_config(version.content, self.file, self._environment), ""
        except ConfigError as error:
            return None, str(error)

    def patched(
        self, version: Version, patch: Mapping[str, Any], *, for_agent: bool = False
    ) -> Plan:
        """Return the change that a patch makes; raises `ConfigError` if there can be none.

        What an agent may not change is refused before anything else is done with it: `CallRefused`.
        """
        check_patch(patch)
        config, _ = self.usable(version)
        # Of a file that can't be used nothing was shown: then nothing stands for what it has.
        shown, real = (redacted(config), config.model_dump(mode="json")) if config else ({}, {})
        patch = without_hidden(patch, shown, real)
        return self._plan(version, patch, for_agent)

    def replaced(
        self, version: Version, wanted: Mapping[str, Any], *, for_agent: bool = False
    ) -> Plan:
        """Return the change to a whole configuration, of which some is as it was shown."""
        config, problem = self.usable(version)
        if config is None:
            raise ConfigError(problem)
        check_depth(wanted)
        shown = redacted(config)
        patch = replacing(wanted, shown, parse_toml(version.content, self.file))
        return self.patched(version, patch, for_agent=for_agent)

    def _plan(self, version: Version, patch: Mapping[str, Any], for_agent: bool) -> Plan:
        before = parse_toml(version.content, self.file)
        content = edited(version.content, patch)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{self.file} would be larger than {MOST_BYTES // 1024} KB.")
        found = self._between(version.content, content)
        if for_agent:
            # What it names counts also where it changes nothing: else it could guess at secrets.
            _check_for_agents((*_named(patch), *found))
            if overrides(self._environment):
                # A variable may come to mean something else by what is added beside it.
                _check_for_agents(self._between(version.content, content, self._environment))
            self._check_room(before, len(version.content), merged(before, patch), len(content))
        return Plan(
            before=version,
            after=Version(content) if found else version,
            config=self._checked(content, version),
            patch=patch,
            differences=found,
            is_good_before=self.usable(version)[0] is not None,
        )

    def _check_room(
        self, before: Mapping[str, Any], had: int, after: Mapping[str, Any], has: int
    ) -> None:
        """Leave room in the file for what a person has to say: agents don't fill it."""
        if has > max(had, MOST_BYTES_OF_AGENTS):
            raise ConfigError(
                f"{self.file} would be larger than {MOST_BYTES_OF_AGENTS // 1024} KB: beyond that, "
                "people alone add to it."
            )
        if _channels(after) > max(_channels(before), MOST_CHANNELS_OF_AGENTS):
            raise ConfigError(
                f"There would be more than {MOST_CHANNELS_OF_AGENTS} channels: beyond that, people "
                "alone add some."
            )

    def _between(
        self, before: bytes, after: bytes, environment: Mapping[str, str] = _NO_OVERRIDES
    ) -> tuple[Difference, ...]:
        one, other = (parse_tree(content, self.file, environment) for content in (before, after))
        return tuple(differences(Config, one, other))

    def _checked(self, content: bytes, before: Version) -> Config:
        """Return what a new content means; raises `ConfigError` if it must not be there."""
        config = parse_config(content, self.file, self._environment)
        # What is overridden here is not elsewhere; but it may never have been right there.
        if overrides(self._environment) and self._is_right_alone(before.content):
            parse_config(content, self.file, {})
        old, _ = self.usable(before)
        if old is None or config.hooks != old.hooks:
            self._check(config)
        return config

    def _is_right_alone(self, content: bytes) -> bool:
        try:
            parse_config(content, self.file, {})
        except ConfigError:
            return False
        return True

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
        """Make a change; raises `FileChanged` if the file is not any more what it was made for.

        The caller has the lock.
        """
        writing = asyncio.create_task(asyncio.to_thread(self._write, plan))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))  # or the lock would be gone before it is done
            raise

    def _write(self, plan: Plan) -> None:
        try:
            mode = self._target.stat().st_mode if self._target.exists() else 0o600
            if plan.is_good_before and plan.before.content:
                self._replace(self.last_good, plan.before.content, mode)
            self._replace(self._target, plan.after.content, mode, before=plan.before)
        except OSError as error:
            raise self._unwritable(error) from None

    async def restore(self) -> Plan:
        """Put the last good version in the file's place, which is kept; return the change.

        The caller has the lock.
        """
        version = self.read()
        try:
            content = self.last_good.read_bytes()
        except OSError:
            raise ConfigError(
                f"There is no earlier version of {self.file}: {self.last_good} is not there."
            ) from None
        config = self._checked(content, version)
        is_good = self.usable(version)[0] is not None
        if not is_good:
            self._replace(self.broken, version.content, 0o600)
        found = self._between(version.content, content) if is_good else ()
        plan = Plan(version, Version(content), config, {}, found, is_good)
        await self.write(plan)
        return plan

    def keep(self, content: bytes) -> None:
        """Keep a version that was good until somebody else changed the file. Raises OSError.

        Not where a change made here has kept one since this was asked last: that is a newer one.
        Without content nothing is kept, and it counts as asked.
        """
        descriptor = self._open_lock()
        try:
            if not _lock(descriptor):
                return  # it is being changed here: that keeps the same version
            if content and self._stamp() == self._kept and self._last() != content:
                self._replace(self.last_good, content, 0o600)
            self._kept = self._stamp()
        finally:
            os.close(descriptor)

    def _last(self) -> bytes:
        try:
            return self.last_good.read_bytes()
        except FileNotFoundError:
            return b""

    def _stamp(self) -> tuple[int, ...]:
        """Return what changes with the version before; nothing if there is none."""
        try:
            found = self.last_good.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _replace(
        self, path: Path, content: bytes, mode: int, *, before: Version | None = None
    ) -> None:
        """Write a file and put it in the place of another in one step. Raises OSError."""
        draft = path.with_name(f".{path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)  # of one that was killed
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            _write_all(descriptor, content)
            os.fchmod(descriptor, stat.S_IMODE(mode))
            _keep_owner(descriptor, path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if before is not None and self.read().content != before.content:
            os.unlink(draft)
            raise FileChanged(
                f"{self.file} was changed by somebody else meanwhile: read it again, and change "
                "what it is now."
            )
        os.rename(draft, path)
        _sync_directory(path.parent)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._target} can't be changed ({error.strerror}): its directory must be one that "
            "RemoteClaw can write to."
        )


def _channels(tree: Mapping[str, Any]) -> int:
    """Return how many tables for channels there are."""
    tables = (part.get("channels") for part in (tree, tree.get("queue")) if _is_table(part))
    return sum(len(table) for table in tables if _is_table(table))


def _is_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _named(patch: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield each setting that a patch gives a value, whatever the file has there."""
    return differences(Config, _without_values(patch), _without_nulls(patch))


def _without_nulls(patch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nulls(value) if _is_table(value) else value
        for name, value in patch.items()
        if value is not None
    }


def _without_values(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same tables with what is no value in place of each."""
    return {
        name: _without_values(value) if _is_table(value) else _NO_VALUE
        for name, value in patch.items()
        if value is not None
    }


def _check_for_agents(found: Sequence[Difference]) -> None:
    """Raise `CallRefused`, naming all of it, if something changes that agents may not change.

    What is no setting at all is for the check of the configuration to name.
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


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _keep_owner(descriptor: int, path: Path) -> None:
    """Leave a file to whom it belonged, where we may."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        found = path.stat()
        if (found.st_uid, found.st_gid) != (os.getuid(), os.getgid()):
            os.fchown(descriptor, found.st_uid, found.st_gid)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
