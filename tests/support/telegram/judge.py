"""What the Bot API takes and gives, as aiogram's models know it: software that we didn't write.

Only the server's process imports this: aiogram takes seconds.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

import aiogram.methods
from aiogram.client.default import Default
from aiogram.methods.base import TelegramMethod
from aiogram.types import BufferedInputFile, TelegramObject
from pydantic import BaseModel, ValidationError

#: The largest file that a bot may send, in bytes, and what a text and its entities may have.
FILE_BYTES = 50_000_000
MAX_ENTITIES = 100
#: The types of entities that a bot may send, of those that aiogram lists.
_SENT_ENTITIES = frozenset(
    "bold italic underline strikethrough spoiler blockquote expandable_blockquote code pre "
    "text_link text_mention custom_emoji mention hashtag cashtag bot_command url email "
    "phone_number".split()
)

_METHODS: dict[str, type[TelegramMethod[Any]]] = {
    method.__api_method__.lower(): method
    for method in vars(aiogram.methods).values()
    if inspect.isclass(method)
    and issubclass(method, TelegramMethod)
    and method is not TelegramMethod
}


class Refusal(Exception):
    """An answer of the API that is none: its code, its words, and its parameters."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


def judged(name: str, sent: Mapping[str, Any]) -> tuple[str, TelegramMethod[Any]]:
    """Return a request as its method's model; raises `Refusal` as the API would, or sooner.

    `sent` has strings, as a form has them, and `(content, file name)` of files.
    """
    model = _METHODS.get(name.lower())
    if model is None:
        raise Refusal(404, "Not Found")
    files = {key: value for key, value in sent.items() if isinstance(value, tuple)}
    values = {
        key: BufferedInputFile(*value)
        if key in files
        else value
        if key in _texts(model)
        else _decoded(value)
        for key, value in sent.items()
        if key in model.model_fields or key not in files
    }
    try:
        call = model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refusal(400, f"Bad Request: {where}: {first['msg']}") from None
    for path in _extras(call):
        raise Refusal(400, f"Bad Request: there is no parameter {path}")
    return model.__api_method__, call


@cache
def _texts(model: type[TelegramMethod[Any]]) -> frozenset[str]:
    """Return the parameters that are texts, and never JSON."""
    fields = model.model_fields.items()
    other = (type(None), Default)
    return frozenset(
        name
        for name, field in fields
        if set(get_args(field.annotation) or (field.annotation,)) - {*other} == {str}
    )


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, TypeError):
        return value


def _extras(value: Any, path: str = "") -> Iterator[str]:
    """Yield what a model was given and doesn't know, however deep."""
    if isinstance(value, BaseModel):
        yield from (f"{path}{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _extras(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _extras(item, f"{path}{index}.")


def given(kind: type[TelegramObject], value: dict[str, Any]) -> dict[str, Any]:
    """Return what the API gives, once aiogram's type has taken it as it is."""
    extras = list(_extras(kind.model_validate(value)))
    assert not extras, f"{kind.__name__} has no {extras}"
    return value


def units(text: str) -> int:
    """Return the length of a text as Telegram counts it."""
    return len(text.encode("utf-16-le")) // 2


def formatted(
    text: str, entities: list[Any] | None, *, most: int, what: str
) -> tuple[str, list[dict[str, Any]]]:
    """Return a text and its entities as Telegram keeps them; raises `Refusal`."""
    raw, kept = text.encode("utf-16-le"), []
    for entity in entities or ():
        begin, end = entity.offset, entity.offset + entity.length
        if begin < 0 or entity.length <= 0 or end > len(raw) // 2:
            raise Refusal(400, f"Bad Request: entity at {begin} to {end} is outside of the text")
        if _is_inside(raw, begin) or _is_inside(raw, end):
            raise Refusal(400, "Bad Request: entity begins or ends in a middle of a UTF-16 symbol")
        if entity.type not in _SENT_ENTITIES:
            raise Refusal(400, f"Bad Request: can't parse entities: no type {entity.type}")
        if entity.type == "text_link" and not (entity.url or "").startswith(
            ("http://", "https://", "mailto:", "tg://")
        ):
            raise Refusal(400, "Bad Request: can't parse entities: the link has no usable address")
        kept.append(entity.model_dump(exclude_none=True))
    if len(kept) > MAX_ENTITIES:  # Telegram ignores those behind
        raise Refusal(400, f"Bad Request: {len(kept)} entities, of which {MAX_ENTITIES} count")
    # At its begin, a text loses what stands before the first entity: indented code stays as it is.
    first = min((entity["offset"] for entity in kept), default=units(text))
    head = raw[: 2 * first].decode("utf-16-le")
    left = len(head) - len(head.lstrip(" \n"))
    text = text[left:].rstrip()
    if not text and most > 1024:
        raise Refusal(400, "Bad Request: message text is empty")
    if units(text) > most:
        raise Refusal(400, f"Bad Request: {what} is too long")
    for entity in kept:
        begin = max(entity["offset"] - left, 0)
        end = min(entity["offset"] - left + entity["length"], units(text))
        entity |= {"offset": begin, "length": end - begin}
    return text, [entity for entity in kept if entity["length"] > 0]


def _is_inside(raw: bytes, unit: int) -> bool:
    """Whether a place in UTF-16 is between the two halves of a character."""
    return 0xDC <= int.from_bytes(raw[2 * unit : 2 * unit + 2], "little") >> 8 <= 0xDF
