"""Safe output of untrusted text to a terminal, and the name of the terminal's user.

The text of an agent, a tool or a sender can contain escape sequences, which move the cursor, set
the title or write to the clipboard, and direction marks, which reorder the text on the screen so
that one command looks like another. Such characters are replaced by JSON's escapes, such as
`\\u001b`, so that JSON output keeps its meaning.
"""

import functools
import os
import pwd
import re

from remoteclaw.host.unicode_ranges import DEFAULT_IGNORABLE

#: The first character of a line that is not part of the text above it.
NOTE = "▸"
#: Control characters except tab and newline, line separators, lone surrogates, the empty Braille
#: pattern, and characters that fonts don't show: direction marks, fillers, tags.
_UNSAFE = (
    f"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb\ud800-\udfff\u2800{DEFAULT_IGNORABLE}"
)
#: Emoji, Mongolian and Japanese names need variation selectors.
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
#: Emoji and Persian need the joiners U+200C and U+200D, but two names that differ only in joiners
#: look the same.
_UNSAFE_IN_TEXT = re.compile(f"(?![{_SELECTORS}\u200c\u200d])[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"(?![{_SELECTORS}])[{_UNSAFE}\n]")


def printable(text: str) -> str:
    """Return a text with its unsafe characters escaped; line ends, tabs and joiners stay."""
    return _UNSAFE_IN_TEXT.sub(_escape, text.replace("\r\n", "\n").removesuffix("\r"))


def escape_line(text: str) -> str:
    """Return a text with its unsafe characters, line ends and joiners escaped."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def one_line(text: str, *, max_chars: int | None = None, marks_line_ends: bool = False) -> str:
    """Return a text on one line, with single spaces between words, cut to `max_chars` characters.

    Unsafe characters are escaped. `marks_line_ends` shows line ends as `⏎`: after one, a command
    begins that would otherwise look like the end of a comment.
    """
    if marks_line_ends:
        text = text.strip().replace("\n", " ⏎ ")
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


def with_note(visible: str, note: str) -> str:
    """Return a text with a line of RemoteClaw's after it.

    The text can't imitate the line if the line's sign is an escape in it (`bridge.visible`).
    """
    return f"{visible}\n{NOTE} {note}"


@functools.cache
def login_name() -> str:
    """Return the login name of this process's user, in a form that operators' names may have."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""  # a user of a container may have no name
    # Ids in the configuration have no spaces; the users of other applications have a slash.
    fit = (c if c.isprintable() and c not in " /" else "_" for c in name[:64])
    return "".join(fit) or f"uid{uid}"


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
