"""Gemini's policy for agents that need permissions: it outranks the user's own, and gemini's.

Gemini allows tools and commands by its own lists, by the user's policies, by settings such as
`tools.allowed`, and by the trust of an MCP server. Policies of the tier "admin" outrank them all.
So ours has gemini ask for every tool but those that only read in the workspace. The user's own
policies are copied in front of it, so that their refusals stay; what they allow is asked for.
"""

import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.host.files import write_new
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.gemini.settings import SYSTEM, directories_of, settings_of
from remoteclaw.runtimes.wire import mapping, mappings, text, toml

#: The tools that read only in the workspace, search the web, or change nothing but notes of
#: gemini's own. A subagent has the same rules, and nobody is asked for it.
_HARMLESS = (
    *("codebase_investigator", "cli_help", "complete_task", "get_internal_docs", "glob"),
    *("google_web_search", "grep_search", "invoke_agent", "list_background_processes"),
    *("list_directory", "read_background_output", "read_file", "read_many_files"),
    *("tracker_add_dependency", "tracker_create_task", "tracker_get_task", "tracker_list_tasks"),
    *("tracker_update_task", "tracker_visualize", "update_topic", "write_todos"),
)
#: Matches the arguments of each call. To a rule with a pattern, gemini does not apply its own list
#: of harmless commands, which reads elsewhere: `cat {a,/etc/passwd}`.
_ALL = "."
#: Matches patterns of `glob` that may lead out of the workspace.
_LEADS_OUT = r'"pattern":"(?:/|.*(?:\.\.|[{(,|]/))'
_RULES: tuple[dict[str, Any], ...] = (
    {"toolName": "*", "decision": "ask_user", "priority": 0},
    {"toolName": list(_HARMLESS), "decision": "allow", "priority": 1},
    {"toolName": "glob", "argsPattern": _LEADS_OUT, "decision": "ask_user", "priority": 2},
    {"toolName": "run_shell_command", "argsPattern": _ALL, "decision": "ask_user", "priority": 2},
)
#: The lowest priority of the user's rules, above all of ours.
_FIRST = 3
#: Gemini's priorities for the settings `tools.exclude` and `tools.confirmationRequired`.
_EXCLUDED, _CONFIRMED = 400, 350
#: The fields with which a rule is about some arguments only.
_PATTERNS = ("argsPattern", "commandPrefix", "commandRegex")

log = logging.getLogger(__name__)


def policy_options(spec: AgentSpec, run_dir: Path) -> list[str]:
    """Write the policies of an agent that needs permissions; return the options that name them."""
    if not spec.is_limited:
        return []
    directory = run_dir / "policies"
    directory.mkdir(mode=0o700)
    # Gemini ignores a file with an error. So each of the user's files has a file of its own.
    for number, rules in enumerate((list(_RULES), *_own_rules(spec))):
        tables = ("".join(["[[rule]]\n", *_lines(rule)]) for rule in rules)
        write_new(directory / f"{number}.toml", "\n".join(tables).encode("utf-8", "replace"))
    return ["--admin-policy", str(directory)]


def system_policies() -> list[Path]:
    """Return the machine's own policies: if there are any, gemini ignores ours."""
    return sorted((SYSTEM / "policies").glob("*.toml"))


def _own_rules(spec: AgentSpec) -> Iterator[list[dict[str, Any]]]:
    """Yield the rules of each of the user's files, without the allowance of what they allow."""
    directories = directories_of(spec)
    settings = [content for _, content in settings_of(directories, spec.env)]
    for tools in (mapping(each.get("tools")) for each in settings):
        yield [
            {"toolName": name, "decision": decision, "priority": priority}
            for key, decision, priority in (
                ("exclude", "deny", _EXCLUDED),
                ("confirmationRequired", "ask_user", _CONFIRMED),
            )
            for name in _texts(tools.get(key))
        ]
    for file in _own_files(directories, settings):
        try:
            rules = mappings(tomllib.loads(file.read_text(encoding="utf-8")).get("rule"))
        except (OSError, ValueError) as error:
            log.warning("gemini: the policy %s is not read: %s", file, error)
            continue
        yield [_limited(rule) for rule in rules]


def _own_files(directories: list[Path], settings: list[dict[str, Any]]) -> Iterator[Path]:
    """Yield the files with the user's policies."""
    named = [
        path
        for each in settings
        for key in ("policyPaths", "adminPolicyPaths")
        for path in _texts(each.get(key))
    ]
    paths = [*(directory / "policies" for directory in directories), *map(Path, named)]
    for path in dict.fromkeys(map(Path.expanduser, paths)):
        yield from [path] if path.is_file() else sorted(path.glob("*.toml"))


def _limited(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule of the user that allows nothing, with a priority above those of our rules."""
    priority = rule.get("priority")
    limited = {**rule, "priority": max(_FIRST, priority) if isinstance(priority, int) else _FIRST}
    if rule.get("decision") != "deny":
        limited["decision"] = "ask_user"
        if not any(rule.get(name) for name in _PATTERNS):
            limited["argsPattern"] = _ALL
    return limited


def _lines(rule: Mapping[str, Any]) -> Iterator[str]:
    return (f"{toml(name)} = {toml(value)}\n" for name, value in rule.items())


def _texts(value: Any) -> list[str]:
    return [text(each) for each in value if text(each)] if isinstance(value, list) else []
