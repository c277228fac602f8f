"""Fetching files by URL: only from public addresses, and only up to a size."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from remoteclaw.host import fetch as fetching
from remoteclaw.host.fetch import Address, _redirected, fetch, is_public, post
from remoteclaw.host.files import UnfitFile
from tests.support.rows import for_each

#: Addresses to which no connection may be made, in every spelling.
PRIVATE = (
    *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1"),
    *("::1", "::", "fe80::1", "fc00::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b:1::1", "fec0::1"),
    *("::127.0.0.1", "2001:0:4136:e378::1", "::ffff:0:127.0.0.1", "5f00::1", "3fff::1"),
    *("192.0.0.192", "168.63.129.16", "192.88.99.1", "fd00:ec2::254"),
)


def on_loopback(address: Address, port: int) -> bool:
    """Allow connections to the test's own server only."""
    return str(address) == "127.0.0.1"


def public_at_any_port(address: Address, port: int) -> bool:
    """Allow every port of public addresses, so that only the address is a reason to refuse."""
    return is_public(address, 443)


#: Invalid `Content-Disposition` headers, by the name in the URL.
NAMES = {
    "codec.txt": "attachment; filename*=idna''x%80",
    "long.txt": 'attachment; x="' + ";" * 4000,
}


class Server:
    """A server that records the requested paths."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path_qs)
        name = request.match_info["name"]
        if name == "file.png":
            return web.Response(body=b"\x89PNG\r\n\x1a\n")
        if name == "named":
            return web.Response(
                body=b"x", headers={"Content-Disposition": 'attachment; filename="../../plan.pdf"'}
            )
        if name in NAMES:
            return web.Response(body=b"x", headers={"Content-Disposition": NAMES[name]})
        if name == "to":
            # HTTPFound would refuse to send an invalid URL.
            return web.Response(status=302, headers={"Location": request.query["url"]})
        if name == "round":
            raise web.HTTPFound("/round")
        if name == "packed":
            response = web.Response(body=b"x" * 1000)
            response.headers["Content-Encoding"] = "gzip"
            return response
        if name == "slow":
            await asyncio.sleep(30)
        if name == "drip":
            drip = web.StreamResponse()
            await drip.prepare(request)
            while True:
                await drip.write(b"x")
                await asyncio.sleep(0.01)
        if name == "endless":
            endless = web.StreamResponse()
            await endless.prepare(request)
            while True:
                await endless.write(b"x" * 1_000_000)
        raise web.HTTPNotFound

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server on loopback."""
    server = Server()
    app = web.Application()
    app.router.add_get("/{name}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@for_each("address", PRIVATE)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address), 443)


def test_a_redirect_keeps_the_encryption() -> None:
    assert _redirected("https://a.example/x", "/y") == "https://a.example/y"
    assert _redirected("http://a.example/x", "https://b.example/") == "https://b.example/"
    with pytest.raises(UnfitFile, match="without encryption"):
        _redirected("https://a.example/x", "http://a.example/y")


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_allowed_only_at_web_ports(address: str) -> None:
    assert is_public(ipaddress.ip_address(address), 443)
    assert is_public(ipaddress.ip_address(address), 80)
    assert not is_public(ipaddress.ip_address(address), 6379)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "127.1"),
        *("0", "169.254.169.254", "[fe80::1%25lo]"),
    ],
)
async def test_no_connection_is_made_to_any_spelling_of_a_private_address(
    server: Server, host: str
) -> None:
    with pytest.raises(
        UnfitFile, match=r"not a public one|at port|server is unknown|can't be read"
    ):
        await fetch(f"http://{host}:{server.port}/file.png", may_connect=public_at_any_port)

    assert server.seen == []


async def test_fetch_returns_the_name_and_the_content_of_a_file(server: Server) -> None:
    name, content = await fetch(server.url("file.png?size=1"), may_connect=on_loopback)

    assert name == "file.png"
    assert content.startswith(b"\x89PNG")
    assert server.seen == ["/file.png?size=1"]


async def test_the_file_name_given_by_the_server_overrides_the_url(server: Server) -> None:
    name, _ = await fetch(server.url("named"), may_connect=on_loopback)

    assert name == "../../plan.pdf"  # the code that stores the file makes a safe name of it


@pytest.mark.parametrize("path", NAMES)
async def test_an_invalid_file_name_given_by_the_server_is_ignored(
    server: Server, path: str
) -> None:
    assert await fetch(server.url(path), may_connect=on_loopback) == (path, b"x")


async def test_a_redirect_is_followed(server: Server) -> None:
    name, _ = await fetch(server.url("to?url=/file.png"), may_connect=on_loopback)

    assert name == "file.png"


async def test_a_redirect_to_a_private_address_is_refused(server: Server) -> None:
    with pytest.raises(UnfitFile, match="not a public one"):
        await fetch(server.url("to?url=http://127.0.0.2/"), may_connect=on_loopback)


async def test_another_port_than_80_or_443_is_refused() -> None:
    with pytest.raises(UnfitFile, match="at port 6379, not at 80 or 443"):
        await fetch("http://127.0.0.1:6379/")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nothing", "status 404"),
        ("packed", "compressed"),
        ("endless", "larger than 20 MB"),
        ("to?url=to?url=x", "status 404"),
        ("to?url=//[", "can't be read"),
        ("to?url=file:///etc/passwd", "does not begin with http"),
        ("to?url=http://user:secret@127.0.0.1/", "has a login in it"),
    ],
)
async def test_unsuitable_responses_are_refused(server: Server, path: str, why: str) -> None:
    with pytest.raises(UnfitFile, match=why) as problem:
        await fetch(server.url(path), may_connect=on_loopback)

    assert "secret" not in str(problem.value)


async def test_the_number_of_redirects_is_limited(server: Server) -> None:
    with pytest.raises(UnfitFile, match="redirects more than 5 times"):
        await fetch(server.url("round"), may_connect=on_loopback)

    assert len(server.seen) == 6


@pytest.mark.parametrize("path", ["slow", "drip"])
async def test_fetching_from_a_slow_server_is_ended_after_a_time_limit(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCH_S", 0.3)

    with pytest.raises(UnfitFile, match="took longer than"):
        await fetch(server.url(path), may_connect=on_loopback)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://host:port/", "can't be read"),
        ("http://host/a b", "can't be read"),
        ("gopher://host/", "does not begin with"),
        ("http://host/\r\nX: y", "can't be read|server is unknown"),
        (f"http://{'a' * 300}/", "can't be read"),
        ("http://nobody.invalid/", "server is unknown"),
    ],
)
async def test_an_invalid_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(UnfitFile, match=why):
        await fetch(url, may_connect=on_loopback)


async def test_a_missing_server_or_one_without_http_is_reported(server: Server) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-something\r\n")
        writer.close()

    other = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(UnfitFile, match="does not speak HTTP"):
        await fetch(f"http://127.0.0.1:{port}/", may_connect=on_loopback)
    with pytest.raises(UnfitFile, match="can't be reached"):
        await fetch(f"https://127.0.0.1:{port}/", may_connect=on_loopback)
    other.close()
    await other.wait_closed()
    with pytest.raises(UnfitFile, match="can't be reached"):
        await fetch(f"http://127.0.0.1:{port}/", may_connect=on_loopback)


async def test_post_accepts_only_https_at_public_addresses(server: Server) -> None:
    """That redirects are not followed is tested with notifications, which have a certificate."""
    with pytest.raises(UnfitFile, match="does not begin with https://"):
        await post(server.url("file.png"), {}, b"x", may_connect=on_loopback)
    with pytest.raises(UnfitFile, match="not at 80 or 443"):
        await post(f"https://127.0.0.1:{server.port}/", {}, b"x")
    with pytest.raises(UnfitFile, match="not a public one"):
        await post("https://127.0.0.1/", {}, b"x")

    assert server.seen == []
