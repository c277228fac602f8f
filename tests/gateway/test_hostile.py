"""Clients of terminals that send invalid requests, stall, or repeat themselves.

Each is refused in a sentence, without an effect on other clients.
"""

import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.gateway import address
from remoteclaw.gateway.doors import sse, ws
from remoteclaw.messages import SessionKey
from remoteclaw.runtimes import RUNTIMES
from tests.support.cockpit import Cockpit, tell
from tests.support.doors import Door, Refused, opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import eventually

BIG = 2**63
#: How many clients stall in each way.
ROUNDS = 2
SECRET = "swordfish"


@dataclass(frozen=True)
class Shown:
    """An idle terminal, and a client."""

    session: SessionKey
    door: Door
    cockpit: Cockpit

    @property
    def sid(self) -> str:
        return self.session.sid

    async def screen(self) -> str:
        answer = await self.cockpit.ask("GET", f"/sessions/{self.sid}/screen")
        return str(answer.json["result"]["text"]).strip()


@contextlib.asynccontextmanager
async def shown(stack: Stack) -> AsyncIterator[Shown]:
    async with held_terminal(stack) as held, opened(stack) as door:
        assert door.gateway is not None
        known = door.gateway.terminals.held_record
        await eventually(lambda: (one := known(held.sid)) and one.activity == "idle")
        yield Shown(held.session, door, Cockpit(door, own_token(stack)))


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


def deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


#: Invalid requests, and the status of the answer.
INVALID_REQUESTS: list[tuple[str, str, bytes | None, int]] = [
    *[
        ("POST", "/SID/key", body, 400)
        for body in (
            *(deep(10_000), b'{"bytes":' + deep(1000) + b"}", b'{"key":"\xff"}', b"null", b"{}"),
            *(b'{"bytes":NaN}', b'{"bytes":-1}', b'{"bytes":%d}' % BIG, b'{"bytes":1e400}'),
            *(b'{"bytes":"13"}', b'{"bytes":13.5}', b'{"bytes":[]}', b'{"bytes":13,"key":"up"}'),
            *(b'{"key":"\\ud800"}', b'\xef\xbb\xbf{"bytes":120}', b'{"key":"up","x":1}'),
        )
    ],
    ("POST", "/SID/key", b'{"bytes":120,"bytes":26}', 422),
    ("POST", "/SID/key", b'{"key":["x","nope"]}', 422),
    ("POST", "/SID/input", b'{"text":"\\u0000"}', 422),
    ("POST", "/SID/take", b'{"sid":' + deep(900) + b',"force":"yes"}', 400),
    *[
        ("POST", "/SID/resize", b'{"cols":%s,"rows":24}' % cols, 400)
        for cols in (b"0", b"-1", b"501", b"%d" % BIG, b"80.5", b"true", b"null")
    ],
    *[("GET", f"/SID/messages?{query}", None, 400) for query in ("limit=0", "limit=-1", "x=1")],
    *[("GET", f"/SID/messages?before={at}", None, 400) for at in (-1, BIG, "x", "0-0", "NaN")],
    *[("GET", f"?{query}", None, 400) for query in ("limit=1001", "state=dead", "limit=1&limit=2")],
    *[
        ("GET", f"/{named}", None, 404)
        for named in ("*", "%ff", "z", "z" * 32, "SID/nothing", "..%2f..%2fetc")
    ],
    *[("GET", f"/{named}", None, 400) for named in ("%00", "a" * 9000)],
    ("PUT", "", b"{}", 404),
    ("DELETE", "/nobody", None, 404),
    ("POST", "", b'{"agent":"main","name":"a\\nb"}', 400),
    ("POST", "", b'{"agent":' + deep(1000) + b"}", 400),
]

#: The same over WebSocket, as the method, its parameters and the code.
INVALID_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("terminals.type", {"keys": ["p:" + "€" * 600_000]}, "TOO_LARGE"),
    ("terminals.history", {"start": -1}, "INVALID_REQUEST"),
    ("terminals.history", {"start": 0, "count": BIG}, "INVALID_REQUEST"),
    *[
        ("terminals.type", {"keys": [key]}, "INVALID_REQUEST")
        for key in ("q:x", "b:x", "b:123", "")
    ],
    ("terminals.type", {"keys": ["b:1a"]}, "REFUSED"),
    ("terminals.type", {"keys": ["k:enter"], "submit": True}, "INVALID_REQUEST"),
    ("terminals.type", {"keys": ["p:a", "p:b"], "submit": True}, "INVALID_REQUEST"),
    ("terminals.type", {"keys": ["p:/clear"], "submit": True}, "REFUSED"),
    ("terminals.type", {"keys": ["t:x", "k:nope"]}, "REFUSED"),
    ("terminals.type", {"keys": ["k:nope"]}, "REFUSED"),
    ("terminals.type", {"keys": ["t:" + "x" * 1_200_000]}, "TOO_LARGE"),
    ("terminals.watch", {"from": 1}, "INVALID_REQUEST"),
]


async def test_invalid_terminal_requests_are_refused_in_a_sentence_and_type_nothing(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with shown(stack) as one:
        before = await one.screen()
        unexpected: list[Any] = []
        for verb, path, body, status in INVALID_REQUESTS:
            answer = await one.cockpit.ask(verb, f"/sessions{path}".replace("SID", one.sid), body)
            message = str(answer.json.get("error", {}).get("message"))
            if answer.status != status or "\n" in message or not message.endswith("."):
                unexpected.append((path, body and body[:40], answer.status, message))
        async with one.door.connected(own_token(stack)) as client:
            for method, params, code in INVALID_CALLS:
                with pytest.raises(Refused) as refused:
                    await client.call(method, {"sid": one.sid, **params})
                if refused.value.code != code:
                    unexpected.append((method, code, refused.value))
            history = await client.call("terminals.history", {"sid": one.sid, "start": BIG - 1})
            assert history["rows"] == []
            nested = await client.begin("terminals.take", {"sid": SECRET})
            assert (await client.answer(nested))["error"]["code"] == "NOT_FOUND"

        assert unexpected == []
        assert await one.screen() == before
        submitted = await one.cockpit.ask("POST", f"/sessions/{one.sid}/input", {"text": "hello"})
        assert submitted.status == 202, "the input line is empty"

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert own_token(stack) not in caplog.text


async def test_input_with_a_repeated_idempotency_key_is_not_typed_again(stack: Stack) -> None:
    async with shown(stack) as one:
        at = f"/sessions/{one.sid}"
        for key, path, body in (
            *(("1", "/key", {"bytes": 97}), ("1", "/key", {"bytes": 97})),
            *(("2", "/key", {"bytes": 98}), ("3", "/paste", {"text": "c"})),
            *(("3", "/paste", {"text": "c"}), ("4", "/key", {"key": "enter"})),
            ("4", "/key", {"key": "enter"}),
        ):
            sent = await one.cockpit.ask("POST", at + path, body, **{"Idempotency-Key": key})
            assert sent.status == 202, sent.body

        async def is_answered(text: str) -> bool:
            return (await one.screen()).endswith(f"You said {text}.\n>")

        await eventually(lambda: is_answered("abc"))
        for _ in range(2):
            text = {"text": "once"}
            sent = await one.cockpit.ask("POST", f"{at}/input", text, **{"Idempotency-Key": "5"})
            assert (sent.status, sent.json["result"]["submitted"]) == (202, True)
        await eventually(lambda: is_answered("once"))
        assert (await one.screen()).count("You said once.") == 1


async def test_many_resizes_are_merged_into_few_for_the_program(stack: Stack) -> None:
    async with shown(stack) as one, one.door.connected(own_token(stack)) as client:
        await client.call("terminals.watch", {"sid": one.sid})
        storm = [{"sid": one.sid, "cols": 40 + n % 60, "rows": 10 + n % 20} for n in range(400)]
        for params in storm:
            await client.begin("terminals.resize", params)
        frames: list[dict[str, Any]] = []
        while sum(frame["type"] == "res" for frame in frames) < len(storm):
            frames.append(await client.frame())
        client.events += [frame for frame in frames if frame["type"] == "event"]
        await client.call("terminals.resize", {"sid": one.sid, "cols": 77, "rows": 33})
        sizes = 0
        while (state := await client.event("terminal.state"))["cols"] != 77:
            sizes += 1

    assert state["rows"] == 33
    assert sizes < len(storm) / 4


def connections(port: int) -> int:
    """Return the number of open connections of the listener at a port."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    is_open = [row[3] != "0A" and row[9] != "0" for row in rows]
    at_port = [int(row[1].partition(":")[2], 16) == port for row in rows]
    return sum(map(all, zip(is_open, at_port, strict=True)))


async def test_stalled_clients_delay_no_other_client_and_are_disconnected(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial heads, partial bodies, silent WebSockets, and streams that are not read."""
    monkeypatch.setattr(address, "CLIENT_TIMEOUT_S", 1)
    monkeypatch.setattr(sse, "SEND_TIMEOUT_S", 0.2)
    monkeypatch.setattr(ws, "HANDSHAKE_S", 0.5)
    async with shown(stack) as one:
        host = f"Host: localhost\r\nAuthorization: Bearer {one.cockpit.token}\r\n"
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        stalling = (
            *("", "GET /api/sess", f"GET /api/events HTTP/1.1\r\n{host}"),
            f"POST /api/sessions HTTP/1.1\r\n{host}Content-Length: 1000\r\n\r\n{{",
            f"POST /api/sessions HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n1\r\n{{",
            f"GET /ws HTTP/1.1\r\n{host}{upgrade}",
            f"GET /api/sessions/{one.sid}/events HTTP/1.1\r\n{host}\r\n",
        )
        with contextlib.ExitStack() as stalled:
            for head in stalling * ROUNDS:
                client = stalled.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", one.door.port))
                client.sendall(head.encode())
            assert one.door.gateway is not None
            clients = one.door.gateway.clients
            await eventually(lambda: sum(it.principal is not None for it in clients) == ROUNDS)
            assert (await one.cockpit.ask("GET", f"/sessions/{one.sid}")).status == 200

            for _ in range(40):
                await tell(stack, one.session, text="x" * 100_000)
            # The gateway itself closes unread streams and silent WebSockets.
            others = (len(stalling) - 2) * ROUNDS + 1
            await eventually(lambda: connections(one.door.port) <= others)
            assert not clients
        await eventually(lambda: connections(one.door.port) <= 1)
        assert (await one.cockpit.ask("GET", f"/sessions/{one.sid}")).status == 200
