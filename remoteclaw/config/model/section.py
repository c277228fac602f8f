"""Shared parts of the sections: their base, bounds, declarations and checks."""

from collections.abc import Iterable
from typing import TypeVar

from pydantic import ConfigDict

from remoteclaw.clock import named_zone
from remoteclaw.config.rights import by_people
from remoteclaw.described import DescribedModel

_T = TypeVar("_T")

#: What a process reads once, at its start; all else is read again before the next call or turn.
EVERYTHING = "everything: `remoteclaw up`, or each worker, gateway and sweeper"
AT_START = by_people(restart=EVERYTHING)
WITH_WORKERS = by_people(restart="the workers")
#: Numbers have bounds, all of them: JSON's have 64 bits, and larger ones could not be shown.
MOST, MAX_S = 1_000_000_000, 366 * 24 * 3600


class Section(DescribedModel):
    """A section of the file: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def zone_name(value: str) -> str:
    """Return the name of an IANA time zone; raises ValueError for an unknown one."""
    if named_zone(value) is None:
        raise ValueError(f"must be a time zone such as Europe/Berlin, not {value!r}")
    return value


def check_names(value: dict[str, _T]) -> dict[str, _T]:
    """Refuse names that could not be part of a path or of a tool's name."""
    for name in value:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError(f"has the name {name!r}: use letters, digits, - and _")
    return value


def check_ids(value: Iterable[str]) -> None:
    """Refuse what is no platform's id of a person or a chat."""
    for one in value:
        # An id with an invisible character would match no one, and neither would its denial.
        is_id = one.isprintable() and one != "" and " " not in one
        # "@ada:example.org" is an id, of Matrix; "@ada" is a name everywhere.
        if not is_id or (one.startswith("@") and ":" not in one):
            raise ValueError(
                f"has {one!r}, which is no id: write the one that the platform gave, "
                "because names change hands"
            )
