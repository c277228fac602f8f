"""The sockets that the gateway listens on: one with an address, and one in the state directory.

Another user of the machine can listen at an address while no gateway does. Only the owner can have
a socket in the state directory, so the connector sends its token there.

`up` opens the sockets and passes them on to each gateway that it starts: connections that come
while none runs wait there.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from remoteclaw.clock import boot_id
from remoteclaw.config.home import Home
from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import ConfigError, RemoteClawError, StateDirectoryError

#: How many connections wait to be accepted.
BACKLOG = 256
#: How long a client may leave what it was sent untaken, or the kernel's questions unanswered, in
#: seconds; then the kernel cuts it.
GONE_S = 60
#: From which age on a private socket that refuses counts as a dead gateway's, in seconds: a younger
#: one may not listen yet.
DEAD_S = 60.0
#: What "any address" is called on this computer.
_OWN = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - refused unless it is configured


def listen(config: GatewayConfig) -> socket.socket:
    """Return a socket that listens at the gateway's address. Raises `ConfigError`."""
    host = "127.0.0.1" if config.host == "localhost" else config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named: without that, every
    # answer would wait 40 ms for the peer's kernel to confirm its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections have these from it. A client that takes nothing, or that is gone without a
        # word, would keep its descriptor, and what it was sent, for as long as it likes.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_S * 1000)
        listening.bind((host, config.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"[gateway] can't listen on {host}, port {config.port} ({error.strerror}): end what "
            "listens there, or set another host or port (0 for any that is free)."
        ) from None
    return listening


def listen_privately(home: Home) -> socket.socket:
    """Return a listening socket in the state directory, which has one for each gateway.

    Its name begins with the machine's boot: machines and containers may share the directory.
    Raises `StateDirectoryError`.
    """
    boot = boot_id()[:8]
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        for name in os.listdir(home.gateways):
            if name.startswith(boot):
                _remove_dead(home.gateways / name)
        with _short(home.gateways) as directory:
            listening.bind(f"{directory}/{boot}-{secrets.token_hex(4)}")
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise StateDirectoryError(
            f"The gateway can't make a socket in {home.gateways} ({error.strerror}): "
            "set REMOTECLAW_HOME to a directory on a local disk."
        ) from None
    return listening


def path_of(listening: socket.socket, home: Home) -> Path:
    """Return the path of a private socket."""
    return home.gateways / Path(listening.getsockname()).name


def _remove_dead(path: Path) -> None:
    """Remove the socket of a gateway that was killed."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as trying:
        trying.setblocking(False)
        try:
            with _short(path.parent) as directory:
                trying.connect(f"{directory}/{path.name}")
        except ConnectionRefusedError:
            if time.time() - path.stat().st_mtime > DEAD_S:
                path.unlink()


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Yield a short name of a directory: the path of a unix socket has 107 bytes at most."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that this process inherits. Raises `RemoteClawError`."""
    try:
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise RemoteClawError(
            f"Descriptor {descriptor} is no socket to listen on ({error.strerror})."
        ) from None


def url_of(listening: socket.socket) -> str:
    """Return a socket's address, as it is reached on this computer."""
    host, port = listening.getsockname()[:2]
    host = _OWN.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
