"""Shared parts of the configuration's sections: base class, bounds, declarations and checks."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import ConfigDict, ValidationInfo, field_validator

from remoteclaw.clock import named_zone
from remoteclaw.config.rights import by_people
from remoteclaw.described import DescribedModel

_T = TypeVar("_T")

#: What to restart after a change of a setting that every process reads once, at its start. Settings
#: without a restart are read again before each call and each turn.
EVERYTHING = "everything: `remoteclaw up`, or each worker, gateway and sweeper"
AT_START = by_people(restart=EVERYTHING)
WITH_WORKERS = by_people(restart="the workers")
#: The upper bound of counts and sizes. Every number has a bound, because JSON numbers have 64 bits
#: and a larger value could not be shown.
MAX_NUMBER = 1_000_000_000
#: The upper bound of durations, in seconds: a year.
MAX_S = 366 * 24 * 3600


class Section(DescribedModel):
    """The base class of sections: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number belongs; pydantic takes them for 1 and 0."""
        if isinstance(value, bool) and info.field_name:
            annotation = cls.model_fields[info.field_name].annotation
            types = {annotation, *get_args(annotation)}
            if types & {int, float} and bool not in types:
                raise ValueError(f"must be a number, not {str(value).lower()}")
        return value


def zone_name(value: str) -> str:
    """Return `value` if it is the name of an IANA time zone; else raise ValueError."""
    if named_zone(value) is None:
        raise ValueError(f"must be a time zone such as Europe/Berlin, not {value!r}")
    return value


def check_names(value: dict[str, _T]) -> dict[str, _T]:
    """Return `value`; raise ValueError if a key can't be part of a path and of a tool's name."""
    for name in value:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError(f"has the name {name!r}: use letters, digits, - and _")
    return value


def check_ids(value: Iterable[str]) -> None:
    """Raise ValueError unless each entry can be a platform's id of a person or a chat."""
    for entry in value:
        # An id with an invisible character matches nobody, so a denial of it would have no effect.
        is_id = entry.isprintable() and entry != "" and " " not in entry
        # "@ada:example.org" is a Matrix id; on every platform, "@ada" is a name.
        if not is_id or (entry.startswith("@") and ":" not in entry):
            raise ValueError(
                f"has {entry!r}, which is no id: write the id that the platform assigned, "
                "because names change hands"
            )


def most_specific(tables: Mapping[str, _T], *ids: str | None) -> tuple[str, _T] | None:
    """Return the name and the table of the first id that has one, else of `*`; None for none."""
    name = next((id_ for id_ in (*ids, "*") if id_ is not None and id_ in tables), None)
    return None if name is None else (name, tables[name])
