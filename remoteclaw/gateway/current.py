"""The configuration of now, for a process that lives longer than a file stays as it is."""

import logging

from remoteclaw import policy
from remoteclaw.config import Config, load_config
from remoteclaw.errors import ConfigError
from remoteclaw.home import Home
from remoteclaw.tools import TOOLS

__all__ = ["CurrentConfig"]

log = logging.getLogger(__name__)


class CurrentConfig:
    """Reads the file again when it has changed; a file that can't be used changes nothing."""

    def __init__(self, home: Home, config: Config) -> None:
        """`config` is what the file has now."""
        self._home = home
        self._config = config
        self._seen = self._look()

    def __call__(self) -> Config:
        """Return the configuration; asking costs a look at the file."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                config = load_config(self._home.config_file)
                policy.check(config, TOOLS)
                self._config = config
            except ConfigError as error:
                log.error("the configuration stays as it was: %s", error)
        return self._config

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._home.config_file.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
