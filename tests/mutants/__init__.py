"""Mutants: each one breaks one promise, and one test must fail.

Each room has a file here. A mutant's text is searched in all files of the room, regardless of
indentation and line breaks, so code can move within its room without a change of its mutants.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Rooms whose files are not the modules of the package of the same name.
_FILES = {
    "page_scripts": "remoteclaw/gateway/page/static/*.js",
    "scripts": "remoteclaw/fleet/scripts/*.lua",
    "vocabulary": "remoteclaw/*.py",
    "workers": "workers/*.py",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken promise: in one place of the room, `before` becomes `after`."""

    name: str
    before: str
    after: str
    """The second and later lines are indented relative to the line where `before` begins."""
    test: str
    """The test that must fail, with its file if the name is not unique: `test_x.py::test_y`."""
    within: str = ""
    """The function, class or script that contains `before`, if the room has it more than once."""


@dataclass(frozen=True, slots=True)
class Place:
    """A passage of a file that a mutant changes."""

    file: Path
    start: int
    end: int


def rooms() -> list[str]:
    """Return the rooms that have mutants."""
    return sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))


def mutants_of(room: str) -> tuple[Mutant, ...]:
    """Return the mutants of a room."""
    mutants: tuple[Mutant, ...] = import_module(f"tests.mutants.{room}").MUTANTS
    return mutants


def sources_of(room: str, root: Path = ROOT) -> dict[Path, str]:
    """Read all files of a room."""
    files = root.glob(_FILES.get(room, f"remoteclaw/{room}/**/*.py"))
    return {file: file.read_text() for file in sorted(files)}


def places(mutant: Mutant, sources: Mapping[Path, str]) -> list[Place]:
    """Return the passages that match a mutant; there must be exactly one."""
    pattern, words = _pattern(mutant.before), re.findall(r"\w+", mutant.before)
    return [
        Place(file, match.start(), match.end())
        for file, text in sources.items()
        if all(word in text for word in words)  # a quick check first, because patterns are slow
        for match in pattern.finditer(text)
        if not mutant.within
        or file.stem == mutant.within
        or any(
            name.endswith(f".{mutant.within}") and span[0] <= match.start() < span[1]
            for name, span in _definitions(file.suffix, text)
        )
    ]


def mutated(mutant: Mutant, place: Place, text: str) -> str:
    """Return the text of a file with the mutant in it."""
    line = text[text.rfind("\n", 0, place.start) + 1 : place.start]
    indentation = line[: len(line) - len(line.lstrip())]
    after = mutant.after.replace("\n", f"\n{indentation}")
    return text[: place.start] + after + text[place.end :]


def file_of_test(mutant: Mutant, tests: Mapping[str, Sequence[Path]]) -> Path | None:
    """Return the file that defines the mutant's test, or None if not exactly one file does."""
    *file_names, test = mutant.test.partition("[")[0].split("::")
    files = [file for file in tests.get(test, ()) if not file_names or file.name in file_names]
    return files[0] if len(files) == 1 else None


@cache
def index_of_tests(root: Path = ROOT) -> dict[str, list[Path]]:
    """Return the files that define each test, by the name of the test."""
    tests: dict[str, list[Path]] = {}
    for file in (root / "tests").rglob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE):
            tests.setdefault(name, []).append(file)
    return tests


@cache
def _pattern(before: str) -> re.Pattern[str]:
    """Return a pattern for the tokens of `before`, with any white space between them."""
    tokens = re.findall(r"\w+|[^\w\s]", before)
    pattern = ""
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        is_trailing_comma = token == "," and following in {")", "]", "}"}
        pattern += re.escape(token) + "?" * is_trailing_comma
        if following in {")", "]", "}"} and not is_trailing_comma:
            pattern += r"(?:\s*,)?"
        if following:
            pattern += r"\s+" if token[-1].isidentifier() and _is_word(following) else r"\s*"
    return re.compile(rf"(?<!\w){pattern}" if _is_word(tokens[0]) else pattern)


def _is_word(token: str) -> bool:
    return bool(re.match(r"\w", token))


@cache
def _definitions(suffix: str, text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the qualified names of functions and classes, with their start and end offsets."""
    if suffix != ".py":
        return []
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]

    def below(node: ast.AST, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for child in ast.iter_child_nodes(node):
            here = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                here = f"{name}.{child.name}"
                yield here, (starts[child.lineno - 1], starts[child.end_lineno or child.lineno])
            yield from below(child, here)

    return list(below(ast.parse(text), ""))
