"""The words that a rule such as `Bash(npm test:*)` allows after the first ones of a command.

A rule with `:*` allows a program, and not every file and every program that its options could name.
What a program does with plain words, nobody but the person who writes the rule can know.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from remoteclaw.config.permissions.real_paths import is_in
from remoteclaw.config.permissions.shell_words import pipelines_of

#: Options that have a program, or code, as their value, in programs of all kinds.
_STARTERS = (
    *("agentlib", "agentpath", "checkpoint-action", "cmd", "command", "compress-program"),
    *("config", "config-env", "editor", "eval", "exec", "exec-batch", "exec-path", "execdir"),
    *("experimental-loader", "ext-diff", "git-dir", "hooks-path", "hostname-bin", "import"),
    *("info-script", "init-command", "init-file", "javaagent", "launcher", "loader"),
    *("new-volume-script", "node-options", "ok", "okdir", "open-files-in-pager", "pager"),
    *("paginate", "plugin", "post-command", "pre", "pre-command", "prefix", "preload"),
    *("program", "rcfile", "receive-pack", "require", "rsh", "rsync-path", "script-shell"),
    *("shell", "textconv", "to-command", "upload-pack", "use-compress-program", "work-tree"),
    "wrapper",
)
#: Such options of one letter, also after others and with the code in the same word: sh -c, git -c,
#: node -e, perl -ne.
_SHORT = re.compile(r"-[A-Za-z]{0,2}[ceE](?:[^A-Za-z=].*)?|-[ceE].*[^\w=.-].*", re.DOTALL)
#: Options that many programs have, and that begin like one of these.
_HARMLESS = ("check",)
_URL = re.compile(r"(?:^|(?<=[=,]))https?://[^\s,]*")


def are_plain(words: str, directory: Path, workspace: Path) -> bool:
    """Whether the further words of a command name nothing outside of the workspace.

    Neither may be an option that starts a program. Paths count from the directory of the command.
    """
    programs = pipelines_of(f"x{words}")
    if programs is None or len(programs) != 1:
        return False
    try:
        return all(
            not _starts_program(text)
            and all(is_in(path, workspace, directory) for path in _paths(text))
            for word in programs[0][1:]
            for text in word.paths(directory)
        )
    except ValueError:
        return False


def _starts_program(word: str) -> bool:
    """Whether a word is an option that may start a program."""
    if _SHORT.fullmatch(word):
        return True
    option = re.match(r"(--?)([a-z][\w-]+)", word)
    if option is None or option[2] in _HARMLESS:
        return False
    if option[1] == "-":
        return option[2] in _STARTERS
    return any(name.startswith(option[2]) for name in _STARTERS)  # many programs accept that


def _paths(word: str) -> Iterator[str]:
    """Yield what a program could take for a path in a word: also a value that follows an option."""
    word = _URL.sub("", word)
    parts = re.split(r"[=:,@]", word)
    if word.startswith("-"):
        parts = [*parts[1:], *re.findall(r"/.*|\.\..*", parts[0], re.DOTALL)]
        parts += [word[2:]] if not word.startswith("--") else []
    else:
        parts.append(word)
    yield from filter(None, map(str.strip, parts))
