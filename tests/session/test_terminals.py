"""A terminal is a turn: opened by a drain, held by its holder, settled by the next drain."""

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.config.model import TerminalsConfig
from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.fleet.terminal_state import Held, TerminalRecord
from remoteclaw.holder.runs import listens
from remoteclaw.holder.terminal_client import Ended, Output, TerminalClient
from remoteclaw.host.process import is_alive
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.tty.renewal import Holding, end, end_unheld, renew
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.processes import children, marked_processes
from tests.support.processes import is_alive as is_there
from tests.support.stack import Stack, message
from tests.support.terminals import used_before
from tests.support.waiting import HANG_S, eventually

HOLD_S = 600.0


def program(stack: Stack, directory: Path, lines: str) -> None:
    """Have a program of a few lines instead of a CLI's own."""
    script, workspace = directory / "agent", directory / "workspace"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)
    workspace.mkdir()
    stack.configure({"runtime": "claude", "command": [str(script)], "workspace": str(workspace)})


#: It says nothing, so that workers wait for it.
SILENT = "sleep 1000"
STAYS = "echo here I am\nexec sleep 1000"


async def open_terminal(stack: Stack, directory: Path) -> tuple[Accepted, Held]:
    """Open the terminal of a program that stays; return it with who holds it."""
    program(stack, directory, STAYS)
    await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")
    return accepted, await held_by(stack, accepted)


async def opened(stack: Stack, session: Any, *, call: str, prompt: str = "") -> Accepted:
    return await stack.fleet.terminals.open(
        session,
        TerminalWish(by="Ada", cols=100, rows=30, prompt=prompt),
        people=("test:alice",),
        call=call,
        host=stack.home.host_id,
        name="main",
        limits=TerminalsConfig(),
    )


async def held_by(stack: Stack, accepted: Accepted) -> Held:
    """Return the session's terminal once its holder has the lease."""

    async def found() -> Held | None:
        outcome = await stack.outcome_so_far(accepted)
        assert not outcome.is_final, outcome
        held = await stack.fleet.terminals.held(stack.home.host_id)
        return next((each for each in held if each.place.turn == accepted.entry_id), None)

    held: Held = await eventually(found)
    return held


async def record_of(stack: Stack, accepted: Accepted) -> TerminalRecord:
    record = await stack.fleet.terminals.record(accepted.session.sid)
    assert record is not None
    return record


@contextlib.asynccontextmanager
async def attached(held: Held) -> AsyncIterator[TerminalClient]:
    """Read what the terminal shows, as a gateway does."""
    client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
    assert client is not None
    yield client
    client.close()


async def test_turn_terminal_turn_is_one_conversation(
    swept: Stack, claude: AgentCli, directory: Path, model_server: ModelServerProcess
) -> None:
    """A chat, its terminal, and the chat again: one id, all remembered, each message once."""
    stack, workspace = swept, directory / "workspace"
    workspace.mkdir()
    env = used_before(claude, directory / "home", workspace)
    stack.configure(claude.config(workspace=str(workspace), env=env))
    await stack.start_worker()
    first = await stack.append("remember the word alpha-1")
    await stack.outcome(first)
    accepted = await opened(stack, first.session, call="1", prompt="and the word beta-2")
    held = await held_by(stack, accepted)
    waiting = await stack.append("which words?", id="behind")
    async with attached(held) as client:
        await printed(client, "beta-2")
    notes = Path(held.place.files) / "notes"
    await eventually(lambda: b'"Stop"' in notes.read_bytes())

    await end(held)

    assert (await stack.outcome(accepted)).status == "done"
    assert (await stack.outcome(waiting)).status == "done"
    record = await record_of(stack, accepted)
    assert (record.state, record.resumable) == ("parked", True)
    view = await stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert {known.partition("\n")[0] for known in view.session_ids.values()} == {
        held.place.conversation
    }
    last = orjson.loads(model_server.bodies().splitlines()[-1])
    asked = orjson.dumps(last)  # the model repeats what it is asked
    assert [asked.count(word) for word in (b"alpha-1", b"and the word beta-2")] == [2, 2]
    lines = (await stack.fleet.records.of(first.session.sid)).splitlines()
    said = [line["text"] for line in map(orjson.loads, lines) if line["role"] == "user"]
    assert said == ["remember the word alpha-1", "and the word beta-2", "which words?"]
    assert not (stack.home.runs / Path(held.place.path).parent).exists()


async def printed(client: TerminalClient, text: str) -> None:
    """Read until the program has printed a text."""
    seen = client.output
    while text.encode() not in seen:
        match await client.read():
            case Output(_, data):
                seen += data
            case other:
                raise AssertionError(f"it said {other} behind {seen[-500:]!r}")


async def test_a_worker_that_dies_while_it_opens_leaves_one_program(
    swept: Stack, directory: Path
) -> None:
    stack, go = swept, directory / "go"
    program(stack, directory, f"until [ -e {go} ]; do sleep 0.05; done\n{STAYS}")
    await stack.start_worker()
    session = SessionKey.of(message("hello"), agent="main")
    accepted = await opened(stack, session, call="1")

    async def placed() -> int | None:
        state = await stack.fleet.sessions.view(session.sid)
        known = state and state.terminal and state.worker
        return int(known.split()[2]) if known else None

    os.kill(await eventually(placed), signal.SIGKILL)
    go.touch()

    held = await held_by(stack, accepted)
    runs = [run for run in stack.home.runs.iterdir() if "tty" in run.name]
    assert [str(run / "holder.sock") for run in runs] == [held.place.path]


async def test_a_holder_that_is_killed_ends_the_turn_as_crashed(
    swept: Stack, directory: Path
) -> None:
    stack = swept
    accepted, held = await open_terminal(stack, directory)
    pid = int(held.holder.split()[1])
    async with attached(held) as client:
        pids = [client.pid]

    os.kill(pid, signal.SIGKILL)

    assert (await stack.outcome(accepted)).status == "failed"
    record = await record_of(stack, accepted)
    assert (record.state, record.reason) == ("crashed", "killed")
    assert are_gone(pids)


async def test_a_program_that_ends_at_its_start_is_told_in_its_words(
    swept: Stack, directory: Path
) -> None:
    stack = swept
    words = "....... ▄██ *\\n\\033[31mNo conversation\\033[0m found\\n"
    program(stack, directory, f"printf '{words}'\nexit 1")
    await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")

    outcome = await stack.outcome(accepted)

    assert outcome.status == "failed"
    record = await record_of(stack, accepted)
    assert record.state == "crashed"
    assert record.reason == "The program ended at its start (status 1): No conversation found"


async def starting(stack: Stack, directory: Path) -> list[int]:
    """Return the program that a worker waits for, once it runs."""
    script = os.fsencode(directory / "agent")

    def programs() -> list[int]:
        found = marked_processes(stack.home)
        return [pid for pid in found if script in Path(f"/proc/{pid}/cmdline").read_bytes()]

    found: list[int] = await eventually(programs)
    return found


def are_gone(programs: list[int]) -> bool:
    return not any(map(is_there, programs))


async def test_a_worker_that_loses_its_session_while_it_opens_leaves_no_program(
    stack: Stack, directory: Path
) -> None:
    """Nobody else may know of it: of a server that has lost its last second, nobody does."""
    program(stack, directory, SILENT)
    await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")
    programs = await starting(stack, directory)
    client = stack.fleet.scripts.client

    await client.hset(keys.state(accepted.session.sid), "epoch", "1")
    await client.publish(keys.bell(accepted.session.sid), "")

    await eventually(functools.partial(are_gone, programs))


async def test_an_opening_that_kills_its_workers_is_given_up_for_good(
    swept: Stack, directory: Path
) -> None:
    stack = swept
    program(stack, directory, SILENT)
    worker = await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")
    for _ in range(3):
        programs = await starting(stack, directory)
        for horse in children(worker.pid):
            os.kill(horse, signal.SIGKILL)
        await eventually(functools.partial(are_gone, programs))

    assert (await stack.outcome(accepted)).status == "failed"
    assert not await stack.fleet.dead_letters.list()
    assert (await record_of(stack, accepted)).state == "exited"
    again = await opened(stack, accepted.session, call="2")
    assert again.entry_id != accepted.entry_id


async def test_a_stopped_terminal_is_ended_by_the_sweep(swept: Stack, directory: Path) -> None:
    stack = swept
    accepted, _ = await open_terminal(stack, directory)
    holding = Holding(stack.fleet.terminals, stack.home.host_id)
    await holding.look(hold_s=HOLD_S)
    assert (await record_of(stack, accepted)).state == "starting"

    await stack.fleet.sessions.stop(accepted.session.sid)
    await holding.look(hold_s=HOLD_S)

    assert (await stack.outcome(accepted)).status == "stopped"
    assert (await record_of(stack, accepted)).state == "parked"


async def test_a_terminal_whose_lease_is_lost_is_ended_once_its_turn_is_over(
    swept: Stack, directory: Path
) -> None:
    """Until then a server may have lost its last second, and be told again whose it is."""
    stack = swept
    _, held = await open_terminal(stack, directory)
    assert held.place.people == ["test:alice"], "on whose behalf it asks"
    state, client = keys.state(held.sid), stack.fleet.scripts.client
    await client.hincrby(state, "epoch", 1)

    with pytest.raises(LeaseLost):
        await renew(stack.fleet.terminals, held, hold_s=HOLD_S)
    assert listens(Path(held.place.path).parent)

    await client.hdel(state, "terminal")
    with pytest.raises(LeaseLost):
        await renew(stack.fleet.terminals, held, hold_s=HOLD_S)
    await eventually(lambda: not is_alive(held.holder))


async def test_a_terminal_that_no_session_knows_is_ended(
    swept: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = swept
    _, held = await open_terminal(stack, directory)
    monkeypatch.setattr("remoteclaw.tty.renewal.YOUNG_S", 0.0)
    assert await end_unheld(stack.fleet.terminals, stack.home.runs) == 0

    await stack.fleet.scripts.client.flushall()

    assert await end_unheld(stack.fleet.terminals, stack.home.runs) == 1
    async with asyncio.timeout(HANG_S):
        client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
        assert client is None or isinstance(await client.read(), Ended)
