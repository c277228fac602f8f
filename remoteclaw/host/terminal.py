"""The terminal: safe output of untrusted text, and the person who sits at it.

An agent, a tool or a sender can put escape sequences into what they say: they would move the
cursor, set the title, or fill the reader's clipboard. Marks of direction would have the
terminal show the text in another order than it has: a command that looks like another one. Such
characters are shown as JSON writes them, `\\u001b`, so JSON that is printed stays the same JSON.
"""

import getpass
import re

#: Controls apart from tab and newline, marks of direction, ends of lines, what has no width, halves
#: of UTF-16 pairs, and tags, with which a text is hidden in another one.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_A_TEXT = re.compile(f"[{_UNSEEN}]")
#: Emoji and Persian need the joiners U+200C and U+200D; in a name they would make two look alike.
_IN_A_LINE = re.compile(f"[{_UNSEEN}\n\u200c\u200d]")


def printable(text: str) -> str:
    """Return a text of which a terminal obeys nothing; lines, tabs and joiners stay."""
    return _IN_A_TEXT.sub(_escape, text.replace("\r\n", "\n").removesuffix("\r"))


def in_a_line(text: str) -> str:
    """Return a text that can't begin a line of its own: it shows where one would begin."""
    return _IN_A_LINE.sub(_escape, text)


def one_line(text: str, *, most: int | None = None) -> str:
    """Return words on one line, with single blanks between them, cut to `most` characters."""
    line = in_a_line(" ".join(text.split()))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with a sign that there is more."""
    return text if len(text) <= most else f"{text[:most]} …"


def fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code in Markdown, which it can't end itself."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, 1 + longest)
    return f"{fence}{language}\n{text}\n{fence}"


def login_name() -> str:
    """Return the name under which the person at this terminal writes."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"  # a container's user may have no name


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
