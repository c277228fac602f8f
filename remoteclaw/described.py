"""A base class of models whose fields are described by the docstrings after them."""

import ast
import functools
import inspect
import itertools
import textwrap
import threading
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

#: CPython's parser counts its recursion depth for all threads together, so two threads that parse
#: at the same time, one of them in an import, can fail with SystemError.
_PARSING = threading.Lock()


class DescribedModel(BaseModel):
    """A model whose JSON schema has the fields' docstrings as descriptions.

    pydantic's `use_attribute_docstrings` does the same when a class is created, which takes half of
    the import time of all settings and tools; only a few processes need a schema.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Return the schema with the descriptions, of which those in a `Field` have priority."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in _descriptions(cls).items():
            field = cls.model_fields[name]
            aliases = field.validation_alias, field.serialization_alias
            alias = aliases[handler.mode == "serialization"]
            properties[alias or name].setdefault("description", description)
        return schema


@functools.cache
def _descriptions(model: type[DescribedModel]) -> Mapping[str, str]:
    """Return the docstrings after the fields of a model, by the fields' names.

    Those that can't be found are left out: an update may have replaced the file.
    """
    descriptions: dict[str, str] = {}
    for cls in reversed(model.__mro__[: model.__mro__.index(DescribedModel)]):
        for statement, following in itertools.pairwise(_statements(cls)):
            match statement, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name in model.model_fields:
                    descriptions[name] = inspect.cleandoc(text)
    return descriptions


def _statements(cls: type[DescribedModel]) -> Sequence[ast.stmt]:
    """Return the statements of a class; empty if its source is not in its file any more."""
    try:
        with _PARSING:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, SyntaxError, ValueError):
        return ()
    return definition.body if isinstance(definition, ast.ClassDef) else ()
