"""An adapter's state in memory, for a command that needs no Redis."""

from remoteclaw.protocols import AdapterState


class MemoryState:
    """The facts that an adapter keeps while an account gets new secrets: its state is in Redis."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, bool]] = {}

    async def read(self, name: str) -> bytes | None:
        """Return a value."""
        return self._values.get(name, (None, False))[0]

    async def write(self, name: str, value: bytes | None, *, is_secret: bool = False) -> None:
        """Keep a value until the end."""
        self._values.pop(name, None)
        if value is not None:
            self._values[name] = value, is_secret

    async def settle(self) -> None:
        """Do nothing: there is no Redis."""

    async def copy_to(self, state: AdapterState) -> None:
        """Store all values in `state`."""
        for name, (value, is_secret) in self._values.items():
            await state.write(name, value, is_secret=is_secret)
