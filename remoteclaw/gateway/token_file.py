"""Token files: the gateway's own tokens in the state directory, which may change at any time.

The owner's token may do everything. The connector's (`remoteclaw mcp`), which agents of all kinds
start, has the scope `write`.
"""

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.host.tokens import digest

if TYPE_CHECKING:  # else every command would load pydantic
    from remoteclaw.tools.base import Scope

#: A token that can be used: a shorter one was typed by a person and can be guessed, a longer one is
#: another file, put there by mistake.
_TOKEN = re.compile("[!-~]{32,1024}")


def token_files(directory: Path) -> "tuple[TokenFile, TokenFile]":
    """Return the files of a state directory; the first is the owner's."""
    return TokenFile(directory), TokenFile(directory, "connector", "write")


class TokenFile:
    """The file of a state directory that has one holder's token."""

    def __init__(self, directory: Path, holder: str = "gateway", scope: "Scope" = "admin") -> None:
        """`holder` is what the operator is called who has it."""
        self.holder, self.scope = holder, scope
        self.path = directory / f"{holder}-token"

    def create(self) -> None:
        """Create the file unless it exists. Raises `StateDirectoryError` for an invalid token.

        Of two gateways that start at once, one creates it and both use it.
        """
        self._write(is_new=True)
        self.read()

    def rotate(self) -> None:
        """Replace the token; the old one is no longer valid."""
        self._write(is_new=False)

    def digest(self) -> str | None:
        """Return the current token's digest; None while the file has none that can be used."""
        try:
            return digest(self.read())
        except StateDirectoryError:
            return None

    def read(self) -> str:
        """Return the token. Raises `StateDirectoryError` with the reason if it can't be used."""
        try:
            with open(self.path, encoding="ascii", errors="replace", opener=_opened) as file:
                found, token = os.fstat(file.fileno()), file.read(2000).strip()
        except OSError as error:
            raise self._unfit(f"can't be read ({error.strerror})") from None
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise self._unfit("isn't yours alone (chmod 600)")
        if not _TOKEN.fullmatch(token):
            raise self._unfit("isn't one word of 32 characters or more")
        return token

    def _write(self, *, is_new: bool) -> None:
        """Write a new token; with `is_new`, only where there is no file."""
        try:
            with locked(self.path.with_name(".lock")):
                if not (is_new and os.path.lexists(self.path)):
                    replace_file(self.path, f"{secrets.token_hex(32)}\n".encode())
        except OSError as error:
            raise StateDirectoryError(
                f"The gateway's token {self.path} can't be written ({error.strerror})."
            ) from None

    def _unfit(self, why: str) -> StateDirectoryError:
        return StateDirectoryError(
            f"The gateway's token {self.path} {why}: remove it, and a new one is made at the next "
            "start, or `remoteclaw token rotate` makes one now."
        )


def _opened(path: str, flags: int) -> int:
    """Open a file without following a link, or waiting for who writes to a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
