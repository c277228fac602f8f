"""Streams of server-sent events: what they tell, from where they go on, and how they end."""

import asyncio
import base64
from typing import Any

import pytest

from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.gateway.doors import sse
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty.tail import MOST, Tail
from tests.support.asks import put_request
from tests.support.cockpit import Cockpit, tell
from tests.support.doors import Door, opened, own_token, raw
from tests.support.shown import ShownRuntime, held_terminal
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


async def terminal(stack: Stack, thread: str = "a", agent: str = "main") -> SessionKey:
    """Have a terminal opened that no worker starts."""
    session = SessionKey(agent, "test", "default", "chat-1", "alice", thread)
    limits = (await asyncio.to_thread(_config, stack)).terminals
    wish = TerminalWish(by="ada", cols=80, rows=24, subdir=None, prompt="")
    await stack.fleet.terminals.open(
        session, wish, people=(), call=thread, host="h", name="main", limits=limits
    )
    return session


def _config(stack: Stack) -> Any:
    return load_config(stack.home.config_file)


async def test_a_session_tells_what_happens_in_it(stack: Stack) -> None:
    session = await terminal(stack)
    before = await tell(stack, session, text="before")
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(f"/sessions/{session.sid}/events") as stream:
            headers = stream.response.headers
            assert headers["Content-Type"].startswith("text/event-stream")
            assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-store", "no")
            first = await stream.next()
            assert stream.retry == 2000
            assert (first.name, first.id) == ("snapshot", before)
            assert first.data["terminal"]["state"] == "starting"
            assert first.data["messages"] == []
            ids = [
                await tell(stack, session, type="state", state="live"),
                await tell(stack, session, text="two\nlines"),
            ]
            told = [await stream.next(), await stream.next()]
        assert [(one.name, one.id) for one in told] == [("state", ids[0]), ("message", ids[1])]
        assert told[1].data["text"] == "two\nlines"

        # Behind the one that was seen last, wherever it is said, and without a snapshot.
        path = f"/sessions/{session.sid}/events"
        async with cockpit.stream(path, **{"Last-Event-ID": ids[0]}) as stream:
            assert (await stream.next()).id == ids[1]
        async with cockpit.stream(f"{path}?after={ids[0]}") as stream:
            assert (await stream.next()).id == ids[1]


@pytest.mark.parametrize("seen", ["0-1", "99999999999999-0", "x", "1", "1-2-3", "-", "(0-0"])
async def test_what_can_t_be_gone_on_from_is_one_reset(stack: Stack, seen: str) -> None:
    session = await terminal(stack)
    newest = await tell(stack, session, text="a")
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        path = f"/sessions/{session.sid}/events"
        async with cockpit.stream(path, **{"Last-Event-ID": seen}) as stream:
            told = [await stream.next(), await stream.next()]
            following = await tell(stack, session, text="b")
            told.append(await stream.next())

    assert [one.name for one in told] == ["reset", "snapshot", "message"]
    assert [one.id for one in told] == ["", newest, following]


async def test_what_an_agent_asks_people_is_told_at_once_and_to_who_comes_later(
    stack: Stack,
) -> None:
    session = await terminal(stack)
    accepted = await stack.append("hello")
    await tell(stack, session, text="before")
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        await stack.fleet.scripts.client.rename(
            *(keys.terminal(one.sid) for one in (session, accepted.session))
        )
        path = f"/sessions/{accepted.session.sid}/events"
        async with cockpit.stream(path) as stream:
            assert (await stream.next()).name == "snapshot"
            request = await put_request(stack, accepted, tool="Bash", what="touch x")
            asked = await stream.next()
            async with cockpit.stream(path) as late:
                again = [await late.next(), await late.next()]

    assert (asked.name, asked.id) == ("ask", again[0].id), "it is told behind what was seen"
    assert (asked.data["id"], asked.data["what"]) == (request.id, "touch x")
    assert [one.name for one in again] == ["snapshot", "ask"]
    assert again[1].data == asked.data


async def test_the_sidebar_is_told_of_all_that_one_may_see(stack: Stack) -> None:
    mine = await terminal(stack, "a")
    narrowed, _ = await stack.fleet.tokens.create("c", "read", None, agents=("main",))
    await terminal(stack, "b", agent="gone")
    async with (
        opened(stack) as door,
        Cockpit(door, own_token(stack)).stream("/events") as all_,
        Cockpit(door, narrowed).stream("/events") as some,
    ):
        first = await some.next()
        assert first.name == "snapshot"
        assert [one["sid"] for one in first.data["terminals"]] == [mine.sid]
        assert (await all_.next()).name == "snapshot"
        other = await terminal(stack, "c")
        for stream in (all_, some):
            told = await stream.next()
            assert (told.name, told.data["sid"]) == ("state", other.sid)


async def test_a_stream_that_is_silent_shows_that_it_lives(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.05)
    session = await terminal(stack)
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(f"/sessions/{session.sid}/events") as stream:
            await stream.next()
            last = asyncio.create_task(stream.next())
            await eventually(lambda: stream.comments > 1)
            await tell(stack, session, text="a")
            assert (await last).data["text"] == "a"


@pytest.mark.parametrize("kind", ["token", "signed"])
async def test_a_token_that_is_not_valid_any_more_ends_its_streams(stack: Stack, kind: str) -> None:
    secret = secret_file(stack.home.path)
    stack.configure(gateway={"jwt": {"cockpit": {"secret_file": str(secret)}}})
    session = await terminal(stack)
    token, view = await stack.fleet.tokens.create("c", "read", None)
    async with opened(stack) as door:
        cockpit = Cockpit(door, token if kind == "token" else signed(secret, jti="1"))
        async with (
            cockpit.stream(f"/sessions/{session.sid}/events") as one,
            cockpit.stream("/events") as all_,
        ):
            await one.next()
            await stack.fleet.tokens.revoke(view.id)
            await stack.fleet.tokens.revoke_jwt("1")

            assert await one.ended() == []
            assert [told.name for told in await all_.ended()] == ["snapshot"]
        assert (await cockpit.ask("GET", "/events")).status == 401


async def test_streams_end_first_when_the_gateway_ends(stack: Stack) -> None:
    session = await terminal(stack)
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(f"/sessions/{session.sid}/events") as stream:
            await stream.next()
            assert door.gateway is not None
            ending = asyncio.create_task(door.gateway.end("stopped", within_s=HANG_S))
            assert await stream.ended() == []
            await ending
            assert not door.gateway.clients


async def test_a_reader_that_takes_nothing_is_cut(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for it meanwhile: what it has not read is read from Redis when it is due."""
    monkeypatch.setattr(sse, "SLOW_S", 0.2)
    session = await terminal(stack)
    async with opened(stack) as door:
        assert door.gateway is not None
        clients = door.gateway.clients
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1024)
        head = f"GET /api/sessions/{session.sid}/events HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(f"{head}Authorization: Bearer {own_token(stack)}\r\n\r\n".encode())
        assert await reader.readuntil(b"snapshot")
        await eventually(lambda: len(clients) == 1)

        for _ in range(200):
            await tell(stack, session, text="x" * 100_000)
        await eventually(lambda: not clients)

        got = b""  # once it reads again, it sees that this was the end
        async with asyncio.timeout(HANG_S):
            while not got.endswith(b"\r\n0\r\n\r\n"):
                got = got[-10:] + await reader.read(2**20)
        writer.close()


async def test_there_are_only_so_many(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_OF_ONE", 2)
    monkeypatch.setattr(sse, "MOST", 3)
    ada, bob = [(await stack.fleet.tokens.create(n, "read", None))[0] for n in ("ada", "bob")]
    async with opened(stack) as door:
        async with Cockpit(door, ada).stream("/events"), Cockpit(door, ada).stream("/events"):
            refused = await Cockpit(door, ada).ask("GET", "/events")
            assert (refused.status, refused.code) == (429, "TOO_MANY")
            assert refused.headers["Retry-After"] == "2"
            async with Cockpit(door, bob).stream("/events"):
                assert (await Cockpit(door, bob).ask("GET", "/events")).status == 429
        assert door.gateway is not None
        clients = door.gateway.clients
        await eventually(lambda: not clients)
        async with Cockpit(door, ada).stream("/events") as stream:
            assert (await stream.next()).name == "snapshot"


async def test_who_may_stream(stack: Stack) -> None:
    session = await terminal(stack, agent="gone")
    narrowed, _ = await stack.fleet.tokens.create("c", "admin", None, agents=("main",))
    async with opened(stack) as door:
        for path in (f"/sessions/{session.sid}/events", f"/sessions/{session.sid}/output"):
            assert (await Cockpit(door, None).ask("GET", path)).status == 401
            assert (await Cockpit(door, narrowed).ask("GET", path)).status == 404
            assert (await Cockpit(door, own_token(stack)).ask("HEAD", path)).status == 400
        output = f"/sessions/{session.sid}/output"
        assert (await Cockpit(door, own_token(stack)).ask("GET", output)).status == 409


# -- pages of other origins ------------------------------------------------------------------------

COCKPIT, EVIL = "https://cockpit.example.org", "https://evil.example.org"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


async def test_a_page_of_a_configured_origin_may_read_what_api_answers(stack: Stack) -> None:
    stack.configure(gateway={"origins": [COCKPIT]})
    async with opened(stack) as door:
        token = own_token(stack)
        asked = await Cockpit(door, None).ask("OPTIONS", "/sessions", Origin=COCKPIT, **ASKS)
        assert (asked.status, asked.body) == (204, b"")
        assert asked.headers["Access-Control-Allow-Origin"] == COCKPIT
        assert asked.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
        assert asked.headers["Access-Control-Allow-Headers"] == (
            "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
        )
        for given in (token, "wrong"):
            answer = await Cockpit(door, given).ask("GET", "/sessions", Origin=COCKPIT)
            assert answer.headers["Access-Control-Allow-Origin"] == COCKPIT
            assert answer.headers["Vary"] == "Origin"
            assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]
            assert "Access-Control-Allow-Credentials" not in answer.headers
        async with Cockpit(door, token).stream("/events", Origin=COCKPIT) as stream:
            assert stream.response.headers["Access-Control-Allow-Origin"] == COCKPIT
            assert (await stream.next()).name == "snapshot"


async def test_other_origins_and_other_paths_are_as_before(stack: Stack) -> None:
    stack.configure(gateway={"origins": [COCKPIT]})
    async with opened(stack) as door:
        token = own_token(stack)
        for headers in ({"Origin": EVIL}, {"Origin": EVIL, **ASKS}, {"Origin": "null"}):
            for verb in ("OPTIONS", "GET"):
                answer = await Cockpit(door, token).ask(verb, "/sessions", **headers)
                assert answer.status == 403
                assert not any("access-control" in name.lower() for name in answer.headers)
        head = f"Host: localhost\r\nOrigin: {COCKPIT}\r\nOrigin: {EVIL}\r\n\r\n"
        assert b" 403 " in await raw(door, f"GET /api/sessions HTTP/1.0\r\n{head}".encode())
        for path in ("/tools/invoke", "/metrics", "/healthz", "/page/whoami"):
            told = await _asked(door, path)
            assert not any("access-control" in name.lower() for name in told), path
        without = await Cockpit(door, token).ask("GET", "/sessions")
        assert without.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Origin" not in without.headers


async def _asked(door: Door, path: str) -> list[str]:
    headers = {"Origin": COCKPIT, **ASKS}
    async with door.http.options(f"{door.url}{path}", headers=headers) as answer:
        return [str(name) for name in answer.headers]


# -- raw output ------------------------------------------------------------------------------------


async def test_raw_output_goes_on_where_it_was(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ShownRuntime)
    async with held_terminal(stack) as held, opened(stack) as door:
        assert door.gateway is not None
        terminals, path = door.gateway.terminals, f"/sessions/{held.sid}/output"
        await eventually(lambda: (one := terminals.known(held.sid)) and one.activity == "idle")
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(path) as stream:
            about, screen = await stream.next(), await stream.next()
            assert "raw output of a program" in about.data["text"]
            assert screen.name == "screen"
            assert ">" in screen.data["text"]
            typed = await cockpit.ask("POST", f"/sessions/{held.sid}/key", {"bytes": [97, 98]})
            assert typed.status == 202
            printed, at = b"", int(screen.id)
            while b"ab" not in printed.replace(b"\x1b[K", b""):
                part = await stream.next()
                assert (part.name, part.data["offset"]) == ("output", at)
                printed += base64.b64decode(part.data["data"])
                at = int(part.id)

        async with cockpit.stream(path, **{"Last-Event-ID": screen.id}) as stream:
            assert (await stream.next()).name == "about"
            again = await stream.next()
            assert (again.name, again.data["offset"]) == ("output", int(screen.id))
            assert base64.b64decode(again.data["data"]).startswith(printed)
        for lost in ("999999999", "x"):
            async with cockpit.stream(path, **{"Last-Event-ID": lost}) as stream:
                assert [(await stream.next()).name for _ in range(2)] == ["about", "screen"]
        async with cockpit.stream(path) as stream:
            assert (await cockpit.ask("DELETE", f"/sessions/{held.sid}")).status == 202
            assert (await stream.ended())[-1].name == "ended"


def test_a_tail_keeps_the_newest_output_once_somebody_follows() -> None:
    tail = Tail()
    tail.put(0, b"a" * 100)
    assert tail.since(0) is None, "nobody has asked for it"
    assert tail.since(100) == b""
    tail.put(100, b"a" * MOST)
    assert tail.since(100) == b"a" * MOST
    tail.put(100 + MOST, b"bc")
    assert (tail.since(101), tail.since(102), tail.since(tail.end + 1)) == (
        None,
        b"a" * (MOST - 2) + b"bc",
        None,
    )
    assert tail.since(tail.end) == b""
    tail.put(10**9, b"x")
    assert (tail.since(100 + MOST), tail.since(10**9)) == (None, b"x")
