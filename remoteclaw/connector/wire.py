"""JSON without the json module, whose import takes longer than the connector's start.

`json` imports `re` and with it half of the standard library, 9 ms; its own C part, which does the
work, takes 0.2 ms.
"""

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["dump", "load"]


def _refuse(value: object) -> "Any":
    raise ValueError(f"{value!r} is not JSON")


class _Rules:
    """What the scanner asks for."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _refuse


try:
    import _json

    _scan = _json.make_scanner(_Rules)  # type: ignore[arg-type]  # it reads these attributes alone
    _encode = _json.make_encoder(
        None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, False
    )
except (ImportError, AttributeError, TypeError):  # another Python than ours: slower, but right
    import json

    _scan = json.JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]
    _slow = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)

    def _encode(obj: object, _level: int) -> "Any":  # type: ignore[misc]
        return _slow.iterencode(obj)


def load(data: bytes) -> "Any":
    """Return what a JSON text says; raises ValueError if it is none."""
    text = data.decode().strip(" \t\r\n")
    try:
        value, end = _scan(text, 0)
    except (StopIteration, SystemError):  # the latter is 3.11's, which looks for json's exception
        raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if end != len(text):
        raise ValueError(f"something follows the JSON value at character {end}")
    return value


def dump(value: object) -> bytes:
    """Return the JSON text of a value in one line of ASCII; raises ValueError if it has none."""
    try:
        return "".join(_encode(value, 0)).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
