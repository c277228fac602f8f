"""Fetching what others name: from public addresses only, and only so much."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from remoteclaw.host import fetch as fetching
from remoteclaw.host.fetch import Address, _joined, fetch, is_public, post
from remoteclaw.host.files import UnfitFile
from tests.support.rows import for_each

#: What must not be connected to, however it is written.
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
    """Let a test connect to its own server, and to nothing else."""
    return str(address) == "127.0.0.1"


def public_at_any_port(address: Address, port: int) -> bool:
    """Let a test's own server be refused for its address alone."""
    return is_public(address, 443)


#: What servers call a file.
NAMES = {
    "codec.txt": "attachment; filename*=idna''x%80",
    "long.txt": 'attachment; x="' + ";" * 4000,
}


class Server:
    """What the test's server saw, and where it is."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path_qs)
        what = request.match_info["what"]
        if what == "file.png":
            return web.Response(body=b"\x89PNG\r\n\x1a\n")
        if what == "named":
            return web.Response(
                body=b"x", headers={"Content-Disposition": 'attachment; filename="../../plan.pdf"'}
            )
        if what in NAMES:
            return web.Response(body=b"x", headers={"Content-Disposition": NAMES[what]})
        if what == "to":
            # Not HTTPFound: that refuses to send what it can't read itself.
            return web.Response(status=302, headers={"Location": request.query["url"]})
        if what == "round":
            raise web.HTTPFound("/round")
        if what == "packed":
            response = web.Response(body=b"x" * 1000)
            response.headers["Content-Encoding"] = "gzip"
            return response
        if what == "slow":
            await asyncio.sleep(30)
        if what == "drip":
            drip = web.StreamResponse()
            await drip.prepare(request)
            while True:
                await drip.write(b"x")
                await asyncio.sleep(0.01)
        if what == "endless":
            endless = web.StreamResponse()
            await endless.prepare(request)
            while True:
                await endless.write(b"x" * 1_000_000)
        raise web.HTTPNotFound

    def url(self, what: str) -> str:
        return f"http://127.0.0.1:{self.port}/{what}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server on loopback."""
    server = Server()
    app = web.Application()
    app.router.add_get("/{what}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@for_each("address", PRIVATE)
def test_what_only_we_can_reach_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address), 443)


def test_a_redirect_keeps_the_encryption() -> None:
    assert _joined("https://a.example/x", "/y") == "https://a.example/y"
    assert _joined("http://a.example/x", "https://b.example/") == "https://b.example/"
    with pytest.raises(UnfitFile, match="without encryption"):
        _joined("https://a.example/x", "http://a.example/y")


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_what_everybody_can_reach_is_public_on_the_web_s_ports(address: str) -> None:
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
async def test_no_spelling_of_a_private_address_is_connected_to(server: Server, host: str) -> None:
    with pytest.raises(
        UnfitFile, match=r"not a public one|at port|server is unknown|can't be read"
    ):
        await fetch(f"http://{host}:{server.port}/file.png", may_connect=public_at_any_port)

    assert server.seen == []


async def test_a_file_and_its_name(server: Server) -> None:
    name, content = await fetch(server.url("file.png?size=1"), may_connect=on_loopback)

    assert name == "file.png"
    assert content.startswith(b"\x89PNG")
    assert server.seen == ["/file.png?size=1"]


async def test_the_server_s_name_for_it_comes_first(server: Server) -> None:
    name, _ = await fetch(server.url("named"), may_connect=on_loopback)

    assert name == "../../plan.pdf"  # what stores it makes a name of that


@pytest.mark.parametrize("what", NAMES)
async def test_a_name_that_is_nonsense_is_none(server: Server, what: str) -> None:
    assert await fetch(server.url(what), may_connect=on_loopback) == (what, b"x")


async def test_a_redirect_is_followed(server: Server) -> None:
    name, _ = await fetch(server.url("to?url=/file.png"), may_connect=on_loopback)

    assert name == "file.png"


async def test_a_redirect_leads_to_no_private_address(server: Server) -> None:
    with pytest.raises(UnfitFile, match="not a public one"):
        await fetch(server.url("to?url=http://127.0.0.2/"), may_connect=on_loopback)


async def test_a_port_that_is_not_the_webs_is_named() -> None:
    with pytest.raises(UnfitFile, match="at port 6379, not at 80 or 443"):
        await fetch("http://127.0.0.1:6379/")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("nothing", "status 404"),
        ("packed", "packed"),
        ("endless", "larger than 20 MB"),
        ("to?url=to?url=x", "status 404"),
        ("to?url=//[", "can't be read"),
        ("to?url=file:///etc/passwd", "does not begin with http"),
        ("to?url=http://user:secret@127.0.0.1/", "has a login in it"),
    ],
)
async def test_what_is_not_taken(server: Server, what: str, why: str) -> None:
    with pytest.raises(UnfitFile, match=why) as problem:
        await fetch(server.url(what), may_connect=on_loopback)

    assert "secret" not in str(problem.value)


async def test_a_chain_of_redirects_ends(server: Server) -> None:
    with pytest.raises(UnfitFile, match="leads on to more than 5 other addresses"):
        await fetch(server.url("round"), may_connect=on_loopback)

    assert len(server.seen) == 6


@pytest.mark.parametrize("what", ["slow", "drip"])
async def test_a_slow_server_is_not_waited_for(
    server: Server, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCH_S", 0.3)

    with pytest.raises(UnfitFile, match="took longer than"):
        await fetch(server.url(what), may_connect=on_loopback)


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
async def test_a_url_that_is_none(url: str, why: str) -> None:
    with pytest.raises(UnfitFile, match=why):
        await fetch(url, may_connect=on_loopback)


async def test_a_server_that_is_not_there_or_speaks_something_else(server: Server) -> None:
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


async def test_what_is_posted_goes_to_one_public_address_and_encrypted(server: Server) -> None:
    """That it is not sent on, the page's notifications show, which have a certificate."""
    with pytest.raises(UnfitFile, match="does not begin with https://"):
        await post(server.url("file.png"), {}, b"x", may_connect=on_loopback)
    with pytest.raises(UnfitFile, match="not at 80 or 443"):
        await post(f"https://127.0.0.1:{server.port}/", {}, b"x")
    with pytest.raises(UnfitFile, match="not a public one"):
        await post("https://127.0.0.1/", {}, b"x")

    assert server.seen == []
