"""Codex's rules for commands: what the user's own allow runs unasked, and outside of the sandbox.

Codex writes such a rule itself when a person at its terminal allows a command for good. Neither an
approval policy nor any other setting of a thread outranks a rule.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.codex.thread import codex_home

#: The directory of the machine's configuration.
_SYSTEM = Path("/etc/codex")
#: The functions that make rules, of which one without a decision allows.
_MAKERS = ("prefix_rule", "network_rule")
_STRICT = ("prompt", "forbidden", "deny")
#: At most this many rules of a file are named.
_MAX_NAMED = 3


def allowing_rules(spec: AgentSpec) -> Iterator[str]:
    """Yield the files with rules that allow something, each with its rules, as parts of sentences.

    A file that can't be parsed counts: it may be written for another version of codex. So do files
    above a trusted workspace, although codex reads none above its repository.
    """
    workspace = Path(spec.workspace)
    trusted = (workspace, *workspace.parents) if spec.trust_workspace else ()
    directories = (codex_home(spec.env), _SYSTEM, *(each / ".codex" for each in trusted))
    for directory in dict.fromkeys(directories):
        for file in sorted((directory / "rules").glob("*.rules")):
            try:
                allowed = list(_allowed(ast.parse(file.read_text(encoding="utf-8"))))
            except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
                allowed = ["unknown commands"]
            if allowed:
                more = " and more" if len(allowed) > _MAX_NAMED else ""
                yield f"{file} allows {', '.join(allowed[:_MAX_NAMED])}{more}"


def _allowed(tree: ast.Module) -> Iterator[str]:
    """Yield what the rules allow. The language, Starlark, is a part of Python."""
    strict = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        arguments = {word.arg: word.value for word in node.keywords}
        decision = arguments.get("decision")
        if isinstance(decision, ast.Constant) and decision.value in _STRICT:
            strict.add(node.func)
        elif node.func.id in _MAKERS:
            strict.add(node.func)
            about = arguments.get("pattern") or arguments.get("host")
            yield f"`{_words(about)}`"
    # Whatever else is done with the functions could make a rule.
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _MAKERS and node not in strict:
            yield "unknown commands"


def _words(node: ast.expr | None) -> str:
    """Return the beginning of the commands that a rule is about."""
    match node:
        case ast.List(elts=elements):
            return " ".join(
                "|".join(_words(each) for each in element.elts)
                if isinstance(element, ast.List)
                else _words(element)
                for element in elements
            )
        case ast.Constant(value=str(word)):
            return word
    return "…"
