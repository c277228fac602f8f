"""Whether git starts programs when it reads a repository, by the repository's own settings.

They can name a program for nearly everything: to find changed files, to show a difference, to check
a signature, after git has updated its index. So a setting counts as one unless it is known.
The settings of the user and of the machine are trusted: they name the same programs to a person.
"""

import os
import re
from pathlib import Path

#: The sections whose settings name no program that status, diff, log, show and branch start.
_SECTIONS = frozenset(
    (
        *("advice", "author", "branch", "color", "commit", "committer", "credential", "fetch"),
        *("gc", "github", "gui", "http", "index", "init", "lfs", "maintenance", "merge", "pull"),
        *("push", "rebase", "rerere", "tag", "url", "user"),
    )
)
#: Such settings of other sections.
_KEYS = frozenset(
    (
        *("core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates"),
        *("core.ignorecase", "core.precomposeunicode", "core.autocrlf", "core.eol"),
        *("core.safecrlf", "core.symlinks", "core.quotepath", "core.longpaths", "core.abbrev"),
        *("core.untrackedcache", "core.preloadindex", "core.trustctime", "core.commentchar"),
        *("remote.url", "remote.pushurl", "remote.fetch", "remote.push", "remote.tagopt"),
        *("remote.prune", "remote.mirror", "remote.gh-resolved", "diff.renames"),
        *("diff.algorithm", "diff.colormoved", "diff.noprefix", "diff.mnemonicprefix"),
        *("log.date", "log.decorate", "log.abbrevcommit"),
    )
)
_SECTION = re.compile(r"\[([\w-]+)(?:\.[\w.-]+| +\"[^\"\\]*\")?\]")
_SETTING = re.compile(r"([\w-]+)(?:\s*=\s*(.*))?(?<!\\)")
_PATH = re.compile(r"[\w./ -]+")
#: The mode of a submodule in an index. Git reads a submodule with the settings that it finds there.
_GITLINK = b"\x00\x00\xe0\x00"
#: The hook that runs when git has updated its index, as also `git status` does.
_HOOK = "post-index-change"


def starts_no_programs(directory: Path, workspace: Path) -> bool:
    """Whether git, when it reads in a directory, starts no program of the repository there.

    The repository must be in the workspace, or must have the workspace as one of its worktrees.
    """
    for place in (directory, *directory.parents):
        if not place.is_relative_to(workspace):
            return False
        if os.path.lexists(place / ".git"):
            try:
                return _is_plain(place / ".git")
            except (OSError, ValueError):
                return False
        if (place / "HEAD").exists() and (place / "objects").exists():
            return False  # git takes it for a repository
    return False


def _is_plain(link: Path) -> bool:
    """Whether the repository at `.git` names no program. Raises `OSError` and `ValueError`."""
    if link.is_symlink():
        return False
    own = common = link
    if link.is_file():  # of a worktree: its repository must know it
        own = Path(link.read_text().removeprefix("gitdir: ").strip())
        common = own.parent.parent
        if (own / "gitdir").read_text().strip() != str(link):
            return False
        if (own / "commondir").read_text().strip() != "../..":
            return False
    elif (link / "commondir").exists():
        return False
    index = own / "index"
    if index.exists() and _GITLINK in index.read_bytes():
        return False
    settings = _settings_of((common / "config").read_text())
    hooks = settings.pop("core.hookspath", str(common / "hooks"))
    if not _PATH.fullmatch(hooks) or (link.parent / hooks / _HOOK).exists():
        return False
    return settings.keys() <= _KEYS


def _settings_of(text: str) -> dict[str, str]:
    """Return the settings in a configuration file, without those in `_SECTIONS`.

    The names of subsections are left out. Raises `ValueError` for a line in an uncommon form.
    """
    section, settings = "", {}
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#;":
            continue
        if header := _SECTION.fullmatch(line):
            section = header[1].lower()
            continue
        setting = _SETTING.fullmatch(line)
        if setting is None:
            raise ValueError(line)
        if section not in _SECTIONS:
            settings[f"{section}.{setting[1].lower()}"] = setting[2] or ""
    return settings
