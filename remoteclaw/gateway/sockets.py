"""Connection limits that uvicorn has no settings for."""

import asyncio
import resource
from asyncio.transports import BaseTransport
from typing import Any

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

__all__ = ["Http", "Socket", "raise_descriptors"]

#: How long a request's head may take to come, in seconds. Uvicorn would wait for ever.
HEAD_S = 5.0
#: How many connections there are at most, where the system allows so many descriptors.
MOST_CONNECTIONS = 4096
#: How many descriptors are taken at most: what is more costs memory and is never used.
MOST_DESCRIPTORS = 65536
#: How many are for logs, modules and whatever else is neither a connection nor Redis'.
OTHER_DESCRIPTORS = 128
#: How long a connection waits for its next request before one was made with a token, in seconds.
UNKNOWN_IDLE_S = 5
#: How large a frame may be as long as it is not known whose it is, in bytes.
MOST_UNKNOWN_BYTES = 64 * 1024
#: In how many parts a message may come: empty parts cost memory and count towards no size.
MOST_PARTS = 1000
#: How many bytes of answers to pings may wait, which the peer does not read.
MOST_PONGS_BYTES = 256 * 1024
#: How long a peer may take to answer a close, or to read what comes before it, in seconds.
CUT_S = 1.0


def raise_descriptors() -> None:
    """Have as many descriptors as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _most_connections() -> int:
    """Return how many connections there may be: half of the descriptors is left to Redis."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(16, soft // 2 - OTHER_DESCRIPTORS))


class Http(H11Protocol):
    """A connection that speaks HTTP, until it is upgraded.

    Its application finds it as `scope["state"]["http"]`.
    """

    _cut: asyncio.TimerHandle | None = None
    _is_known = False
    _is_last = False
    _heard_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "http": self}
        self.timeout_keep_alive = UNKNOWN_IDLE_S
        self._heard_at = self.loop.time()
        if len(self.connections) > _most_connections() and not self._make_room():
            transport.abort()
        else:
            self._cut = self.loop.call_later(HEAD_S, transport.abort)

    def be_known(self) -> None:
        """Be a connection over which somebody with a token asks."""
        self._is_known = True
        self.timeout_keep_alive = self.config.timeout_keep_alive

    def be_last(self) -> None:
        """Be closed behind the next answer, or the one that is being given."""
        self._is_last = True
        self._say_last()

    def close_if_idle(self) -> None:
        """Close a connection that has been answered, so that its peer asks over another one."""
        if self.cycle is not None and self._is_idle() and not self._is_unfinished():
            self.transport.close()

    def _say_last(self) -> None:
        """Tell the peer with the answer that no other follows, so that it asks over another one."""
        if self._is_last and not self._is_idle() and not self.cycle.response_started:
            self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]

    def _make_room(self) -> bool:
        """Cut the connection that has been idle for longest, rather one of nobody's, if any is."""
        others = (other for other in self.connections if isinstance(other, Http))
        idle = [other for other in others if other is not self and other._is_idle()]
        if not idle:
            return False
        min(idle, key=lambda other: (other._is_known, other._heard_at)).transport.abort()
        return True

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that has begun, or a body nobody waits for, has to end soon."""
        self._heard_at = self.loop.time()
        super().data_received(data)
        self._say_last()
        if not self._is_unfinished():
            self._let_be()
        elif self._cut is None:
            self._cut = self.loop.call_later(HEAD_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End it."""
        self._let_be()
        super().connection_lost(exc)

    def _is_unfinished(self) -> bool:
        """Whether there is something that nobody else looks after.

        Uvicorn does where nothing comes, and whoever wants a body looks after that.
        """
        if self.transport.get_protocol() is not self:  # it is a WebSocket by now
            return False
        if self.conn.their_state is h11.IDLE:
            return self.conn.trailing_data[0] != b""
        return self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete

    def _let_be(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket connection; its application finds it as `scope["state"]["socket"]`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.allow(MOST_UNKNOWN_BYTES)

    def allow(self, size: int) -> None:
        """Take messages of so many bytes from now on."""
        self.conn.max_message_size = size

    def cut_soon(self) -> None:
        """Cut the connection in a moment: the peer may never read what is still to be sent."""
        self.loop.call_later(CUT_S, self.transport.abort)

    def connection_made(self, transport: BaseTransport) -> None:
        """Take over the connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "socket": self}

    async def send(self, message: ASGISendEvent) -> None:
        """Send what the application has; a refused upgrade is an end that uvicorn would log."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """Take a part of a message."""
        if len(self.frames) >= MOST_PARTS:
            self.conn.fail(1009, "too many parts")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer a ping, unless the peer only ever asks."""
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MOST_PONGS_BYTES + MOST_UNKNOWN_BYTES:
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        """Cut a connection whose peer is gone."""
        super().keepalive_timeout()
        self.cut_soon()
