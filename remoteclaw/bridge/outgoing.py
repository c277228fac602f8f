"""The rule for files that an agent sends, whether by a tag in its answer or by a tool."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from remoteclaw.config.home import Home
from remoteclaw.host.files import UnfitFile, read_file

#: Names of files and directories in which keys and logins are kept, in lower case.
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
ELSEWHERE = "it is not in the agent's workspace"
OWN = "it is in RemoteClaw's own directory or configuration, which agents don't send"
LINKED = "it has a second name (a hard link); a copy of it can be sent"
KEYS = "names like {name} are for keys and logins, which agents don't send"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Reads the files that one agent sends."""

    home: Home
    permissions: str
    workspace: Path
    files_dir: Path | None
    """The files that people have sent to the session; None if none are here."""

    def read(self, path: Path) -> bytes:
        """Return what is in a file that the agent sends; raises `UnfitFile` if it must not."""
        self.check_permissions()
        return read_file(path, check=self._check)

    def check_permissions(self) -> None:
        """Raise `UnfitFile` for an agent that sends no files at all."""
        if self.permissions == "deny":
            raise UnfitFile(DENIED)

    def _check(self, file: Path, found: os.stat_result) -> None:
        """Raise `UnfitFile` unless an open file may be sent; `file` is where it really is."""
        roots = [Path(os.path.realpath(root)) for root in (self.workspace, self.files_dir) if root]
        if not any(file.is_relative_to(root) for root in roots):
            raise UnfitFile(ELSEWHERE)
        self._check_place(file)
        for path in (file, *file.parents):
            if path in roots:  # the operator has chosen what is above
                break
            if name := _key_store(path):
                raise UnfitFile(KEYS.format(name=name))
        if found.st_nlink != 1:
            raise UnfitFile(LINKED)

    def _check_place(self, file: Path) -> None:
        config = Path(os.path.realpath(self.home.config_file))
        # Its versions and drafts are beside it.
        if config.name.casefold() in file.name.casefold() and _is_any(file.parent, config.parent):
            raise UnfitFile(OWN)
        for path in (file, *file.parents):
            if _is_any(path, self.home.workspaces, self.files_dir):
                return
            if _is_any(path, self.home.path, self.home.sockets, Path("/proc")):
                raise UnfitFile(OWN)


def _is_any(path: Path, *others: Path | None) -> bool:
    """Whether a path is one of others, under any name. Raises OSError."""
    return any(other and other.exists() and path.samefile(other) for other in others)


def _key_store(path: Path) -> str:
    """Return the name by which a file or directory looks like a key store; nothing without one."""
    # Some file systems take upper case for lower case.
    known = PurePosixPath(str(path).casefold())
    return next((name for name in KEY_STORES if known.match(name)), "")
