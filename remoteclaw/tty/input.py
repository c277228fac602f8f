"""Text for a program in a terminal: cleaned, bracketed, and refused if it is a command."""

import re
import unicodedata
from typing import Final

from remoteclaw.errors import RemoteClawError
from remoteclaw.tty.frames import Modes

_BEGIN, _END = b"\x1b[200~", b"\x1b[201~"

#: Characters that begin a command in one of the agents' programs: a command for the shell or the
#: program, a note for its memory, work in the cloud, a skill, help.
_COMMAND_PREFIXES: Final = "!/#&$?"
#: Texts that end a program when they are the whole input.
_EXIT_WORDS: Final = frozenset(
    "exit quit q logout :q :q! :qa :qa! :wq :wq! :x :x! :exit :quit".split()
)
_TYPE_IT = "Type it yourself in the terminal, if you mean it."
#: The part from the “@” of an address such as me@example.org or git@example.org:a/b.git. gemini
#: takes the text after any other “@” for a path, even within a word, and inserts the file.
_ADDRESS = re.compile(
    r"(?<=[A-Za-z0-9_])@[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?!\.*[\w/\\-])"
)
#: Texts that the programs take for files dropped on the window, and read from any directory: gemini
#: a text that consists of paths, codex and opencode a text that is the path of a picture.
_PATHS = re.compile(r"/|file:|(?=\.).*(?:\.\./|\s/)", re.DOTALL)
_PICTURE = re.compile(r"\.(?:avif|gif|jpe?g|pdf|png|svg|webp)$", re.IGNORECASE)
#: The pictures that claude takes for dropped files even inside a longer text.
_DROPPED = re.compile(r"\.(?:gif|jpe?g|png|webp)$", re.IGNORECASE)
#: Format characters that are kept, because several scripts and emoji need them.
_JOINERS = "\u200c\u200d"


class PasteRefused(RemoteClawError):
    """Raised for a text that must not be pasted."""


def cleaned(text: str) -> str:
    """Return `text` with LF line ends and without control and invisible characters.

    The result can't contain a key or the end of a paste, and is exactly what a reader sees.
    """
    kept = "".join(character for character in _lines(text) if not _is_invisible(character))
    return unicodedata.normalize("NFC", kept)


def paste(text: str, modes: Modes) -> bytes:
    """Return the bytes that paste `text` into a program.

    Raises `PasteRefused` for lines that would be sent one by one, and for a command that is hidden
    by invisible characters: the user who copied it may not know that it is one.
    """
    if any(map(_is_invisible, _lines(text))) and problem_of_input(text):
        raise PasteRefused(
            "The text has invisible characters, and could be a command without them. Type it "
            "yourself, if you mean it."
        )
    text = cleaned(text)
    if modes.paste:
        return _BEGIN + text.encode() + _END
    if "\n" in text:
        raise PasteRefused(
            "The program does not accept pasted text now, so each line would be sent separately:"
            " paste one line, or wait until the program shows its prompt."
        )
    return text.encode()


def problem_of_input(text: str) -> str | None:
    """Return why `text` must not be typed on a user's behalf, None if it may.

    A text is refused if an agent's program could take it for a command or read a file for it.
    """
    shown = _visible(text)
    if not shown:
        return "There is no text to type."
    if shown[0] in _COMMAND_PREFIXES:
        return f"The text begins with “{shown[0]}”, which begins a command. {_TYPE_IT}"
    if shown.lower() in _EXIT_WORDS:
        return f"“{shown}” ends the program. {_TYPE_IT}"
    if "@" in _ADDRESS.sub("", shown):
        return f"The text has “@” outside of an address, which names a file. {_TYPE_IT}"
    unescaped = shown.replace("\\", "")
    if _is_path(re.sub(r"[\"']", "", unescaped)):
        return f"The text is the path of a file, which the program could read. {_TYPE_IT}"
    if _drops_picture(unescaped):
        return (
            "A line ends with the path of a picture, which the program could read: put a full stop"
            f" after the path if you only mention it. {_TYPE_IT}"
        )
    return None


def _is_path(text: str) -> bool:
    """Return whether a program could take `text` for a file outside of its workspace."""
    return bool(_PATHS.match(text) or ("/../" in text and _PICTURE.search(text)))


def _drops_picture(text: str) -> bool:
    """Return whether claude would read a picture: its path ends a line or precedes another path."""
    pieces = (piece for line in text.splitlines() for piece in re.split(" (?=/)", line))
    bare = (piece.strip().strip("\"'") for piece in pieces)
    return any(piece.startswith("/") and _DROPPED.search(piece) for piece in bare)


def _lines(text: str) -> str:
    """Return `text` with LF line ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\u2028\u2029\u0085]", "\n", text)


def _visible(text: str) -> str:
    """Return the text that a program may act on: cleaned, normalized, without leading blanks."""
    plain = unicodedata.normalize("NFKC", cleaned(text))
    kept = "".join(
        character
        for character in plain
        if character not in _JOINERS and not unicodedata.name(character, "").startswith("VARIATION")
    ).strip()
    return kept.lstrip("".join(c for c in kept if unicodedata.category(c)[0] in "MZ"))


def _is_invisible(character: str) -> bool:
    """Return whether a character is neither shown nor part of a shown character."""
    if character in _JOINERS or character in "\n\t":
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Cn"} or character in _BLANKS


#: Letters and marks that are not shown: Hangul fillers, the grapheme joiner, the empty Braille
#: pattern, two Khmer vowels.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
