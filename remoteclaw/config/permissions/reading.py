"""Commands that only read, and only files that the agent may read: they need no permission.

The list is short, because each option here is a promise: the program starts no other one, writes
nothing, and reads only what its words name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remoteclaw.config.permissions.real_paths import is_in
from remoteclaw.config.permissions.repository import starts_no_programs
from remoteclaw.config.permissions.shell_words import Word, is_program_of, pipelines_of

#: No word matches it.
_NONE = r"(?!)"


@dataclass(frozen=True, slots=True)
class _Reader:
    """A program that only reads, by the words that it may get."""

    options: str = _NONE
    """The options that are one word."""
    valued: str = _NONE
    """The options whose value is the next word. No value begins with `-`, except a number."""
    first: str = ""
    """The first operand, if it is no file; empty if it is one."""
    others: Literal["files", "words", "none"] = "files"
    """What the other operands are."""
    instead: str = _NONE
    """The options that take the place of the first operand."""


# No options that follow symbolic links into other directories, write files, start programs, read
# the names of files from a file, or wait for more input.
_GREP = r"-[cEFGHhIiLlnoPqrsvwxaT]*"
_RG = r"-[cFHIilNnopPqSsUuvwxab0.]*"
_AROUND = r"(?:after-|before-)?context|max-count"
_DIFF = (
    r"-[pubwzRWM]|-U\d+|--(?:stat|dirstat)(?:=[\w,.]+)?|--unified=\d+|--(?:num|short)stat|--raw"
    r"|--name-(?:only|status)|--summary|--compact-summary|--color(?:=\w+)?|--no-color|--check"
    r"|--word-diff(?:=\w+)?|--diff-filter=\w+|--no-(?:ext-diff|textconv|renames)|--minimal"
    r"|--patience|--histogram|--ignore-(?:all-space|space-change|blank-lines)|--exit-code|--quiet"
    r"|--function-context|--no-patch|-s"
)
# `%G…` starts gpg.
_LOG = (
    r"-\d+|-n\d+|-[iq]|--oneline|--graph|--all|--decorate(?:=\w+)?|--no-decorate|--reverse"
    r"|--(?:format|pretty)(?:=(?!.*%G).*)?|--(?:no-)?abbrev-commit|--follow|--(?:no-)?merges"
    r"|--first-parent|--(?:author|committer|grep|since|until|after|before|date|max-count|skip)=.+"
    r"|--(?:branches|tags|remotes|topo-order|date-order|left-right)|-[SG].+"
)
_READERS = {
    "cat": _Reader(r"-[AbeEnstTuv]+"),
    "cut": _Reader(r"-s|-[bcdf].+|--complement", r"-[bcdf]"),
    "date": _Reader(r"-[uR]|-I\w*", first=r"\+.*", others="none"),
    "du": _Reader(r"-[abchkmsSx]+|-d\d+|--max-depth=\d+|--apparent-size|--exclude=.+", "-d"),
    "echo": _Reader(r"-[neE]+", others="words"),
    "file": _Reader(r"-[bi]+|--brief|--mime(?:-type|-encoding)?"),
    "find": _Reader(
        r"!|-(?:a|and|o|or|not|print|print0|ls|empty|prune|depth|xdev|mount|quit)",
        r"-i?(?:name|path|wholename|regex)|-(?:type|maxdepth|mindepth|size|perm|user|group)"
        r"|-[amc](?:time|min)|-links|-printf|-regextype",
    ),
    "grep": _Reader(
        rf"(?!-$){_GREP}(?:[ABCm]?\d+)?|--(?:include|exclude|exclude-dir|colou?r|{_AROUND})=.+"
        r"|--(?:line-number|ignore-case|recursive|files-with-matches|count|word-regexp)"
        r"|--(?:only-matching|extended-regexp|fixed-strings|invert-match|colou?r)",
        rf"{_GREP}[ABCme]|--(?:include|exclude|exclude-dir|{_AROUND})",
        first=r"(?s:.*)",
        instead=rf"{_GREP}e",
    ),
    "head": _Reader(r"-[qvnc]?\d+|-[qv]|--(?:lines|bytes)=-?\d+", "-[nc]"),
    "ls": _Reader(r"-[1aAhlRrStdFgGinopsuUXBCxmNQ]+|--color(?:=\w+)?|--group-directories-first"),
    "nl": _Reader(r"-ba"),
    "pwd": _Reader(r"-[LP]", others="none"),
    "rg": _Reader(
        rf"(?!-$){_RG}(?:[ABCm]?\d+)?|-[gt].+|--(?:i?glob|type|type-not|colors?|sort|{_AROUND})=.+"
        r"|--(?:files|hidden|no-ignore|no-ignore-vcs|no-heading|heading|line-number|ignore-case)"
        r"|--(?:smart-case|count|count-matches|files-with(?:out)?-match(?:es)?|multiline|trim)"
        r"|--(?:word-regexp|fixed-strings|json|stats|column|vimgrep|only-matching|type-list)"
        r"|--(?:no-filename|with-filename|invert-match|no-line-number|pcre2|no-messages)"
        r"|--max-depth=\d+",
        rf"{_RG}[ABCmegtTrd]|--(?:i?glob|type|type-not|max-depth|color|sort|{_AROUND})",
        first=r"(?s:.*)",
        instead=rf"{_RG}e|--files|--type-list",
    ),
    "sed": _Reader(r"-n", first=r"(?:(?:\d+(?:,(?:\d+|\$))?|\$)p;?)+"),
    "sort": _Reader(r"-[bdfghiMnRrsuVz]+|-[kt].+", "-[kt]"),
    "stat": _Reader(r"--(?:format|printf)=.*", "-c"),
    "tail": _Reader(r"-[qvnc]?\d+|-[qv]|--(?:lines|bytes)=\+?\d+", "-[nc]"),
    "tr": _Reader(r"-[cdst]+", others="words"),
    "tree": _Reader(r"-[adfhipsugCDFrt]+|-L\d+|--(?:gitignore|dirsfirst|noreport)", "-[LIP]"),
    "uniq": _Reader(r"-[cdiuD]+", others="none"),
    "wc": _Reader(r"-[lwcmL]+"),
    "which": _Reader(others="words"),
}
_READERS_OF_GIT = {
    "branch": _Reader(
        r"-[arv]+|--(?:all|remotes|list|verbose|show-current|no-color|no-merged|merged|column)"
        r"|--(?:color|sort|format)=.+",
        others="none",
    ),
    "diff": _Reader(rf"{_DIFF}|--cached|--staged|--merge-base"),
    "log": _Reader(rf"{_DIFF}|{_LOG}", r"-[nSG]|--(?:author|grep|since|until|after|before)"),
    "show": _Reader(rf"{_DIFF}|{_LOG}"),
    "status": _Reader(
        r"-[sbvz]+|-u(?:no|normal|all)?|--(?:short|branch|long|show-stash|no-renames)"
        r"|--porcelain(?:=v[12])?|--(?:untracked-files|ignored)(?:=\w+)?"
    ),
}


def only_reads(command: str, directory: Path, roots: Sequence[Path], path: str) -> bool:
    """Whether a command that runs in a directory only reads there or in another of the `roots`.

    `roots` are real directories, of which the first is the workspace; `path` is the variable PATH.
    The files of the repository and links decide as they are now.
    """
    programs = pipelines_of(command)
    return programs is not None and all(
        _only_reads(words, directory, roots, path) for words in programs
    )


def _only_reads(words: Sequence[Word], directory: Path, roots: Sequence[Path], path: str) -> bool:
    name, *arguments = words
    reader = _READERS.get(name.text)
    if name.text == "git":
        if arguments and arguments[0].text == "--no-pager":
            del arguments[0]
        reader = _READERS_OF_GIT.get(arguments.pop(0).text) if arguments else None
    if reader is None or is_program_of(roots, name.text, path):
        return False
    if not _are_allowed(reader, arguments, directory, roots):
        return False
    return name.text != "git" or starts_no_programs(directory, roots[0])


def _are_allowed(
    reader: _Reader, arguments: Sequence[Word], directory: Path, roots: Sequence[Path]
) -> bool:
    """Whether a reader may get these arguments."""
    operands: list[Word] = []
    has_first = not reader.first
    words = iter(arguments)
    for word in words:
        if word.text == "--":
            operands += words
            break
        has_first |= bool(re.fullmatch(reader.instead, word.text))
        if re.fullmatch(reader.valued, word.text):
            value = next(words, None)
            if value is not None and re.match(r"-(?!\d)", value.text):
                return False
        elif (word.text.startswith("-") and word.text != "-") or word.text == "!":
            if not re.fullmatch(reader.options, word.text):
                return False
        else:
            operands.append(word)
    if operands and not has_first and not re.fullmatch(reader.first, operands.pop(0).text):
        return False
    if operands and reader.others == "none":
        return False
    # A pattern may become several words, so that its files take the places of others.
    files = [word for word in arguments if word.pattern and not word.text.startswith("-")]
    files += operands if reader.others == "files" else []
    try:
        paths = {path for word in files for path in word.paths(directory)} - {"-"}
    except ValueError:
        return False
    return all(any(is_in(path, root, directory) for root in roots) for path in paths)
