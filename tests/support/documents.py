"""The commands, blocks and settings that documents name, with the page and line of each."""

import functools
import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from remoteclaw.cli import main
from tests.support.agents import ROOT

#: A line of a document that opens or closes a block of code.
_FENCE = re.compile(r"^\s*```(\w*)")
#: What separates commands in a line of a shell.
_OPERATORS = re.compile(r"[|;&<>()]+")
#: The pages that describe earlier versions.
_PAST = ("CHANGELOG.md",)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code, or code within a line."""

    page: Path
    line: int
    kind: str
    """The language of the block, or "span" within a line."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@functools.cache
def documents() -> tuple[Path, ...]:
    """Return the documents of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (ROOT / name for name in names.splitlines() if not name.startswith("tests/"))
    return tuple(file for file in files if file.is_file() and file.name not in _PAST)


@functools.cache
def snippets() -> tuple[Snippet, ...]:
    """Return all code in all documents."""
    return tuple(itertools.chain.from_iterable(map(_of_page, documents())))


def blocks(*kinds: str, page: str = "") -> list[Snippet]:
    """Return the blocks of some languages, of all pages or of one."""
    return [
        snippet
        for snippet in snippets()
        if snippet.kind in kinds and (not page or snippet.page == ROOT / page)
    ]


def _of_page(page: Path) -> Iterator[Snippet]:
    kind, opened, block = None, 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if fence := _FENCE.match(line):
            if kind is None:
                kind, opened, block = fence[1] or "none", number, []
            else:
                text = "\n".join(block) + "\n"
                if kind == "sh":
                    text = re.sub(r"<[a-z ]+>", "PLACEHOLDER", text)
                yield Snippet(page, opened + 1, kind, text)
                kind = None
        elif kind is not None:
            block.append(line)
        elif line.startswith("    "):
            yield Snippet(page, number, "indented", line[4:] + "\n")
        else:
            for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", line):
                yield Snippet(page, number, "span", code.replace("\\|", "|"))


# -- commands -------------------------------------------------------------------------------------


def shell_lines(snippet: Snippet) -> Iterator[tuple[Snippet, str]]:
    """Yield each command line of a block, with its place."""
    number, text = snippet.line, ""
    for line in snippet.text.splitlines():
        text += line
        if text.endswith("\\"):
            text = text[:-1]
        else:
            yield Snippet(snippet.page, number, snippet.kind, text), text
            text = ""
        number += 1


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words after `remoteclaw` of each of its commands in a line of a shell."""
    if "_REMOTECLAW_COMPLETE=" in text:  # a shell asks for completions, without a command
        return
    for inner in re.findall(r"\$\((\w[^()]*)\)", text):
        yield from commands_in(inner)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not _OPERATORS.fullmatch(word):
            words.append(word)
            continue
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if "--" in words and "remoteclaw" in words[words.index("--") :]:
            words = words[words.index("--") + 1 :]
        if words and words[0].rpartition("/")[2] == "remoteclaw":
            yield words[1:]
        words = []


def mentioned(span: str) -> Iterator[list[str]]:
    """Yield the words of each command that a span names: `cron list|add [NAME]…` is two."""
    words = re.sub(r"[][…]|\.\.\.", " ", span)
    words = re.sub(r"(?<= )N\b", "7", words).replace(" DIR", " .")
    alternatives = [word.split("|") for word in words.split(" ") if word]
    for choice in itertools.product(*alternatives):
        yield from commands_in(" ".join(choice))


def parse(words: list[str]) -> list[str]:
    """Parse a command as the command line does, without running it; return its path.

    Raises click's error if it isn't valid.
    """
    return _parse(main, words, None)


def valid(words: list[str], *, is_whole: bool = True) -> str | None:
    """Return what is wrong with a command; one that is not whole may lack arguments."""
    try:
        parse(words)
    except click.exceptions.Exit:  # --help, --version
        return None
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
        return error.format_message().partition("\n")[0] if is_whole else None
    except click.BadOptionUsage as error:
        return error.format_message() if is_whole else None
    except click.ClickException as error:
        return error.format_message()
    return None


def _parse(command: click.Command, words: list[str], parent: click.Context | None) -> list[str]:
    name = command.name or "remoteclaw"
    context = command.make_context(name, list(words), parent=parent)
    if not isinstance(command, click.Group):
        return [name]
    rest = [*context._protected_args, *context.args]
    if not rest:
        return [name]
    _, found, after = command.resolve_command(context, rest)
    assert found
    return [name, *_parse(found, after, context)]
