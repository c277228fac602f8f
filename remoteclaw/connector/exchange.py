"""HTTP exchanges with the gateway: sends one MCP message and returns the answer, or raises why not.

Each exchange opens a new connection, because a gateway that restarts would close a kept one.
"""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

#: How long connecting may take, in seconds. Over loopback, it succeeds at once or never.
CONNECT_S = 3.0
#: The timeout, in seconds, of an attempt after a call's time is used up: 0 would mean not to wait.
MIN_TIMEOUT_S = 0.1
#: The maximum size of an answer, in bytes; images in it are base64.
MAX_ANSWER_BYTES = 16 * 1024 * 1024


class ExchangeFailed(Exception):
    """The base class of the errors below."""


class Unreachable(ExchangeFailed):
    """Raised if no connection could be made, so that nothing was sent."""


class Broken(ExchangeFailed):
    """Raised if an answer is incomplete or malformed; `is_cut` says that the connection ended."""

    def __init__(self, why: str, *, is_cut: bool = False) -> None:
        super().__init__(why)
        self.is_cut = is_cut


class TooSlow(ExchangeFailed):
    """Raised if the gateway sends nothing for too long."""


class RequestRefused(ExchangeFailed):
    """Raised if the gateway answers with an HTTP status of an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class RelayedCall:
    """An exchange of one message, in one or more attempts, which another thread can cancel."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.is_cancelled = False
        self._until = 0.0
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    def begin_attempt(self, sock: socket.socket) -> None:
        """Set the connection of an attempt, and its timeout. Raises `Broken` after `cancel()`."""
        now = time.monotonic()
        self._until = self._until or now + self.timeout_s  # for all attempts together
        sock.settimeout(max(MIN_TIMEOUT_S, self._until - now))
        with self._lock:
            self._sock = sock
            if self.is_cancelled:
                raise Broken("it was cancelled")

    def cancel(self) -> None:
        """End the exchange at once, by closing its connection, and prevent further attempts."""
        with self._lock:
            self.is_cancelled = True
            if self._sock:
                with contextlib.suppress(OSError):  # the connection is closed already
                    self._sock.shutdown(socket.SHUT_RDWR)


class Endpoint:
    """The MCP endpoint of the gateway."""

    def __init__(self, host: str, port: int, token: str) -> None:
        """If `port` is 0, `host` is the directory with the sockets of gateways."""
        self._host, self._port = host, port
        url_host = f"[{host}]" if ":" in host else host
        self.name = f"{url_host}:{port}" if port else host
        """The address, for errors."""
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Connection": "close",
        }

    def exchange(self, body: bytes, call: RelayedCall) -> bytes:
        """Send a message and return the answer. Raises `ExchangeFailed`."""
        connection = self._connect()
        try:
            call.begin_attempt(connection.sock)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # A gateway that refuses a request closes before it has read all of it; the refusal
                # can still be read.
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
        """Yield unopened connections to all gateways; those of dead gateways will be refused."""
        if self._port:
            yield http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
            return
        directory = os.open(self._host, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(directory)
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise OSError(0, "Others can use this directory")
            for name in os.listdir(directory):
                # Through the descriptor, so that it is the directory whose mode was checked.
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
    data = response.read(MAX_ANSWER_BYTES + 1)
    if len(data) > MAX_ANSWER_BYTES:
        raise Broken("its answer is too large")
    if response.status >= 300:
        raise RequestRefused(response.status, data)
    if response.length:
        raise Broken("it ended before the answer", is_cut=True)
    return data


#: Added to the error of a call that may have been done.
UNKNOWN = " Whether it was done is unknown: look before you repeat it."
#: The maximum length of the gateway's own error message in ours, in characters.
MAX_REASON_CHARS = 300


def sentence(
    failure: ExchangeFailed, *, gateway: str, token_source: str, what: str, is_call: bool
) -> str:
    """Return a sentence about a failure: what happened to the request `what`, and what to do.

    If it `is_call`, the sentence says whether the call may have been done.
    """
    where = f"RemoteClaw's gateway at {gateway}"
    unknown = UNKNOWN if is_call else ""
    match failure:
        case Unreachable():
            start = "start it with `remoteclaw up` or `remoteclaw gateway`"
            return f"{where} can't be reached: {failure}; {start}."
        case TooSlow():
            return f"{where} has not answered {what} within {failure}.{unknown}"
        case RequestRefused(status=401):
            return f"{where} doesn't accept the token from {token_source}."
        case RequestRefused(status=413):
            return f"The request {what} is too large for {where}."
        case RequestRefused(status=status):
            text = f"{where} answered {what} with HTTP status {status}{_reason(failure)}."
            return text + (unknown if status >= 500 else "")
        case _:
            return f"The connection to {where} failed during {what}: {failure}.{unknown}"


def _reason(refused: RequestRefused) -> str:
    """Return the gateway's own error message, in brackets; empty if there is none."""
    try:
        message = json.loads(refused.body)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f" ({' '.join(str(message).split())[:MAX_REASON_CHARS]})"
