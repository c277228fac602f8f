"""Requests of a terminal's program, which are shown in the chat and answered without keys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.load import parse_config
from remoteclaw.config.model import Config, RecordConfig, TerminalsConfig
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.requests.request import Request, RequestAnswer, Verdict
from remoteclaw.fleet.terminals.state import HeldLease, TerminalTurn
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.runtimes.opencode.terminal import OpencodeWatch
from remoteclaw.runtimes.terminal import TerminalNotes
from remoteclaw.session.terminal_requests import TerminalRequests
from tests.support.leases import acquire
from tests.support.opencode import MAIN, Server
from tests.support.stack import message
from tests.support.terminals import place_of
from tests.support.waiting import eventually

ALICE = parse_config(b'[requests]\nwho = "sender"', Path("remoteclaw.toml"), {})
WEEK_MS = 7 * 86_400_000
NO_APPROVERS = parse_config(b"", Path("remoteclaw.toml"), {})


def requests_of(fleet: Fleet, held: HeldLease, config: Callable[[], Config]) -> TerminalRequests:
    return TerminalRequests(fleet.terminals, fleet.requests, fleet.blobs, held, config)


@pytest.fixture
async def held(fleet: Fleet) -> HeldLease:
    """Return the lease of a running terminal that was opened for Alice."""
    accepted = await fleet.terminals.open(
        SessionKey.of(message("hello"), agent="main"),
        TerminalWish(by="Alice", cols=80, rows=24),
        people=("test:alice",),
        call="1",
        host="here",
        name="main",
        limits=TerminalsConfig(),
    )
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    place = place_of(accepted.entry_id, people=("test:alice",))
    own = TerminalTurn(lease)
    await own.place(place)
    await own.hold(place, "1 2 3", hold_s=600)
    (terminal,) = await fleet.terminals.held("here")
    return terminal


class Program:
    """A simulated opencode that makes requests, and the gateway's watch of it."""

    def __init__(self, directory: Path, server: Server, port: int) -> None:
        self.server = server
        self.notes = notes = TerminalNotes(directory)
        notes.begin(port=port, password="", prompt="", message="msg_1", goes_on=True)
        self.watch = OpencodeWatch(notes, {"HOME": "/nowhere"}, MAIN)
        self.watch.title("OpenCode")
        self.following = asyncio.create_task(self.watch.run(lambda: None))

    async def asks(self, id_: str, command: str) -> None:
        about: dict[str, Any] = {"permission": "bash", "metadata": {"command": command}}
        self.server.say("permission.asked", id=id_, **about)
        await eventually(lambda: id_ in {each.id for each in self.watch.requests})

    async def asks_no_more(self, id_: str) -> None:
        self.server.say("permission.replied", requestID=id_)
        await eventually(lambda: id_ not in {each.id for each in self.watch.requests})


@pytest.fixture
async def program(directory: Path) -> AsyncIterator[Program]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        program = Program(directory, server, listening.sockets[0].getsockname()[1])
        await eventually(lambda: program.watch._is_connected)
        yield program
        program.following.cancel()
        await asyncio.wait([program.following])
        server.hang_up()


async def answer(fleet: Fleet, request: Request, verdict: Verdict, words: str = "") -> None:
    given = RequestAnswer(verdict=verdict, by="test:alice", name="Alice", at_ms=1, words=words)
    counts, _, _ = await fleet.requests.answer(
        request, given, holders=["*"], closing_text="Answered.", entry_text="Go on."
    )
    assert counts


async def test_a_request_of_a_terminal_is_asked_once_and_answered_without_keys(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    requests, watch = requests_of(fleet, held, lambda: ALICE), program.watch
    assert not await requests.sync(watch)
    await program.asks("per_1", "touch x")

    assert await requests.sync(watch)
    (first,) = await fleet.requests.of_session(held.sid)
    restarted = requests_of(fleet, held, lambda: ALICE)  # in a restarted gateway
    assert await restarted.sync(watch)
    (request,) = await fleet.requests.of_session(held.sid)
    assert request.id == first.id
    assert (request.tool, request.what, request.where) == ("bash", "touch x", held.place.cwd)
    assert request.people == ["test:alice"]
    assert program.server.posted == []

    await answer(fleet, request, "once")
    assert await restarted.sync(watch)
    assert program.server.posted == [("/permission/per_1/reply", {"reply": "once"})]
    await program.asks_no_more("per_1")
    assert not await restarted.sync(watch)
    assert await fleet.requests.of_session(held.sid) == []


async def test_a_terminal_gets_the_reason_of_a_denial_and_repeats_no_allowed_request(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    requests, watch = requests_of(fleet, held, lambda: ALICE), program.watch
    await program.asks("per_1", "rm -r x")
    await program.asks("per_2", "touch x")
    assert await requests.sync(watch)
    first, second = await fleet.requests.of_session(held.sid)
    await answer(fleet, first, "deny", "not that one")
    await answer(fleet, second, "conversation")
    await requests.sync(watch)
    (_, denial), allowed = program.server.posted
    assert denial["reply"] == "reject"
    assert "not that one" in denial["message"]
    assert allowed == ("/permission/per_2/reply", {"reply": "once"})

    await program.asks_no_more("per_1")
    await program.asks_no_more("per_2")
    await program.asks("per_3", "touch x")
    assert await requests.sync(watch), "the chat needs no notice that the program waits"
    assert program.server.posted[2:] == [("/permission/per_3/reply", {"reply": "once"})]


async def test_a_request_that_was_answered_by_keys_closes_even_after_a_restart(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    requests, watch = requests_of(fleet, held, lambda: ALICE), program.watch
    await program.asks("per_1", "touch x")
    assert await requests.sync(watch)
    await program.asks_no_more("per_1")

    assert not await requests_of(fleet, held, lambda: ALICE).sync(watch)

    assert await fleet.requests.of_session(held.sid) == []
    assert program.server.posted == []


async def test_a_request_of_a_terminal_stays_open_as_long_as_its_program_asks(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    """A viewer keeps the terminal open for longer than `waiting_s`."""
    sections = {"terminals": TerminalsConfig(waiting_s=60), "record": RecordConfig(keep_days=1)}
    config = ALICE.model_copy(update=sections)
    requests = requests_of(fleet, held, lambda: config)
    await program.asks("per_1", "touch x")
    assert await requests.sync(program.watch)
    (request,) = await fleet.requests.of_session(held.sid)
    client = fleet.scripts.client
    await client.zincrby(keys.REQUESTS, -WEEK_MS, request.id)
    await fleet.requests.expire_due()

    await answer(fleet, request, "once")
    await requests.sync(program.watch)

    assert program.server.posted == [("/permission/per_1/reply", {"reply": "once"})]
    assert await client.pttl(keys.session_requests(held.sid)) > WEEK_MS


async def test_requests_of_a_program_whose_state_is_unknown_stay_open(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    """A gateway that was just started does not know the program's requests yet."""
    requests = requests_of(fleet, held, lambda: ALICE)
    await program.asks("per_1", "touch x")
    assert await requests.sync(program.watch)
    unconnected = OpencodeWatch(program.notes, {"HOME": "/nowhere"}, MAIN)

    assert await requests_of(fleet, held, lambda: ALICE).sync(unconnected)

    assert len(await fleet.requests.of_session(held.sid)) == 1


async def test_no_request_is_made_if_no_person_may_answer_or_the_lease_is_lost(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    await program.asks("per_1", "touch x")
    assert not await requests_of(fleet, held, lambda: NO_APPROVERS).sync(program.watch)

    with pytest.raises(LeaseLost):
        await requests_of(fleet, replace(held, epoch="1"), lambda: ALICE).sync(program.watch)
    assert await fleet.requests.of_session(held.sid) == []


async def test_a_long_request_of_a_program_is_complete_in_its_file(
    fleet: Fleet, held: HeldLease, program: Program
) -> None:
    await program.asks("per_1", "touch " + "x " * 10_000 + "; end")

    assert await requests_of(fleet, held, lambda: ALICE).sync(program.watch)

    (request,) = await fleet.requests.of_session(held.sid)
    assert "characters …" in request.what
    assert await fleet.requests.full_text(request) == "touch " + "x " * 10_000 + "; end"
