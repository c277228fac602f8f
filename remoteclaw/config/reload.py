"""The current configuration: its file is read again when it has changed."""

import logging
import os

from remoteclaw.config.home import Home
from remoteclaw.config.load import parse_config, read_file
from remoteclaw.config.model import Config
from remoteclaw.errors import ConfigError

log = logging.getLogger(__name__)


class CurrentConfig:
    """Reads the file again when it has changed; one that is not valid changes nothing.

    Neither does one that is gone or empty: editors leave it like that for a moment, in which
    nothing that it forbids must be allowed. To run without a file, RemoteClaw has to be restarted.
    """

    def __init__(self, home: Home, config: Config) -> None:
        """`config` is what the file had a moment ago; the first call checks whether it still is."""
        self._home = home
        self._config = self.at_start = config
        # What starts reads the file, and then takes seconds: a change meanwhile must be seen.
        self._seen: tuple[int, ...] | None = None
        self._had_content = bool(self._look())
        self.problem: str | None = None
        """The mistake in the file, if that is not what holds."""

    def __call__(self) -> Config:
        """Return the configuration; each call costs a stat of the file."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            if self._had_content and not seen:
                self.problem = f"{self._home.config_file} is gone, or empty."
                log.warning("the configuration stays as it was: its file is gone, or empty")
            else:
                self._read(seen)
        return self._config

    def _read(self, seen: tuple[int, ...]) -> None:
        try:
            content = read_file(self._home.config_file)
            config = parse_config(content, self._home.config_file, os.environ)
        except ConfigError as error:
            self.problem = str(error)
            log.error("the configuration stays as it was: %s", error)
            return
        if self._look() != seen:
            self._seen = None  # it has changed meanwhile: the next call reads it again
            return
        self._config, self.problem = config, None
        self._had_content = bool(seen)

    def _look(self) -> tuple[int, ...]:
        """Return what changes with the file; nothing if there is none, or nothing in it."""
        try:
            found = self._home.config_file.stat()
        except OSError:
            return ()
        if not found.st_size:
            return ()
        return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
