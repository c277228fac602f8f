"""HTTP exchanges with the gateway: one MCP message out, its answers in.

Over `_socket` and by hand, because `http.client`, and `socket` itself, take longer to import than
the whole connector takes to start.
"""

import _socket
import _thread
import posix
import time

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Iterator

__all__ = ["Broken", "Call", "Gateway", "Refused", "TooSlow", "Unreachable"]

#: How long connecting may take, in seconds: over loopback it takes none, or never succeeds.
CONNECT_S = 3.0
#: The largest message either way, in bytes: pictures travel as base64 in one line.
MOST_BYTES = 64 * 1024 * 1024
#: The largest head of an answer, in bytes; a gateway's has 300.
HEAD_BYTES = 64 * 1024
#: From which size on we ask before we send, in bytes: whoever refuses a body closes the connection
#: while it is sent, and the refusal is lost.
ASK_BYTES = 256 * 1024
#: How long we wait for leave to send it, in seconds; HTTP allows to send it without.
ASK_S = 1.0
#: How long an answered stream may take to end, in seconds, for its connection to be used again.
END_S = 0.25
#: How many connections are kept for the next message.
KEPT = 4


class Unreachable(Exception):
    """Raised when no connection could be made: nothing was sent."""


class Broken(Exception):
    """Raised when a connection ended before the answer was complete, or the answer made no sense.

    `is_cut` says that it ended; `is_untouched` that it was used before and ended without a byte of
    this answer: the gateway had closed it before it could read the message.
    """

    def __init__(self, why: str, *, is_cut: bool = False, is_untouched: bool = False) -> None:
        super().__init__(why)
        self.is_cut = is_cut
        self.is_untouched = is_untouched


class TooSlow(Exception):
    """Raised when the answer was not complete in time."""


class Refused(Exception):
    """Raised when the gateway answers with an HTTP status that is an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class Call:
    """One message on its way, which another thread may give up."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.until = 0.0
        """When its time is over, from its first attempt on."""
        self.is_given_up = False
        self._lock = _thread.allocate_lock()
        self._sock: socket | None = None

    def uses(self, sock: "socket | None") -> None:
        """Remember what it waits for."""
        with self._lock:
            self._sock = sock
            if sock and self.is_given_up:
                raise Broken("given up")

    def give_up(self) -> None:
        """End it at once, wherever it is; the gateway sees its connection closed."""
        with self._lock:
            self.is_given_up = True
            if self._sock:
                try:
                    self._sock.shutdown(_socket.SHUT_RDWR)
                except OSError:
                    pass  # it ended by itself


class Gateway:
    """The MCP endpoint of one gateway, and the connections to it that wait for their next use."""

    def __init__(self, host: "str | bytes", port: int, path: str, token: str) -> None:
        """`host` may be the directory in which gateways have their sockets, as bytes."""
        if isinstance(host, bytes):
            self.name, name = host.decode("utf-8", "replace"), "localhost"
        else:
            self.name = name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.protocol_version = ""
        """What was agreed on in the handshake; HTTP says it with every message."""
        self._host, self._port = host, port
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        )
        self._lock = _thread.allocate_lock()
        self._kept: list[Connection] = []

    def post(
        self, body: bytes, call: Call, take: "Callable[[bytes], bool]", *, fresh: bool = False
    ) -> None:
        """Send a message; hand what comes back to `take`, until it says that it has its answer.

        With `fresh` over a connection of its own, which the gateway can't have closed.
        Returns without an answer if none was sent.
        Raises `Unreachable`, `Broken`, `TooSlow` or `Refused`.
        """
        call.until = call.until or time.monotonic() + call.timeout_s
        connection = (None if fresh else self._take_kept()) or self._connect()
        is_reusable, data = False, b""
        try:
            call.uses(connection.sock)
            connection.begin(call.until)
            is_reusable, data = self._exchange(connection, body, take)
        except TimeoutError:
            raise TooSlow(f"{call.timeout_s:.0f} s") from None
        except OSError as error:
            raise connection.broken(error.strerror or "it ended") from None
        finally:
            call.uses(None)
            if is_reusable and len(self._kept) < KEPT:
                connection.is_used = True
                with self._lock:
                    self._kept.append(connection)
            else:
                connection.sock.close()
        if data:  # only now: what it leads to can use the same connection
            take(data)

    def _exchange(
        self, connection: "Connection", body: bytes, take: "Callable[[bytes], bool]"
    ) -> tuple[bool, bytes]:
        """Send a message and read what comes back.

        Returns whether the connection can be used again, and what `take` was not given yet.
        """
        head = self._head
        if self.protocol_version:
            head += f"MCP-Protocol-Version: {self.protocol_version}\r\n"
        head += f"Content-Length: {len(body)}\r\n"
        if len(body) > ASK_BYTES:
            answer = connection.ask(head + "Expect: 100-continue\r\n\r\n", body)
        else:
            connection.send(head.encode() + b"\r\n" + body)
            answer = connection.answer()
        if answer.status >= 300:
            raise Refused(answer.status, answer.whole())
        if answer.is_stream:
            events = Events()
            for piece in answer.pieces:
                for data in events.feed(piece):
                    if take(data):
                        connection.until = time.monotonic() + END_S
                        return answer.ends(), b""
            raise connection.broken("it ended before the answer")
        return answer.is_reusable, answer.whole()

    def _take_kept(self) -> "Connection | None":
        """Return a connection that is still open."""
        while True:
            with self._lock:
                if not self._kept:
                    return None
                connection = self._kept.pop()
            if connection.is_quiet():
                return connection
            connection.sock.close()

    def _connect(self) -> "Connection":
        """Return a new connection; raises `Unreachable`."""
        failure = "none listens there"
        try:
            for family, address in self._addresses():
                sock = _socket.socket(family, _socket.SOCK_STREAM)
                try:
                    sock.settimeout(CONNECT_S)
                    sock.connect(address)
                    if family != _socket.AF_UNIX:
                        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
                    return Connection(sock)
                except OSError as error:
                    sock.close()
                    failure = error.strerror or str(error)
        except OSError as error:
            failure = error.strerror or str(error)
        raise Unreachable(failure.lower())

    def _addresses(self) -> "Iterator[tuple[int, tuple[object, ...] | str]]":
        """Yield where the gateway may be."""
        if isinstance(self._host, bytes):
            yield from _sockets_in(self._host)
        elif not self._host.strip("0123456789."):
            yield _socket.AF_INET, (self._host, self._port)
        else:
            # As bytes: for a string Python imports its tables of international names.
            found = _socket.getaddrinfo(self._host.encode(), self._port, 0, _socket.SOCK_STREAM)
            for family, _, _, _, address in found:
                yield family, address


def _sockets_in(directory: bytes) -> "Iterator[tuple[int, str]]":
    """Yield the unix sockets of a directory that is ours alone; those of the dead refuse."""
    descriptor = posix.open(directory, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        found = posix.fstat(descriptor)
        if found.st_uid != posix.getuid() or found.st_mode & 0o077:
            raise OSError(0, "Others can use this directory")
        for name in posix.listdir(descriptor):
            # By the descriptor, because the path of a unix socket has 107 bytes at most.
            yield _socket.AF_UNIX, f"/proc/self/fd/{descriptor}/{name}"
    finally:
        posix.close(descriptor)


class Connection:
    """One connection: what was received and not read yet, and until when it is waited for."""

    def __init__(self, sock: "socket") -> None:
        self.sock = sock
        self.until = 0.0
        self.is_used = False
        self._received = b""
        self._is_untouched = True

    def begin(self, until: float) -> None:
        """Prepare for the next message, which has to be answered by then."""
        self.until = until
        self._is_untouched = True

    def is_quiet(self) -> bool:
        """Whether it is open and nothing that we did not ask for lies on it."""
        try:
            self.sock.settimeout(0)
            self.sock.recv(1, _socket.MSG_PEEK)
        except BlockingIOError:
            return not self._received
        except OSError:
            pass
        return False

    def broken(self, why: str) -> Broken:
        """Return the error that says what happened to it."""
        is_untouched = self.is_used and self._is_untouched
        return Broken(why.lower(), is_cut=True, is_untouched=is_untouched)

    def send(self, data: bytes) -> None:
        """Send everything; if the other side has hung up, its reason may still be read."""
        self._wait()
        try:
            self.sock.sendall(data)
        except TimeoutError:
            raise
        except OSError:
            pass

    def ask(self, head: str, body: bytes) -> "Answer":
        """Send a head, and its body if the other side wants that."""
        self.send(head.encode())
        until, self.until = self.until, min(self.until, time.monotonic() + ASK_S)
        try:
            answer = self.answer(also_100=True)
            if answer.status != 100:
                answer.is_reusable = False  # it waits for a body that doesn't come
                return answer
        except TimeoutError:
            pass
        self.until = until
        self.send(body)
        return self.answer()

    def answer(self, *, also_100: bool = False) -> "Answer":
        """Read the head of an answer; the provisional ones before it are skipped."""
        while True:
            head = self.until_mark(b"\r\n\r\n", most=HEAD_BYTES)
            answer = Answer(self, head)
            if answer.status >= 200 or (also_100 and answer.status == 100):
                return answer

    def until_mark(self, mark: bytes, *, most: int) -> bytes:
        """Read until a mark, which is taken away."""
        while mark not in self._received:
            if len(self._received) > most:
                raise Broken("its answer's head is too large")
            self._receive()
        data, _, self._received = self._received.partition(mark)
        return data

    def some(self, most: int) -> bytes:
        """Read what there is, at least one byte and `most` at most; nothing at the end."""
        if not self._received:
            try:
                self._receive()
            except Broken:
                return b""
        data, self._received = self._received[:most], self._received[most:]
        return data

    def exactly(self, size: int) -> "Iterator[bytes]":
        """Read so many bytes, as they come."""
        while size:
            piece = self.some(size)
            if not piece:
                raise self.broken("it ended within the answer")
            size -= len(piece)
            yield piece

    def _receive(self) -> None:
        self._wait()
        data = self.sock.recv(262144)
        if not data:
            raise self.broken("it ended before the answer")
        self._is_untouched = False
        self._received += data

    def _wait(self) -> None:
        """Give the next system call what is left of the time."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)


class Answer:
    """An HTTP response whose head was read."""

    def __init__(self, connection: Connection, head: bytes) -> None:
        self._connection = connection
        line, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = line.partition(" ")
        status = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (status.isdecimal() and status.isascii()):
            raise Broken("it does not speak HTTP")
        self.status = int(status)
        self._fields: dict[str, str] = {}
        for field in lines:
            name, colon, value = field.partition(":")
            if not colon or not name or name != name.strip():
                raise Broken("its answer's head is malformed")
            name, value = name.lower(), value.strip(" \t")
            if self._fields.get(name, value) != value:
                value = f"{self._fields[name]}, {value}"
            self._fields[name] = value
        self.is_stream = self._word("content-type").partition(";")[0].strip() == "text/event-stream"
        self._is_chunked, self._size = self._framing()
        self.pieces = self._chunks() if self._is_chunked else self._bytes()
        """The body as it comes."""
        self.is_reusable = (
            version == "HTTP/1.1"
            and "close" not in self._word("connection")
            and (self._is_chunked or self._size is not None)
        )

    def _word(self, name: str) -> str:
        return self._fields.get(name, "").lower()

    def _framing(self) -> "tuple[bool, int | None]":
        """Return whether the body is chunked, and its size if that is known."""
        if self.status < 200 or self.status in (204, 304):
            return False, 0
        if self._word("content-encoding") not in ("", "identity"):
            raise Broken("its answer is compressed, which nobody asked for")
        if coding := self._word("transfer-encoding"):
            if coding != "chunked" or "content-length" in self._fields:
                raise Broken("nobody can tell where its answer ends")
            return True, None
        size = self._fields.get("content-length")
        if size is None:
            return False, None
        if not (size.isdecimal() and size.isascii()) or len(size) > 18:
            raise Broken("nobody can tell where its answer ends")
        return False, int(size)

    def _bytes(self) -> "Iterator[bytes]":
        if self._size is not None:
            yield from self._connection.exactly(self._size)
        else:
            while piece := self._connection.some(262144):
                yield piece

    def _chunks(self) -> "Iterator[bytes]":
        while True:
            line = self._connection.until_mark(b"\r\n", most=1024)
            digits = line.partition(b";")[0].strip().decode("latin-1").lower()
            if not digits or digits.strip("0123456789abcdef") or len(digits) > 15:
                raise Broken("nobody can tell where its answer ends")
            size = int(digits, 16)
            if not size:
                while self._connection.until_mark(b"\r\n", most=HEAD_BYTES):
                    pass  # trailers
                return
            yield from self._connection.exactly(size)
            if b"".join(self._connection.exactly(2)) != b"\r\n":
                raise Broken("nobody can tell where its answer ends")

    def whole(self) -> bytes:
        """Return the body."""
        if self._size is not None and self._size > MOST_BYTES:
            raise Broken("its answer is too large")
        pieces, size = [], 0
        for piece in self.pieces:
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise Broken("its answer is too large")
        return b"".join(pieces)

    def ends(self) -> bool:
        """Read what is left of a stream; whether it ended soon and can be followed by another."""
        try:
            for _ in self.pieces:
                pass
        except (OSError, Broken):
            return False
        return self.is_reusable


class Events:
    """Takes messages out of a stream of server-sent events."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        """The beginning of a line."""
        self._data: list[bytes] = []
        self._size = 0
        self._is_message = True

    def feed(self, piece: bytes) -> "Iterator[bytes]":
        """Yield the data of each event that is complete with this piece."""
        self._size += len(piece)
        if self._size > MOST_BYTES:
            raise Broken("its answer is too large")
        self._pending.append(piece)
        if b"\n" not in piece and b"\r" not in piece and self._pending[0][-1:] != b"\r":
            return  # joining a long line anew with each piece would take the square of its time
        text = b"".join(self._pending)
        held = b"\r" if text.endswith(b"\r") else b""  # half of a line's end, perhaps
        text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._pending = [rest + held]
        for line in lines:
            if data := self._line(line):
                self._size = len(rest)
                yield data

    def _line(self, line: bytes) -> bytes:
        """Take a line; return the data of the event that it ends."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data" and line:
            self._data.append(value)
        elif name == b"event":
            self._is_message = value == b"message"
        elif not line:
            data, self._data = self._data, []
            is_message, self._is_message = self._is_message, True
            return b"\n".join(data) if is_message else b""
        return b""
