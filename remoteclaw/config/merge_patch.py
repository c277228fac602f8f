"""JSON merge patches (RFC 7396) of the configuration, applied to its TOML file.

A patch applies to the text of the file, so defaults stay unwritten.
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
    """Raise `ConfigError` for a tree that can't be written to a file.

    Such a tree is nested too deeply, or has a lone surrogate or a number beyond 64 bits.
    """
    json_size(tree)


def json_size(tree: Mapping[str, Any]) -> int:
    """Return the size of a tree as JSON, in bytes; raises as `check_json()` does."""
    try:
        return len(orjson.dumps(tree))
    except TypeError as error:
        raise ConfigError(f"This can't be written to a file: {error}.") from None


def apply_patch(tree: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `tree` with a patch: null removes, tables merge, other values replace."""
    result = dict(tree)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            inner = result.get(name)
            result[name] = apply_patch(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def patch_toml(content: bytes, patch: Mapping[str, Any]) -> bytes:
    """Return the content of a file to which a patch is applied.

    Comments, order and all other settings stay. Raises `ConfigError` if the form of the file
    doesn't allow that.
    """
    text = content.decode("utf-8")
    wanted = apply_patch(tomllib.loads(text), patch)
    # A file with dotted keys, such as `queue.mode = …`, allows no table headers in some places.
    for with_headers in (True, False):
        with contextlib.suppress(TOMLKitError, ValueError, TypeError, AttributeError, LookupError):
            document = tomlkit.parse(text)
            _edit(document, patch, with_headers=with_headers)
            result = tomlkit.dumps(document)
            if tomllib.loads(result) == wanted:
                return result.encode()
    # Few files get here, such as those in which the parts of a table are far apart.
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
                table[name] = tomlkit.table()  # it existed only through the parts that were removed
        elif is_table and with_headers and not isinstance(table, InlineTable):
            fresh = tomlkit.table()
            _fill(fresh, value)
            table[name] = fresh
        elif name in table:
            table[name] = _item(value)
        else:
            _add(table, name, _item(value))


def _add(table: Any, name: str, value: Any) -> None:
    """Add a value after the last one of a table: comments below that belong to what follows."""
    container = table.value if isinstance(table, Table) else table
    body = container.body if isinstance(container, Container) else []
    values = [(key, item) for key, item in body if key is not None and not _is_header(item)]
    if not values:
        table[name] = value
        return
    last_key, last = values[-1]
    item = tomlkit.item(value)
    item.trivia.indent = last.trivia.indent
    item.trivia.trail = last.trivia.trail if "\n" in last.trivia.trail else "\n"
    # tomlkit's method for inserting at a position is private; `patch_toml()` checks the result.
    container._insert_after(last_key, name, item)


def _is_header(value: Any) -> bool:
    return isinstance(value, Table | AoT)


def _fill(table: Table | InlineTable, tree: Mapping[str, Any]) -> None:
    """Put the values of a patch, without its nulls, into a new table.

    Values are first: after the header of an inner table, they would belong to that.
    """
    for name, value in sorted(tree.items(), key=lambda item: isinstance(item[1], Mapping)):
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
        for entry in value:
            array.append(_item(entry))
        return array
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        _fill(table, value)
        return table
    return value


def replacement_patch(
    wanted: Mapping[str, Any], shown: Mapping[str, Any], tree: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the patch that turns the configuration `shown` into `wanted`.

    `shown` is redacted and has all defaults; `tree` is the content of the file. A value that
    `wanted` repeats unchanged isn't in the patch: a default stays unwritten, and a secret stays as
    it is. The patch removes keys of the file that `wanted` doesn't have.
    """
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        old = shown.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = tree.get(name)
            below = replacement_patch(value, old, inner if isinstance(inner, Mapping) else {})
            if below:
                patch[name] = below
        elif name in shown and is_same(value, old):
            continue
        elif value is not None or name in tree:
            patch[name] = value
    return patch | {name: None for name in tree if name not in wanted}
