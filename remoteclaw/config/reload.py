"""The current configuration, whose file is read again after a change."""

import logging
import os

from remoteclaw.config.home import Home
from remoteclaw.config.load import parse_config, read_file
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError
from remoteclaw.host.packages import package_hint

log = logging.getLogger(__name__)


class CurrentConfig:
    """Returns the configuration in the file; while the file is invalid, the last valid one.

    A file that has disappeared or become empty counts as invalid: some editors leave it like that
    for a moment while they save, and what it forbids must stay forbidden. To run without a file,
    restart RemoteClaw.
    """

    def __init__(self, home: Home, config: Config) -> None:
        """`config` is what the caller has read from the file at its start."""
        self._home = home
        self._config = self.at_start = config
        # Starting takes seconds, in which the file may change: the first call reads it again.
        self._version: tuple[int, ...] | None = None
        self._had_content = bool(self._file_version())
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the file isn't used; None if the current configuration is what the file has."""
        return self._problem and f"{self._problem}{package_hint()}"

    def __call__(self) -> Config:
        """Return the configuration; without a change, a call costs one stat of the file."""
        version = self._file_version()
        if version != self._version:
            self._version = version
            if self._had_content and not version:
                self._problem = f"{self._home.config_file} is gone, or empty."
                log.warning("the configuration stays as it was: its file is gone, or empty")
            else:
                self._read(version)
        return self._config

    def _read(self, version: tuple[int, ...]) -> None:
        try:
            content = read_file(self._home.config_file)
            config = parse_config(content, self._home.config_file, os.environ)
        except ConfigError as error:
            self._problem = str(error)
            log.error("the configuration stays as it was: %s%s", error, package_hint())
            return
        if self._file_version() != version:
            self._version = None  # the file has changed during the read: the next call reads again
            return
        self._config, self._problem = config, None
        self._had_content = bool(version)

    def _file_version(self) -> tuple[int, ...]:
        """Return numbers that change with the file; empty if the file is absent or empty."""
        try:
            status = self._home.config_file.stat()
        except OSError:
            return ()
        if not status.st_size:
            return ()
        return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
