"""The socket that the gateway listens on.

It is a module of its own because `up` opens it, and passes it on to each gateway that it starts: so
the address stays the same when one is killed, and who calls meanwhile waits instead of being
refused.
"""

import errno
import os
import socket
import stat

from remoteclaw.config import GatewayConfig
from remoteclaw.errors import ConfigError, RemoteClawError

__all__ = ["inherited", "listen", "url_of"]

#: How many connections wait that were not accepted yet.
BACKLOG = 256
#: What "any address" means for somebody on this computer.
_OWN = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - refused unless it is configured


def listen(config: GatewayConfig) -> socket.socket:
    """Return a socket that listens where the gateway is to; raises `ConfigError` if it can't."""
    host = "127.0.0.1" if config.host == "localhost" else config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named: without that, every
    # answer would wait 40 ms for the peer's kernel to confirm its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, config.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"[gateway] port {config.port} is in use on {host}: end what uses it, or set "
                "another port (0 for any that is free)."
            ) from None
        raise ConfigError(
            f"[gateway] can't listen on {host}, port {config.port} ({error.strerror}): "
            "set another host or port."
        ) from None
    return listening


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that whoever started this process has passed on."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise RemoteClawError(f"Descriptor {descriptor} is no socket to listen on.")
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise RemoteClawError(
            f"Descriptor {descriptor} is no socket to listen on ({error.strerror})."
        ) from None


def url_of(listening: socket.socket) -> str:
    """Return the address at which somebody on this computer reaches it."""
    host, port = listening.getsockname()[:2]
    host = _OWN.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
