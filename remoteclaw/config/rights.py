"""Declarations on settings: who may change one, what must restart then, and whether it is secret.

A declaration is on the field itself, `Annotated[type, BY_PEOPLE]`. A field without one can be
changed by people alone, is hidden, and fails a test.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

__all__ = [
    "BY_AGENTS",
    "BY_PEOPLE",
    "SECRET",
    "Difference",
    "Setting",
    "by_people",
    "declared",
    "differences",
    "fields",
    "is_same",
]


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a field.

    For a table of named sections, such as the agents, it is about their names: whether one may be
    added or removed. The settings in them have declarations of their own.
    """

    agents_may: bool
    """Whether an agent may change it, for an owner. False for everything that starts a program, is
    secret, gives rights, or tells an agent what to do."""
    restart: str | None = None
    """What has to be restarted before a change holds; None if it holds with the next call or
    turn."""
    secret: bool = False
    """Whether its value is hidden wherever the configuration is shown."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the same in the JSON schema."""
        told = {"agentsMayChange": self.agents_may, "needsRestart": self.restart}
        return {**handler(schema), **told, **({"isSecret": True} if self.secret else {})}


#: Agents may change it; it holds with the next call or turn.
BY_AGENTS = Setting(agents_may=True)
#: People alone may; it holds with the next call or turn.
BY_PEOPLE = Setting(agents_may=False)
#: The same, for a value that is hidden.
SECRET = Setting(agents_may=False, secret=True)


def by_people(*, restart: str, secret: bool = False) -> Setting:
    """Return the declaration of a field that people alone may change, and that needs a restart."""
    return Setting(agents_may=False, restart=restart, secret=secret)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place at which two configurations differ."""

    path: tuple[str, ...]
    setting: Setting | None
    """The declaration; None where there is no such field."""

    @property
    def name(self) -> str:
        """The path as people write it, with quotes where a name is no bare key."""
        return ".".join(_key(part) for part in self.path)


def _key(part: str) -> str:
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", part)
    return part if is_bare else json.dumps(part[:64])


def fields(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield each field that needs a declaration, with its path; `*` stands for any name.

    Those are all but sections: values, and tables of named sections.
    """
    for name, field in model.model_fields.items():
        section, is_table = _section(field.annotation)
        if section is None or is_table:
            yield (*path, name), field
        if section is not None:
            yield from fields(section, (*path, name, "*") if is_table else (*path, name))


def declared(field: FieldInfo) -> Setting | None:
    """Return the declaration of a field."""
    return next((one for one in field.metadata if isinstance(one, Setting)), None)


def differences(
    model: type[BaseModel],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: tuple[str, ...] = (),
) -> Iterator[Difference]:
    """Yield each place at which two trees of a model's file differ, with its declaration."""
    for name in dict.fromkeys((*before, *after)):
        field = model.model_fields.get(name)
        one, other, here = before.get(name), after.get(name), (*path, name)
        if is_same(one, other):
            continue
        section, is_table = _section(field.annotation) if field else (None, False)
        if field is None:
            yield Difference(here, None)
        elif section is None or not _are_tables(one, other):
            yield from _leaves(here, one, other, declared(field) or BY_PEOPLE)
        elif is_table:
            yield from _names(section, one or {}, other or {}, here, declared(field) or BY_PEOPLE)
        else:
            yield from _inner(section, one, other, here, BY_PEOPLE)


def _names(
    model: type[BaseModel],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    path: tuple[str, ...],
    names: Setting,
) -> Iterator[Difference]:
    if not before and not after:  # an empty table comes or goes
        yield Difference(path, names)
    for name in dict.fromkeys((*before, *after)):
        one, other, here = before.get(name), after.get(name), (*path, name)
        if is_same(one, other):
            continue
        if one is None or other is None:
            yield Difference(here, names)
        if _are_tables(one, other):
            yield from differences(model, one or {}, other or {}, here)
        else:
            yield Difference(here, BY_PEOPLE)


def _inner(
    model: type[BaseModel], one: Any, other: Any, path: tuple[str, ...], setting: Setting
) -> Iterator[Difference]:
    found = list(differences(model, one or {}, other or {}, path))
    yield from found or [Difference(path, setting)]  # an empty section comes or goes


def _leaves(path: tuple[str, ...], one: Any, other: Any, setting: Setting) -> Iterator[Difference]:
    """Yield a field's difference; of a table of values, one for each name."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            if not is_same(one.get(name), other.get(name)):
                yield Difference((*path, name), setting)
    else:
        yield Difference(path, setting)


def _are_tables(*values: Any) -> bool:
    return all(value is None or isinstance(value, Mapping) for value in values)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same; true is not 1, and a table that is there is not none."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _section(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a section, and whether the field is a table of such sections."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        section, _ = _section(arguments[1])
        return section, section is not None
    return next((found for found in map(_section, arguments) if found[0]), (None, False))
