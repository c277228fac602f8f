"""Hashes in Redis as dataclasses: one decoder, by the annotations of the fields.

A field has one name. A text is `str`, a number `int`, and `1` is True. A class with `parse()` is a
text as well; everything else is JSON. A missing or empty field has its default; without a default,
it is None if the annotation allows that.
"""

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

T = TypeVar("T")


def decode(record: type[T], stored: Mapping[bytes, bytes], **others: Any) -> T:
    """Return a record from its hash; `others` are the fields that the hash does not have.

    Raises KeyError or ValueError if the hash is damaged.
    """
    values = dict(others)
    for name, key, read, is_optional, has_default in _fields(record):  # type: ignore[arg-type]
        if name in values:
            continue
        if value := stored.get(key):
            values[name] = read(value)
        elif not has_default:
            if not is_optional:
                raise KeyError(name)
            values[name] = None
    return record(**values)


@functools.cache
def _fields(record: type) -> list[tuple[str, bytes, Callable[[bytes], Any], bool, bool]]:
    """Return the fields of a dataclass: name, name in Redis, decoder, whether None is allowed, and
    whether there is a default."""
    hints, found = get_type_hints(record), []
    for field in fields(record):
        hint, options = hints[field.name], [hints[field.name]]
        if get_origin(hint) in (Union, types.UnionType):
            options = [each for each in get_args(hint) if each is not type(None)]
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        is_optional = options != [hint]
        read = _reader(options[0])
        found.append((field.name, field.name.encode(), read, is_optional, has_default))
    return found


def _reader(hint: Any) -> Callable[[bytes], Any]:
    """Return the function that decodes a value of a type."""
    if hint is str or get_origin(hint) is Literal:
        return bytes.decode
    if hint is int:
        return int
    if hint is bool:
        return lambda value: value == b"1"
    if parse := getattr(hint, "parse", None):
        return lambda value: parse(value.decode())
    if validate := getattr(hint, "model_validate_json", None):
        return validate  # type: ignore[no-any-return]
    return orjson.loads
