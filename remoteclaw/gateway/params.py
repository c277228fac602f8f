"""Parameters of a call: the check, and a sentence about what is wrong with them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from remoteclaw.errors import CallRefused
from remoteclaw.tools.catalog import Method, Params

__all__ = ["checked"]

#: How many problems a refusal names.
MOST_PROBLEMS = 5
#: pydantic's name for a parameter, whose own name stands before.
_SUBJECT = re.compile(r"^(Input|String|Tuple|Value) should ")
#: pydantic's sentences with Python's words, in JSON's.
_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def checked(method: Method, params: Mapping[str, Any]) -> Params:
    """Return the parameters; raises `CallRefused` with what is wrong with them, and where."""
    try:
        return method.params.model_validate(params)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [_problem(method, one["type"], one["loc"], one["msg"]) for one in found]
        rest = len(problems) - MOST_PROBLEMS
        more = f" (and {rest} more)" if rest > 0 else ""
        told = "; ".join(problems[:MOST_PROBLEMS])
        name = method.tool or method.name
        raise CallRefused("INVALID_REQUEST", f"{name}: {told}{more}.") from None


def _problem(method: Method, kind: str, where: Sequence[str | int], message: str) -> str:
    if kind == "extra_forbidden":
        why = f"is no parameter; there are {', '.join(_names(method.params, where)) or 'none'}"
    else:
        plain = _SUBJECT.sub("must ", message.removeprefix("Value error, "))
        why = _PLAIN.get(kind, plain)
    return f"{'.'.join(map(str, where))[:100]} {why}".strip()


def _names(params: type[Params], where: Sequence[str | int]) -> list[str]:
    """Return the names of the parameters beside the one that is somewhere in them."""
    for name in where[:-1]:
        fields = params.model_fields.values()
        found = next(field for field in fields if field.alias == name)
        kinds = (found.annotation, *get_args(found.annotation))
        params = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Params))
    return [field.alias or name for name, field in params.model_fields.items()]
