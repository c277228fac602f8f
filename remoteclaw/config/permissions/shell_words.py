"""The words of a shell command, as far as every shell splits it alike.

Which shell a CLI uses depends on the user. So a command that bash, zsh and a plain sh might parse
differently has no words here, and neither has one with redirections, variables or substitutions.
"""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

#: The longest command that is parsed, in characters.
MAX_CHARS = 10_000
#: The maximum number of files that a word may stand for: each one is resolved.
MAX_MATCHES = 2_000

_TOKEN = re.compile(
    r"(?P<blank> +)"
    r"|(?P<operator>\|(?![|&])|&&)"
    r"|'(?P<single>[^']*)'"
    # A shell substitutes in double quotes, and an interactive one expands `!`.
    r'|"(?P<double>[^"$`\\!]*)"'
    # A shell expands a leading `~`, also after `=` and `:`, and zsh a leading `=` and `^`.
    r"|(?P<plain>(?:[\w./,:@%+-]|(?<=[\w~^@])[~^]|(?<=[^ |&])=|(?<= )!(?= ))+)"
    r"|(?P<wild>[*?])"
)
#: Patterns that mean more in one shell than in another: `**` may be recursive, and `.*` may match
#: the parent directory.
_UNSURE = re.compile(r"\*\*|(?:^|/)\.[^/]*[*?]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, without its quotes."""

    text: str
    pattern: str = ""
    """The word as a pattern of `glob`, if the shell replaces it by the files that match."""

    def paths(self, directory: Path) -> Iterator[str]:
        """Yield what the word may become in a directory: itself, and the files that it matches.

        Raises `ValueError` if a file could pass for an option, or if there are too many.
        """
        yield self.text
        if not self.pattern:
            return
        matches = glob.iglob(self.pattern, root_dir=directory, include_hidden=True)
        for count, path in enumerate(islice(matches, MAX_MATCHES + 1)):
            if path.startswith("-") or count == MAX_MATCHES:
                raise ValueError(self.text)
            yield path


def pipelines_of(command: str) -> Sequence[Sequence[Word]] | None:
    """Return the words of each program that a command starts; None if it does more than that.

    Programs are connected by `|` and `&&`.
    """
    # A blank that is none to Python, or a line break, would split words elsewhere. fish reads `\'`
    # as a quote within single quotes.
    if len(command) > MAX_CHARS or not command.isprintable() or "\\'" in command:
        return None
    programs: list[list[Word]] = [[]]
    text, pattern, is_open, is_wild = "", "", False, False
    position = 0
    command += " "
    while position < len(command):
        token = _TOKEN.match(command, position)
        if token is None:
            return None
        position = token.end()
        if token["blank"] or token["operator"]:
            if is_open:
                if is_wild and _UNSURE.search(pattern):
                    return None
                programs[-1].append(Word(text, pattern if is_wild else ""))
            text, pattern, is_open, is_wild = "", "", False, False
            if token["operator"]:
                programs.append([])
            continue
        if token["wild"]:
            text, pattern, is_wild = text + token[0], pattern + token[0], True
        else:
            part = next(p for p in token.group("single", "double", "plain") if p is not None)
            text, pattern = text + part, pattern + glob.escape(part)
        is_open = True
    return programs if all(programs) else None


def is_program_of(directories: Sequence[Path], name: str, path: str) -> bool:
    """Whether a shell with the variable PATH may find a program in one of the directories."""
    for entry in path.split(os.pathsep):
        if not entry.startswith("/"):
            return True  # relative to wherever the command runs
        program = os.path.join(entry, name)
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            places = (Path(entry), Path(os.path.realpath(program)))
            return any(place.is_relative_to(root) for place in places for root in directories)
    return False
