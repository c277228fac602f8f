"""The current configuration, read again when its file changes."""

import logging
import os
from collections.abc import Callable

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config, parse_config
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError

__all__ = ["CurrentConfig"]

log = logging.getLogger(__name__)


class CurrentConfig:
    """Reads the file again when it has changed; a file that can't be used changes nothing.

    Neither does one that is gone, or empty: editors leave it like that for a moment, in which
    nothing that it forbids must be allowed. Without a file, RemoteClaw has to be started anew.
    """

    def __init__(
        self, home: Home, config: Config, *, keep: Callable[[bytes], None] | None = None
    ) -> None:
        """`config` is what the file had a moment ago; the first call looks whether it still is.

        `keep` is given what the file had while it was good, once it has something else, or nothing
        if it has the same again; it may raise OSError.
        """
        self._home = home
        self._config = self.at_start = config
        self._keep = keep
        # What starts reads the file, and then takes seconds: a change meanwhile must be seen.
        self._seen: tuple[int, ...] | None = None
        self.had_content = _has_content(self._look()) or config != self._without_file()
        """Whether there was a file with something in it."""
        self._content = self._good_content() if keep else b""
        self.problem: str | None = None
        """What is wrong with the file, if it is not what holds."""

    def __call__(self) -> Config:
        """Return the configuration; asking costs a look at the file."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            if self.had_content and not _has_content(seen):
                self.problem = f"{self._home.config_file} is gone, or empty."
                log.warning("the configuration stays as it was: its file is gone, or empty")
            else:
                self._read(seen)
            if self._keep and self._seen is not None:
                self._keep_before(self._keep)
        return self._config

    def _read(self, seen: tuple[int, ...]) -> None:
        try:
            config = load_config(self._home.config_file)
        except ConfigError as error:
            self.problem = str(error)
            log.error("the configuration stays as it was: %s", error)
            return
        if self._look() != seen:
            self._seen = None  # it changed meanwhile: what was read may be neither
            return
        self._config = config
        self.had_content = _has_content(seen)
        self.problem = None

    def _keep_before(self, keep: Callable[[bytes], None]) -> None:
        """Keep what the file had, if that was good, now that it has something else."""
        before = self._content
        if self.problem is None:
            self._content = self._good_content()
        is_other = before != self._content or self.problem is not None
        try:
            keep(before if is_other else b"")
        except OSError as error:
            log.warning("the configuration before is not kept: %s", error.strerror)

    def _good_content(self) -> bytes:
        """Return what the file has, if that can be used."""
        try:
            content = self._home.config_file.read_bytes()
            parse_config(content, self._home.config_file, os.environ)
        except (OSError, ConfigError):
            return b""
        return content

    def _without_file(self) -> Config | None:
        try:
            return parse_config(b"", self._home.config_file, os.environ)
        except ConfigError:  # overrides that need one
            return None

    def _look(self) -> tuple[int, ...]:
        """Return what changes with the file, its size first; nothing if there is none."""
        try:
            found = self._home.config_file.stat()
        except OSError:
            return ()
        return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _has_content(seen: tuple[int, ...]) -> bool:
    return bool(seen and seen[0])
