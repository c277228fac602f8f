"""Text for a program in a terminal: cleaned, framed, and refused where it could be a command."""

import re
import unicodedata
from typing import Final

from remoteclaw.errors import RemoteClawError
from remoteclaw.tty.frames import Modes

_BEGIN, _END = b"\x1b[200~", b"\x1b[201~"

#: Signs that begin a command in one of the agents' programs: a command for the shell or the
#: program, a note for its memory, work in the cloud, a skill, help.
_SIGNS: Final = "!/#&$?"
#: Whole texts that end a program.
_WORDS: Final = frozenset("exit quit q logout :q :q! :qa :qa! :wq :wq! :x :x! :exit :quit".split())
_TYPE_IT = "Type it yourself in the terminal, if you mean it."
#: The rest of an address such as me@example.org or git@example.org:a/b.git. gemini takes what is
#: behind any other “@” for a path, also in the middle of a word, and puts the file in its place.
_ADDRESS = re.compile(
    r"(?<=[A-Za-z0-9_])@[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?!\.*[\w/\\-])"
)
#: Texts that the programs take for files that were dropped on them, and read wherever those are:
#: gemini one of nothing but paths, codex and opencode one that is the path of a picture.
_PATHS = re.compile(r"/|file:|(?=\.).*(?:\.\./|\s/)", re.DOTALL)
_PICTURE = re.compile(r"\.(?:avif|gif|jpe?g|pdf|png|svg|webp)$", re.IGNORECASE)
#: The pictures that claude takes for dropped ones also within a text.
_DROPPED = re.compile(r"\.(?:gif|jpe?g|png|webp)$", re.IGNORECASE)
#: Format characters that stay: they make up words of several scripts, and emoji.
_JOINERS = "\u200c\u200d"


class PasteRefused(RemoteClawError):
    """Raised for a text that can't be pasted as it is."""


def cleaned(text: str) -> str:
    """Return a text with LF for its line ends, without control and invisible characters.

    What stays can't be a key or the end of a paste, and reads as it is.
    """
    kept = "".join(character for character in _lines(text) if not _is_invisible(character))
    return unicodedata.normalize("NFC", kept)


def paste(text: str, modes: Modes) -> bytes:
    """Return what a paste types.

    Raises `PasteRefused` for lines that would be sent one by one, and for a command that was hidden
    behind what can't be seen: whoever has copied it may not know what it is.
    """
    if any(map(_is_invisible, _lines(text))) and problem_of_input(text):
        raise PasteRefused(
            "The text has signs that can't be seen, and could be a command without them. Type it "
            "yourself, if you mean it."
        )
    text = cleaned(text)
    if modes.paste:
        return _BEGIN + text.encode() + _END
    if "\n" in text:
        raise PasteRefused(
            "The program takes no pasted text now, so that each line would be sent by itself: paste"
            " one line, or wait until its prompt is there."
        )
    return text.encode()


def problem_of_input(text: str) -> str | None:
    """Return why a text may not be typed for a person: a program could take it for a command."""
    shown = _shown(text)
    if not shown:
        return "There is no text to type."
    if shown[0] in _SIGNS:
        return f"The text begins with “{shown[0]}”, which is a command there. {_TYPE_IT}"
    if shown.lower() in _WORDS:
        return f"“{shown}” ends the program. {_TYPE_IT}"
    if "@" in _ADDRESS.sub("", shown):
        return f"The text has “@” outside of an address, which names a file there. {_TYPE_IT}"
    unescaped = shown.replace("\\", "")
    if _is_path(re.sub(r"[\"']", "", unescaped)):
        return f"The text is the path of a file, which could be read there. {_TYPE_IT}"
    if _drops_picture(unescaped):
        return (
            "A line ends with the path of a picture, which could be read there: put a full stop "
            f"behind it to name it alone. {_TYPE_IT}"
        )
    return None


def _is_path(text: str) -> bool:
    """Return whether a program could take a text for a file outside of its workspace."""
    return bool(_PATHS.match(text) or ("/../" in text and _PICTURE.search(text)))


def _drops_picture(text: str) -> bool:
    """Return whether claude takes a path in a text for a picture: one up to the next or the end."""
    pieces = (piece for line in text.splitlines() for piece in re.split(" (?=/)", line))
    bare = (piece.strip().strip("\"'") for piece in pieces)
    return any(piece.startswith("/") and _DROPPED.search(piece) for piece in bare)


def _lines(text: str) -> str:
    """Return a text with LF for its line ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\u2028\u2029\u0085]", "\n", text)


def _shown(text: str) -> str:
    """Return what a program may see of a text, signs in their plain form."""
    plain = unicodedata.normalize("NFKC", cleaned(text))
    kept = "".join(
        character
        for character in plain
        if character not in _JOINERS and not unicodedata.name(character, "").startswith("VARIATION")
    ).strip()
    return kept.lstrip("".join(c for c in kept if unicodedata.category(c)[0] in "MZ"))


def _is_invisible(character: str) -> bool:
    """Return whether a character has no picture of its own and is no part of another's."""
    if character in _JOINERS or character in "\n\t":
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Cn"} or character in _BLANKS


#: Letters and marks without a picture: fillers of Hangul, the joiner of graphemes, the empty
#: pattern of Braille, vowels of Khmer that are not shown.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
