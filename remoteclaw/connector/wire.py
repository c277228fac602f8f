"""JSON-RPC messages as bytes."""

import json

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["dump", "load"]


def load(data: bytes) -> "Any":
    """Return the value of a JSON text. Raises ValueError."""
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump(value: object) -> bytes:
    """Return the JSON text of a value in one line of ASCII. Raises ValueError."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
