"""Permissions: what an agent's CLI may do without approval.

Each CLI asks for permissions in its own way; its runtime translates a request into an `Intent`.
`decide()` answers the requests of all CLIs, by the agent's `permissions` and the rules in `allow`.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remoteclaw.config.permissions.guarded import is_guarded
from remoteclaw.config.permissions.plain_words import are_plain
from remoteclaw.config.permissions.reading import only_reads
from remoteclaw.config.permissions.real_paths import is_in, real_paths
from remoteclaw.events import Intent, PermissionEvent
from remoteclaw.messages import OWN_SERVER
from remoteclaw.protocols import AgentSpec

#: The forms of rules, in an error about an invalid one.
_FORMS = (
    "Bash, Bash(COMMAND), Bash(COMMAND:*), Read, Read(PATH), Edit, Edit(PATH), WebFetch, "
    "WebFetch(domain:NAME), WebSearch and mcp__SERVER__TOOL"
)
_RULE = re.compile(r"(Bash|Edit|Write|Read|WebFetch)\((.+)\)", re.DOTALL)
_PLAIN = re.compile(r"Bash|Edit|Write|Read|WebFetch|WebSearch|mcp__[\w.-]+")
_DOMAIN = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*", re.IGNORECASE)
#: An address that all programs parse alike: without a login, a backslash or a control character.
_URL = re.compile(rf"https?://({_DOMAIN.pattern})(:\d+)?([/?#][^\x00-\x20\\]*)?", re.IGNORECASE)
#: Characters with which a shell command does more than start one program with arguments.
_OPERATORS = frozenset(";&|<>()$`")
#: The CLIs whose agents may read in the workspace even with `deny`, with their tools and with
#: commands: claude has no other tool to search there, and gemini would run such commands itself.
_READS_WITH_DENY = ("claude", "gemini")
#: The setting that allows a branch to do more than reading.
ALLOW_IN_BRANCHES = 'branches = "auto"'
#: The setting that allows changes of files in the workspace.
EDITS = 'permissions = "edits"'
#: The maximum length, in characters, of the rules that a refusal proposes: people read them.
MAX_PROPOSED_CHARS = 200


PermissionVerdict = Literal["allow", "refuse", "ask"]


@dataclass(frozen=True, slots=True)
class PermissionRuling:
    """The decision about one permission request."""

    verdict: PermissionVerdict
    """`ask` leaves the decision to a person; it means a refusal if nobody can be asked."""
    remedy: str = ""
    """The setting of the agent that would allow the request, in TOML; empty if there is none."""


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """An entry of `allow`, in the syntax of claude's own settings."""

    tool: str
    target: str = ""
    """The command, path or domain that the rule allows; empty for every use of the tool."""
    is_prefix: bool = False
    """Whether `target` is the beginning of the allowed commands, or the directory of the allowed
    files."""

    @property
    def kind(self) -> str:
        """The name, in `Capabilities`, of what a CLI must report for the rule to have an effect."""
        if self.tool.startswith("mcp__"):
            return "mcp"
        return "WebFetch(domain)" if self.tool == "WebFetch" and self.target else self.tool

    @classmethod
    def parse(cls, text: str) -> "PermissionRule":
        """Return the rule in a text; raises ValueError if the text is no valid rule."""
        if _PLAIN.fullmatch(text):
            return cls("Edit" if text == "Write" else text)
        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f"has {text!r}, which is no rule: write one of {_FORMS}")
        tool, target = match.groups()
        match tool:
            case "Bash":
                return cls._of_command(text, target)
            case "WebFetch":
                scheme, _, domain = target.partition(":")
                if scheme != "domain" or not _DOMAIN.fullmatch(domain):
                    raise ValueError(f"has {text!r}: write WebFetch(domain:NAME), without a *")
                return cls(tool, domain.lower())
        path = target.removesuffix("/**") or "."
        if path == "/" or set("*?[]{}!") & set(path):
            why = "a path is a file, or a directory followed by /**"
            raise ValueError(f"has {text!r}: {why}; for every file, write {tool}")
        return cls("Edit" if tool == "Write" else tool, path, is_prefix=path != target)

    @classmethod
    def _of_command(cls, text: str, target: str) -> "PermissionRule":
        command = target.removesuffix(":*").strip()
        is_prefix = target.endswith(":*")
        if not command or "*" in command:
            raise ValueError(f"has {text!r}: a * is valid only in :* after a command's first words")
        if is_prefix and not _is_simple(command):
            why = "the first words of a command have no operators of a shell"
            raise ValueError(f"has {text!r}: {why}, such as ; && | > or $")
        return cls("Bash", command, is_prefix)

    def allows(self, intent: Intent, path: str, workspace: Path) -> bool:
        """Whether the rule allows an intent for `path`, one of its paths; empty if it has none."""
        if self.tool.startswith("mcp__"):
            return intent.tool == self.tool or intent.tool.startswith(f"{self.tool}__")
        if self.tool != intent.tool:
            return False
        if not self.target:
            return True
        match self.tool:
            case "Bash":
                return _is_within(intent, workspace) and self._allows_command(
                    intent.command.strip(), workspace / (intent.cwd or "."), workspace
                )
            case "WebFetch":
                address = _URL.fullmatch(intent.url)
                return address is not None and address[1].lower() == self.target
        base = _rule_path(self.target, workspace)
        if self.is_prefix:
            may = _may_edit if self.tool == "Edit" else is_in
            return may(path, base, workspace)
        return real_paths(path, workspace) == {base}

    def _allows_command(self, command: str, directory: Path, workspace: Path) -> bool:
        if not self.is_prefix:
            return command == self.target
        begins_so = command == self.target or command.startswith(f"{self.target} ")
        return (
            begins_so
            and _is_simple(command)
            and are_plain(command[len(self.target) :], directory, workspace)
        )


def decide(event: PermissionEvent, spec: AgentSpec, files: Path) -> PermissionRuling:
    """Return whether an agent with the settings `spec` may do what the event asks for.

    `files` is the directory of the files that people have sent, which the agent may read. Besides
    the arguments, the result depends only on symbolic links: a path counts as the file that it
    leads to.
    """
    if event.questions:
        return PermissionRuling("ask")  # no setting answers a question in a person's name
    if event.plan is not None:  # or approves a plan
        return PermissionRuling("ask", EDITS if spec.permissions == "ask" else "")
    intent = event.intent
    workspace = Path(os.path.realpath(spec.workspace))
    is_reading = intent is not None and _only_reads(intent, spec, (workspace, files))
    if spec.only_reads and not is_reading and not _reads(event):
        return PermissionRuling("refuse", ALLOW_IN_BRANCHES)
    if spec.conduct == "auto":
        return PermissionRuling("allow")
    if spec.conduct == "deny":
        is_allowed = is_reading and spec.runtime in _READS_WITH_DENY
        return PermissionRuling("allow" if is_allowed else "refuse")
    # The operator has allowed the tools of these servers by configuring them.
    if is_reading or event.server in (OWN_SERVER, *spec.mcp_servers):
        return PermissionRuling("allow")
    if intent is None:
        return PermissionRuling("ask", 'permissions = "auto"')
    if _is_allowed(intent, map(PermissionRule.parse, spec.allow), workspace):
        return PermissionRuling("allow")
    is_ordinary = intent.tool == "Edit" and bool(intent.paths)
    for path in intent.paths:
        is_ordinary &= _may_edit(path, workspace, workspace)
    if is_ordinary:
        verdict: PermissionVerdict = "allow" if spec.conduct == "edits" else "ask"
        return PermissionRuling(verdict, EDITS)
    return PermissionRuling("ask", _remedy(intent, workspace))


def _only_reads(intent: Intent, spec: AgentSpec, places: Sequence[Path]) -> bool:
    """Whether an intent only reads in the workspace, the first of the places, or in another one."""
    roots = [Path(os.path.realpath(place)) for place in places]
    match intent.tool:
        case "Read":
            return bool(intent.paths) and all(
                any(is_in(path, root, roots[0]) for root in roots) for path in intent.paths
            )
        case "Bash" if _is_within(intent, roots[0]):
            directory = Path(os.path.realpath(roots[0] / (intent.cwd or ".")))
            path = spec.env.get("PATH", os.defpath)
            return only_reads(intent.command.strip(" "), directory, roots, path)
    return False


def _reads(event: PermissionEvent) -> bool:
    """Whether a request only reads.

    RemoteClaw's own tools count as reading here, because each call of one is checked by itself.
    """
    if event.server == OWN_SERVER:
        return True
    return event.intent is not None and event.intent.tool in ("Read", "WebFetch", "WebSearch")


def _may_edit(path: str, directory: Path, workspace: Path) -> bool:
    """Whether a permission for everything in a directory allows a change of a path."""
    return is_in(path, directory, workspace) and not any(
        is_guarded(file, directory) for file in real_paths(path, workspace)
    )


def _is_allowed(intent: Intent, rules: Iterable[PermissionRule], workspace: Path) -> bool:
    """Whether the rules allow an intent: each of its paths needs a rule that allows it."""
    rules = list(rules)
    return all(
        any(rule.allows(intent, path, workspace) for rule in rules)
        for path in intent.paths or ("",)
    )


def _is_within(intent: Intent, workspace: Path) -> bool:
    """Whether a command runs in the workspace, as far as is known."""
    return intent.cwd is not None and is_in(intent.cwd or ".", workspace, workspace)


def _is_simple(command: str) -> bool:
    """Whether a shell only starts one program for a command."""
    return not _OPERATORS & set(command) and command.isprintable()


def _rule_path(written: str, workspace: Path) -> Path:
    """Return the file of a rule's path: //PATH from the root, ~/PATH, else in the workspace."""
    if written == "~" or written.startswith("~/"):
        path = Path(written).expanduser()
    elif written.startswith("//"):
        path = Path(written[1:])
    else:
        path = workspace / written.removeprefix("/")
    return Path(os.path.realpath(path))


def _remedy(intent: Intent, workspace: Path) -> str:
    """Return the setting that would allow an intent; it leaves out rules that are unreadable."""
    rules = _proposed(intent, workspace)
    try:
        is_enough = _is_allowed(intent, map(PermissionRule.parse, rules), workspace)
    except ValueError:
        is_enough = False
    listed = ", ".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
    is_readable = listed.isprintable() and "`" not in listed
    if is_enough and len(listed) <= MAX_PROPOSED_CHARS and is_readable:
        return f"allow = [{listed}]"
    return f'allow = ["{intent.tool}(…)"]'


def _proposed(intent: Intent, workspace: Path) -> Sequence[str]:
    """Return the narrowest rules that would allow an intent."""
    match intent.tool:
        case "Bash" if not _is_within(intent, workspace):
            return ["Bash"]
        case "Bash":
            return [f"Bash({intent.command.strip()})"]
        case "Edit" | "Read":
            paths = [each for path in intent.paths for each in real_paths(path, workspace)]
            return [f"{intent.tool}(/{path})" for path in dict.fromkeys(paths)]
        case "WebFetch" if address := _URL.fullmatch(intent.url):
            return [f"WebFetch(domain:{address[1].lower()})"]
    return [intent.tool]
