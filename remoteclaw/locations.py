"""The locations of the state directory and of its unix sockets.

In a module of their own for the connector, which imports no room.
"""

import os
from collections.abc import Mapping

#: The maximum length, in bytes, of a directory for our unix sockets: the kernel's limit for a
#: socket's path, 107, without the part below the directory.
MAX_SOCKET_DIR_BYTES = 107 - len("/run/0123456789abcdef/holder.sock")
#: Characters with a meaning in the URL of a unix socket, or in the rule that lets claude read a run
#: directory.
SPECIAL_CHARS = frozenset("#?%()[]*\\")
#: The directory, in the state directory, of the files that the operator writes for each agent; and
#: the file there that is an agent's memory.
AGENT_FILES, MEMORY_FILE = "agents", "MEMORY.md"


def state_directory(environ: Mapping[str, str]) -> str:
    """Return the path of `$REMOTECLAW_HOME`, else `~/.remoteclaw`, without symbolic links.

    So all names of one directory lead to the same sockets. A `~` that names no home directory is
    kept, at the end of the current directory.
    """
    return os.path.realpath(os.path.expanduser(environ.get("REMOTECLAW_HOME") or "~/.remoteclaw"))


def socket_directory(state: str) -> str:
    """Return the directory of a state directory's unix sockets, with a short and plain path.

    If the state directory's own path is too long or has special characters, it is a private
    directory in /tmp.
    """
    is_plain = state.isprintable() and not SPECIAL_CHARS & set(state)
    if is_plain and len(os.fsencode(state)) <= MAX_SOCKET_DIR_BYTES:
        return state
    from hashlib import sha256  # here, because the connector's start time counts

    digest = sha256(os.fsencode(state)).hexdigest()[:12]
    # The name is predictable, but `Home.create()` refuses another user's directory.
    return f"/tmp/remoteclaw-{os.getuid()}-{digest}"  # noqa: S108
