"""Fenced code blocks of Markdown: where they begin and end, and long ones as files.

A chat shows the beginning of a long code block and has the whole one as a file. The text of a
reply has the whole block; adapters shorten it when they show it (`code_files`).
"""

import re
from dataclasses import dataclass

__all__ = [
    "SHOWN_CHARS",
    "CodeBlock",
    "CodeFile",
    "CodeReader",
    "beginning_of",
    "code_files",
    "fence_after",
    "marker_of",
]

#: The beginning of a long code block is at most so many lines and so many characters.
SHOWN_LINES, SHOWN_CHARS = 10, 1_000
#: A longer opening line is shown without what is after its marker.
MAX_OPENING_CHARS = 100

_FENCE = re.compile(r" {0,3}(`{3,11}|~{3,11})(.*)")
#: A file's name in the first line of a block, such as `python app.py`.
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*\.\w{1,8}\b", re.ASCII)
#: The endings of files, for languages that are no endings themselves.
_ENDINGS = {
    "bash": "sh",
    "c#": "cs",
    "c++": "cpp",
    "csharp": "cs",
    "golang": "go",
    "javascript": "js",
    "kotlin": "kt",
    "markdown": "md",
    "perl": "pl",
    "python": "py",
    "ruby": "rb",
    "rust": "rs",
    "shell": "sh",
    "text": "txt",
    "typescript": "ts",
}


def fence_after(line: str, opened: str) -> str:
    """Return the opening line of the fence that is open after `line`; empty outside of fences.

    `opened` is that of the fence in which the line is. As in CommonMark, a fence is closed by a
    line of at least as many of the same character, with nothing after them.
    """
    if (fence := _FENCE.fullmatch(line)) is None:
        return opened
    marker, info = fence[1], fence[2]
    if not opened:
        return line if marker[0] == "~" or "`" not in info else ""
    return "" if marker.startswith(marker_of(opened)) and not info.strip() else opened


def marker_of(opening: str) -> str:
    """Return the marker characters of a fence's line; empty if it is none."""
    fence = _FENCE.match(opening)
    return fence[1] if fence else ""


@dataclass(slots=True)
class CodeBlock:
    """A fenced code block in a text that is read line by line. Positions count characters."""

    start: int
    """The position of the opening line."""
    code: int
    """The position of the first line of code."""
    lines: int = 0
    """The number of lines of code so far."""
    closing: int = 0
    """The position of the closing line, once `end` is known."""
    end: int | None = None
    """The position after the closing line; None while the block is open."""


class CodeReader:
    """Finds the code blocks of a text that is still being written."""

    def __init__(self) -> None:
        self.blocks: list[CodeBlock] = []
        """The blocks so far; a block is open until its closing line is complete."""
        self._position = 0
        self._line: list[str] = []
        """The pieces of the line that is not complete."""
        self._opened = ""

    def feed(self, text: str) -> None:
        """Read more text."""
        *ends, rest = text.split("\n")
        for end in ends:
            self._take("".join((*self._line, end)), 1)
            self._line = []
        self._line.append(rest)

    def finish(self) -> None:
        """End the text, and with it a block that is open."""
        if line := "".join(self._line):
            self._take(line, 0)
        if self._opened:
            self.blocks[-1].closing = self.blocks[-1].end = self._position

    def _take(self, line: str, newline: int) -> None:
        start, self._position = self._position, self._position + len(line) + newline
        before, self._opened = self._opened, fence_after(line, self._opened)
        if not before and self._opened:
            self.blocks.append(CodeBlock(start, self._position))
        elif before and self._opened:
            self.blocks[-1].lines += 1
        elif before:
            self.blocks[-1].closing, self.blocks[-1].end = start, self._position


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A long code block as a file."""

    name: str
    content: bytes


def code_files(text: str, max_lines: int) -> tuple[str, tuple[CodeFile, ...]]:
    """Return a text with only the beginnings of its long code blocks, and these as files.

    Blocks of at most `max_lines` lines stay; with 0, all do.
    """
    reader = CodeReader()
    if max_lines:
        reader.feed(text)
        reader.finish()
    pieces: list[str] = []
    files: list[CodeFile] = []
    position = 0
    for block in reader.blocks:
        if block.lines > max_lines:
            opening, code = text[block.start : block.code], text[block.code : block.closing]
            if indent := len(opening) - len(opening.lstrip(" ")):  # as in an item of a list
                code = re.sub(rf"^ {{1,{indent}}}", "", code, flags=re.MULTILINE)
            name = _unique(_name_of(opening), [file.name for file in files])
            files.append(CodeFile(name, code.encode(errors="replace")))
            shown = beginning_of(text[block.start : block.closing], block.lines, name)
            pieces += [text[position : block.start], shown, "\n"]
            position = block.end or len(text)
    return "".join((*pieces, text[position:])).rstrip("\n"), tuple(files)


def beginning_of(block: str, lines: int, name: str = "") -> str:
    """Return the beginning of a block with so many lines of code, and the name of its file."""
    opening, *code = block.split("\n", SHOWN_LINES + 1)
    shown = "\n".join(code[: min(SHOWN_LINES, lines)])[:SHOWN_CHARS]
    marker = marker_of(opening)
    opening = opening if len(opening) <= MAX_OPENING_CHARS else marker
    return f"{opening}\n{shown}\n{marker}\n(… {lines:,} lines: {name or _name_of(opening)})"


def _name_of(opening: str) -> str:
    """Return the name of a block's file: the one in its opening line, or `code` with an ending."""
    info = opening.strip()[len(marker_of(opening)) :]
    if name := _NAME.search(info):
        return name[0][-60:]
    language = (info.split() or [""])[0].lower()
    ending = _ENDINGS.get(language, language)
    return f"code.{ending if re.fullmatch('[a-z0-9]{1,5}', ending) else 'txt'}"


def _unique(name: str, names: list[str]) -> str:
    """Return a name that isn't among `names`: with a number, if necessary."""
    stem, _, ending = name.rpartition(".")
    numbers = (f"{stem}-{number}.{ending}" for number in range(2, len(names) + 2))
    return next(each for each in (name, *numbers) if each not in names)
