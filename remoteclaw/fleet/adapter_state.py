"""The state of an account's adapter: small values in Redis, of which secrets are encrypted.

Nothing of an account is on a host's disk, because its next process may be on another host. The key
of the secrets is a file of the state directory, which all hosts of the account need.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remoteclaw.clock import boottime
from remoteclaw.errors import ConfigError, LeaseLost, RedisRefused, RedisUnavailable, StateTooLarge
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.host.files import format_size

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

#: The maximum size of a value, and of all values of an account, in bytes.
MAX_VALUE_BYTES, MAX_BYTES = 256 * 1024, 16 * 1024 * 1024
#: The name of the value with which `settle()` waits, and its time limit, in milliseconds: Redis
#: writes to its disk once a second.
SETTLED, SETTLE_MS = "settled", 3000
#: The first byte of a stored value: whether it is encrypted.
_PLAIN, _SECRET = b"=", b"*"

TOO_LARGE = (
    "The adapter's state {name!r} has {size}, and {limit} are allowed. This is a fault of the "
    "adapter: report it to its author."
)


class Seal:
    """Encrypts the secrets of adapters with the key in a file."""

    def __init__(self, key_file: Path) -> None:
        self._key_file = key_file

    def sealed(self, value: bytes, *, is_secret: bool) -> bytes:
        """Return a value as it is stored."""
        return _SECRET + self._fernet().encrypt(value) if is_secret else _PLAIN + value

    def is_secret(self, stored: bytes) -> bool:
        """Whether a stored value is encrypted."""
        return stored[:1] == _SECRET

    def opened(self, stored: bytes, *, account: str = "the account") -> bytes:
        """Return the value. Raises `ConfigError` for one that another key has encrypted."""
        if not self.is_secret(stored):
            return stored[1:]
        from cryptography.fernet import InvalidToken

        try:
            return self._fernet().decrypt(stored[1:])
        except InvalidToken:
            raise ConfigError(
                f"The secrets of {account} can't be decrypted: copy {self._key_file.name} from the "
                f"state directory of the host that ran it before to {self._key_file}."
            ) from None

    def _fernet(self) -> "Fernet":
        from cryptography.fernet import Fernet  # slow, and only adapters with secrets need it

        return Fernet(self._key_file.read_bytes().strip())


class StoredState:
    """The `AdapterState` of an account."""

    def __init__(self, scripts: Scripts, reader: ReplyReader, key_file: Path) -> None:
        """`key_file` has the key of the secrets; it is made at the first use."""
        self._scripts = scripts
        self._reader = reader
        self._seal = Seal(key_file)
        self._key = keys.adapter_state(reader.provider, reader.account)
        self._has_written = False
        """Whether something is not settled yet."""
        self._run_id: str | None = None
        """The server's, before that was written."""

    async def read(self, name: str) -> bytes | None:
        """Return a value; None if there is none. Raises `ConfigError` for another host's secret."""
        client = self._scripts.client
        stored = await self._scripts.call(client.hget, self._key, name, deadline=math.inf)
        if stored is None:
            return None
        return self._seal.opened(
            bytes(stored), account=f"{self._reader.provider}/{self._reader.account}"
        )

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        """Store a value, encrypted if it is a secret; None removes it.

        Raises `LeaseLost`, also if Redis was restarted since the last `settle()`, so that earlier
        values may be lost; and `StateTooLarge`.
        """
        if not self._has_written:
            self._run_id = await self._scripts.run_id()
            self._has_written = True
        stored = None
        if value is not None:
            if len(value) > MAX_VALUE_BYTES:
                raise _too_large(name, len(value), MAX_VALUE_BYTES)
            stored = self._seal.sealed(value, is_secret=is_secret)
        try:
            result = await self._scripts.run(
                "write_adapter_state",
                token=self._reader.token,
                run_id=self._run_id,
                name=name,
                value=stored,
                max_bytes=MAX_BYTES,
                provider=self._reader.provider,
                account=self._reader.account,
                deadline=math.inf,
            )
        except LeaseLost:
            self._has_written = False
            raise
        if result == "large":
            raise _too_large(name, MAX_BYTES + len(value or b""), MAX_BYTES)

    async def settle(self) -> None:
        """Wait until what was written survives a crash of Redis, if the server can say so.

        Redis 7.2 and later, and Valkey can. Only a write of the same connection makes it wait.
        Raises `LeaseLost` if the server was restarted since, so that the writes may be lost, and
        `RedisUnavailable` if its disk takes longer than `SETTLE_MS`.
        """
        if not self._has_written:
            return
        now = _PLAIN + str(boottime()).encode()

        async def send() -> list[Any]:
            pipeline = self._scripts.client.pipeline(transaction=False)
            pipeline.hset(self._key, SETTLED, now)
            pipeline.execute_command("WAITAOF", 1, 0, SETTLE_MS)
            return list(await pipeline.execute(raise_on_error=False))

        wrote, waited = await self._scripts.call(send, deadline=math.inf)
        if isinstance(wrote, Exception):
            raise RedisRefused(f"Redis refuses: {wrote}.")
        if isinstance(waited, list) and not waited[0]:
            raise RedisUnavailable(
                "Redis is slow to write to its disk: nothing goes on until then."
            )
        self._has_written = False
        if await self._scripts.run_id() != self._run_id:
            raise LeaseLost("Redis was restarted, and may have lost what it stored last")


def _too_large(name: str, size: int, limit: int) -> StateTooLarge:
    return StateTooLarge(
        TOO_LARGE.format(name=name, size=format_size(size), limit=format_size(limit))
    )
