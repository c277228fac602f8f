"""JSON schemas of the tools, as MCP clients get them.

A model reads them at each start, so they have what it needs and nothing else: no titles, no `$ref`
(some clients send a text for what is behind one), no null beside a type, and no lengths, which the
gateway checks anyway.
"""

from collections.abc import Mapping
from typing import Any

from remoteclaw.tools.base import Params

__all__ = ["params_schema"]

#: The largest bound that a schema mentions: no model tries numbers as large.
NOT_REACHED = 1_000_000
#: Keywords for programs, which a model does not need.
_LEFT_OUT = frozenset(
    ("title", "$defs", "minLength", "maxLength", "pattern", "additionalProperties")
)


def params_schema(params: type[Params]) -> dict[str, Any]:
    """Return the schema of a tool's parameters."""
    root = params.model_json_schema()
    schema = _inlined(root, root.get("$defs", {}))
    schema.pop("description", None)
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to in its place, and what a model needs of it."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined({**target, **_without(schema, "$ref")}, definitions)
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
        assert len(kinds) == 1, "a parameter has one type"
        # What is said of the parameter counts before what is said of the type.
        return _inlined({**kinds[0], **_without(schema, "anyOf", "default")}, definitions)
    told = _without(schema, *_LEFT_OUT)
    if "description" in told:
        told["description"] = " ".join(told["description"].split())
    for bound in ("minimum", "maximum", "exclusiveMaximum"):
        if told.get(bound, 0) > NOT_REACHED:
            del told[bound]
    if "properties" in told:
        told["properties"] = {
            name: _inlined(part, definitions) for name, part in told["properties"].items()
        }
    if "items" in told:
        # What they are, the list's own description says.
        told["items"] = _without(_inlined(told["items"], definitions), "description")
    return told


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}
