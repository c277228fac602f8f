"""What can be asked about RemoteClaw itself: its configuration."""

import asyncio
import difflib
import hashlib
from pathlib import Path
from typing import Any

from remoteclaw.config import Config
from remoteclaw.contract import system as contract
from remoteclaw.contract.base import NoParams
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.dispatch import Call, Handler
from remoteclaw.redaction import redacted

__all__ = ["HANDLERS"]

#: How many keys an error names.
MOST_NAMED = 12


async def _get(call: Call, params: contract.ConfigGetParams) -> contract.ConfigResult:
    shown: Any = redacted(call.config)
    if params.key is not None:
        shown = _part(shown, params.key)
    digest = await asyncio.to_thread(_hash, call.home.config_file)
    return contract.ConfigResult(config=shown, hash=digest)


def _part(tree: Any, key: str) -> Any:
    """Return the part that a dotted key names; names of tables may have dots in them."""
    rest = key
    while rest:
        names = list(tree) if isinstance(tree, dict) else []
        fitting = [name for name in names if f"{rest}.".startswith(f"{name}.")]
        if not fitting:
            before = key.removesuffix(rest).rstrip(".")
            raise CallRefused("NOT_FOUND", _no_such_key(rest, names, before))
        name = max(fitting, key=len)
        tree, rest = tree[name], rest[len(name) + 1 :]
    return tree


def _no_such_key(wanted: str, names: list[str], where: str) -> str:
    place = f"{where!r} in the configuration" if where else "The configuration"
    if not names:
        return f"{place} has no keys: it is a value."
    near = difflib.get_close_matches(wanted.partition(".")[0], names, n=3)
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    else:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        hint = f"it has {', '.join(map(repr, names[:MOST_NAMED]))}{more}."
    return f"{place} has no key {wanted!r}; {hint}"


def _hash(file: Path) -> str:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise CallRefused("UNAVAILABLE", f"{file} can't be read: {error.strerror}.") from None
    return hashlib.sha256(content).hexdigest()


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=Config.model_json_schema())


HANDLERS: dict[str, Handler] = {
    "config.get": _get,
    "config.schema": _schema,
}
