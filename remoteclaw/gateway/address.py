"""The sockets that the gateway listens on: a TCP socket, and one in the state directory.

While no gateway runs, another user of the machine can listen at the TCP address. Only the owner can
create a socket in the state directory, so the connector sends its token there.

`up` opens the sockets and passes them to each gateway that it starts. Connections that arrive while
no gateway runs wait in their backlog.
"""

import contextlib
import errno
import os
import secrets
import socket
import time
from pathlib import Path

from remoteclaw.clock import boot_id
from remoteclaw.config.home import Home
from remoteclaw.config.model import GatewayConfig
from remoteclaw.errors import ConfigError, RemoteClawError, StateDirectoryError

#: The maximum number of connections that wait to be accepted.
BACKLOG = 256
#: How long a client may leave sent data or TCP keep-alives unacknowledged, in seconds. After that,
#: the kernel closes its connection.
CLIENT_TIMEOUT_S = 60
#: The age from which a private socket that refuses connections counts as a dead gateway's, in
#: seconds. The gateway of a younger socket may not listen yet.
MIN_DEAD_AGE_S = 60.0
#: The loopback address through which a socket that listens on all addresses is reached.
_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - refused unless it is configured


def listen(config: GatewayConfig) -> socket.socket:
    """Return a socket that listens at the gateway's address. Raises `ConfigError`."""
    host = "127.0.0.1" if config.host == "localhost" else config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets with an explicit protocol. Otherwise each
    # response would wait 40 ms for the acknowledgement of its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these options. Without them, a client that reads nothing or
        # has vanished would hold its descriptor and its send buffer indefinitely.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, CLIENT_TIMEOUT_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CLIENT_TIMEOUT_S * 1000)
        listening.bind((host, config.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"[gateway] can't listen on {host}, port {config.port} ({error.strerror}): "
            f"{_remedy(error)}"
        ) from None
    return listening


def _remedy(error: OSError) -> str:
    """Return what to do if the gateway can't listen."""
    if error.errno == errno.EADDRINUSE:
        return (
            "usually another RemoteClaw listens there. End it, or take any free port: "
            "`remoteclaw config set gateway.port 0`."
        )
    return "set another host or port (0 for any that is free)."


def listen_privately(home: Home) -> socket.socket:
    """Return a new listening socket in the state directory.

    Its name begins with the machine's boot id, because machines and containers may share the
    directory. Raises `StateDirectoryError`.
    """
    boot = boot_id()[:8]
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        for name in os.listdir(home.gateways):
            if name.startswith(boot):
                _remove_if_dead(home.gateways / name)
        listening.bind(f"{home.gateways}/{boot}-{secrets.token_hex(4)}")
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise StateDirectoryError(
            f"The gateway can't make a socket in {home.gateways} ({error.strerror}): "
            "set REMOTECLAW_HOME to a directory on a local disk."
        ) from None
    return listening


def path_of(listening: socket.socket) -> Path:
    """Return the path of a socket that `listen_privately()` opened."""
    return Path(listening.getsockname())


def _remove_if_dead(path: Path) -> None:
    """Remove the socket of a gateway that was killed."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            if time.time() - path.stat().st_mtime > MIN_DEAD_AGE_S:
                path.unlink()


def inherited(descriptor: int) -> socket.socket:
    """Return the listening socket that this process inherited. Raises `RemoteClawError`."""
    try:
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        raise RemoteClawError(
            f"Descriptor {descriptor} is no socket to listen on ({error.strerror})."
        ) from None


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a socket is reached from this machine."""
    host, port = listening.getsockname()[:2]
    host = _LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
