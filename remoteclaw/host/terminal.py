"""Safe output of untrusted text to a terminal, and the name of the terminal's user.

The text of an agent, a tool or a sender can contain escape sequences, which move the cursor, set
the title or write to the clipboard, and direction marks, which reorder the text on the screen so
that one command looks like another. Such characters are replaced by JSON's escapes, such as
`\\u001b`, so that JSON output keeps its meaning.
"""

import getpass
import re

#: Control characters except tab and newline, direction marks, line separators, characters without
#: width, lone surrogates, and tag characters, which can hide a text in another one.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE_IN_TEXT = re.compile(f"[{_UNSAFE}]")
#: Emoji and Persian need the joiners U+200C and U+200D, but two names that differ only in joiners
#: look the same.
_UNSAFE_IN_LINE = re.compile(f"[{_UNSAFE}\n\u200c\u200d]")


def printable(text: str) -> str:
    """Return a text with its unsafe characters escaped; line ends, tabs and joiners stay."""
    return _UNSAFE_IN_TEXT.sub(_escape, text.replace("\r\n", "\n").removesuffix("\r"))


def escape_line(text: str) -> str:
    """Return a text with its unsafe characters, line ends and joiners escaped."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def one_line(text: str, *, max_chars: int | None = None) -> str:
    """Return a text on one line, with single spaces between words, cut to `max_chars` characters.

    Unsafe characters are escaped.
    """
    line = escape_line(" ".join(text.split()))
    return line if max_chars is None or len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def shortened(text: str, max_chars: int) -> str:
    """Return the first `max_chars` characters of a text, and ` …` if it is longer."""
    return text if len(text) <= max_chars else f"{text[:max_chars]} …"


def fenced(text: str, language: str = "") -> str:
    """Return a text as a Markdown code block, with a fence that the text can't close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, 1 + longest)
    return f"{fence}{language}\n{text}\n{fence}"


def login_name() -> str:
    """Return the login name of this process's user, which is also their id on the console."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"  # a user of a container may have no name


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
