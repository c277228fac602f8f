"""Values for each type of a JSON schema."""

from typing import Any

#: Values for each JSON type.
VALUES: dict[str, Any] = {
    "string": "text",
    "integer": 7,
    "number": 1.5,
    "boolean": True,
    "array": ["x"],
    "object": {"x": 1},
    "null": None,
}


def kinds(schema: dict[str, Any], root: dict[str, Any]) -> set[str]:
    """Return the JSON types that a part of a schema accepts."""
    if "$ref" in schema:
        return kinds(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return set().union(*(kinds(part, root) for part in schema["anyOf"]))
    found = {str(schema["type"])}
    return found | {"integer"} if "number" in found else found
