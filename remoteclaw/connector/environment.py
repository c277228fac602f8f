"""The connector's environment: the gateway's address, and the token for it.

REMOTECLAW_CHANNEL, _ACCOUNT_ID, _TO and _THREAD_ID are for people and other programs. The gateway
knows from the token who speaks and where to, and an agent could set them to anything.
REMOTECLAW_SESSION_KEY counts for operators' tokens alone.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["Unusable", "endpoint", "token"]

#: What a holder writes into the environment of all that it starts.
HOLDER = "REMOTECLAW_HOLDER"


class Unusable(Exception):
    """Raised when the environment is not what a connector needs, with what to do about it."""


def endpoint(environ: Mapping[str, str]) -> tuple[str, int, str]:
    """Return host, port and path of the gateway's MCP endpoint.

    Without REMOTECLAW_GATEWAY_URL the port is 0 and the host is the directory in which the gateways
    of this state directory have their sockets: another user can listen at any address.
    """
    url = environ.get("REMOTECLAW_GATEWAY_URL")
    if not url:
        return f"{_home(environ)}/gateways", 0, "/mcp"
    try:
        parts = urlsplit(url)
        port = parts.port
        is_fit = url.isascii() and url.isprintable() and not set(url) & set(" @?#\\")
    except ValueError:
        is_fit = False
    if not is_fit or parts.scheme not in ("http", "ws") or not parts.hostname or port == 0:
        raise Unusable(
            "REMOTECLAW_GATEWAY_URL can't be used: it must be like http://127.0.0.1:18789 or "
            "ws://127.0.0.1:18789 (there is a gateway on every host; TLS is not supported)."
        )
    return parts.hostname, port or 80, parts.path.rstrip("/").removesuffix("/mcp") + "/mcp"


def token(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the token, and where it was found. Raises `Unusable`."""
    source = "REMOTECLAW_GATEWAY_TOKEN"
    found = environ.get(source, "").strip()
    if not found:
        if environ.get("REMOTECLAW_GATEWAY_URL"):
            raise Unusable(
                "REMOTECLAW_GATEWAY_URL is set without REMOTECLAW_GATEWAY_TOKEN: the token of the "
                "state directory is sent to no address. Set both, or neither."
            )
        if _is_of_agent(environ):
            raise Unusable(
                "RemoteClaw's agents have its tools already, with the rights of the person who "
                "writes; this server is for your own CLIs and has yours."
            )
        path = f"{_home(environ)}/connector-token"
        found, source = _first_line(path), f"the file {path}"
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Unusable(f"The token from {source} can't be used: it has invalid characters.")
    return found, source


def _home(environ: Mapping[str, str]) -> str:
    return os.path.expanduser(environ.get("REMOTECLAW_HOME") or "~/.remoteclaw")


def _first_line(path: str) -> str:
    """Return the first line of a private file. Raises `Unusable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode, data = os.fstat(descriptor).st_mode, os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise Unusable(
            f"REMOTECLAW_GATEWAY_TOKEN is not set, and there is no file {path}, which "
            "`remoteclaw up` and `remoteclaw gateway` make at their start."
        ) from None
    except OSError as error:
        raise Unusable(f"The token in {path} can't be read: {error.strerror}.") from None
    if mode & 0o077:
        raise Unusable(f"The token in {path} is open to others: run `chmod 600 {path}`.")
    found = data.partition(b"\n")[0].strip()
    if not found:
        raise Unusable(f"The file {path} has no token in its first line.")
    return found.decode("latin-1")


def _is_of_agent(environ: Mapping[str, str]) -> bool:
    """Whether an agent of RemoteClaw's has started this: it inherits the person's MCP servers.

    Its CLI may have dropped the holder's mark from our environment, not from its own.
    """
    if HOLDER in environ:
        return True
    mark, pid = f"\0{HOLDER}=".encode(), os.getppid()
    try:
        while pid > 1:
            if mark in b"\0" + _content(f"/proc/{pid}/environ"):
                return True
            pid = int(_content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # it has ended, or is another user's
        pass
    return False


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
