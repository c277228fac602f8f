"""Texts of other people's, as data: on one line, shortened, without what could pretend."""

import unicodedata

import orjson

__all__ = ["as_data", "clean"]

#: The longest name or id that is shown, in characters.
LONGEST_NAME = 120


def as_data(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Return a text of somebody's as a JSON string on one line, shortened and cleaned."""
    return orjson.dumps(clean(text, longest=longest)).decode()


def clean(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Return a text without control and format characters (line ends, bidi marks), shortened."""
    kept = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs"))
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"
