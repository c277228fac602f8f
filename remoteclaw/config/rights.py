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
class Place:
    """A place in a configuration's file."""

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
    model: type[BaseModel], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Place]:
    """Yield each place at which two trees of a model's file differ, with its declaration."""
    one, other = (
        {place.path: (place, value) for place, value in places(model, tree)}
        for tree in (before, after)
    )
    for path in dict.fromkeys((*one, *other)):
        place, _ = one.get(path) or other[path]
        if path not in one or path not in other or not is_same(one[path][1], other[path][1]):
            yield place


def places(
    model: type[BaseModel], tree: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[Place, Any]]:
    """Yield each place in a tree of a model's file, with its value.

    Those are the settings, the names of sections in a table of them, and, in a table of values, the
    names of these. A value of another kind than its field's is a place, too.
    """
    for name, value in tree.items():
        field, here = model.model_fields.get(name), (*path, name)
        if field is None:
            yield Place(here, None), value
            continue
        section, is_table = _section(field.annotation)
        setting = declared(field) or BY_PEOPLE
        if not isinstance(value, Mapping):
            yield Place(here, setting), value
        elif section is None:
            yield from ((Place((*here, key), setting), one) for key, one in value.items())
        elif not is_table:
            if not value and declared(field):  # one that may be absent, which is not the same
                yield Place(here, setting), value
            yield from places(section, value, here)
        else:
            for key, one in value.items():
                is_section = isinstance(one, Mapping)
                yield Place((*here, key), setting), {} if is_section else one
                inner = section_named(section, key)
                yield from places(inner, one if is_section else {}, (*here, key))


def section_named(section: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the model of a section in a table of them; its `named()` may tell it by the name."""
    named = getattr(section, "named", None)
    model: type[BaseModel] = named(name) if named else section
    return model


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
