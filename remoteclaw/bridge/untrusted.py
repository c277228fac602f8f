"""Untrusted text as data: on one line, shortened, and unable to imitate RemoteClaw's own text."""

import itertools
import unicodedata

import orjson

#: The maximum length of a name or id, in characters.
MAX_NAME_CHARS = 120


#: The replacements of brackets and quotation marks in a name, by Unicode category and by character;
#: the latter take precedence.
_BY_CATEGORY = {"Ps": "(", "Pe": ")", "Pi": "'", "Pf": "'"}
_BY_CHARACTER = {'"': "'", "\\": "/", "<": "(", ">": ")"}


def as_data(text: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return an untrusted text as a JSON string on one line, shortened and cleaned."""
    return orjson.dumps(clean(text, max_chars=max_chars)).decode()


def clean(text: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a text without control and format characters (line ends, bidi marks), shortened."""
    visible = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs"))
    kept = "".join(itertools.islice(visible, max_chars + 1))
    return kept if len(kept) <= max_chars else kept[: max_chars - 1] + "…"


def clean_name(name: str) -> str:
    """Return a name that can't imitate JSON or a tag: with round brackets, and ' for quotes.

    Compatibility characters, such as wide brackets, are normalized first.
    """
    usual = unicodedata.normalize("NFKC", clean(name))
    plain = (_BY_CHARACTER.get(c) or _BY_CATEGORY.get(unicodedata.category(c), c) for c in usual)
    return clean("".join(plain)).strip()
