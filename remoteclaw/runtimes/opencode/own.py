"""The user's own configuration of opencode, as far as it concerns permissions."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remoteclaw.runtimes.wire import commented_json, mapping, text

#: The variables with a configuration, with the path of one, and with permissions.
CONTENT, FILE, DIRECTORY = "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"
PERMISSION = "OPENCODE_PERMISSION"
#: The agents of opencode itself, of which the first ones answer people.
_MAIN = ("build", "plan")
_SUBAGENTS = ("general", "explore")
#: Matches the file of an agent that people can talk with, and one that may allow something.
_PRIMARY = re.compile(r"^mode:\s*[\"']?primary", re.MULTILINE)
_ALLOWS = re.compile(r"allow|true", re.IGNORECASE)
#: The directory of the machine's configuration.
_MANAGED = "/etc/opencode"


class OwnConfig:
    """All files and variables from which opencode composes its configuration, without plugins."""

    def __init__(self, env: Mapping[str, str], workspace: str, *, is_trusted: bool) -> None:
        """The configuration of a workspace is included only if `is_trusted`."""
        home = Path(env.get("HOME") or "~").expanduser()
        base = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "opencode")
        self._directories = [base, home / ".opencode"]
        files = [base / "config.json", *_files(base)]
        if is_trusted:
            for directory in reversed((Path(workspace), *Path(workspace).parents)):
                files += _files(directory)
                self._directories.append(directory / ".opencode")
        self._directories += [Path(env[DIRECTORY])] if env.get(DIRECTORY) else []
        for directory in (*self._directories, Path(_MANAGED)):
            files += _files(directory)
        files += [Path(env[FILE])] if env.get(FILE) else []
        contents = [*filter(None, map(_read, files)), env.get(CONTENT, "")]
        contents.append(f'{{"permission": {env.get(PERMISSION) or "{}"}}}')
        self.parts: list[dict[str, Any]] = []
        """The configurations, the strongest last."""
        for content in filter(None, contents):
            with contextlib.suppress(ValueError):  # opencode doesn't start with it
                self.parts.append(commented_json(content))

    def agents(self) -> dict[str, bool]:
        """Return the names of all agents, and whether people can talk with the agent itself."""
        found = dict.fromkeys(_MAIN, True) | dict.fromkeys(_SUBAGENTS, False)
        for name, file in self._agent_files():
            found.setdefault(name, "mode" in file.parts[-2] or bool(_PRIMARY.search(_read(file))))
        for part in self.parts:
            for name, agent in mapping(part.get("agent")).items():
                is_main = mapping(agent).get("mode") == "primary"
                found[name] = found.get(name, False) or is_main
            found |= dict.fromkeys(mapping(part.get("mode")), True)
        for part in self.parts:
            if default := text(part.get("default_agent")):
                found[default] = True
        return found

    def strict_agents(self) -> set[str]:
        """Return the names of the agents whose file may refuse something, but allows nothing."""
        return {name for name, file in self._agent_files() if not _ALLOWS.search(_read(file))}

    def _agent_files(self) -> Iterator[tuple[str, Path]]:
        for directory in self._directories:
            for kind in ("agent", "agents", "mode", "modes"):
                for file in (directory / kind).rglob("*.md"):
                    yield str(file.relative_to(directory / kind).with_suffix("")), file

    def tools(self) -> list[str]:
        """Return patterns for the names of the user's own tools, which ask for no permission."""
        names = (file.stem for file in self.tool_files())
        return [pattern for name in names for pattern in (name, f"{name}_*")]

    def tool_files(self) -> list[Path]:
        """Return the files with the user's own tools."""
        return list(_scripts(self._directories, ("tool", "tools")))

    def plugins(self) -> list[str]:
        """Return the user's plugins: their files, or the names in a configuration."""
        files = map(str, _scripts(self._directories, ("plugin", "plugins")))
        named = (part.get("plugin") for part in self.parts)
        names = (str(each) for names in named if isinstance(names, list) for each in names)
        return list(dict.fromkeys((*files, *names)))

    def refusals(self, tool: str, agent: str) -> str | dict[str, str]:
        """Return what the user refuses an agent: "deny", or the patterns that are refused."""
        verdict: Any = ""
        of_agent = (mapping(mapping(part.get("agent")).get(agent)) for part in self.parts)
        for permission in (part.get("permission") for part in (*self.parts, *of_agent)):
            rules = {"*": permission} if isinstance(permission, str) else mapping(permission)
            for name, rule in rules.items():
                if fnmatchcase(tool, name):
                    verdict = rule
        if isinstance(verdict, dict):
            return {pattern: "deny" for pattern, rule in verdict.items() if rule == "deny"}
        return "deny" if verdict == "deny" else {}


def _files(directory: Path) -> list[Path]:
    return [directory / "opencode.json", directory / "opencode.jsonc"]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _scripts(directories: list[Path], kinds: tuple[str, ...]) -> Iterator[Path]:
    for directory in directories:
        for kind in kinds:
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(directory / kind)):
                    if name.endswith((".ts", ".js")):
                        yield directory / kind / name
