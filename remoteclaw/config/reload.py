"""The current configuration, read again when its file changes."""

import logging
import os
from collections.abc import Callable

from remoteclaw.config.home import Home
from remoteclaw.config.load import parse_config, read_file
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError

__all__ = ["CurrentConfig"]

log = logging.getLogger(__name__)


class CurrentConfig:
    """Reads the file again when it has changed; one that is not valid changes nothing.

    Neither does one that is gone or empty: editors leave it like that for a moment, in which
    nothing that it forbids must be allowed. To run without a file, RemoteClaw has to be restarted.
    """

    def __init__(
        self, home: Home, config: Config, *, keep: Callable[[bytes, int], None] | None = None
    ) -> None:
        """`config` is what the file had a moment ago; the first call checks whether it still is.

        `keep` gets the last valid content that was read, and its st_ctime_ns, when a mistake has
        replaced it; it may raise OSError.
        """
        self._home = home
        self._config = self.at_start = config
        self._keep = keep
        # What starts reads the file, and then takes seconds: a change meanwhile must be seen.
        self._seen: tuple[int, ...] | None = None
        self._content, self._content_ns = b"", 0
        self.had_content = _has_content(self._look()) or config != self._without_file()
        """Whether there was a file with something in it."""
        self.problem: str | None = None
        """The mistake in the file, if that is not what holds."""

    def __call__(self) -> Config:
        """Return the configuration; each call costs a stat of the file."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            if self.had_content and not _has_content(seen):
                self.problem = f"{self._home.config_file} is gone, or empty."
                log.warning("the configuration stays as it was: its file is gone, or empty")
            else:
                self._read(seen)
        return self._config

    def has_lost(self, content: bytes) -> bool:
        """Whether the file, which has this content, was there before and is not valid now."""
        return self.problem is not None or (self.had_content and not content)

    def _read(self, seen: tuple[int, ...]) -> None:
        file = self._home.config_file
        try:
            content = read_file(file)
            config = parse_config(content, file, os.environ)
        except ConfigError as error:
            self.problem = str(error)
            log.error("the configuration stays as it was: %s", error)
            self._keep_last()
            return
        if self._look() != seen:
            self._seen = None  # it has changed meanwhile: the next call reads it again
            return
        self._config, self._content = config, content
        self._content_ns = seen[-1] if seen else 0
        self.had_content = _has_content(seen)
        self.problem = None

    def _keep_last(self) -> None:
        if self._keep is None or not self._content:
            return
        try:
            self._keep(self._content, self._content_ns)
        except OSError as error:
            log.warning("the last valid configuration is not kept: %s", error.strerror)

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
