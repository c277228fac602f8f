"""Models whose attributes are described by the docstrings behind them."""

import ast
import functools
import inspect
import itertools
import textwrap
import threading
from collections.abc import Mapping

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

#: CPython counts the depth of what it parses for all threads at once: two that parse, such as one
#: that imports the MCP door, end in a SystemError.
_PARSING = threading.Lock()


class DescribedModel(BaseModel):
    """A model whose JSON schema has its attributes' docstrings as their descriptions.

    pydantic's own `use_attribute_docstrings` reads the source when a class is made, which is half
    of the import of all settings and tools; few processes ask for a schema.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Return the schema with descriptions; one that a `Field` gives stays."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in _descriptions(cls).items():
            field = cls.model_fields[name]
            alias = field.validation_alias, field.serialization_alias
            shown = alias[handler.mode == "serialization"]
            properties[shown or name].setdefault("description", description)
        return schema


@functools.cache
def _descriptions(model: type[DescribedModel]) -> Mapping[str, str]:
    """Return the docstrings behind a model's fields, by the fields' names."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__[: model.__mro__.index(DescribedModel)]):
        with _PARSING:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef), "it is a class"
        for statement, behind in itertools.pairwise(definition.body):
            match statement, behind:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name in model.model_fields:
                    found[name] = inspect.cleandoc(text)
    return found
