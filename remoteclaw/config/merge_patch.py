"""JSON merge patches (RFC 7396) of the configuration, applied to its TOML file.

A patch is about what the file says, not about what holds: defaults stay unwritten.
"""

import contextlib
import tomllib
from collections.abc import Mapping
from typing import Any

import orjson
import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Table

from remoteclaw.config.rights import is_same
from remoteclaw.errors import ConfigError


def check_json(tree: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a tree that no file can hold.

    That is a tree that is nested too deep, or has a lone surrogate or a number beyond 64 bits.
    """
    json_size(tree)


def json_size(tree: Mapping[str, Any]) -> int:
    """Return the size of a tree as JSON, in bytes; raises as `check_json()` does."""
    try:
        return len(orjson.dumps(tree))
    except TypeError as error:
        raise ConfigError(f"This can't be written to a file: {error}.") from None


def merged(tree: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with a patch: null removes, tables are merged, all else replaces."""
    result = dict(tree)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def edited(content: bytes, patch: Mapping[str, Any]) -> bytes:
    """Return a file's content with a patch; comments, order and all other settings stay.

    Raises `ConfigError` for a file whose form does not allow that.
    """
    text = content.decode("utf-8")
    wanted = merged(tomllib.loads(text), patch)
    # Where keys have dots, `queue.mode = …`, there is no place for headers of tables.
    for with_headers in (True, False):
        with contextlib.suppress(TOMLKitError, ValueError, TypeError, AttributeError, LookupError):
            document = tomlkit.parse(text)
            _edit(document, patch, with_headers=with_headers)
            result = tomlkit.dumps(document)
            if tomllib.loads(result) == wanted:
                return result.encode()
    # Few files are: tables whose parts lie far apart, for instance.
    raise ConfigError(
        "The form of the file does not allow this change without rewriting it: change it in an "
        "editor."
    )


def _edit(table: Any, patch: Mapping[str, Any], *, with_headers: bool) -> None:
    for name, value in patch.items():
        is_table = isinstance(value, Mapping)
        if value is None:
            if name in table:
                del table[name]
        elif is_table and isinstance(table.get(name), Mapping):
            inner = table[name]
            _edit(inner, value, with_headers=with_headers)
            if not inner and isinstance(inner, Table) and inner.is_super_table():
                table[name] = tomlkit.table()  # it was only there in what is gone
        elif is_table and with_headers and not isinstance(table, InlineTable):
            fresh = tomlkit.table()
            _fill(fresh, value)
            table[name] = fresh
        elif name in table:
            table[name] = _item(value)
        else:
            _add(table, name, _item(value))


def _add(table: Any, name: str, value: Any) -> None:
    """Add a value behind the last one: comments behind that belong to what follows."""
    container = table.value if isinstance(table, Table) else table
    body = container.body if isinstance(container, Container) else []
    values = [(key, one) for key, one in body if key is not None and not _is_header(one)]
    if not values:
        table[name] = value
        return
    last, found = values[-1]
    made = tomlkit.item(value)
    made.trivia.indent = found.trivia.indent
    made.trivia.trail = found.trivia.trail if "\n" in found.trivia.trail else "\n"
    # tomlkit's method that inserts at a place is private; `edited()` checks the result.
    container._insert_after(last, name, made)


def _is_header(value: Any) -> bool:
    return isinstance(value, Table | AoT)


def _fill(table: Table | InlineTable, tree: Mapping[str, Any]) -> None:
    """Put what a patch says into a new table: values first, as tables behind them would take them.

    What is null there is not there.
    """
    for name, value in sorted(tree.items(), key=lambda one: isinstance(one[1], Mapping)):
        if isinstance(value, Mapping):
            inner = tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table()
            _fill(inner, value)
            table[name] = inner
        elif value is not None:
            table[name] = _item(value)


def _item(value: Any) -> Any:
    if value is None:
        raise ConfigError("A list in the change has a null in it: leave it out.")
    if isinstance(value, list):
        array = tomlkit.array()
        for one in value:
            array.append(_item(one))
        return array
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        _fill(table, value)
        return table
    return value


def replacing(
    wanted: Mapping[str, Any], shown: Mapping[str, Any], tree: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the patch that makes a file say what is wanted in place of what was shown.

    What is wanted as it was shown stays as the file has it: a default unwritten, a secret as it is.
    What was shown and isn't wanted goes, if it is in the file.
    """
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        old = shown.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = tree.get(name)
            below = replacing(value, old, inner if isinstance(inner, Mapping) else {})
            if below:
                patch[name] = below
        elif name in shown and is_same(value, old):
            continue
        elif value is not None or name in tree:
            patch[name] = value
    return patch | {name: None for name in tree if name not in wanted}
