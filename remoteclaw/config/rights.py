"""Declarations of settings: who may change one, what to restart then, and whether it is secret.

A declaration is an annotation of the model's field: `Annotated[type, BY_PEOPLE]`. A field without
one can be changed only by people, is hidden, and fails a test.
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
class SettingDeclaration:
    """The declaration of a field.

    The declaration of a table of named sections, such as the agents, is about the sections' names:
    whether a section may be added or removed. The settings in a section have their own
    declarations.
    """

    agents_may: bool
    """Whether an agent may change the setting, on behalf of an owner. False for every setting that
    starts a program, is secret, grants rights, or instructs an agent."""
    restart: str | None = None
    """What has to be restarted to apply a change; None if the next call or turn applies it."""
    secret: bool = False
    """Whether the value is hidden wherever the configuration is shown."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the field's JSON schema with the declaration."""
        declaration = {"agentsMayChange": self.agents_may, "needsRestart": self.restart}
        return {**handler(schema), **declaration, **({"isSecret": True} if self.secret else {})}


#: Agents may change the setting; the next call or turn applies a change.
BY_AGENTS = SettingDeclaration(agents_may=True)
#: Only people may change the setting; the next call or turn applies a change.
BY_PEOPLE = SettingDeclaration(agents_may=False)
#: Like `BY_PEOPLE`, with a hidden value.
SECRET = SettingDeclaration(agents_may=False, secret=True)


def by_people(*, restart: str, secret: bool = False) -> SettingDeclaration:
    """Return the declaration of a field that only people may change, and that needs a restart."""
    return SettingDeclaration(agents_may=False, restart=restart, secret=secret)


@dataclass(frozen=True, slots=True)
class SettingPath:
    """The path of a setting in the configuration file, with its declaration."""

    path: tuple[str, ...]
    declaration: SettingDeclaration | None
    """None if the model has no field at this path."""

    @property
    def name(self) -> str:
        """The dotted path, in which a part that isn't a bare TOML key is quoted."""
        return ".".join(_key(part) for part in self.path)


def _key(part: str) -> str:
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", part)
    return part if is_bare else json.dumps(part[:64])


def fields(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Yield the path of each field that needs a declaration, and the field.

    All fields need one except sections: values, and tables of named sections. In a path, `*` stands
    for the name of such a section.
    """
    for name, field in model.model_fields.items():
        section, is_table = _section(field.annotation)
        if section is None or is_table:
            yield (*path, name), field
        if section is not None:
            yield from fields(section, (*path, name, "*") if is_table else (*path, name))


def declared(field: FieldInfo) -> SettingDeclaration | None:
    """Return the declaration of a field, or None if it has none."""
    return next((each for each in field.metadata if isinstance(each, SettingDeclaration)), None)


def differences(
    model: type[BaseModel], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[SettingPath]:
    """Yield the path of each setting that differs between two trees of a configuration file."""
    old, new = (
        {setting.path: (setting, value) for setting, value in setting_paths(model, tree)}
        for tree in (before, after)
    )
    for path in dict.fromkeys((*old, *new)):
        setting, _ = old.get(path) or new[path]
        if path not in old or path not in new or not is_same(old[path][1], new[path][1]):
            yield setting


def setting_paths(
    model: type[BaseModel], tree: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[SettingPath, Any]]:
    """Yield the path and the value of each setting in the tree of a configuration file.

    Besides the settings themselves, these are each section in a table of named sections, with the
    value `{}`, and each entry in a table of values. A value whose type doesn't fit its field is
    yielded as it is.
    """
    for name, value in tree.items():
        field, here = model.model_fields.get(name), (*path, name)
        if field is None:
            yield SettingPath(here, None), value
            continue
        section, is_table = _section(field.annotation)
        declaration = declared(field) or BY_PEOPLE
        if not isinstance(value, Mapping):
            yield SettingPath(here, declaration), value
        elif section is None:
            for key, entry in value.items():
                yield SettingPath((*here, key), declaration), entry
        elif not is_table:
            if not value and declared(field):  # an optional section: empty differs from absent
                yield SettingPath(here, declaration), value
            yield from setting_paths(section, value, here)
        else:
            for key, entry in value.items():
                is_section = isinstance(entry, Mapping)
                yield SettingPath((*here, key), declaration), {} if is_section else entry
                inner = section_named(section, key)
                yield from setting_paths(inner, entry if is_section else {}, (*here, key))


def section_named(section: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the model of the section `name` in a table of named sections.

    A model can have a static method `named()` that returns another model for a name.
    """
    named = getattr(section, "named", None)
    model: type[BaseModel] = named(name) if named else section
    return model


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of a tree are equal; unlike `==`, true differs from 1 at any depth."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _section(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a field's section, and whether the field is a table of such sections.

    The model is None if the field holds no section.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:  # a list of sections is one setting
        return None, False
    if get_origin(annotation) is dict:
        section, _ = _section(arguments[1])
        return section, section is not None
    return next((found for found in map(_section, arguments) if found[0]), (None, False))
