"""Guests: people with a link to one terminal, who see its screen and nothing else."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import aiohttp
import orjson
import pytest
from starlette.routing import Route, WebSocketRoute

from remoteclaw.clock import now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.terminals.guest_links import MAX_LINKS
from remoteclaw.fleet.terminals.state import HeldLease
from remoteclaw.gateway.auth.principals import Guest
from remoteclaw.gateway.doors.guests import ELSEWHERE, ENDED, OVER
from remoteclaw.gateway.doors.http import create_app
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.page.door import KEY_CHARS, KEY_HEADER, PAGE_HEADER
from remoteclaw.gateway.terminals.viewers import MAX_GUESTS
from remoteclaw.host.tokens import digest
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.cockpit import SseStream
from tests.support.command import run_command
from tests.support.doors import Door, Refused, hello, opened, own_token
from tests.support.promised import good_params
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import eventually
from tests.support.watched import watching

#: All that a guest gets, by event.
SEEN = {
    "about": {"by", "untilMs", "state", "activity"},
    "screen": {"revision", "since", "cols", "rows", "lines", "cursor", "title"},
    "state": {"state", "activity"},
}


#: What everybody gets: the files of the pages, health, and the end of a login that isn't one.
PUBLIC = ("/", "/watch", "/healthz", "/readyz", "/page/{name}", "/page/logout")


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


@contextlib.asynccontextmanager
async def shown_terminal(stack: Stack) -> AsyncIterator[tuple[Door, Gateway, HeldLease]]:
    """Run an idle terminal and a gateway that is attached to it."""
    async with held_terminal(stack) as held, opened(stack) as door:
        gateway = door.gateway
        assert gateway is not None
        await eventually(
            lambda: (one := gateway.terminals.held_record(held.sid)) and one.activity == "idle"
        )
        yield door, gateway, held


@contextlib.asynccontextmanager
async def guest(door: Door, token: str, **headers: str) -> AsyncIterator[SseStream]:
    """Watch as a guest does."""
    sent = {"Authorization": f"Bearer {token}", **headers}
    timeout = aiohttp.ClientTimeout(total=None)
    async with door.http.get(f"{door.url}/watch/screen", headers=sent, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        yield SseStream(response)


async def refusal(door: Door, token: str) -> tuple[int, str]:
    """Return the status and the sentence with which a guest is refused."""
    answer = await door.get("/watch/screen", token)
    return answer.status, answer.json["error"]["message"]


async def text_of(stream: SseStream, wanted: str) -> str:
    """Read the stream until a row contains a text; return all that was read."""
    seen = ""
    while wanted not in seen:
        told = await stream.next()
        assert set(told.data) <= SEEN[told.name], told
        seen += orjson.dumps(told.data).decode()
    return seen


async def test_a_guest_sees_the_screen_and_nothing_of_the_session(stack: Stack) -> None:
    host = "agents.example.org"
    stack.configure(gateway={"hosts": [host]})  # of a proxy in front of the gateway
    async with shown_terminal(stack) as (door, _, held):
        async with door.connected(own_token(stack)) as client:
            before = await client.call(
                "terminals.type", {"sid": held.sid, "keys": ["t:said before"]}
            )
            shared = await client.call("terminals.share", {"sid": held.sid, "minutes": 60})
            assert shared["url"] == f"https://{host}/watch#{shared['token']}"
            assert b"watch.js" in (await door.get("/watch", Host=host)).body
            async with guest(door, shared["token"], Host=host) as stream:
                first = await stream.next()
                assert (first.name, set(first.data)) == ("about", SEEN["about"])
                assert first.data["untilMs"] == shared["expiresMs"]
                seen = await text_of(stream, "said before")
                await client.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
                seen += await text_of(stream, "You said said before.")
                await client.call("terminals.type", {"sid": held.sid, "keys": ["t:ask", "k:enter"]})
                seen += await text_of(stream, '"waiting"')

                # The guest is counted, and the audit names the guest.
                now = await client.call("terminals.get", {"sid": held.sid})
                assert (before["viewers"], now["viewers"]) == (0, 1)
                entries = (await client.call("audit.list"))["entries"]
                assert [(each["who"], each["did"]) for each in entries[:2]] == [
                    (f"a guest of {shared['by']}", "watch"),
                    (shared["by"], "share"),
                ]
        secrets = (held.sid, held.place.files, now["conversation"], "permission to run the tool")
        assert [each for each in secrets if each and each in seen] == []
        stored = await stack.fleet.scripts.client.hgetall(keys.GUEST_LINKS)
        assert shared["token"][-64:] not in repr(stored)


async def test_a_guests_token_opens_no_other_door(stack: Stack) -> None:
    """Each path, method and tool answers as it does without a token: it gives no right at all."""
    async with shown_terminal(stack) as (door, gateway, held):
        async with door.connected(own_token(stack)) as client:
            token = (await client.call("terminals.share", {"sid": held.sid}))["token"]
        half, key = token[:-KEY_CHARS], token[-KEY_CHARS:]
        cookie = {"Cookie": f"remoteclaw_{door.port}={half}", "Origin": door.url}
        for headers in ({}, {PAGE_HEADER: "1", KEY_HEADER: key, **cookie}):
            for route in create_app(gateway).routes:
                if isinstance(route, Route) and route.path != "/watch/screen":
                    await check_path(door, route, token, held.sid, headers)

        assert (await door.get("/mcp", token)).status == 401
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await door.post("/mcp", token, orjson.dumps(body))).status == 401
        for name in (*TOOLS, *METHODS):
            method = TOOLS[name] if name in TOOLS else METHODS[name]
            answer = await door.invoke(token, name, good_params(method))
            assert answer.status == 401, name
        for route in create_app(gateway).routes:
            if isinstance(route, WebSocketRoute):
                await check_socket(door, route.path, token)
        assert gateway.terminals.held_record(held.sid)


async def check_path(
    door: Door, route: Route, token: str, sid: str, headers: dict[str, str]
) -> None:
    """Check that a path answers a guest as it answers a request without any token."""
    path = re.sub(r"\{\w+(:path)?\}", sid, route.path)
    for verb in sorted(route.methods or {"GET"}):
        if verb == "HEAD":
            continue
        bare = {name: value for name, value in headers.items() if name in (PAGE_HEADER, "Origin")}
        without = await door._ask(verb, path, None, b"{}" if verb != "GET" else None, bare)
        answer = await door._ask(verb, path, token, b"{}" if verb != "GET" else None, headers)
        assert answer.status == without.status, (verb, path, answer.body)
        assert answer.status >= 400 or route.path in PUBLIC, (verb, path)


async def check_socket(door: Door, path: str, token: str) -> None:
    """Check that a guest can't connect to a WebSocket."""
    url = f"ws{door.url.removeprefix('http')}{path}"
    half, key = token[:-KEY_CHARS], token[-KEY_CHARS:]
    is_page = path.startswith("/page/")
    more: dict[str, Any] = {"origin": door.url} if is_page else {}
    cookie = {"Cookie": f"remoteclaw_{door.port}={half}"} if is_page else {}
    async with door.socket_at(url, additional_headers=cookie, **more) as client:
        await client.frame()
        with pytest.raises(Refused) as refused:
            await client.call("connect", hello(key if is_page else token))
        assert refused.value.code == "UNAUTHORIZED"


async def test_a_link_ends_by_revocation_expiry_and_with_the_terminal_or_its_maker(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.gateway.TOKEN_CHECK_S", 0.05)
    async with shown_terminal(stack) as (door, _, held):
        user, view = await stack.fleet.tokens.create("bob", "terminal", None)
        links = stack.fleet.guest_links
        async with door.connected(own_token(stack)) as client, door.connected(user) as bobs:
            kept, revoked, by_id = [
                await client.call("terminals.share", {"sid": held.sid}) for _ in range(3)
            ]
            of_bob = await bobs.call("terminals.share", {"sid": held.sid})
            listed = await client.call("terminals.links", {"sid": held.sid})
            made = [kept, revoked, by_id, of_bob]
            assert [each["id"] for each in listed["links"]] == [each["id"] for each in made]
            assert all("token" not in each for each in listed["links"])
            create = partial(links.create, held.sid, by="x", valid_ms=900)
            short, _ = await create(held.place.turn, credential=digest(own_token(stack)))
            earlier, _ = await create("1-1", credential=digest(own_token(stack)))
            assert await refusal(door, earlier) == (410, ENDED)
            async with contextlib.AsyncExitStack() as guests:
                streams = {
                    token: await guests.enter_async_context(guest(door, token))
                    for token in (revoked["token"], by_id["token"], of_bob["token"], short)
                }
                staying = await guests.enter_async_context(guest(door, kept["token"]))
                params = {"sid": held.sid, "link": revoked["id"]}
                left = await client.call("terminals.unshare", params)
                assert revoked["id"] not in [each["id"] for each in left["links"]]
                await client.call("tokens.revoke", {"token": by_id["id"]})
                await client.call("tokens.revoke", {"token": view.id})
                for token, stream in streams.items():
                    await stream.ended()
                    assert await refusal(door, token) == (401, OVER)
                with pytest.raises(Refused, match="no valid link of this terminal"):
                    await client.call("terminals.unshare", params)

                await client.call("terminals.end", {"sid": held.sid})
                await stack.start_worker()
                sweeping = asyncio.create_task(stack.fleet.sweeper.run())
                await staying.ended()
                sweeping.cancel()
        assert await refusal(door, kept["token"]) == (410, ENDED)
        for token in (
            "rcg_0123456789ab_" + "0" * 64,
            "rcg_x",
            own_token(stack),
            kept["token"][:-1],
        ):
            assert await refusal(door, token) == (401, OVER)


async def test_a_link_expires_also_while_redis_is_away(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.gateway.TOKEN_CHECK_S", 0.05)
    async with shown_terminal(stack) as (door, gateway, held):
        create = partial(stack.fleet.guest_links.create, held.sid, held.place.turn, by="x")
        of_owner = digest(own_token(stack))
        short, _ = await create(valid_ms=2000, credential=of_owner)
        long, _ = await create(valid_ms=900_000, credential=of_owner)
        async with guest(door, short) as ending, guest(door, long):
            await asyncio.to_thread(stack.redis.kill)
            await ending.ended()
            assert [each.expires_ms > now_ms() for each in guests_of(gateway)] == [True]
            await asyncio.to_thread(stack.redis.start)


def guests_of(gateway: Gateway) -> list[Guest]:
    """Return the guests who watch at a gateway."""
    return [one.principal for one in gateway.clients if isinstance(one.principal, Guest)]


async def test_a_guest_reads_that_the_link_is_of_another_address(stack: Stack) -> None:
    """A repetition would not help, and the host's name is nothing for guests."""
    session = (await stack.append("hello")).session
    await stack.fleet.scripts.client.hset(
        keys.terminal(session.sid),
        mapping={"key": str(session), "state": "live", "host": "elsewhere", "entry": "1-0"},
    )
    token, _ = await stack.fleet.guest_links.create(
        session.sid, "1-0", by="x", valid_ms=900_000, credential=digest(own_token(stack))
    )
    async with opened(stack) as door:
        assert await refusal(door, token) == (410, ELSEWHERE)


async def test_fifty_guests_of_one_link_watch_and_never_lock_out_a_user(stack: Stack) -> None:
    async with (
        shown_terminal(stack) as (door, gateway, held),
        door.connected(own_token(stack)) as client,
    ):
        token = (await client.call("terminals.share", {"sid": held.sid}))["token"]
        async with contextlib.AsyncExitStack() as guests:
            streams = [
                await guests.enter_async_context(guest(door, token)) for _ in range(MAX_GUESTS)
            ]
            assert MAX_GUESTS >= 50
            status, sentence = await refusal(door, token)
            assert (status, sentence[:15]) == (503, f"{MAX_GUESTS} people watch")
            async with watching(door, own_token(stack), held.sid) as screen:
                await client.call("terminals.type", {"sid": held.sid, "keys": ["t:hello all"]})
                await screen.until("hello all")
                await asyncio.gather(*(text_of(each, "hello all") for each in streams[:50]))

            # For guests alone, no terminal is kept open.
            viewers = gateway.terminals._viewers[held.sid]
            await eventually(lambda: viewers.user_count == 0)
            assert viewers.count == MAX_GUESTS
            seen = gateway.terminals._held[held.sid]._status()
            assert (seen.viewers, seen.unwatched_s > 0) == (0, True)
        await eventually(lambda: viewers.count == 0)


async def test_only_who_may_type_shares_and_only_a_terminal_that_is_open(stack: Stack) -> None:
    secret = secret_file(stack.home.path)
    stack.configure(gateway={"jwt": {"cockpit": {"secret_file": str(secret), "scope": "admin"}}})
    async with shown_terminal(stack) as (door, _, held):
        async with door.connected(own_token(stack)) as client:
            for _ in range(MAX_LINKS):
                await client.call("terminals.share", {"sid": held.sid})
            with pytest.raises(Refused, match=f"{MAX_LINKS} links already"):
                await client.call("terminals.share", {"sid": held.sid})
            assert (await client.call("terminals.unshare", {"sid": held.sid}))["links"] == []
            for minutes in (0, -1, 8 * 24 * 60, 1.5, "60"):
                with pytest.raises(Refused, match="minutes"):
                    await client.call("terminals.share", {"sid": held.sid, "minutes": minutes})
            with pytest.raises(Refused, match="NOT_FOUND"):
                await client.call("terminals.share", {"sid": "0" * 32})
        narrowed, _ = await stack.fleet.tokens.create("c", "admin", None, agents=("other",))
        for token in (signed(secret, scope="admin"), narrowed):
            async with door.connected(token) as client:
                with pytest.raises(Refused, match=r"FORBIDDEN|NOT_FOUND"):
                    await client.call("terminals.share", {"sid": held.sid})
    assert {"terminals.share", "terminals.links", "terminals.unshare"} <= set(HANDLERS)


async def test_links_are_made_listed_and_revoked_on_the_command_line(stack: Stack) -> None:
    async with held_terminal(stack) as held, opened(stack, is_private=True) as door:
        gateway = door.gateway
        assert gateway is not None
        gateway.terminals.address = door.url
        await eventually(lambda: gateway.terminals.held_record(held.sid))

        async def share(*words: str) -> tuple[str, str]:
            command = ("terminals", "share", held.sid, *words)
            result = await asyncio.to_thread(run_command, *command, env=stack.env())
            return result.stdout, result.stderr

        link, about = await share("--hours", "0.5")
        assert link.startswith(f"{door.url}/watch#rcg_")
        assert about.startswith("Who has this link can watch until ")
        (made,) = await stack.fleet.guest_links.of(held.place.turn)
        assert made.expires_ms - made.created_ms == 30 * 60_000
        assert made.id in (await share("--list"))[0]
        (listed,) = orjson.loads((await share("--list", "--json"))[0])["links"]
        assert listed["id"] == made.id
        assert (await share("--revoke"))[0] == "No link to this terminal is valid.\n"
        assert await refusal(door, link.strip().partition("#")[2]) == (401, OVER)
