"""Streams of server-sent events: their events, how they resume, and how they end."""

import asyncio
import base64
from typing import Any

import pyte
import pytest

from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.gateway.doors import sse
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty.tail import MAX_TAIL_BYTES, Tail
from tests.support.cockpit import Cockpit, tell
from tests.support.doors import Door, opened, own_token, raw
from tests.support.requests import put_request
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import HANG_S, eventually


async def terminal(stack: Stack, thread: str = "a", agent: str = "main") -> SessionKey:
    """Open a terminal that no worker starts."""
    session = SessionKey(agent, "test", "default", "chat-1", "alice", thread)
    limits = (await asyncio.to_thread(_config, stack)).terminals
    wish = TerminalWish(by="ada", cols=80, rows=24, subdir=None, prompt="")
    await stack.fleet.terminals.open(
        session, wish, people=(), call=thread, host="h", name="main", limits=limits
    )
    return session


def _config(stack: Stack) -> Any:
    return load_config(stack.home.config_file)


async def test_a_session_stream_sends_a_snapshot_then_events_and_resumes(stack: Stack) -> None:
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
            events = [await stream.next(), await stream.next()]
        assert [(one.name, one.id) for one in events] == [("state", ids[0]), ("message", ids[1])]
        assert events[1].data["text"] == "two\nlines"

        # It resumes after the last event, named by header or query, without a snapshot.
        path = f"/sessions/{session.sid}/events"
        async with cockpit.stream(path, **{"Last-Event-ID": ids[0]}) as stream:
            assert (await stream.next()).id == ids[1]
        async with cockpit.stream(f"{path}?after={ids[0]}") as stream:
            assert (await stream.next()).id == ids[1]


async def test_the_stream_of_a_session_without_a_terminal_follows_its_turns(stack: Stack) -> None:
    first = await stack.append("hello")
    await stack.start_worker()
    assert await stack.fleet.outcomes.wait(first.session.sid, first.entry_id, timeout_s=HANG_S)
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(f"/sessions/{first.session.sid[:10]}/events") as stream:
            snapshot = await stream.next()
            second = await stack.append("hello again")
            events = [await stream.next()]
            while events[-1].name != "outcome":
                events.append(await stream.next())
        unknown = await cockpit.ask("GET", "/sessions/0123abcd/events")

    assert (snapshot.name, snapshot.data["terminal"]) == ("snapshot", None)
    assert [item["text"] for item in snapshot.data["messages"]][:1] == ["hello"]
    assert {event.name for event in events} == {"live", "outcome"}
    assert events[0].data["turn"] == second.entry_id
    assert events[-1].data["runId"] == f"{first.session.sid}-{second.entry_id}"
    assert events[-1].data["status"] == "done"
    assert unknown.status == 404


@pytest.mark.parametrize("seen", ["0-1", "99999999999999-0", "x", "1", "1-2-3", "-", "(0-0"])
async def test_a_stream_that_cannot_be_resumed_sends_one_reset(stack: Stack, seen: str) -> None:
    session = await terminal(stack)
    newest = await tell(stack, session, text="a")
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        path = f"/sessions/{session.sid}/events"
        async with cockpit.stream(path, **{"Last-Event-ID": seen}) as stream:
            events = [await stream.next(), await stream.next()]
            following = await tell(stack, session, text="b")
            events.append(await stream.next())

    assert [one.name for one in events] == ["reset", "snapshot", "message"]
    assert [one.id for one in events] == ["", newest, following]


async def test_a_request_is_streamed_at_once_and_to_clients_that_connect_later(
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
            event = await stream.next()
            async with cockpit.stream(path) as late:
                again = [await late.next(), await late.next()]

    assert (event.name, event.id) == ("request", again[0].id), (
        "its id is that of the last stored event"
    )
    assert (event.data["id"], event.data["what"]) == (request.id, "touch x")
    assert [one.name for one in again] == ["snapshot", "request"]
    assert again[1].data == event.data


async def test_the_events_stream_covers_all_sessions_that_a_token_may_see(stack: Stack) -> None:
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
            event = await stream.next()
            assert (event.name, event.data["sid"]) == ("state", other.sid)


async def test_a_silent_stream_sends_keep_alive_comments(
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
async def test_streams_end_when_their_token_becomes_invalid(stack: Stack, kind: str) -> None:
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
            assert [event.name for event in await all_.ended()] == ["snapshot"]
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


async def test_a_stream_that_its_client_does_not_read_is_closed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread events are not buffered: they are read from Redis when the client takes them."""
    monkeypatch.setattr(sse, "SEND_TIMEOUT_S", 0.2)
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

        received = b""  # when the client reads again, it sees the end of the stream
        async with asyncio.timeout(HANG_S):
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received = received[-10:] + await reader.read(2**20)
        writer.close()


async def test_streams_are_limited_per_operator_and_in_total(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MAX_STREAMS_PER_OPERATOR", 2)
    monkeypatch.setattr(sse, "MAX_STREAMS", 3)
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


async def test_streams_check_the_token_and_its_agents(stack: Stack) -> None:
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
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
}


async def test_a_page_of_a_configured_origin_may_read_the_answers_of_the_api(stack: Stack) -> None:
    stack.configure(gateway={"origins": [COCKPIT]})
    async with opened(stack) as door:
        token = own_token(stack)
        preflight = await Cockpit(door, None).ask(
            "OPTIONS", "/sessions", Origin=COCKPIT, **PREFLIGHT
        )
        assert (preflight.status, preflight.body) == (204, b"")
        assert preflight.headers["Access-Control-Allow-Origin"] == COCKPIT
        assert preflight.headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE"
        assert preflight.headers["Access-Control-Allow-Headers"] == (
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


async def test_other_origins_and_other_paths_get_no_cors_headers(stack: Stack) -> None:
    stack.configure(gateway={"origins": [COCKPIT]})
    async with opened(stack) as door:
        token = own_token(stack)
        for headers in ({"Origin": EVIL}, {"Origin": EVIL, **PREFLIGHT}, {"Origin": "null"}):
            for verb in ("OPTIONS", "GET"):
                answer = await Cockpit(door, token).ask(verb, "/sessions", **headers)
                assert answer.status == 403
                assert not any("access-control" in name.lower() for name in answer.headers)
        head = f"Host: localhost\r\nOrigin: {COCKPIT}\r\nOrigin: {EVIL}\r\n\r\n"
        assert b" 403 " in await raw(door, f"GET /api/sessions HTTP/1.0\r\n{head}".encode())
        for path in ("/tools/invoke", "/metrics", "/healthz", "/page/whoami"):
            names = await _preflight_headers(door, path)
            assert not any("access-control" in name.lower() for name in names), path
        without = await Cockpit(door, token).ask("GET", "/sessions")
        assert without.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Origin" not in without.headers


async def _preflight_headers(door: Door, path: str) -> list[str]:
    headers = {"Origin": COCKPIT, **PREFLIGHT}
    async with door.http.options(f"{door.url}{path}", headers=headers) as answer:
        return [str(name) for name in answer.headers]


# -- raw output ------------------------------------------------------------------------------------


async def test_a_stream_of_raw_output_resumes_at_the_last_offset(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    async with held_terminal(stack) as held, opened(stack) as door:
        assert door.gateway is not None
        terminals, path = door.gateway.terminals, f"/sessions/{held.sid}/output"
        await eventually(
            lambda: (one := terminals.held_record(held.sid)) and one.activity == "idle"
        )
        cockpit = Cockpit(door, own_token(stack))
        async with cockpit.stream(path) as stream:
            about, screen = await stream.next(), await stream.next()
            assert "raw output of a program" in about.data["text"]
            assert screen.name == "vt"
            size = (screen.data["cols"], screen.data["rows"])
            emulator = pyte.Screen(*size)
            output = pyte.ByteStream(emulator)
            output.feed(base64.b64decode(screen.data["data"]))
            assert emulator.display[0].rstrip() == ">"
            assert (emulator.cursor.y, emulator.cursor.x) == (0, 2)
            typed = await cockpit.ask("POST", f"/sessions/{held.sid}/key", {"bytes": [97, 98]})
            assert typed.status == 202
            printed, at = b"", int(screen.id)
            while b"ab" not in printed.replace(b"\x1b[K", b""):
                part = await stream.next()
                assert (part.name, part.data["offset"]) == ("output", at)
                printed += base64.b64decode(part.data["data"])
                output.feed(base64.b64decode(part.data["data"]))
                at = int(part.id)
            assert emulator.display[0].rstrip() == "> ab", "a client's emulator shows the same"

        async with cockpit.stream(path, **{"Last-Event-ID": screen.id}) as stream:
            assert (await stream.next()).name == "about"
            again = await stream.next()
            assert (again.name, again.data["offset"]) == ("output", int(screen.id))
            assert base64.b64decode(again.data["data"]).startswith(printed)
        for lost in ("999999999", "x"):
            async with cockpit.stream(path, **{"Last-Event-ID": lost}) as stream:
                assert [(await stream.next()).name for _ in range(2)] == ["about", "vt"]
        async with cockpit.stream(path) as stream:
            assert (await cockpit.ask("DELETE", f"/sessions/{held.sid}")).status == 202
            assert (await stream.ended())[-1].name == "ended"


def test_a_tail_keeps_the_newest_output_after_its_first_read() -> None:
    tail = Tail()
    tail.put(0, b"a" * 100)
    assert tail.since(0) is None, "nothing is kept before the first read"
    assert tail.since(100) == b""
    tail.put(100, b"a" * MAX_TAIL_BYTES)
    assert tail.since(100) == b"a" * MAX_TAIL_BYTES
    tail.put(100 + MAX_TAIL_BYTES, b"bc")
    assert (tail.since(101), tail.since(102), tail.since(tail.end + 1)) == (
        None,
        b"a" * (MAX_TAIL_BYTES - 2) + b"bc",
        None,
    )
    assert tail.since(tail.end) == b""
    tail.put(10**9, b"x")
    assert (tail.since(100 + MAX_TAIL_BYTES), tail.since(10**9)) == (None, b"x")
