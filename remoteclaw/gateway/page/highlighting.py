"""Highlights code for the page: as HTML with classes for a few kinds of tokens, and for diffs.

The language is a model's word, and some grammars need quadratic time for odd texts. So only the
languages below are highlighted, a long block isn't, and what a block's time doesn't suffice for
stays plain.
"""

import functools
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String, _TokenType

#: The languages, by the names with which models begin a block; the other names are aliases of them.
LANGUAGES = frozenset(
    "bash c console cpp csharp css docker go graphql html ini java javascript json jsx kotlin lua "
    "make markdown nginx perl php powershell pycon python r ruby rust scss sql swift terraform "
    "toml tsx typescript xml yaml".split()
)
_ALIASES = {
    "c#": "csharp", "c++": "cpp", "cs": "csharp", "dockerfile": "docker",
    "golang": "go", "hcl": "terraform", "h": "c", "hpp": "cpp", "js": "javascript",
    "jsonc": "json", "kt": "kotlin", "makefile": "make", "md": "markdown", "mjs": "javascript",
    "ps1": "powershell", "py": "python", "python3": "python", "rb": "ruby", "rs": "rust",
    "sh": "bash", "shell": "bash", "shell-session": "console", "svg": "xml", "tf": "terraform",
    "ts": "typescript", "yml": "yaml", "zsh": "bash",
}  # fmt: skip
DIFFS = frozenset(("diff", "patch"))
#: A longer block, in characters, isn't highlighted: this is some 300 lines, and takes 10 ms.
MAX_CHARS = 12_000
#: Nor is a block with a longer line, in characters: one match within it would take seconds.
MAX_LINE_CHARS = 500
#: The time for one block, in milliseconds of this thread; only texts that were made for it need it.
MAX_MS = 40.0
#: The class of each kind of token: the style sheet gives it the colour.
_CLASSES = {
    Keyword: "k", Operator.Word: "k", Name.Tag: "k",
    String: "s",
    Number: "n", Keyword.Constant: "n",
    Comment: "c", Generic.Prompt: "c",
    Name.Function: "f", Name.Class: "f", Name.Decorator: "f", Name.Builtin: "f",
    Name.Attribute: "f", Generic.Heading: "f", Generic.Subheading: "f",
    Operator: "o",
}  # fmt: skip
#: The class of a line of a diff, by its first character.
_LINES = {"+": "added", "-": "removed", "@": "hunk"}


@functools.lru_cache(maxsize=128)
def code_html(language: str, text: str) -> str:
    """Return the HTML of a block of code: `span` elements with classes, and else only text.

    Cached, because a message that is being written is rendered again with each change.
    """
    name = language.lower()
    if name in DIFFS:
        return diff_html(text)
    name = _ALIASES.get(name, name)
    if name not in LANGUAGES or len(text) > MAX_CHARS:
        return escape(text)
    if max(map(len, text.split("\n"))) > MAX_LINE_CHARS:
        return escape(text)
    return "".join(_spans(_lexer(name), text))


def diff_html(text: str) -> str:
    """Return the HTML of a diff: each changed line is an element, with its sign."""
    pieces = []
    for line in text.splitlines(keepends=True):
        kind = _LINES.get(line[0])
        pieces.append(f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line))
    return "".join(pieces)


@functools.cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, startinline=True)  # PHP is highlighted also without `<?php`


def _spans(lexer: Lexer, text: str) -> Iterator[str]:
    at = 0
    for kind, tokens in groupby(_tokens(lexer, text), key=lambda token: token[0]):
        piece = "".join(token for _, token in tokens)
        if not text.startswith(piece, at):  # a grammar may give a part twice: Terraform's does
            break
        at += len(piece)
        yield f'<span class="{kind}">{escape(piece)}</span>' if kind else escape(piece)
    yield escape(text[at:])


def _tokens(lexer: Lexer, text: str) -> Iterator[tuple[str, str]]:
    """Yield tokens with their classes until the time is over."""
    until = time.thread_time() + MAX_MS / 1000
    # `get_tokens` would change line ends and blanks.
    for _, kind, token in lexer.get_tokens_unprocessed(text):
        yield _class_of(kind), token
        if time.thread_time() > until:
            return


@functools.cache
def _class_of(kind: _TokenType) -> str:
    while kind not in _CLASSES and kind.parent:
        kind = kind.parent
    return _CLASSES.get(kind, "")
