"""Fetches from, and posts to, URLs that agents or clients name: only public ones, within limits.

The IP address is checked when it is connected to, so that neither a second look-up of the name (DNS
rebinding) nor a redirect gets around the check. Proxies in the environment are not used, because
they would make the connection without the check.
"""

import asyncio
import contextlib
import email.message
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpcore2

from remoteclaw.host.files import UnfitFile, format_size
from remoteclaw.limits import MAX_ATTACHMENT_BYTES

#: How long a fetch may take, with all redirects, in seconds. Agents' CLIs abandon a call after 60,
#: of which the wait for other fetches and the delivery of the file may take 10 each.
FETCH_S = 30.0
#: How long a post may take, in seconds.
POST_S = 10.0
#: How long a connection attempt may take, in seconds, before the server's next address is tried.
CONNECT_S = 10.0
#: The maximum number of redirects.
MAX_REDIRECTS = 5
#: The maximum length of a Content-Disposition header, in characters; the rest is ignored.
MAX_DISPOSITION_CHARS = 1000
#: The only ports that are connected to.
PORTS = frozenset((80, 443))
#: The prefix under which a network that has only IPv6 reaches IPv4 addresses, which are the last 32
#: bits.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: The only range of public IPv6 addresses.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
#: Ranges that are not public: IANA's registries of special-purpose addresses, and the tunnels 6to4
#: and Teredo. `ipaddress.is_global` differs between versions of Python. The last entry is Azure's
#: own service, which every machine there reaches at a public address.
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/3", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
            "168.63.129.16/32",
        ),
    )
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address, port: int) -> bool:
    """Whether an address and a port are public, so that a connection can't reach this network."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), port)
        if address not in _GLOBAL_UNICAST:
            return False
    return port in PORTS and not any(address in network for network in _NOT_PUBLIC)


async def fetch(
    url: str, *, may_connect: Callable[[Address, int], bool] = is_public
) -> tuple[str, bytes]:
    """Return the name and the content of the file at a URL.

    Raises `UnfitFile`, with the reason, if it can't be fetched.
    """
    async with _connecting(may_connect, within_s=FETCH_S) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            target = _checked(url)
            request = httpcore2.Request("GET", target, headers=_headers(target))
            response = await pool.handle_async_request(request)
            try:
                if response.status not in (301, 302, 303, 307, 308):
                    return _name(url, response), await _content(response)
                url = _redirected(url, _header(response, "location"))
            finally:
                await response.aclose()
    raise UnfitFile(f"it redirects more than {MAX_REDIRECTS} times")


async def post(
    url: str,
    headers: Mapping[str, str],
    content: bytes,
    *,
    may_connect: Callable[[Address, int], bool] = is_public,
) -> int:
    """Post to an https: URL, without following redirects; return the HTTP status.

    Raises `UnfitFile`, with the reason, if there is no response.
    """
    target = _checked(url)
    if not target.startswith("https:"):
        raise UnfitFile("its address does not begin with https://")
    own = [("Content-Length", str(len(content))), *headers.items()]
    async with _connecting(may_connect, within_s=POST_S) as pool:
        request = httpcore2.Request(
            "POST", target, headers=[*_headers(target), *own], content=content
        )
        response = await pool.handle_async_request(request)
        await response.aclose()
    return response.status


@contextlib.asynccontextmanager
async def _connecting(
    may_connect: Callable[[Address, int], bool], *, within_s: float
) -> AsyncIterator[httpcore2.AsyncConnectionPool]:
    """Open a pool of connections; raises `UnfitFile`, with the reason, for errors in the body."""
    try:
        async with (
            asyncio.timeout(within_s),
            httpcore2.AsyncConnectionPool(network_backend=_Backend(may_connect)) as pool,
        ):
            yield pool
    except TimeoutError:
        raise UnfitFile(f"its server took longer than {within_s:.0f} s") from None
    except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        if isinstance(error.__cause__ or error.__context__, ssl.SSLCertVerificationError):
            raise UnfitFile("its server's certificate is not trusted") from None
        raise UnfitFile("its server can't be reached") from None
    except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol):
        raise UnfitFile("its server does not speak HTTP") from None


def _redirected(url: str, location: str) -> str:
    """Return the URL to which a response of `url` redirects; raises `UnfitFile`."""
    try:
        target = urljoin(url, location)
        is_downgrade = urlsplit(url).scheme == "https" != urlsplit(target).scheme
    except ValueError:
        raise UnfitFile("it redirects to an address that can't be read") from None
    if is_downgrade:
        raise UnfitFile("it redirects from https:// to an address without encryption")
    return target


def _checked(url: str) -> str:
    """Return a URL in normal form; raises `UnfitFile` if it is invalid or not http(s)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host = host if ":" in host else host.encode("idna").decode()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target.encode("ascii")
    except (ValueError, UnicodeError):
        raise UnfitFile("its address can't be read") from None
    if parts.scheme not in ("http", "https"):
        raise UnfitFile("its address does not begin with http:// or https://")
    if not host or not target.isprintable() or " " in target:
        raise UnfitFile("its address can't be read")
    if parts.username is not None or parts.password is not None:
        raise UnfitFile("its address has a login in it")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{target}"


def _headers(target: str) -> list[tuple[str, str]]:
    # Compressed content could be of any size, so it isn't accepted.
    return [
        ("Host", urlsplit(target).netloc),
        ("User-Agent", "remoteclaw"),
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
    ]


async def _content(response: httpcore2.Response) -> bytes:
    if response.status != 200:
        raise UnfitFile(f"its server answers with status {response.status}")
    if _header(response, "content-encoding") not in ("", "identity"):
        raise UnfitFile("its server sends it compressed, although asked not to")
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > MAX_ATTACHMENT_BYTES:
            raise UnfitFile(f"it is larger than {format_size(MAX_ATTACHMENT_BYTES)}")
    return bytes(content)


def _header(response: httpcore2.Response, name: str) -> str:
    wanted = name.encode()
    values = (value for key, value in response.headers if key.lower() == wanted)
    return next(values, b"").decode("latin-1")


def _name(url: str, response: httpcore2.Response) -> str:
    """Return the file's name in the Content-Disposition header, else the end of the URL's path."""
    headers = email.message.Message()
    disposition = _header(response, "content-disposition")[:MAX_DISPOSITION_CHARS]
    headers["Content-Disposition"] = disposition
    try:
        name = headers.get_filename()
    except (ValueError, LookupError, TypeError):  # an invalid encoding or continuation
        name = None
    return name or PurePosixPath(unquote(urlsplit(url).path)).name


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that `may_connect` allows."""

    def __init__(self, may_connect: Callable[[Address, int], bool]) -> None:
        self._may_connect = may_connect
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first allowed address of a host that answers."""
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise UnfitFile("its server is unknown") from None
        addresses = [ipaddress.ip_address(str(info[0]).partition("%")[0]) for *_, info in infos]
        allowed = [address for address in addresses if self._may_connect(address, port)]
        if not allowed:
            why = "not a public one" if port in PORTS else f"at port {port}, not at 80 or 443"
            raise UnfitFile(f"its address is {why}")
        for address in allowed:
            with contextlib.suppress(httpcore2.NetworkError, httpcore2.TimeoutException):
                return await self._network.connect_tcp(
                    str(address), port, timeout=CONNECT_S, socket_options=socket_options
                )
        raise httpcore2.ConnectError
