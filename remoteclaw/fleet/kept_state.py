"""The state of an adapter before its account runs: a private file of the state directory.

`channel add` has no claim of the account, and Redis need not run then. So what an adapter keeps
while its account is added is written to this file, at once: a kill loses nothing that the platform
knows already. The account's first process takes it over into Redis.
"""

import base64
import json
from pathlib import Path

from remoteclaw.fleet.adapter_state import Seal, StoredState
from remoteclaw.host.locks import replace_file


def stamp(file: Path) -> int | None:
    """Return when a file was written; None if there is none, or none that can be seen."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


class KeptState:
    """An `AdapterState` in a file. Only one process writes it, or takes it over, at a time."""

    def __init__(self, file: Path, key_file: Path) -> None:
        """`key_file` has the key of the secrets, as that of the state in Redis."""
        self._file = file
        self._seal = Seal(key_file)

    async def read(self, name: str) -> bytes | None:
        """Return a value; None if there is none."""
        stored = self._values().get(name)
        return None if stored is None else self._seal.opened(base64.b64decode(stored))

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        """Store a value, encrypted if it is a secret; None removes it."""
        values = self._values()
        values.pop(name, None)
        if value is not None:
            sealed = self._seal.sealed(value, is_secret=is_secret)
            values[name] = base64.b64encode(sealed).decode()
        replace_file(self._file, json.dumps(values).encode())

    async def settle(self) -> None:
        """Do nothing: a write is on the disk when it returns."""

    def clear(self) -> None:
        """Remove all values."""
        self._file.unlink(missing_ok=True)

    async def move_to(self, state: StoredState) -> None:
        """Store all values in `state`, then remove the file. A kill between the two repeats it."""
        for name, stored in self._values().items():
            sealed = base64.b64decode(stored)
            is_secret = self._seal.is_secret(sealed)
            await state.write(name, self._seal.opened(sealed), is_secret=is_secret)
        if self._values():
            await state.settle()
        self.clear()

    def _values(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._file.read_bytes()))
        except FileNotFoundError:
            return {}
