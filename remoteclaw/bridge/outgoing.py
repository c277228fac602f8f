"""The rules for files that an agent sends, by a tag in its answer or by a tool."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remoteclaw.config.home import Home
from remoteclaw.host.files import UnfitFile, read_file

#: The names of files and directories that contain keys and logins. They are patterns for
#: `PurePath.match`, so compared from the end of the path; in lower case.
KEY_STORES = (
    *(".ssh", "id_rsa*", "id_ecdsa*", "id_ed25519*", ".gnupg", ".password-store", ".netrc"),
    *(".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".vault-token"),
    *("*.env", ".flaskenv", ".dev.vars", "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.kdbx"),
    *("id_dsa*", "*.tfstate*", "credentials.json", "*secrets.toml", "secrets.y*ml"),
    *(".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".config/github-copilot"),
    *(".cache/huggingface/token", ".config/rclone", ".my.cnf", ".m2/settings.xml"),
    *(".config/bravesoftware", "*.git/config", ".git/modules", ".git/worktrees"),
    *(".env*", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".git/config", ".*_history"),
    *(".claude*", ".codex", ".gemini", ".config/opencode", ".local/share/opencode"),
    *("auth.json", ".credentials*", "oauth_creds*", ".local/share/keyrings", ".mozilla"),
    *(".config/chromium", ".config/google-chrome*", ".cargo/credentials*", ".remoteclaw"),
)

DENIED = 'its agent sends no files, because its permissions are "deny"'
NOT_IN_WORKSPACE = "it is not in the agent's workspace"
IS_OURS = "it is in RemoteClaw's own directory or configuration, which agents don't send"
HAS_HARD_LINK = "it has a second name (a hard link); a copy of it can be sent"
IS_KEY_STORE = "names like {name} are for keys and logins, which agents don't send"


@dataclass(frozen=True, slots=True)
class OutgoingFiles:
    """Reads the files that one agent sends."""

    home: Home
    permissions: str
    workspace: Path
    files_dir: Path | None
    """The directory of the files that people have sent to the session; None without one."""

    def read(self, path: Path) -> bytes:
        """Return the content of a file; raises `UnfitFile` if the agent must not send it."""
        self.check_permissions()
        return read_file(path, check=self._check)

    def check_permissions(self) -> None:
        """Raise `UnfitFile` if the agent may send no files at all."""
        if self.permissions == "deny":
            raise UnfitFile(DENIED)

    def _check(self, file: Path, stat: os.stat_result) -> None:
        """Raise `UnfitFile` unless an open file may be sent; `file` is its path without links."""
        roots = [Path(os.path.realpath(root)) for root in (self.workspace, self.files_dir) if root]
        if not any(file.is_relative_to(root) for root in roots):
            raise UnfitFile(NOT_IN_WORKSPACE)
        self._check_place(file)
        for path in (file, *file.parents):
            if path in roots:  # the operator has chosen the directories above
                break
            if name := _key_store(path):
                raise UnfitFile(IS_KEY_STORE.format(name=name))
        if stat.st_nlink != 1:
            raise UnfitFile(HAS_HARD_LINK)

    def _check_place(self, file: Path) -> None:
        config = Path(os.path.realpath(self.home.config_file))
        # Backups and drafts of the configuration file are in the same directory.
        if config.name.casefold() in file.name.casefold() and _is_any(file.parent, config.parent):
            raise UnfitFile(IS_OURS)
        for path in (file, *file.parents):
            if _is_any(path, self.home.workspaces, self.files_dir):
                return
            if _is_any(path, self.home.path, self.home.sockets, Path("/proc")):
                raise UnfitFile(IS_OURS)


def _is_any(path: Path, *others: Path | None) -> bool:
    """Whether a path is the same file or directory as one of `others`. Raises OSError."""
    return any(other and other.exists() and path.samefile(other) for other in others)


def _key_store(path: Path) -> str:
    """Return the entry of `KEY_STORES` that a path matches; empty if it matches none."""
    # Some file systems ignore case.
    known = PurePosixPath(str(path).casefold())
    return next((name for name in KEY_STORES if known.match(name)), "")
