"""Token files: the tokens in the state directory, which may change at any time.

The owner's token has the scope `admin`. The token of the connector (`remoteclaw mcp`), which any
agent CLI may start, has the scope `write`.
"""

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.host.tokens import digest

if TYPE_CHECKING:  # otherwise every command would load pydantic
    from remoteclaw.tools.base import Scope

#: The form of a token. A shorter text was probably typed by a person and can be guessed; a longer
#: one is probably another file, put there by mistake.
_TOKEN = re.compile("[!-~]{32,1024}")


def token_files(directory: Path) -> "tuple[TokenFile, TokenFile]":
    """Return the token files of a state directory: the owner's, then the connector's."""
    return TokenFile(directory), TokenFile(directory, "connector", "write")


class TokenFile:
    """A file in the state directory with the token of one holder."""

    def __init__(self, directory: Path, holder: str = "gateway", scope: "Scope" = "admin") -> None:
        """`holder` names the file."""
        self.holder, self.scope = holder, scope
        self.path = directory / f"{holder}-token"

    def create(self) -> None:
        """Create the file unless it exists. Raises `StateDirectoryError` for an unusable token.

        If two gateways start at once, one creates the file and both use it.
        """
        self._write(is_new=True)
        self.read()

    def rotate(self) -> None:
        """Replace the token; the old one is no longer valid."""
        self._write(is_new=False)

    def digest(self) -> str | None:
        """Return the current token's digest; None while the file has no usable token."""
        try:
            return digest(self.read())
        except StateDirectoryError:
            return None

    def read(self) -> str:
        """Return the token. Raises `StateDirectoryError` if it can't be used."""
        try:
            with open(self.path, encoding="ascii", errors="replace", opener=_open_safely) as file:
                stat, token = os.fstat(file.fileno()), file.read(2000).strip()
        except OSError as error:
            raise self._unusable(f"can't be read ({error.strerror})") from None
        if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
            raise self._unusable("can be read by others (chmod 600)")
        if not _TOKEN.fullmatch(token):
            raise self._unusable("isn't one word of 32 characters or more")
        return token

    def _write(self, *, is_new: bool) -> None:
        """Write a new token; with `is_new`, only if the file does not exist."""
        try:
            with locked(self.path.with_name(".lock")):
                if not (is_new and os.path.lexists(self.path)):
                    replace_file(self.path, f"{secrets.token_hex(32)}\n".encode())
        except OSError as error:
            raise StateDirectoryError(
                f"The gateway's token {self.path} can't be written ({error.strerror})."
            ) from None

    def _unusable(self, why: str) -> StateDirectoryError:
        return StateDirectoryError(
            f"The gateway's token {self.path} {why}: remove it, and a new one is made at the next "
            "start, or `remoteclaw token rotate` makes one now."
        )


def _open_safely(path: str, flags: int) -> int:
    """Open a file without following a link. Opening a FIFO does not wait for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
