"""What Slack takes and gives, as its types and models know it: software that we didn't write.

The arguments and events are judged by `schemas.json`, the blocks by slack-sdk's models too.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View

from tests.support.slack.schemas import FILE

#: The maximum length of a text and of Markdown in a post, in characters.
MAX_TEXT, MAX_MARKDOWN = 40_000, 12_000
#: The maximum length of a text that takes the place of another one, in bytes.
MAX_UPDATE = 4_000
#: How many blocks a message has at most, and how many characters all of them (bolt-js#2509).
MAX_BLOCKS, MAX_IN_BLOCKS = 50, 13_200

_SCHEMAS: dict[str, Any] = json.loads(FILE.read_text())
#: What slack-sdk and slack-bolt send, and `@slack/web-api`'s types don't have.
_OF_SDK = frozenset(("alt_txt", "team_id"))
METHODS = frozenset(_SCHEMAS["arguments"])

logging.getLogger("slack_sdk.models").setLevel(logging.ERROR)  # it warns of what we refuse


class Refusal(Exception):
    """An answer with an error: its name, its HTTP status, and what else it has."""

    def __init__(self, error: str, *, status: int = 200, **more: Any) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.more = more


def invalid(error: str, message: str) -> Refusal:
    """Return a refusal with words about it."""
    return Refusal(error, response_metadata={"messages": [f"[ERROR] {message}"]})


def arguments(method: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call in their JSON types; raises `Refusal`.

    A form has only strings, and slack-sdk writes lists as JSON strings in JSON, too.
    """
    if "markdown_text" in sent and {"text", "blocks"} & set(sent):
        raise Refusal("markdown_text_conflict")
    types = _types(method)
    values = {
        name: _decoded(value, types.get(name, set()))
        for name, value in sent.items()
        if name in types or name not in _OF_SDK
    }
    error = best_match(_validator("arguments", method).iter_errors(values))
    if error:
        raise invalid("invalid_arguments", f"{error.json_path}: {error.message}"[:500])
    return values


def event(about: dict[str, Any]) -> dict[str, Any]:
    """Return an event, once it has what its type says."""
    kind = "/".join(about[key] for key in ("type", "subtype") if key in about)
    kind = kind.replace("group_", "channel_")  # events of private channels have the same form
    of_type = {**about, "type": kind.partition("/")[0]}
    error = best_match(_validator("events", kind).iter_errors(of_type))
    assert error is None, f"{kind}: {error}"
    return about


def blocks(given: list[dict[str, Any]]) -> None:
    """Judge the blocks of a message by slack-sdk's models; raises `Refusal`."""
    if len(given) > MAX_BLOCKS:
        raise invalid("invalid_blocks", f"no more than {MAX_BLOCKS} items allowed")
    named = Counter(one["block_id"] for one in given if "block_id" in one)
    for block in given:
        actions = Counter(one.get("action_id") for one in block.get("elements", ()))
        if any(count > 1 for name, count in (*named.items(), *actions.items()) if name):
            raise invalid("invalid_blocks", "a block_id or action_id is there twice")
        _formed(Block.parse(block), "invalid_blocks")
    if sum(len(one["text"]) for one in given if one["type"] == "markdown") > MAX_MARKDOWN:
        raise Refusal("msg_too_long")
    if sum(len(_text(one.get("text"))) for one in given) > MAX_IN_BLOCKS:
        raise Refusal("msg_blocks_too_long")


def _text(about: Any) -> str:
    """Return the text of a block, which is a string or an object with one."""
    return about["text"] if isinstance(about, dict) else about or ""


def view(given: dict[str, Any]) -> None:
    """Judge a modal by slack-sdk's models; raises `Refusal`."""
    known = {key: value for key, value in given.items() if key != "type"}
    made = View(type=given["type"], **{**known, "blocks": Block.parse_all(given["blocks"])})
    _formed(made, "invalid_arguments")


def _formed(made: Any, error: str) -> None:
    try:
        if made is None:
            raise invalid(error, "unsupported type")
        made.to_dict()
    except SlackObjectFormationError as wrong:
        raise invalid(error, str(wrong)) from None


@cache
def _validator(group: str, name: str) -> Draft202012Validator:
    return Draft202012Validator({**_SCHEMAS[group][name], "definitions": _SCHEMAS["definitions"]})


@cache
def _types(method: str) -> dict[str, set[str]]:
    """Return the JSON types of each argument of a method."""
    found: dict[str, set[str]] = {}
    for variant in _variants(_SCHEMAS["arguments"][method]):
        for name, about in variant.get("properties", {}).items():
            found.setdefault(name, set()).update(str(one.get("type")) for one in _variants(about))
    return found


def _variants(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from _variants(_SCHEMAS["definitions"][schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _variants(one)
    else:
        yield schema


def _decoded(value: Any, types: set[str]) -> Any:
    if not isinstance(value, str) or "string" in types:
        return value
    if types == {"boolean"} and value in ("0", "1"):
        return value == "1"
    try:
        return json.loads(value)
    except ValueError:
        return value
