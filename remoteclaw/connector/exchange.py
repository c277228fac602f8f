"""HTTP exchanges with the gateway: one MCP message out, its answer in, or a sentence about it.

Each exchange has a connection of its own: a kept one could be closed by a gateway that restarts.
"""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

#: How long connecting may take, in seconds: over loopback it takes none, or never succeeds.
CONNECT_S = 3.0
#: How long an attempt may take for which a call has no time left, in seconds: 0 would not wait.
LEAST_S = 0.1
#: The largest answer, in bytes; pictures travel as base64.
MAX_BYTES = 16 * 1024 * 1024


class Failure(Exception):
    """The root of the errors below."""


class Unreachable(Failure):
    """Raised when no connection could be made: nothing was sent."""


class Broken(Failure):
    """Raised when an answer is incomplete or malformed; `is_cut` if its connection ended."""

    def __init__(self, why: str, *, is_cut: bool = False) -> None:
        super().__init__(why)
        self.is_cut = is_cut


class TooSlow(Failure):
    """Raised when the gateway sends nothing for too long."""


class Refused(Failure):
    """Raised when the gateway answers with an HTTP status that is an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class RelayedCall:
    """One message on its way, which another thread may cancel."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.is_cancelled = False
        self._until = 0.0
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    def uses(self, sock: socket.socket) -> None:
        """Set the connection that `cancel()` closes. Raises `Broken` if it was called before."""
        now = time.monotonic()
        self._until = self._until or now + self.timeout_s  # of all attempts together
        sock.settimeout(max(LEAST_S, self._until - now))
        with self._lock:
            self._sock = sock
            if self.is_cancelled:
                raise Broken("it was cancelled")

    def cancel(self) -> None:
        """End the exchange at once; the gateway sees its connection closed."""
        with self._lock:
            self.is_cancelled = True
            if self._sock:
                with contextlib.suppress(OSError):  # it has ended by itself
                    self._sock.shutdown(socket.SHUT_RDWR)


class Endpoint:
    """The MCP endpoint of the gateway."""

    def __init__(self, host: str, port: int, token: str) -> None:
        """With port 0, `host` is the directory in which gateways have their sockets."""
        self._host, self._port = host, port
        shown = f"[{host}]" if ":" in host else host
        self.name = f"{shown}:{port}" if port else host
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Connection": "close",
        }

    def exchange(self, body: bytes, call: RelayedCall) -> bytes:
        """Send a message and return its answer. Raises `Failure`."""
        connection = self._connect()
        try:
            call.uses(connection.sock)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # One that refuses closes before it has read all; its refusal can be read.
                connection.request("POST", "/mcp", body, self.headers)
            return _content(connection.getresponse())
        except TimeoutError:
            raise TooSlow(f"{call.timeout_s:.0f} s") from None
        except (OSError, http.client.IncompleteRead):
            raise Broken("it ended before the answer", is_cut=True) from None
        except http.client.HTTPException:
            raise Broken("it does not speak HTTP") from None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        """Return a new connection. Raises `Unreachable`."""
        failure = "none listens there"
        try:
            for connection in self._candidates():
                try:
                    connection.connect()
                    return connection
                except OSError as error:
                    failure = error.strerror or str(error)
        except (OSError, ValueError, http.client.HTTPException) as error:  # no name, no directory
            failure = str(getattr(error, "strerror", error))
        raise Unreachable(failure.lower())

    def _candidates(self) -> Iterator[http.client.HTTPConnection]:
        """Yield connections to where the gateway may be; sockets of dead ones refuse."""
        if self._port:
            yield http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
            return
        directory = os.open(self._host, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = os.fstat(directory)
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise OSError(0, "Others can use this directory")
            for name in os.listdir(directory):
                # By the descriptor, because the path of a unix socket has 107 bytes at most.
                yield _SocketConnection(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CONNECT_S)
        self._socket_path = path

    def connect(self) -> None:
        """Open the socket. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


def _content(response: http.client.HTTPResponse) -> bytes:
    data = response.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Broken("its answer is too large")
    if response.status >= 300:
        raise Refused(response.status, data)
    if response.length:
        raise Broken("it ended before the answer", is_cut=True)
    return data


#: The uncertainty about a call whose answer is missing.
UNKNOWN = " Whether it was done is unknown: look before you repeat it."
#: How much of the gateway's own words is passed on, in characters.
MAX_WORDS = 300


def sentence(failure: Failure, *, gateway: str, token_source: str, what: str, is_call: bool) -> str:
    """Say what happened to `what`, and what to do; a call may have been done."""
    where = f"RemoteClaw's gateway at {gateway}"
    unknown = UNKNOWN if is_call else ""
    match failure:
        case Unreachable():
            start = "start it with `remoteclaw up` or `remoteclaw gateway`"
            return f"{where} can't be reached: {failure}; {start}."
        case TooSlow():
            return f"{where} has not answered {what} within {failure}.{unknown}"
        case Refused(status=401):
            return f"{where} doesn't accept the token from {token_source}."
        case Refused(status=413):
            return f"What {what} carries is too large for {where}."
        case Refused(status=status):
            why = f"{where} answered {what} with HTTP status {status}{_words(failure)}."
            return why + (unknown if status >= 500 else "")
        case _:
            return f"The connection to {where} failed during {what}: {failure}.{unknown}"


def _words(refused: Refused) -> str:
    """Return what the gateway says about its refusal."""
    try:
        said = json.loads(refused.body)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f" ({' '.join(str(said).split())[:MAX_WORDS]})"
