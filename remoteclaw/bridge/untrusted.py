"""Untrusted text as data: one line, shortened, unable to imitate our own words."""

import itertools
import unicodedata

import orjson

#: The longest name or id that is shown, in characters.
LONGEST_NAME = 120


#: The replacement in a name of each kind of bracket and quotation mark.
_PLAIN = {"Ps": "(", "Pe": ")", "Pi": "'", "Pf": "'"}
_PLAIN_SIGNS = {'"': "'", "\\": "/", "<": "(", ">": ")"}


def as_data(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Return an untrusted text as a JSON string on one line, shortened and cleaned."""
    return orjson.dumps(clean(text, longest=longest)).decode()


def clean(text: str, *, longest: int = LONGEST_NAME) -> str:
    """Return a text without control and format characters (line ends, bidi marks), shortened."""
    seen = (c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs"))
    kept = "".join(itertools.islice(seen, longest + 1))
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def clean_name(name: str) -> str:
    """Return a name that can spell neither JSON nor a tag: round brackets, and ' for quotes.

    Compatibility forms become what they look like, such as the wide bracket.
    """
    usual = unicodedata.normalize("NFKC", clean(name))
    plain = (_PLAIN_SIGNS.get(c) or _PLAIN.get(unicodedata.category(c), c) for c in usual)
    return clean("".join(plain)).strip()
