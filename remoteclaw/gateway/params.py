"""Parameters of a call: the check, and a sentence about what is wrong with them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

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
    "extra_forbidden": "is no parameter",
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
        problems = [_problem(one["type"], one["loc"], one["msg"]) for one in found]
        rest = len(problems) - MOST_PROBLEMS
        more = f" (and {rest} more)" if rest > 0 else ""
        told = "; ".join(problems[:MOST_PROBLEMS])
        name = method.tool or method.name
        raise CallRefused("INVALID_REQUEST", f"{name}: {told}{more}.") from None


def _problem(kind: str, where: Sequence[str | int], message: str) -> str:
    plain = _SUBJECT.sub("must ", message.removeprefix("Value error, "))
    return f"{'.'.join(map(str, where))[:100]} {_PLAIN.get(kind, plain)}".strip()
