"""Redaction: the configuration without secrets, as models and chats see it.

A setting that is declared as secret, or has no declaration, is hidden as a whole. The names in
tables (of agents, channels and variables) are shown.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from remoteclaw.config.rights import declared
from remoteclaw.errors import ConfigError, did_you_mean

#: Replaces a secret.
HIDDEN = "***"

#: The maximum number of keys that an error names.
MAX_NAMED = 12


def redacted(config: BaseModel) -> dict[str, Any]:
    """Return a configuration as a JSON object in which `***` replaces each secret."""
    shown = {}
    for name, field in type(config).model_fields.items():
        value, setting = getattr(config, name), declared(field)
        is_shown = isinstance(value, BaseModel) if setting is None else not setting.secret
        shown[name] = _shown(value) if is_shown else _hidden(value)
    return shown


def declared_secrets(config: BaseModel) -> Iterator[str]:
    """Yield the texts in all values of a configuration that are declared as secret."""
    for name, field in type(config).model_fields.items():
        value, setting = getattr(config, name), declared(field)
        if isinstance(value, BaseModel):
            yield from declared_secrets(value)
        elif setting is not None and setting.secret:
            yield from _texts(value)
        elif isinstance(value, dict):
            for entry in value.values():
                yield from declared_secrets(entry) if isinstance(entry, BaseModel) else ()


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for entry in value.values() for text in _texts(entry))
        case list() | tuple():
            yield from (text for entry in value for text in _texts(entry))


def _shown(value: Any) -> Any:
    match value:
        case BaseModel():
            return redacted(value)
        case dict():
            return {str(name): _shown(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_shown(entry) for entry in value]
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case _:
            return HIDDEN


def _hidden(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _hidden(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_hidden(entry) for entry in value]
        case None:
            return None
        case _:
            return HIDDEN


def part(tree: Any, key: str) -> Any:
    """Return the part of a redacted configuration at a dotted key.

    The names in a table may contain dots: the longest name that fits counts. Raises `ConfigError`,
    with the most similar key, if there is no such part.
    """
    _, tree, rest = _found(tree, key)
    if rest:
        names = list(tree) if isinstance(tree, dict) else []
        parent = key.removesuffix(rest).rstrip(".")
        raise ConfigError(_no_such_key(rest, names, parent))
    return tree


def without_dotted_keys(patch: Mapping[str, Any], shown: Any) -> dict[str, Any]:
    """Return a merge patch in which dotted keys, as `part()` takes them, are tables.

    A name with a dot is only a dotted key if its beginning is a key of `shown`: the names in a
    table may contain dots.
    """
    result: dict[str, Any] = {}
    for name, value in patch.items():
        path, below, rest = _found(shown, name)
        if rest:
            path, below = [*path, *rest.split(".")] if path else [name], {}
        changed = without_dotted_keys(value, below) if isinstance(value, Mapping) else value
        for part_name in reversed(path[1:]):
            changed = {part_name: changed}
        _merge(result, path[0] if path else name, changed)
    return result


def _merge(tree: dict[str, Any], name: str, value: Any) -> None:
    """Put a value of a patch into another patch, where its tables may exist already."""
    if isinstance(value, dict) and isinstance(tree.get(name), dict):
        for inner, below in value.items():
            _merge(tree[name], inner, below)
    else:
        tree[name] = value


def _found(tree: Any, key: str) -> tuple[list[str], Any, str]:
    """Return the names of a dotted key that exist, the part there, and the rest of the key."""
    path, rest = [], key
    while rest:
        names = list(tree) if isinstance(tree, dict) else []
        fitting = [name for name in names if f"{rest}.".startswith(f"{name}.")]
        if not fitting:
            break
        path.append(max(fitting, key=len))
        tree, rest = tree[path[-1]], rest[len(path[-1]) + 1 :]
    return path, tree, rest


def _no_such_key(wanted: str, names: list[str], parent: str) -> str:
    place = f"{parent!r} in the configuration" if parent else "The configuration"
    if not names:
        return f"{place} has no keys: it is a value."
    has = f"it has {', '.join(map(repr, names[:MAX_NAMED]))}."
    hint = did_you_mean(wanted.partition(".")[0], names, otherwise=has)
    return f"{place} has no key {wanted!r}; {hint}"


def without_hidden(patch: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a patch without the values that repeat a redacted value of `shown` unchanged.

    So these secrets keep their values. Raises `ConfigError`, naming the key, if another value of
    the patch contains `***`.
    """
    return dict(_without_hidden(patch, shown, ()))


def _without_hidden(
    patch: Mapping[str, Any], shown: Any, path: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    for name, value in patch.items():
        old = shown.get(name) if isinstance(shown, Mapping) else None
        here = (*path, name)
        if isinstance(value, Mapping):
            below = dict(_without_hidden(value, old, here))
            if below or not value:
                yield name, below
        elif not _has_hidden(value):
            yield name, value
        elif value != old:
            where = ".".join(here)[:100]
            raise ConfigError(
                f"{where!a} has {HIDDEN} in it, which stands for a secret: repeat the value as it "
                "was shown, or write all of it."
            )


def _has_hidden(value: Any) -> bool:
    return HIDDEN in value if isinstance(value, list) else bool(value == HIDDEN)
