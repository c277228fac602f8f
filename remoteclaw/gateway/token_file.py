"""Token files: the gateway's own tokens in the state directory, which may change at any time.

The owner's token may do everything. The connector's (`remoteclaw mcp`), which agents of all kinds
start, has the scope `write`.
"""

import errno
import logging
import os
import secrets
import stat
from pathlib import Path

from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import locked, replace_file
from remoteclaw.host.tokens import digest
from remoteclaw.tools.catalog import Scope

__all__ = ["TokenFile", "token_files"]

#: The shortest and the longest token, in characters: a shorter one was typed by a person and can be
#: guessed, a longer one is another file, put there by mistake.
SHORTEST, LONGEST = 32, 1024

log = logging.getLogger(__name__)


def token_files(directory: Path) -> "tuple[TokenFile, TokenFile]":
    """Return the files of a state directory; the first is the owner's."""
    return TokenFile(directory), TokenFile(directory, "connector", "write")


class TokenFile:
    """The file of a state directory that has one holder's token."""

    def __init__(self, directory: Path, holder: str = "gateway", scope: Scope = "admin") -> None:
        """`holder` is what the operator is called who has it."""
        self.holder, self.scope = holder, scope
        self.path = directory / f"{holder}-token"
        self._seen: tuple[int, ...] | None = None
        self._digest: str | None = None

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
        """Return the current token's digest; None while the file has none that can be used.

        Checks the file each time, and reads it again when it has changed.
        """
        try:
            found = self.path.lstat()
        except OSError:
            seen: tuple[int, ...] = ()
        else:
            seen = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if seen != self._seen:
            self._seen = seen
            try:
                self._digest = digest(self.read())
            except StateDirectoryError as error:
                self._digest = None  # the old token is not valid either
                log.error("%s", error)
        return self._digest

    def read(self) -> str:
        """Return the token. Raises `StateDirectoryError` with the reason if it can't be used."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
            try:
                if problem := _problem_of_file(os.fstat(descriptor)):
                    raise self._unfit(problem)
                content = os.read(descriptor, LONGEST + 2)
            finally:
                os.close(descriptor)
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            why = "is a symbolic link" if is_link else f"can't be read ({error.strerror})"
            raise self._unfit(why) from None
        token = content.removesuffix(b"\n").decode("ascii", "replace")
        if problem := _problem_of_token(token):
            raise self._unfit(problem)
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


def _problem_of_file(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid != os.getuid():
        return f"belongs to user {found.st_uid}, not to you"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"is open to other users (mode {stat.S_IMODE(found.st_mode):03o})"
    return None


def _problem_of_token(token: str) -> str | None:
    if not token.strip():
        return "is empty"
    if not token.isascii() or not token.isprintable() or " " in token:
        return "has invalid characters, such as a space or a line end"
    if len(token) < SHORTEST:
        return f"is too short: {SHORTEST} characters are the least"
    return f"is longer than {LONGEST} characters" if len(token) > LONGEST else None
