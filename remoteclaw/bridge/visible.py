"""Untrusted text with every character visible, for people who decide about it.

Two texts never look the same, and removing the escapes gives the original text:

- A character that is not visible is written as `\\u200b` or `\\u{e0041}`, and so is each character
  below that the text itself contains.
- `␣` is a blank at the end of a line, `⇥` a tab, `⏎` the end of a line; `[␣×400]` is a long run.
- `[secret]` is a secret. It never includes a blank or a line end.

Unicode's properties decide which characters are visible, not a list. A joiner, a combining mark or
a variation selector stays where a script or an emoji needs it (docs/decisions/0060).
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from remoteclaw.bridge.scrubber import SECRET, Scrubber
from remoteclaw.host.terminal import NOTE
from remoteclaw.host.unicode_ranges import DEFAULT_IGNORABLE, JOINING, PICTOGRAPHS

_BLANK, _TAB, _LINE_END = "␣", "⇥", "⏎"
_MARKS = frozenset((NOTE, _BLANK, _TAB, _LINE_END))
#: A run of more blanks than this within a line, of more at its beginning, or of more line ends, is
#: written as a number. A phone shows about 40 columns; code is indented more than that only rarely.
MAX_BLANKS, MAX_INDENT, MAX_LINE_ENDS = 16, 40, 3
#: The maximum number of combining marks on a letter: more would cover the lines above and below.
MAX_MARKS = 4

#: Characters of visible categories that fonts show as nothing: the empty Braille pattern, the place
#: of an object, two Egyptian blanks and an empty note head.
_EMPTY = frozenset("\u2800\ufffc\U00013441\U00013442\U0001d159")
#: Combining marks that Telegram removes from a message.
_REMOVED = frozenset("\u0333\u033f\u030a")

_IGNORABLE = re.compile(f"[{DEFAULT_IGNORABLE}]")
_JOINS_NEXT = re.compile(f"[{JOINING}]")
_JOINERS, _NON_JOINER = "\u200c\u200d", "\u200c"
#: `unicodedata.combining()` of a virama, which takes the vowel from a consonant in Indic scripts.
_VIRAMA = 9
_ONE_EMOJI = f"[{PICTOGRAPHS}](?:\ufe0f|[\U0001f3fb-\U0001f3ff])?"
#: An emoji of several characters, as the standard's UTS #51 describes it, or a digit on a key.
_EMOJI = re.compile(f"{_ONE_EMOJI}(?:\u200d{_ONE_EMOJI})*|(?<=[0-9])\ufe0f\u20e3")

#: The beginning of something that would look like an escape of ours.
_IMITATION = r"\\(?=u(?:[0-9A-Fa-f]{4}|\{))"
_UNUSUAL = r"[^\x20-\x7e\n]+|\[(?=secret\])"
_IN_TEXT, _IN_JSON = re.compile(f"{_IMITATION}|{_UNUSUAL}"), re.compile(_UNUSUAL)
_HOST = re.compile(r"(?<=://)[^\s/?#]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_ASCII_LETTER = re.compile("[A-Za-z]")

_SIGNS = str.maketrans({_BLANK: " ", _TAB: "\t", _LINE_END: "\n"})
_NUMBERED = re.compile(f"\\[([{_BLANK}{_LINE_END}])×([0-9]+)\\]")
#: An escape or a mark of several characters.
UNIT = re.compile(r"\\u(?:[0-9a-f]{4}|\{[0-9a-f]+\})|\[(?:secret|[␣⏎]×[0-9]+)\]\n?|⏎\n")
_RUN = re.compile(
    rf"(?P<line_ends>\n{{{MAX_LINE_ENDS + 1},}})|(?P<last> +)(?=\n|\Z)"
    rf"|(?P<blanks>^ {{{MAX_INDENT + 1},}}|(?<=[^ \n]) {{{MAX_BLANKS + 1},}})|(?P<line_end>\n)",
    re.MULTILINE,
)


class Renderer:
    """Writes the texts of requests, with the secrets that `scrubber` knows replaced."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber

    def content(self, text: str) -> str:
        """Return a command or a file's content. Each of its line ends is marked."""
        return self._marked(text, _IN_TEXT)

    def line(self, text: str) -> str:
        """Return a text on one line, with its line ends as marks."""
        return self.content(text).replace("\n", "")

    def prose(self, text: str) -> str:
        """Return a text whose line ends need no marks, such as a plan."""
        return self.content(text.strip()).replace(f"{_LINE_END}\n", "\n")

    def json(self, values: Mapping[str, Any], *, is_on_one_line: bool = False) -> str:
        """Return the arguments of a tool as JSON."""
        indent = None if is_on_one_line else 2
        dumped = json.dumps(values, indent=indent, ensure_ascii=False, default=str)
        return self.json_lines(dumped)

    def json_lines(self, text: str) -> str:
        """Return lines of JSON, whose own escapes show the line ends within its strings."""
        return self._marked(text, _IN_JSON).replace(f"{_LINE_END}\n", "\n")

    def _marked(self, text: str, unusual: re.Pattern[str]) -> str:
        escaped = self._escaped(text, unusual)
        return _RUN.sub(_as_marks, escaped).removesuffix("\n")

    def _escaped(self, text: str, unusual: re.Pattern[str]) -> str:
        pieces, at = [], 0
        for start, end in self._scrubber.secret_words(text):
            pieces += [_visible(text[at:start], unusual), SECRET]
            at = end
        return "".join([*pieces, _visible(text[at:], unusual)])


def without_marks(visible: str) -> str:
    """Return a visible text with blanks, tabs and line ends in place of the marks, for an agent."""
    unnumbered = _NUMBERED.sub(lambda mark: mark[1] * int(mark[2]), visible)
    return unnumbered.replace(f"{_LINE_END}\n", _LINE_END).translate(_SIGNS)


def _visible(text: str, unusual: re.Pattern[str]) -> str:
    """Return a text with its invisible characters, and all imitations of our marks, as escapes."""
    foreign = frozenset() if text.isascii() else _foreign(text)
    return unusual.sub(lambda match: _escaped_run(match, foreign), text)


def _escaped_run(match: re.Match[str], foreign: frozenset[int]) -> str:
    """Return a run of characters that are not printable ASCII, or an imitation, with escapes."""
    text, at, end = match.string, match.start(), match.end()
    if match[0] in ("\\", "["):
        return _escape(match[0])
    base = text[at - 1 : at]  # the visible character before, which a mark or a joiner needs
    marks, kept = 0, []
    while at < end:
        character = text[at]
        kind = "hidden" if at in foreign else _kind_of(character)
        emoji = _EMOJI.match(text, at) if character == "\ufe0f" or kind == "visible" else None
        if emoji and at not in foreign and "Cn" not in map(unicodedata.category, emoji[0]):
            kept.append(emoji[0])
            base, marks, at = "", 0, emoji.end()
            continue
        if kind == "mark" and base.isalpha() and marks < MAX_MARKS:
            marks += 1
        elif kind == "visible":
            base, marks = character, 0
        elif not (character in _JOINERS and base and _is_spelling(text, at)):
            base = ""
            character = _TAB if kind == "tab" else _escape(character)
        kept.append(character)
        at += 1
    return "".join(kept)


@lru_cache(maxsize=10_000)
def _kind_of(character: str) -> Literal["visible", "mark", "tab", "hidden"]:
    if character == "\t":
        return "tab"
    category = unicodedata.category(character)
    if (
        category[0] in "CZ"
        or category == "Me"  # it covers the character before it
        or character in _MARKS
        or character in _EMPTY
        or character in _REMOVED
        or _IGNORABLE.match(character)
    ):
        return "hidden"
    return "mark" if category[0] == "M" else "visible"


def _is_spelling(text: str, at: int) -> bool:
    """Whether the joiner at `at` changes how letters look (RFC 5892, appendix A)."""
    before, after = text[at - 1], text[at + 1 : at + 2]
    if not after.isalpha() or _kind_of(after) != "visible":
        return False
    if unicodedata.combining(before) == _VIRAMA:
        return True
    is_arabic = unicodedata.bidirectional(after) == "AL"
    return text[at] == _NON_JOINER and is_arabic and bool(_JOINS_NEXT.match(before))


def _foreign(text: str) -> frozenset[int]:
    """Return the positions of characters that may imitate ASCII.

    They are those in the host of an address, and the letters of other alphabets with upper and
    lower case that stand directly beside ASCII letters.
    """
    return frozenset((*_in_hosts(text), *_beside_ascii(text)))


def _in_hosts(text: str) -> Iterator[int]:
    for host in _HOST.finditer(text):
        for at in range(host.start(), host.end()):
            if text[at].isascii():
                continue
            if unicodedata.category(text[at])[0] == "P":  # the sentence around the address
                break
            yield at


def _beside_ascii(text: str) -> Iterator[int]:
    for letters in _LETTERS.finditer(text):
        if not letters[0].isascii() and _ASCII_LETTER.search(letters[0]):
            yield from (at for at in range(*letters.span()) if _is_foreign_letter(text[at]))


@lru_cache(maxsize=10_000)
def _is_foreign_letter(character: str) -> bool:
    is_cased = unicodedata.category(character) in ("Lu", "Ll", "Lt")
    # Latin-1 has one letter of another alphabet, the sign for "micro".
    return (
        is_cased and character > "\xff" and not unicodedata.name(character, "").startswith("LATIN ")
    )


def _as_marks(match: re.Match[str]) -> str:
    length = len(match[0])
    match match.lastgroup:
        case "line_ends":
            return f"[{_LINE_END}×{length}]\n"
        case "line_end":
            return f"{_LINE_END}\n"
        case "last" if length <= MAX_BLANKS:
            return _BLANK * length
    return f"[{_BLANK}×{length}]"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"
