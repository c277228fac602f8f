"""Files that start programs: changes of them need a permission of their own.

They name programs for git, a shell, an editor, a package manager or an agent CLI to start, without
anybody running them. `permissions = "edits"` and rules about a directory don't allow changes of
them; a rule that names one does.
"""

from pathlib import Path

#: Names of files and directories, in lower case. `head` is among them because git takes a directory
#: with a HEAD for a repository.
_NAMES = frozenset(
    (
        # git and other version control, and what manages its hooks
        *(".git", ".gitconfig", ".gitmodules", "head", ".hg", ".hgrc", ".jj", ".bzr", ".svn"),
        *(".husky", ".lefthook", ".lefthook.yml", ".lefthook.yaml", "lefthook.yml"),
        *("lefthook.yaml", ".overcommit.yml", ".pre-commit-config.yaml"),
        # shells, and what sets variables in a directory
        *(".bash_aliases", ".bash_completion", ".bash_login", ".bash_logout", ".bash_profile"),
        *(".bashrc", ".profile", ".zlogin", ".zlogout", ".zprofile", ".zshenv", ".zshrc"),
        *(".cshrc", ".tcshrc", ".kshrc", ".mkshrc", ".login", ".logout", ".inputrc"),
        *(".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".pam_environment"),
        *(".envrc", ".env", ".direnv", ".mise", ".mise.toml", "mise.toml", ".mise.local.toml"),
        # editors and debuggers
        *(".vscode", ".vs", ".idea", ".fleet", ".zed", ".theia", ".devcontainer"),
        *(".devcontainer.json", ".exrc", ".vim", ".vimrc", ".gvimrc", ".lvimrc", ".nvim"),
        *(".nvimrc", ".nvim.lua", ".ideavimrc", ".emacs", ".emacs.d", ".dir-locals.el"),
        *(".helix", ".nanorc", ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc", ".irbrc"),
        *(".pryrc", ".rprofile", ".ghci", ".psqlrc", ".sqliterc", ".tmux.conf", ".screenrc"),
        # agent CLIs
        *(".claude", ".claude.json", ".mcp.json", ".codex", ".gemini", ".agents", ".opencode"),
        *("opencode.json", "opencode.jsonc", ".cursor", ".windsurf", ".continue", ".roo"),
        *(".cline", ".kilocode", ".qwen", ".goose", ".amp", ".crush", ".crush.json"),
        *("crush.json", ".factory", ".kiro", ".trae", ".junie", ".copilot", ".aider.conf.yml"),
        # package managers and build tools, which start what these name before what they build
        *(".npmrc", ".yarn", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnp.cjs", ".cargo"),
        *(".mvn", ".gradle", ".bazelrc", ".venv", "venv"),
        # logins, and what starts programs for them
        *(".ssh", ".gnupg", ".docker", ".kube", ".aws", ".netrc", ".curlrc", ".wgetrc"),
    )
)
_SUFFIXES = (".code-workspace", ".sublime-project")
#: Names directly in a home directory, besides those that begin with a dot.
_OF_HOME = ("bin", "library")


def is_guarded(file: Path, base: Path) -> bool:
    """Whether a change of a file isn't allowed by a permission for everything in `base`.

    Both are real paths. A file with several names (hard links) is guarded, too, because the others
    may be anywhere.
    """
    parts = [part.casefold() for part in file.relative_to(base).parts]
    if _NAMES & {*parts} or any(part.endswith(_SUFFIXES) for part in parts):
        return True
    if _is_of_home(file, base):
        return True
    try:
        status = file.stat()
    except OSError:  # it doesn't exist yet
        return False
    return file.is_file() and status.st_nlink > 1


def _is_of_home(file: Path, base: Path) -> bool:
    """Whether a file is one of those that programs look for in the home directory."""
    home = Path.home().resolve()
    if not home.is_relative_to(base) or not file.is_relative_to(home) or file == home:
        return False
    first = file.relative_to(home).parts[0].casefold()
    return first.startswith(".") or first in _OF_HOME
