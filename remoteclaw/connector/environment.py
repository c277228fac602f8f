"""The connector's environment: the gateway's address, and the token for it.

The connector ignores REMOTECLAW_CHANNEL, _ACCOUNT_ID, _TO and _THREAD_ID, which are for people and
other programs: an agent could set them to anything, and the gateway knows an agent's session from
its token. REMOTECLAW_SESSION_KEY has an effect only with an operator's token.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from remoteclaw.locations import socket_directory, state_directory

#: The variable that a holder sets in the environment of all its children.
HOLDER = "REMOTECLAW_HOLDER"


class Unusable(Exception):
    """Raised if a connector can't run in this environment; its text says what to do."""


def endpoint(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return the host and the port of the gateway. Raises `Unusable`.

    Without REMOTECLAW_GATEWAY_URL, the port is 0 and the host is the directory with the sockets of
    this state directory's gateways. There is no default address, because any user of the machine
    could listen there.
    """
    url = environ.get("REMOTECLAW_GATEWAY_URL")
    if not url:
        return f"{socket_directory(state_directory(environ))}/gateways", 0
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or port == 0 or parts.scheme not in ("http", "ws"):
        raise Unusable(
            "REMOTECLAW_GATEWAY_URL can't be used: it must be like http://127.0.0.1:18789 or "
            "ws://127.0.0.1:18789 (there is a gateway on every host; TLS is not supported)."
        )
    return host, port or 80


def token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the token, and the name of its source for errors. Raises `Unusable`."""
    source = "REMOTECLAW_GATEWAY_TOKEN"
    secret = environ.get(source, "").strip()
    if not secret:
        if environ.get("REMOTECLAW_GATEWAY_URL"):
            raise Unusable(
                "REMOTECLAW_GATEWAY_URL is set without REMOTECLAW_GATEWAY_TOKEN: the token of the "
                "state directory is sent to no address. Set both, or neither."
            )
        if _is_of_agent(environ):
            raise Unusable(
                "RemoteClaw's agents have its tools already, with the rights of the person who "
                "writes; this server is for your own CLIs and has your rights."
            )
        path = f"{state_directory(environ)}/connector-token"
        secret, source = _read_private(path), f"the file {path}"
    if not (secret and secret.isascii() and secret.isprintable()) or " " in secret:
        why = "it is empty or has invalid characters"
        raise Unusable(f"The token from {source} can't be used: {why}.")
    return secret, source


def _read_private(path: str) -> str:
    """Return the content of a file that only this user can read. Raises `Unusable`."""
    try:
        with open(path, encoding="latin-1") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read().strip()
    except FileNotFoundError:
        raise Unusable(
            f"REMOTECLAW_GATEWAY_TOKEN is not set, and there is no file {path}, which "
            "`remoteclaw up` and `remoteclaw gateway` make at their start."
        ) from None
    except OSError as error:
        raise Unusable(f"The token in {path} can't be read: {error.strerror}.") from None
    if mode & 0o077:
        raise Unusable(f"The token in {path} is open to others: run `chmod 600 {path}`.")
    return content


def _is_of_agent(environ: Mapping[str, str]) -> bool:
    """Whether an agent of RemoteClaw has started this process.

    An agent's CLI also starts the MCP servers in the person's own settings. The CLI may have
    removed the holder's mark from this process's environment, but not from its own.
    """
    if HOLDER in environ:
        return True
    mark, pid = f"\0{HOLDER}=".encode(), os.getppid()
    try:
        while pid > 1:
            if mark in b"\0" + _read(f"/proc/{pid}/environ"):
                return True
            pid = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # the process has ended, or is another user's
        pass
    return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
