"""Redaction: the configuration without secrets, for a model or a chat.

What a field is called decides, and in doubt it is hidden: whoever may read everything has the file.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from remoteclaw.config.redis_url import redis_address
from remoteclaw.errors import ConfigError, did_you_mean

__all__ = ["HIDDEN", "part", "redacted"]

#: What stands in place of a secret.
HIDDEN = "***"

#: How many keys an error names.
MOST_NAMED = 12

#: Tables and lists whose texts are all hidden, and words that make a field's text one. Programs are
#: given keys as arguments, although everybody on the machine can read those.
_HIDDEN_FIELDS = frozenset(("env", "headers", "args"))
_HIDDEN_WORDS = re.compile(r"token|secret|passw|credential|(^|_)key$")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")


def redacted(config: BaseModel) -> dict[str, Any]:
    """Return a configuration as JSON has it, with `***` for each text that may be a secret.

    Names of tables (agents, channels, variables) are shown.
    """
    return {name: _shown(getattr(config, name), name) for name in type(config).model_fields}


def part(tree: Any, key: str) -> Any:
    """Return the part that a dotted key names; names of tables may have dots in them.

    Raises `ConfigError` if there is none, with the nearest that there is.
    """
    rest = key
    while rest:
        names = list(tree) if isinstance(tree, dict) else []
        fitting = [name for name in names if f"{rest}.".startswith(f"{name}.")]
        if not fitting:
            before = key.removesuffix(rest).rstrip(".")
            raise ConfigError(_no_such_key(rest, names, before))
        name = max(fitting, key=len)
        tree, rest = tree[name], rest[len(name) + 1 :]
    return tree


def _no_such_key(wanted: str, names: list[str], where: str) -> str:
    place = f"{where!r} in the configuration" if where else "The configuration"
    if not names:
        return f"{place} has no keys: it is a value."
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    has = f"it has {', '.join(map(repr, names[:MOST_NAMED]))}{more}."
    hint = did_you_mean(wanted.partition(".")[0], names, otherwise=has)
    return f"{place} has no key {wanted!r}; {hint}"


def _shown(value: Any, field: str) -> Any:
    match value:
        case BaseModel():
            return redacted(value)
        case dict():
            return {str(name): _shown(one, field) for name, one in value.items()}
        case [program, *arguments] if field == "command":
            return [str(program), *(HIDDEN for _ in arguments)]
        case list() | tuple():
            return [_shown(one, field) for one in value]
        case None | bool() | int() | float():
            return value
        case str() if _is_hidden(field):
            return HIDDEN
        case str():
            is_address = field.endswith("url") or _ADDRESS.fullmatch(value)
            return _without_login(value) if is_address else value
        case Path():
            return str(value)
        case _:  # a type that was made for secrets, for all we know
            return HIDDEN


def _is_hidden(field: str) -> bool:
    return field in _HIDDEN_FIELDS or _HIDDEN_WORDS.search(field) is not None


def _without_login(url: str) -> str:
    """Return where an address leads: of a web address the host alone, for paths have keys in them.

    Of what can't be read as an address, nothing is shown.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https"):
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{HIDDEN}"
        return redis_address(url)
    except ValueError:
        return HIDDEN
