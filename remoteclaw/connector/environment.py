"""The connector's environment: the gateway's address, and the token for it.

REMOTECLAW_CHANNEL, _ACCOUNT_ID, _TO and _THREAD_ID are for people and other programs. They are not
looked at here: the gateway knows from the token who speaks and where to, and an agent could set
them to anything. REMOTECLAW_SESSION_KEY counts for operators' tokens alone.
"""

import posix

__all__ = ["Unusable", "endpoint", "token"]


#: What a holder writes into the environment of all that it starts.
HOLDER = b"REMOTECLAW_HOLDER="


class Unusable(Exception):
    """Raised when the environment is not what a connector needs, with what to do about it."""


def endpoint(environ: dict[bytes, bytes]) -> tuple[str | bytes, int, str]:
    """Return host, port and path of the gateway's MCP endpoint.

    Unless a person says where that is, the host is the directory in which the gateways of this
    state directory have their sockets: another user can listen at any address.
    """
    url = environ.get(b"REMOTECLAW_GATEWAY_URL")
    if not url:
        return _home(environ) + b"/gateways", 0, "/mcp"
    scheme, _, rest = url.decode("latin-1").partition("://")
    authority, _, path = rest.partition("/")
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    is_plain = rest.isascii() and rest.isprintable() and not set(rest) & set(" @?#\\")
    if scheme.lower() not in ("http", "ws") or not host or not is_plain:
        raise Unusable(
            "REMOTECLAW_GATEWAY_URL can't be used: it must be like http://127.0.0.1:18789 or "
            "ws://127.0.0.1:18789 (there is a gateway on every host; TLS is not spoken to it)."
        )
    if not (port or "80").isdecimal() or not 0 < int(port or 80) < 65536:
        raise Unusable("REMOTECLAW_GATEWAY_URL can't be used: its port is not a number to 65535.")
    base = f"/{path}".rstrip("/").removesuffix("/mcp")
    return host, int(port or 80), f"{base}/mcp"


def token(environ: dict[bytes, bytes]) -> tuple[str, str]:
    """Return the token, and where it was found."""
    source = "REMOTECLAW_GATEWAY_TOKEN"
    found = environ.get(source.encode(), b"").strip()
    if not found:
        if environ.get(b"REMOTECLAW_GATEWAY_URL"):
            raise Unusable(
                "REMOTECLAW_GATEWAY_URL is set without REMOTECLAW_GATEWAY_TOKEN: the token of the "
                "state directory is sent to no address. Set both, or neither."
            )
        found, source = _token_in_file(environ)
    text = found.decode("latin-1")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Unusable(
            f"The token from {source} can't be used: it has characters that no token has."
        )
    return text, source


def _home(environ: dict[bytes, bytes]) -> bytes:
    home = environ.get(b"REMOTECLAW_HOME") or b"~/.remoteclaw"
    if home.startswith(b"~"):
        import os

        home = os.path.expanduser(home)
    return home


def _is_of_agent(environ: dict[bytes, bytes]) -> bool:
    """Whether an agent of RemoteClaw's has started this: it inherits the person's MCP servers.

    Its CLI may have dropped the holder's mark from our environment, not from its own.
    """
    if HOLDER.rstrip(b"=") in environ:
        return True
    pid = posix.getppid()
    while pid > 1:
        try:
            if b"\0" + HOLDER in b"\0" + _content(b"/proc/%d/environ" % pid):
                return True
            pid = int(_content(b"/proc/%d/stat" % pid).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # it has ended, or is another user's
            return False
    return False


def _content(path: bytes) -> bytes:
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        parts = [b"-"]
        while parts[-1]:
            parts.append(posix.read(descriptor, 65536))
        return b"".join(parts[1:])
    finally:
        posix.close(descriptor)


def _token_in_file(environ: dict[bytes, bytes]) -> tuple[bytes, str]:
    if _is_of_agent(environ):
        raise Unusable(
            "RemoteClaw's agents have its tools already, with the rights of the person who writes; "
            "this server is for your own CLIs and has yours."
        )
    path = _home(environ) + b"/connector-token"
    name = path.decode("utf-8", "replace")
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
        mode = posix.fstat(descriptor).st_mode
        data = posix.read(descriptor, 4096)
    except FileNotFoundError:
        raise Unusable(
            "REMOTECLAW_GATEWAY_TOKEN is not set, and there is no file " + name + ", which "
            "`remoteclaw up` and `remoteclaw gateway` make at their start."
        ) from None
    except OSError as error:
        raise Unusable(f"The token in {name} can't be read: {error.strerror}.") from None
    if mode & 0o077:
        raise Unusable(f"The token in {name} is open to others: run `chmod 600 {name}`.")
    found = data.partition(b"\n")[0].strip()
    if not found:
        raise Unusable(f"The file {name} has no token in its first line.")
    return found, f"the file {name}"
