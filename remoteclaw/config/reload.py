"""The current configuration, whose file is read again after a change.

Each process reads the file at another time. The last valid version is therefore kept in the state
directory, for all processes of the host: while the file is invalid, they all use this version.
"""

import contextlib
import logging
import os
import time
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config, parse_config, read_file
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.host.packages import package_hint

log = logging.getLogger(__name__)


def load_and_keep(home: Home) -> Config:
    """Return the configuration in the file, and keep this version for the host's processes.

    Raises `ConfigError` as `load_config()` does.
    """
    version = _version_of(home.config_file)
    config = load_config(home.config_file)
    # Before anything has run, commands that only read make nothing in the directory: it may be
    # absent, or empty and open to others.
    if version and home.is_private:
        _keep(home, read_file(home.config_file), version)
    return config


def forget_removed(home: Home) -> None:
    """Forget the last valid version if the file is absent: RemoteClaw starts without a file."""
    if not _version_of(home.config_file):
        home.valid_config_file.unlink(missing_ok=True)


def version_in_effect(home: Home) -> str:
    """Return a sentence about what processes use while the file is invalid."""
    try:
        read_s = home.valid_config_file.stat().st_mtime
    except OSError:
        return "Running processes keep the configuration that they had."
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(read_s))
    return (
        f"Running processes use the last valid version, of {when}, which is "
        f"{home.valid_config_file}."
    )


class CurrentConfig:
    """Returns the configuration in the file; while the file is invalid, the host's last valid one.

    A file that has disappeared or become empty counts as invalid: some editors leave it like that
    for a moment while they save, and what it forbids must stay forbidden. To run without a file,
    restart `remoteclaw up`.
    """

    def __init__(self, home: Home, config: Config) -> None:
        """`config` is what the caller has read from the file at its start."""
        self._home = home
        self._config = self.at_start = config
        # Starting takes seconds, in which the file may change: the first call reads it again.
        self._version: tuple[int, ...] | None = None
        self._kept_version: tuple[int, ...] | None = None
        self._content: bytes | None = None
        files = (home.config_file, home.valid_config_file)
        self._had_content = any(_version_of(file) for file in files)
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the file isn't used; None if the current configuration is what the file has."""
        if self._problem is None:
            return None
        return f"{self._problem} {version_in_effect(self._home)}{package_hint()}"

    def __call__(self) -> Config:
        """Return the configuration; without a change, a call costs one stat of the file."""
        version = _version_of(self._home.config_file)
        if version != self._version:
            self._version, self._kept_version = version, None
            if self._had_content and not version:
                self._problem = f"{self._home.config_file} is gone, or empty."
                log.warning(
                    "the last valid configuration stays in effect: the file is gone, or empty"
                )
            else:
                self._read(version)
        if self._problem is not None:
            self._use_kept()
        return self._config

    def _read(self, version: tuple[int, ...]) -> None:
        try:
            content = read_file(self._home.config_file)
            config = parse_config(content, self._home.config_file, os.environ)
        except ConfigError as error:
            self._problem = str(error)
            log.error("the last valid configuration stays in effect: %s%s", error, package_hint())
            return
        if not _keep(self._home, content, version):
            self._version = None  # the file has changed during the read: the next call reads again
            return
        self._config, self._content, self._problem = config, content, None
        self._had_content = bool(version)

    def _use_kept(self) -> None:
        """Use the host's last valid version, which another process may have read."""
        file = self._home.valid_config_file
        version = _version_of(file)
        if version == self._kept_version:
            return
        self._kept_version = version
        try:
            content = file.read_bytes()
            if content == self._content:
                return
            config = parse_config(content, file, os.environ)
        except (OSError, ConfigError):  # none was kept, or this process' environment doesn't fit it
            return
        self._config, self._content = config, content
        log.warning("the last valid version of the configuration is used: %s", file)


def _keep(home: Home, content: bytes, version: tuple[int, ...]) -> bool:
    """Keep a valid version of the file; return whether the file still has it.

    A version that has been replaced meanwhile isn't kept: it would replace a newer one.
    """
    file = home.valid_config_file
    try:
        with locked(home.path / ".lock"):
            if _version_of(home.config_file) != version:
                return False
            if version and not (file.exists() and file.read_bytes() == content):
                replace_file(file, content)
    except OSError as error:
        log.error("%s can't be written: %s.", file, error.strerror)
        with contextlib.suppress(OSError):  # rather none than an older one
            file.unlink(missing_ok=True)
    return True


def _version_of(file: Path) -> tuple[int, ...]:
    """Return numbers that change with a file; empty if the file is absent or empty."""
    try:
        status = file.stat()
    except OSError:
        return ()
    if not status.st_size:
        return ()
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
