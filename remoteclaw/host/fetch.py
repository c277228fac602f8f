"""Fetches from, and posts to, an address of another's choice: public ones alone, and bounded.

What an address leads to is looked at when it is connected to, so that neither a name that is looked
up twice (DNS rebinding) nor a redirect gets around it. Proxies of the environment are not used:
they would connect for us, to wherever they like.
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

from remoteclaw.host.files import UnfitFile, size_in_words
from remoteclaw.limits import MAX_ATTACHMENT_BYTES

#: How long a file may take, with all redirects, in seconds. Agents' CLIs give a call up after 60;
#: its turn to fetch and the receipt of what is sent may take 10 of them each.
FETCH_S = 30.0
#: How long it may take to post something, in seconds.
POST_S = 10.0
#: How long a connection may take, in seconds: then another address of the server's is tried.
CONNECT_S = 10.0
#: How often another address may be named.
MAX_REDIRECTS = 5
#: How much is read of what a server calls a file, in characters.
MAX_NAME = 1000
#: The ports that are connected to.
PORTS = frozenset((80, 443))
#: Where a network that has IPv6 alone finds IPv4: the address is the last part.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: The only part of IPv6 that has public addresses.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
#: What IANA's registries of special addresses take out of the rest, and relays to elsewhere: 6to4
#: and Teredo. Python's own table differs between versions. The last one is a cloud's own host,
#: which every machine there reaches under a public address.
_NEVER = tuple(
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
    """Whether an address is public, so that connecting to it reveals nothing of this host."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), port)
        if address not in _GLOBAL_UNICAST:
            return False
    return port in PORTS and not any(address in network for network in _NEVER)


async def fetch(
    url: str, *, may_connect: Callable[[Address, int], bool] = is_public
) -> tuple[str, bytes]:
    """Return the name and the content of the file at a URL; raises `UnfitFile` with the reason."""
    async with _connecting(may_connect, within_s=FETCH_S) as pool:
        for _ in range(MAX_REDIRECTS + 1):
            target = _checked(url)
            request = httpcore2.Request("GET", target, headers=_headers(target))
            response = await pool.handle_async_request(request)
            try:
                if response.status not in (301, 302, 303, 307, 308):
                    return _name(url, response), await _content(response)
                url = _joined(url, _header(response, "location"))
            finally:
                await response.aclose()
    raise UnfitFile(f"it leads on to more than {MAX_REDIRECTS} other addresses")


async def post(
    url: str,
    headers: Mapping[str, str],
    content: bytes,
    *,
    may_connect: Callable[[Address, int], bool] = is_public,
) -> int:
    """Post to an https: URL, and nowhere that it leads on to; return the status of the answer.

    Raises `UnfitFile` with the reason if there is none.
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
    """Have something asked of a server; raises `UnfitFile` with the reason if it fails."""
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
            raise UnfitFile("its server's certificate is not to be trusted") from None
        raise UnfitFile("its server can't be reached") from None
    except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol):
        raise UnfitFile("its server does not speak HTTP") from None


def _joined(url: str, other: str) -> str:
    try:
        target = urljoin(url, other)
        is_downgrade = urlsplit(url).scheme == "https" != urlsplit(target).scheme
    except ValueError:
        raise UnfitFile("it leads on to an address that can't be read") from None
    if is_downgrade:
        raise UnfitFile("it leads from https:// on to an address without encryption")
    return target


def _checked(url: str) -> str:
    """Return a URL as it is asked for; raises `UnfitFile` if we ask for no such."""
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
    place = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{place}{f':{port}' if port else ''}{target}"


def _headers(target: str) -> list[tuple[str, str]]:
    # A content that has to be unpacked could be of any size.
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
        raise UnfitFile("its server sends it packed, though asked not to")
    content = bytearray()
    async for part in response.aiter_stream():
        content += part
        if len(content) > MAX_ATTACHMENT_BYTES:
            raise UnfitFile(f"it is larger than {size_in_words(MAX_ATTACHMENT_BYTES)}")
    return bytes(content)


def _header(response: httpcore2.Response, name: str) -> str:
    wanted = name.encode()
    values = (value for key, value in response.headers if key.lower() == wanted)
    return next(values, b"").decode("latin-1")


def _name(url: str, response: httpcore2.Response) -> str:
    """Return what the server calls the file, else the end of its address."""
    told = email.message.Message()
    told["Content-Disposition"] = _header(response, "content-disposition")[:MAX_NAME]
    try:
        name = told.get_filename()
    except (ValueError, LookupError, TypeError):  # an encoding, or a numbering, that is none
        name = None
    return name or PurePosixPath(unquote(urlsplit(url).path)).name


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to what a name stands for, if that may be connected to."""

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
        """Connect to the first address of a host that may be connected to and answers."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise UnfitFile("its server is unknown") from None
        addresses = [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
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
