"""What a terminal may be shown of texts that others wrote, and who sits at it.

An agent, a tool or a sender can put escape sequences into what they say: they would move the
cursor, set the title, or fill the clipboard of whoever looks. Marks of direction would have the
terminal show the text in another order than it has: a command that looks like another one.
"""

import getpass

__all__ = ["login_name", "one_line", "printable"]

#: What terminals obey: the controls C0 and C1 and DEL, but not newline and tab.
_COMMANDS = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))
#: Unicode's marks of direction (Bidi_Control).
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_REMOVED = dict.fromkeys((*_COMMANDS, *_DIRECTIONS))


def printable(text: str) -> str:
    """Return a text of which a terminal obeys nothing; lines and tabs stay."""
    return text.translate(_REMOVED)


def one_line(text: str, *, most: int | None = None) -> str:
    """Return a text that can't begin a line of its own, cut to `most` characters."""
    line = printable(" ".join(text.split()))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def login_name() -> str:
    """Return the name under which the person at this terminal writes."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"  # a container's user may have no name
