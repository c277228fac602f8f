"""Terminals over HTTP: each route calls a method, and the status shows the result."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.config.load import load_config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.doors.rest import MAX_INPUT_CHARS, MAX_PASTE_CHARS, REST_ROUTES
from remoteclaw.gateway.methods.terminals import GONE, NO_PLACE
from remoteclaw.messages import TerminalWish
from remoteclaw.runtimes import RUNTIMES
from tests.support.cockpit import Cockpit, Terminals
from tests.support.doors import Refused, calling, opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime
from tests.support.waiting import eventually

SUBMITTED = {"keys": ["p:hello"], "submit": True, "clear": False}


@pytest.mark.parametrize(
    ("verb", "path", "body", "method", "params", "status"),
    [
        *[
            ("POST", "", {"agent": "main", "prompt": "hi", "subdir": "a/b"}, "open", ..., 201),
            ("GET", "?agent=main&state=live&limit=5", None, "list", {"limit": 5}, 200),
            ("GET", "/SID", None, "get", {}, 200),
            ("GET", "/SID/screen", None, "screen", {}, 200),
            ("POST", "/SID/input", {"text": "hello"}, "type", SUBMITTED, 202),
            ("POST", "/SID/key", {"bytes": 13}, "type", {"keys": ["b:0d"]}, 202),
            ("POST", "/SID/key", {"bytes": [27, 91, 65]}, "type", {"keys": ["b:1b5b41"]}, 202),
            ("POST", "/SID/key", {"key": "esc"}, "type", {"keys": ["k:esc"]}, 202),
            ("POST", "/SID/key", {"key": ["up", "f5"]}, "type", {"keys": ["k:up", "k:f5"]}, 202),
            ("POST", "/SID/paste", {"text": "a\nb"}, "type", {"keys": ["p:a\nb"]}, 202),
            ("POST", "/SID/resize", {"cols": 80, "rows": 24}, "resize", ..., 202),
            ("POST", "/SID/take", {"force": True}, "take", ..., 200),
            ("POST", "/SID/resume", {"cols": 80, "rows": 24}, "open", ..., 202),
            ("POST", "/SID/park", None, "park", {}, 202),
            ("DELETE", "/SID", None, "end", {}, 202),
        ]
    ],
)
async def test_each_rest_route_calls_its_method(
    stack: Stack, verb: str, path: str, body: Any, method: str, params: Any, status: int
) -> None:
    sid = (await stack.append("hello")).session.sid
    terminals = Terminals()
    async with opened(stack, terminals.handlers) as door:
        cockpit = Cockpit(door, own_token(stack))
        answer = await cockpit.ask(
            verb, f"/sessions{path.replace('SID', sid[:10])}", body, **{"Idempotency-Key": "k"}
        )
        again = await cockpit.ask(
            verb, f"/sessions{path.replace('SID', sid)}", body, **{"Idempotency-Key": "k"}
        )

    assert (answer.status, again.status) == (status, status), answer.body
    assert answer.json["ok"] is True
    calls = [one for one in terminals.asked if one[0] == f"terminals.{method}"]
    (_, given, call), (_, _, same_call) = calls
    assert call == same_call, "a repeated request has the same call id"
    path_params = {"resume": {"session": sid[:10], "resume": True}, "": {}}.get(
        path.rpartition("/")[2], {"sid": sid[:10]}
    )
    wanted = {**(path_params if "SID" in path else {}), **(body if params is ... else params)}
    if "?" in path:
        wanted |= {"agent": "main", "state": "live"}
    assert given == wanted
    if status == 201:
        assert answer.headers["Location"] == f"/api/sessions/{'0' * 32}"
        assert answer.json["result"]["state"] == "starting", "the record itself"


def test_every_rest_route_is_tested() -> None:
    tested = test_each_rest_route_calls_its_method.pytestmark[0].args[1]
    rows = {(row[0], row[1].partition("?")[0].replace("SID", "{sid}")) for row in tested}

    assert {(route.verb, route.path) for route in REST_ROUTES} == rows | {
        ("GET", "/{sid}/messages")
    }


@pytest.mark.parametrize(
    ("created", "waits", "state", "opening", "resuming"),
    [
        (True, False, "starting", 201, 202),
        (True, True, "starting", 202, 202),
        (False, False, "live", 200, 200),
        (False, False, "starting", 200, 202),
    ],
)
async def test_the_status_says_whether_anything_was_started(
    stack: Stack, created: bool, waits: bool, state: str, opening: int, resuming: int
) -> None:
    sid = (await stack.append("hello")).session.sid
    terminals = Terminals()
    terminals.created, terminals.waits, terminals.state = created, waits, state
    async with opened(stack, terminals.handlers) as door:
        cockpit = Cockpit(door, own_token(stack))

        assert (await cockpit.ask("POST", "/sessions", {"agent": "main"})).status == opening
        assert (await cockpit.ask("POST", f"/sessions/{sid}/resume", {})).status == resuming


async def test_every_forbidden_terminal_is_refused_with_the_same_message(stack: Stack) -> None:
    """A missing agent, an agent outside the token and a bad directory can't be told apart."""
    with_agent(stack, "other")
    narrowed, _ = await stack.fleet.tokens.create("c", "write", None, agents=("other",))
    bodies: list[tuple[str | None, dict[str, Any]]] = [
        (None, {"agent": "nobody"}),
        (narrowed, {"agent": "main"}),
        (narrowed, {"agent": "nobody"}),
        *(
            (None, {"agent": "main", "subdir": subdir})
            for subdir in ("..", "../x", "a/../b", "/etc", "a\0b", "/".join("a" * 33))
        ),
    ]
    async with opened(stack) as door:
        answers = [
            await Cockpit(door, token or own_token(stack)).ask("POST", "/sessions", body)
            for token, body in bodies
        ]
        async with door.connected(own_token(stack)) as client:
            for _, body in bodies[3:]:
                with pytest.raises(Refused, match=NO_PLACE):
                    await client.call("terminals.open", body)
        fits = {"agent": "main", "subdir": "/".join("a" * 32)}
        fitting = await Cockpit(door, own_token(stack)).ask("POST", "/sessions", fits)
        assert (fitting.status, fitting.code) == (503, "UNAVAILABLE"), "no worker runs"

    error = {"code": "INVALID_REQUEST", "message": NO_PLACE}
    assert [(answer.status, answer.json["error"]) for answer in answers] == [(400, error)] * 9
    assert await stack.fleet.terminals.recent() == []


#: Invalid requests, the status of the answer, and a part of its message.
INVALID_REQUESTS: list[tuple[str, Any, int, str]] = [
    ("/SID/input", b"{", 400, "not a JSON object"),
    ("/SID/input", b"[]", 400, "not a JSON object"),
    ("/SID/input", {}, 400, "text"),
    ("/SID/input", {"text": "x" * (MAX_INPUT_CHARS + 1)}, 413, "longer than 100000"),
    ("/SID/paste", {"text": "x" * (MAX_PASTE_CHARS + 1)}, 413, "longer than 1000000"),
    ("", {"agent": "main", "prompt": "x" * (MAX_INPUT_CHARS + 1)}, 400, "prompt"),
    ("/SID/key", {"bytes": 256}, 400, "bytes"),
    ("/SID/key", {"bytes": [13] * 65}, 400, "bytes"),
    ("/SID/key", {"bytes": True}, 400, "bytes"),
    ("/SID/resize", {"cols": 19, "rows": 24}, 400, "cols"),
    ("/SID/park", {"x": 1}, 400, "x is no parameter"),
    ("/SID/park", {"sid": "other"}, 202, ""),  # the path names the terminal
]


async def test_invalid_terminal_requests_over_rest_say_what_is_wrong(stack: Stack) -> None:
    sid = (await stack.append("hello")).session.sid
    async with opened(stack, Terminals().handlers) as door:
        cockpit = Cockpit(door, own_token(stack))
        for path, body, status, why in INVALID_REQUESTS:
            answer = await cockpit.ask("POST", f"/sessions{path.replace('SID', sid)}", body)
            assert answer.status == status, (path, body, answer.body)
            assert why in answer.body.decode()


@pytest.mark.parametrize(
    ("refusal", "status", "after"),
    [
        (CallRefused("CONFLICT", "Another one types."), 409, None),
        (CallRefused("GONE", "The conversation is gone."), 410, None),
        (CallRefused("REFUSED", "It begins with !."), 422, None),
        (CallRefused("TOO_MANY", "Too often.", retry_after_s=6.2), 429, "7"),
        (CallRefused("TIMEOUT", "Typed, and not seen taken."), 504, None),
        (CallRefused("UNAVAILABLE", "No worker."), 503, None),
    ],
)
async def test_each_refusal_over_rest_has_its_http_status(
    stack: Stack, refusal: CallRefused, status: int, after: str | None
) -> None:
    sid = (await stack.append("hello")).session.sid
    terminals = Terminals()
    terminals.refuses = refusal
    async with opened(stack, terminals.handlers) as door:
        cockpit = Cockpit(door, own_token(stack))
        answer = await cockpit.ask("POST", f"/sessions/{sid}/input", {"text": "x"})

    assert (answer.status, answer.headers.get("Retry-After")) == (status, after)
    assert answer.json == {"ok": False, "error": {"code": refusal.code, "message": str(refusal)}}


#: Valid bodies for the routes that need one.
VALID_BODIES = {
    **{"input": {"text": "x"}, "key": {"bytes": 13}, "paste": {"text": "x"}},
    "resize": {"cols": 80, "rows": 24},
}


def with_agent(stack: Stack, name: str) -> None:
    """Configure one more agent."""
    tree = tomlkit.parse(stack.home.config_file.read_text()).unwrap()
    tree["agents"][name] = {"runtime": "demo"}
    stack.home.config_file.write_text(tomlkit.dumps(tree))


async def test_rest_routes_check_token_scope_and_agent(stack: Stack) -> None:
    with_agent(stack, "other")
    sid = (await stack.append("hello", channel_id="other")).session.sid
    narrowed, _ = await stack.fleet.tokens.create("c", "admin", None, agents=("other",))
    reads, _ = await stack.fleet.tokens.create("r", "read", None)
    async with (
        opened(stack, Terminals().handlers) as door,
        calling(stack) as agent,
    ):
        for verb, path in [(one.verb, one.path.replace("{sid}", sid)) for one in REST_ROUTES]:
            path = f"/sessions{path}"  # noqa: PLW2901
            refused = await Cockpit(door, None).ask(verb, path)
            assert (refused.status, refused.code) == (401, "UNAUTHORIZED"), path
            assert (await Cockpit(door, "wrong").ask(verb, path)).status == 401, path
            assert (await Cockpit(door, agent.token).ask(verb, path)).status == 403, path
            if sid in path:
                body = VALID_BODIES.get(path.rpartition("/")[2])
                for_others = await Cockpit(door, narrowed).ask(verb, path, body)
                assert (for_others.status, for_others.code) == (404, "NOT_FOUND"), path
            by_reader = await Cockpit(door, reads).ask(verb, path)
            assert (by_reader.status == 403) is (verb != "GET"), path
        # A prefix of the id of another agent's session is not found either.
        begun = await Cockpit(door, narrowed).ask("GET", f"/sessions/{sid[:8]}")
        assert begun.status == 404
        assert sid not in begun.body.decode()
        # Cookies are accepted from the page only.
        cookie = {"Cookie": f"remoteclaw_{door.port}={reads}"}
        assert (await Cockpit(door, None, cookie).ask("GET", "/sessions")).status == 401


async def test_messages_over_rest_are_the_sessions_history(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    sid = accepted.session.sid
    async with opened(stack, Terminals().handlers) as door:
        cockpit = Cockpit(door, own_token(stack))
        answer = await cockpit.ask("GET", f"/sessions/{sid}/messages?limit=5")
        assert answer.json["result"]["items"][0]["text"] == "hello"
        assert (await cockpit.ask("GET", f"/sessions/{sid}/messages?limit=x")).status == 400
        assert (await cockpit.ask("GET", f"/sessions/{sid}/messages?limit=1&limit=2")).status == 400

        client = stack.fleet.scripts.client
        await client.delete(keys.record(sid))
        gone = await cockpit.ask("GET", f"/sessions/{sid}/messages")

    assert (gone.status, gone.code) == (410, "GONE")


async def test_a_client_that_opens_terminals_too_often_is_told_when_to_retry(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three openings at once, and then one every ten seconds, as a page may poll too eagerly."""
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    await stack.start_worker()
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        answers = [
            await cockpit.ask("POST", "/sessions", {"agent": "main", "name": f"n{number}"})
            for number in range(4)
        ]

    assert [answer.status for answer in answers] == [201, 201, 201, 429]
    assert answers[3].code == "TOO_MANY"
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 10


# -- resumable terminals, and other hosts --------------------------------------------------------


async def put_terminal(stack: Stack, **fields: str) -> str:
    """Create a session with the record of a terminal; return the session's id."""
    session = (await stack.append("hello")).session
    values = {"key": str(session), "state": "parked", "host": stack.home.host_id, **fields}
    record: Any = [part for field in values.items() for part in field]
    await stack.fleet.scripts.client.hset(keys.terminal(session.sid), items=record)
    return session.sid


async def test_a_terminal_is_resumable_while_its_transcript_exists(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    where = orjson.dumps({"runtime": "demo", "workspace": str(directory), "places": {}}).decode()
    sid = await put_terminal(stack, conversation="c", where=where, entry="1-0")
    await stack.start_worker()
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))

        async def is_resumable() -> bool:
            return bool((await cockpit.ask("GET", f"/sessions/{sid}")).json["result"]["resumable"])

        assert not await is_resumable()
        gone = await cockpit.ask("POST", f"/sessions/{sid}/resume", {})
        assert (gone.status, gone.code) == (410, "GONE")
        assert gone.json["error"]["message"] == GONE
        (directory / "nothing").write_text("x\n")  # which is this program's transcript
        assert await is_resumable()
        (one,) = (await cockpit.ask("GET", "/sessions")).json["result"]["terminals"]
        assert (one["sid"], one["resumable"]) == (sid, True)
        (directory / "nothing").unlink()
        assert not await is_resumable()
        (directory / "nothing").write_text("x\n")
        assert (await cockpit.ask("POST", f"/sessions/{sid}/resume", {})).status == 202
        assert not await is_resumable(), "it is open"
    record = await stack.fleet.terminals.record(sid)
    assert record is not None
    assert (record.conversation, record.where) == ("c", where), "whether it starts or not"


async def test_a_host_with_too_little_memory_opens_no_terminal(stack: Stack) -> None:
    stack.configure(terminals={"min_memory_mb": 1_000_000})
    await stack.start_worker()
    async with opened(stack) as door:
        answer = await Cockpit(door, own_token(stack)).ask("POST", "/sessions", {"agent": "main"})
    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "UNAVAILABLE", "30")
    assert "too little memory left" in answer.json["error"]["message"]
    assert await stack.fleet.terminals.recent() == []

    session = (await stack.append("hello")).session  # another host's gateway can't check this host
    wish = TerminalWish(by="ada", cols=80, rows=24)
    limits = load_config(stack.home.config_file).terminals
    about: dict[str, Any] = {"people": (), "call": "1", "host": "h", "name": "", "limits": limits}
    await stack.fleet.terminals.open(session, wish, **about)

    async def why() -> str:
        record = await stack.fleet.terminals.record(session.sid)
        return record.reason if record else ""

    assert "too little memory left" in str(await eventually(why))


async def test_a_terminal_on_another_host_is_refused_with_the_hosts_name(stack: Stack) -> None:
    sid = await put_terminal(stack, state="live", host="elsewhere", cols="80", rows="24")
    async with opened(stack) as door:
        cockpit = Cockpit(door, own_token(stack))
        listed = (await cockpit.ask("GET", "/sessions")).json["result"]["terminals"]
        terminal = (await cockpit.ask("GET", f"/sessions/{sid}")).json["result"]
        assert [one["host"] for one in (*listed, terminal)] == ["elsewhere"] * 2
        refusals = [
            await cockpit.ask(verb, f"/sessions/{sid}/{path}", body)
            for verb, path, body in (
                *(("GET", "screen", None), ("GET", "output", None), ("POST", "take", {})),
                *(("POST", name, body) for name, body in VALID_BODIES.items()),
            )
        ]
        async with door.connected(own_token(stack)) as client:
            with pytest.raises(Refused, match="CONFLICT: The terminal is open on elsewhere"):
                await client.call("terminals.watch", {"sid": sid})

    assert {(one.status, one.code) for one in refusals} == {(409, "CONFLICT")}
    assert {one.json["error"]["message"] for one in refusals} == {
        "The terminal is open on elsewhere: only that host's gateway shows it."
    }
