"""Gemini's own settings: of the user, of the machine, and of a trusted workspace."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.gemini.chats import home_directories
from remoteclaw.runtimes.wire import commented_json

#: The directory of system-wide settings and policies on Linux.
SYSTEM = Path("/etc/gemini-cli")
#: The variable with another file of system-wide settings.
_SYSTEM_FILE = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"


def directories_of(spec: AgentSpec) -> list[Path]:
    """Return the directories with settings and policies: the user's, and a trusted workspace's."""
    trusted = [Path(spec.workspace)] if spec.trust_workspace else []
    return [each / ".gemini" for each in (*home_directories(spec.env), *trusted)]


def settings_of(
    directories: Iterable[Path], env: Mapping[str, str]
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the files of settings in directories and of the machine, with their contents.

    Gemini doesn't start with settings that it can't parse, so those are left out.
    """
    files = [directory / "settings.json" for directory in directories]
    files += [Path(env.get(_SYSTEM_FILE) or SYSTEM / "settings.json")]
    for file in (*files, SYSTEM / "system-defaults.json"):
        try:
            yield file, commented_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
