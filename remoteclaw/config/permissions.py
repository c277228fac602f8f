"""Permissions: what an agent's CLI may do without approval.

The CLIs ask, each in its own way, and their runtimes say what is asked for as an `Intent`.
`decide()` answers for all of them, by the agent's `permissions` and its rules in `allow`.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remoteclaw.events import Intent, PermissionEvent
from remoteclaw.messages import OWN_SERVER
from remoteclaw.protocols import AgentSpec

#: Forms of rules, for people.
_FORMS = (
    "Bash, Bash(COMMAND), Bash(COMMAND:*), Read, Read(PATH), Edit, Edit(PATH), WebFetch, "
    "WebFetch(domain:NAME), WebSearch and mcp__SERVER__TOOL"
)
_RULE = re.compile(r"(Bash|Edit|Write|Read|WebFetch)\((.+)\)", re.DOTALL)
_PLAIN = re.compile(r"Bash|Edit|Write|Read|WebFetch|WebSearch|mcp__[\w.-]+")
_DOMAIN = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*", re.IGNORECASE)
#: An address that every program reads alike: no login, no backslash, no control character.
_URL = re.compile(rf"https?://({_DOMAIN.pattern})(:\d+)?([/?#][^\x00-\x20\\]*)?", re.IGNORECASE)
#: Characters by which a command does more than start one program with arguments.
_OPERATORS = frozenset(";&|<>()$`")
#: Names that are changed by a rule alone: by them, git, a shell or an agent CLI starts programs. A
#: directory with a HEAD is a repository to git.
_GUARDED = frozenset(
    (
        *(".git", ".gitconfig", ".gitmodules", "head", ".husky", ".ssh", ".envrc", ".direnv"),
        *(".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"),
        *(".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc"),
        *(".claude", ".claude.json", ".mcp.json", ".codex", ".gemini", ".agents"),
        *(".opencode", "opencode.json", "opencode.jsonc", ".vscode", ".idea"),
    )
)
#: The setting that allows a branch more than reading.
BRANCHES = 'branches = "auto"'
#: The setting that allows changes of files in the workspace.
EDITS = 'permissions = "edits"'
#: The longest rule that a refusal proposes, in characters.
MAX_PROPOSED = 200


Verdict = Literal["allow", "refuse", "ask"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision about one request."""

    verdict: Verdict
    """With `ask`, a person decides, where one can be asked."""
    remedy: str = ""
    """A setting of the agent that would allow it, as it stands in the configuration."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `allow`, in the form that claude's own settings have."""

    tool: str
    of: str = ""
    """A command, path or domain; with nothing, the rule holds for every use of the tool."""
    is_wide: bool = False
    """Whether it is the beginning of commands, or a directory with all that is in it."""

    @property
    def kind(self) -> str:
        """What a CLI has to say of requests for it to have an effect: see `Capabilities`."""
        if self.tool.startswith("mcp__"):
            return "mcp"
        return "WebFetch(domain)" if self.tool == "WebFetch" and self.of else self.tool

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Return the rule that a text means; raises ValueError for any other text."""
        if _PLAIN.fullmatch(text):
            return cls("Edit" if text == "Write" else text)
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(f"has {text!r}, which is no rule: there are {_FORMS}")
        tool, of = found.groups()
        match tool:
            case "Bash":
                return cls._of_command(text, of)
            case "WebFetch":
                scheme, _, domain = of.partition(":")
                if scheme != "domain" or not _DOMAIN.fullmatch(domain):
                    raise ValueError(f"has {text!r}: write WebFetch(domain:NAME), without a *")
                return cls(tool, domain.lower())
        path = of.removesuffix("/**") or "."
        if path == "/" or set("*?[]{}!") & set(path):
            why = "a path is a file, or a directory with /** behind it"
            raise ValueError(f"has {text!r}: {why}; for every file, write {tool}")
        return cls("Edit" if tool == "Write" else tool, path, is_wide=path != of)

    @classmethod
    def _of_command(cls, text: str, of: str) -> "Rule":
        command = of.removesuffix(":*").strip()
        is_wide = of.endswith(":*")
        if not command or "*" in command:
            raise ValueError(f"has {text!r}: a * stands only in :* behind a command's first words")
        if is_wide and not _is_simple(command):
            why = "the first words of a command have no operators of a shell"
            raise ValueError(f"has {text!r}: {why}, such as ; && | > or $")
        return cls("Bash", command, is_wide)

    def allows(self, intent: Intent, path: str, workspace: Path) -> bool:
        """Whether the rule allows an intent, with one of its paths."""
        if self.tool.startswith("mcp__"):
            return intent.tool == self.tool or intent.tool.startswith(f"{self.tool}__")
        if self.tool != intent.tool:
            return False
        if not self.of:
            return True
        match self.tool:
            case "Bash":
                return self._allows_command(intent.command.strip()) and (
                    not intent.cwd or _is_in(intent.cwd, workspace, workspace)
                )
            case "WebFetch":
                address = _URL.fullmatch(intent.url)
                return address is not None and address[1].lower() == self.of
        base = _path_of(self.of, workspace)
        if self.is_wide:
            but = _GUARDED if self.tool == "Edit" else frozenset()
            return _is_in(path, base, workspace, but=but)
        return _places(path, workspace) == {base}

    def _allows_command(self, command: str) -> bool:
        if not self.is_wide:
            return command == self.of
        return (command == self.of or command.startswith(f"{self.of} ")) and _is_simple(command)


def decide(event: PermissionEvent, spec: AgentSpec, files: Path) -> Ruling:
    """Return whether an agent of this spec may do what it asks for.

    `files` is the directory of what people send, where it may read. The answer depends on nothing
    else, but for the symbolic links that are there: a path counts as the file that it leads to.
    """
    if event.questions:
        return Ruling("ask")  # no setting answers in a person's name
    if event.plan is not None:  # nor approves in it
        return Ruling("ask", EDITS if spec.permissions == "ask" else "")
    if spec.only_reads and not _reads(event):
        return Ruling("refuse", BRANCHES)
    if spec.conduct == "auto":
        return Ruling("allow")
    if spec.conduct == "deny":
        return Ruling("refuse")
    # The operator chose those servers, and so allowed their tools.
    if event.server in (OWN_SERVER, *spec.mcp_servers):
        return Ruling("allow")
    intent = event.intent
    if intent is None:
        return Ruling("ask", 'permissions = "auto"')
    workspace = Path(os.path.realpath(spec.workspace))
    if _is_allowed(intent, map(Rule.parse, spec.allow), workspace):
        return Ruling("allow")
    is_ordinary = bool(intent.paths)
    match intent.tool:
        case "Read":
            roots = (workspace, Path(os.path.realpath(files)))
            for path in intent.paths:
                is_ordinary &= any(_is_in(path, root, workspace) for root in roots)
            if is_ordinary:
                return Ruling("allow")
        case "Edit":
            for path in intent.paths:
                is_ordinary &= _is_in(path, workspace, workspace, but=_GUARDED)
            if is_ordinary:
                verdict: Verdict = "allow" if spec.conduct == "edits" else "ask"
                return Ruling(verdict, EDITS)
    return Ruling("ask", _remedy(intent, workspace))


def _reads(event: PermissionEvent) -> bool:
    """Whether what is asked for only reads; of RemoteClaw's own tools, their calls decide."""
    if event.server == OWN_SERVER:
        return True
    return event.intent is not None and event.intent.tool in ("Read", "WebFetch", "WebSearch")


def _is_allowed(intent: Intent, rules: Iterable[Rule], workspace: Path) -> bool:
    given = list(rules)
    return all(
        any(rule.allows(intent, path, workspace) for rule in given)
        for path in intent.paths or ("",)
    )


def _is_simple(command: str) -> bool:
    """Whether a shell starts one program for it, and does nothing else."""
    return not _OPERATORS & set(command) and command.isprintable()


def _path_of(written: str, workspace: Path) -> Path:
    """Return the file that a rule names: //PATH from the root, ~/PATH, else in the workspace."""
    if written == "~" or written.startswith("~/"):
        path = Path(written).expanduser()
    elif written.startswith("//"):
        path = Path(written[1:])
    else:
        path = workspace / written.removeprefix("/")
    return Path(os.path.realpath(path))


def _places(path: str, workspace: Path) -> set[Path]:
    """Return the files that a path may lead to; none if CLIs may understand it differently.

    Some take `..` out before they follow links, others behind that.
    """
    if not path or path.startswith("~") or path != path.strip() or not path.isprintable():
        return set()
    joined = os.path.join(workspace, path)
    return {Path(os.path.realpath(way)) for way in (joined, os.path.normpath(joined))}


def _is_in(
    path: str, directory: Path, workspace: Path, *, but: frozenset[str] = frozenset()
) -> bool:
    """Whether a path leads into a directory, and through none of some names there."""
    places = _places(path, workspace)
    return bool(places) and all(
        place.is_relative_to(directory)
        and not but & {part.casefold() for part in place.relative_to(directory).parts}
        for place in places
    )


def _remedy(intent: Intent, workspace: Path) -> str:
    """Return the setting that would allow it; a rule that is too long to be read is not written."""
    rules = _proposed(intent, workspace)
    try:
        is_enough = _is_allowed(intent, map(Rule.parse, rules), workspace)
    except ValueError:
        is_enough = False
    listed = ", ".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
    if is_enough and len(listed) <= MAX_PROPOSED and listed.isprintable() and "`" not in listed:
        return f"allow = [{listed}]"
    return f'allow = ["{intent.tool}(…)"]'


def _proposed(intent: Intent, workspace: Path) -> Sequence[str]:
    match intent.tool:
        case "Bash" if intent.cwd and not _is_in(intent.cwd, workspace, workspace):
            return ["Bash"]
        case "Bash":
            return [f"Bash({intent.command.strip()})"]
        case "Edit" | "Read":
            places = [place for path in intent.paths for place in _places(path, workspace)]
            return [f"{intent.tool}(/{place})" for place in dict.fromkeys(places)]
        case "WebFetch" if address := _URL.fullmatch(intent.url):
            return [f"WebFetch(domain:{address[1].lower()})"]
    return [intent.tool]
