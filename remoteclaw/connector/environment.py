"""The connector's environment: the gateway's address, and the token for it.

REMOTECLAW_CHANNEL, _ACCOUNT_ID, _TO and _THREAD_ID are for people and other programs. The gateway
knows from the token who speaks and where to, and an agent could set them to anything.
REMOTECLAW_SESSION_KEY counts for operators' tokens alone.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

#: What a holder writes into the environment of all that it starts.
HOLDER = "REMOTECLAW_HOLDER"


class Unusable(Exception):
    """Raised when the environment is not what a connector needs, with what to do about it."""


def endpoint(environ: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of the gateway.

    Without REMOTECLAW_GATEWAY_URL the port is 0 and the host is the directory in which the gateways
    of this state directory have their sockets: another user can listen at any address.
    """
    url = environ.get("REMOTECLAW_GATEWAY_URL")
    if not url:
        return f"{_home(environ)}/gateways", 0
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
        found, source = _content_of(path), f"the file {path}"
    if not (found and found.isascii() and found.isprintable()) or " " in found:
        why = "it is empty or has invalid characters"
        raise Unusable(f"The token from {source} can't be used: {why}.")
    return found, source


def _home(environ: Mapping[str, str]) -> str:
    return os.path.expanduser(environ.get("REMOTECLAW_HOME") or "~/.remoteclaw")


def _content_of(path: str) -> str:
    """Return what is in a private file. Raises `Unusable`."""
    try:
        with open(path, encoding="latin-1") as file:
            mode, found = os.fstat(file.fileno()).st_mode, file.read().strip()
    except FileNotFoundError:
        raise Unusable(
            f"REMOTECLAW_GATEWAY_TOKEN is not set, and there is no file {path}, which "
            "`remoteclaw up` and `remoteclaw gateway` make at their start."
        ) from None
    except OSError as error:
        raise Unusable(f"The token in {path} can't be read: {error.strerror}.") from None
    if mode & 0o077:
        raise Unusable(f"The token in {path} is open to others: run `chmod 600 {path}`.")
    return found


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
