"""JSON merge patches (RFC 7396) of the configuration, applied to its TOML file.

A patch is made of what the file says, not of what holds: what only a default says stays unwritten.
"""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Table

from remoteclaw.config.redact import HIDDEN
from remoteclaw.errors import ConfigError

__all__ = ["check_depth", "check_patch", "edited", "merged", "replacing", "without_hidden"]

#: How deep tables may lie in each other: no setting lies deeper than six.
MOST_DEPTH = 16
#: How many values a change has, or a list in it. To add so many to a file takes a second, and to
#: add more takes longer for each.
MOST_VALUES = 2000
#: How long a key may be: the longest are ids of people, 255 characters on Matrix.
MOST_KEY_CHARS = 255


def check_depth(tree: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a tree in which tables lie too deep in each other to be looked at."""
    for path, _ in _values(tree, ()):
        if len(path) > MOST_DEPTH:
            raise ConfigError(f"The configuration lies too deep in {path[0][:50]!a}.")


def check_patch(patch: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a patch that no TOML file could hold."""
    if sum(1 for _ in _values(patch, ())) > MOST_VALUES:
        raise ConfigError(f"A change names {MOST_VALUES} values at most: make several of it.")
    for path, value in _values(patch, ()):
        where = ".".join(path)[:100].encode("ascii", "backslashreplace").decode()
        if any(len(part) > MOST_KEY_CHARS for part in path):
            raise ConfigError(f"A key is longer than {MOST_KEY_CHARS} characters: {where[:50]!r}…")
        if len(path) > MOST_DEPTH:
            raise ConfigError(f"The change lies too deep: {where!r}.")
        if isinstance(value, list) and len(value) > MOST_VALUES:
            raise ConfigError(f"{where} is a list of more than {MOST_VALUES} values.")
        if isinstance(value, list) and not _is_writable(value, MOST_DEPTH):
            raise ConfigError(f"{where} has a null in its list, or lists too deep in each other.")
        try:
            str([*path, value]).encode()
            "".join((*path, value if isinstance(value, str) else "")).encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{where} has half a character in it.") from None


def _values(
    tree: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        here = (*path, name)
        if isinstance(value, Mapping) and len(here) <= MOST_DEPTH:
            yield from _values(value, here)
        else:
            yield here, value


def _is_writable(value: Any, depth: int) -> bool:
    if value is None or depth == 0:
        return False
    if isinstance(value, list):
        return all(_is_writable(one, depth - 1) for one in value)
    if isinstance(value, dict):
        return all(_is_writable(one, depth - 1) for one in value.values())
    return True


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
    """Return a file's content with a patch; comments, order and what isn't named stay as they are.

    Raises `ConfigError` where the file is written in a way in which that can't be done.
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
        "The file is written in a way in which this can't be changed without rewriting it: "
        "change it in an editor."
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
    # The one of tomlkit that inserts where it is told is private; what comes of it is looked at.
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
        elif name in shown and _is_equal(value, old):
            continue
        elif value is not None or name in tree:
            patch[name] = value
    return patch | {name: None for name in tree if name not in wanted}


def without_hidden(
    patch: Mapping[str, Any], shown: Mapping[str, Any], real: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a patch without what only repeats how a secret was shown: that stays as it is.

    Raises `ConfigError`, naming the place, for other values that have such a sign in them.
    """
    return dict(_without_hidden(patch, shown, real, ()))


def _without_hidden(
    patch: Mapping[str, Any], shown: Any, real: Any, path: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    for name, value in patch.items():
        old = shown.get(name) if isinstance(shown, Mapping) else None
        is_secret = isinstance(real, Mapping) and not _is_equal(real.get(name), old)
        here = (*path, name)
        if isinstance(value, Mapping):
            inner = real.get(name) if isinstance(real, Mapping) else None
            below = dict(_without_hidden(value, old, inner, here))
            if below or not value:
                yield name, below
        elif is_secret and _is_equal(value, old):
            continue
        elif _has_hidden(value):
            where = ".".join(here)[:100]
            raise ConfigError(
                f"{where!a} has {HIDDEN} in it, which stands for what is not shown: leave it as it "
                "was shown, or write all of it."
            )
        else:
            yield name, value


def _has_hidden(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_hidden, value))
    return isinstance(value, str) and (value == HIDDEN or value.endswith(f"/{HIDDEN}"))


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)
