"""A terminal as a turn: a drain opens it, its holder holds it, and the next drain finishes it."""

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
from remoteclaw.fleet.terminals.state import HeldLease, TerminalRecord
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.holder.runs import has_holder
from remoteclaw.holder.terminal_client import TerminalClient, TerminalEnded, TerminalOutput
from remoteclaw.host.process import is_alive
from remoteclaw.messages import SessionKey, TerminalWish
from remoteclaw.tty.renewal import LeaseRenewer, end_program, end_unknown_terminals, renew_lease
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.processes import children, marked_processes
from tests.support.processes import is_alive as is_running
from tests.support.stack import Stack, message
from tests.support.terminals import used_before
from tests.support.waiting import HANG_S, eventually

HOLD_S = 600.0


def program(stack: Stack, directory: Path, lines: str, **more: Any) -> None:
    """Configure a shell script of a few lines as the terminal's program."""
    script, workspace = directory / "agent", directory / "workspace"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)
    workspace.mkdir()
    agent = {"runtime": "claude", "command": [str(script)], "workspace": str(workspace), **more}
    stack.configure(agent)


#: A program without output, so that workers wait for its first screen.
SILENT = "sleep 1000"
STAYS = "echo here I am\nexec sleep 1000"


async def open_terminal(stack: Stack, directory: Path) -> tuple[Accepted, HeldLease]:
    """Open a terminal with a program that does not exit; return its entry and its lease."""
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


async def held_by(stack: Stack, accepted: Accepted) -> HeldLease:
    """Wait until the terminal's holder has the lease, and return it."""

    async def find_lease() -> HeldLease | None:
        outcome = await stack.outcome_so_far(accepted)
        assert not outcome.is_final, outcome
        held = await stack.fleet.terminals.held(stack.home.host_id)
        return next((each for each in held if each.place.turn == accepted.entry_id), None)

    held: HeldLease = await eventually(find_lease)
    return held


async def record_of(stack: Stack, accepted: Accepted) -> TerminalRecord:
    record = await stack.fleet.terminals.record(accepted.session.sid)
    assert record is not None
    return record


@contextlib.asynccontextmanager
async def attached(held: HeldLease) -> AsyncIterator[TerminalClient]:
    """Attach to the terminal, like a gateway."""
    client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
    assert client is not None
    yield client
    client.close()


async def test_turns_and_terminals_get_the_variables_that_env_pass_names(
    stack: Stack, directory: Path
) -> None:
    """A variable in `env` comes before a passed one; what no setting names is not passed."""
    names, own = ["SSH_AUTH_SOCK", "KUBECONFIG", "JAVA_HOME", "NOT_SET"], {"JAVA_HOME": "/mine"}
    program(
        stack,
        directory,
        f"env >{directory}/new-$$\nmv {directory}/new-$$ {directory}/env-$$\n{STAYS}",
        env_pass=names,
        env=own,
    )
    await stack.start_worker(
        SSH_AUTH_SOCK="/run/ssh", KUBECONFIG="", JAVA_HOME="/theirs", GH_TOKEN="of-a-person"
    )
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")
    await held_by(stack, accepted)
    await stack.append("hello", channel_id="another")

    await eventually(lambda: len(list(directory.glob("env-*"))) == 2)

    for file in directory.glob("env-*"):
        variables = dict(line.partition("=")[::2] for line in file.read_text().splitlines())
        assert variables["SSH_AUTH_SOCK"] == "/run/ssh"
        assert variables["KUBECONFIG"] == ""
        assert variables["JAVA_HOME"] == "/mine"
        assert not variables.keys() & {"NOT_SET", "GH_TOKEN"}


@pytest.mark.thorough
async def test_a_chat_and_its_terminal_share_one_conversation(
    swept: Stack, claude: AgentCli, directory: Path, model_server: ModelServerProcess
) -> None:
    """A chat, its terminal, and the chat again have one id, and each message is recorded once."""
    stack, workspace = swept, directory / "workspace"
    workspace.mkdir()
    env = used_before(claude, directory / "home", workspace)
    stack.configure(claude.config(workspace=str(workspace), env=env))
    await stack.start_worker()
    first = await stack.append("remember the word alpha-1")
    await stack.outcome(first)
    accepted = await opened(stack, first.session, call="1", prompt="and the word beta-2")
    held = await held_by(stack, accepted)
    waiting = await stack.append("which words?", id="waiting")
    async with attached(held) as client:
        await printed(client, "beta-2")
    notes = Path(held.place.files) / "notes"
    await eventually(lambda: b'"Stop"' in notes.read_bytes())

    await end_program(held)

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
    request = orjson.dumps(last)  # the model repeats its messages, so each word is there twice
    assert [request.count(word) for word in (b"alpha-1", b"and the word beta-2")] == [2, 2]
    lines = (await stack.fleet.records.of(first.session.sid)).splitlines()
    texts = [line["text"] for line in map(orjson.loads, lines) if line["role"] == "user"]
    assert texts == ["remember the word alpha-1", "and the word beta-2", "which words?"]
    assert not (stack.home.runs / Path(held.place.path).parent).exists()


async def printed(client: TerminalClient, text: str) -> None:
    """Read until the program has printed `text`."""
    seen = client.output
    while text.encode() not in seen:
        match await client.read():
            case TerminalOutput(_, data):
                seen += data
            case other:
                raise AssertionError(f"{other} after the output {seen[-500:]!r}")


async def test_a_worker_that_dies_while_it_opens_a_terminal_leaves_one_program(
    swept: Stack, directory: Path
) -> None:
    stack, go = swept, directory / "go"
    program(stack, directory, f"until [ -e {go} ]; do sleep 0.05; done\n{STAYS}")
    await stack.start_worker()
    session = SessionKey.of(message("hello"), agent="main")
    accepted = await opened(stack, session, call="1")

    async def opening_pid() -> int | None:
        view = await stack.fleet.sessions.view(session.sid)
        worker = view and view.terminal and view.worker
        return int(worker.split()[2]) if worker else None

    os.kill(await eventually(opening_pid), signal.SIGKILL)
    go.touch()

    held = await held_by(stack, accepted)
    runs = [run for run in stack.home.runs.iterdir() if "tty" in run.name]
    assert [str(run / "holder.sock") for run in runs] == [held.place.path]


async def test_a_killed_holder_ends_the_terminal_as_crashed(swept: Stack, directory: Path) -> None:
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


async def test_a_program_that_exits_at_its_start_is_reported_with_its_last_output(
    swept: Stack, directory: Path
) -> None:
    stack = swept
    output = "....... ▄██ *\\n\\033[31mNo conversation\\033[0m found\\n"
    program(stack, directory, f"printf '{output}'\nexit 1")
    await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")

    outcome = await stack.outcome(accepted)

    assert outcome.status == "failed"
    record = await record_of(stack, accepted)
    assert record.state == "crashed"
    assert record.reason == "The program ended at its start (status 1): No conversation found"


async def starting(stack: Stack, directory: Path) -> list[int]:
    """Wait until the program that a worker starts is running, and return its pids."""
    script = os.fsencode(directory / "agent")

    def programs() -> list[int]:
        found = marked_processes(stack.home)
        return [pid for pid in found if script in Path(f"/proc/{pid}/cmdline").read_bytes()]

    found: list[int] = await eventually(programs)
    return found


def are_gone(programs: list[int]) -> bool:
    return not any(map(is_running, programs))


async def test_a_worker_that_loses_its_lease_while_it_opens_leaves_no_program(
    stack: Stack, directory: Path
) -> None:
    """A Redis that has lost its last second does not know of the program, so the worker ends it."""
    program(stack, directory, SILENT)
    await stack.start_worker()
    accepted = await opened(stack, SessionKey.of(message("hello"), agent="main"), call="1")
    programs = await starting(stack, directory)
    client = stack.fleet.scripts.client

    await client.hset(keys.state(accepted.session.sid), "epoch", "1")
    await client.publish(keys.bell(accepted.session.sid), "")

    await eventually(functools.partial(are_gone, programs))


async def test_an_opening_that_kills_its_workers_fails_without_a_dead_letter(
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


async def test_a_stopped_terminal_is_ended_at_the_next_renewal(
    swept: Stack, directory: Path
) -> None:
    stack = swept
    accepted, _ = await open_terminal(stack, directory)
    renewer = LeaseRenewer(stack.fleet.terminals, stack.home.host_id)
    await renewer.renew_all(hold_s=HOLD_S)
    assert (await record_of(stack, accepted)).state == "starting"

    await stack.fleet.sessions.stop(accepted.session.sid)
    await renewer.renew_all(hold_s=HOLD_S)

    assert (await stack.outcome(accepted)).status == "stopped"
    assert (await record_of(stack, accepted)).state == "parked"


async def test_a_terminal_whose_lease_is_lost_is_ended_once_its_turn_is_over(
    swept: Stack, directory: Path
) -> None:
    """Before that, Redis may have lost its last second, and the holder may get its lease back."""
    stack = swept
    _, held = await open_terminal(stack, directory)
    assert held.place.people == ["test:alice"], "the people on whose behalf it was opened"
    state, client = keys.state(held.sid), stack.fleet.scripts.client
    await client.hincrby(state, "epoch", 1)

    with pytest.raises(LeaseLost):
        await renew_lease(stack.fleet.terminals, held, hold_s=HOLD_S)
    assert has_holder(Path(held.place.path).parent)

    await client.hdel(state, "terminal")
    with pytest.raises(LeaseLost):
        await renew_lease(stack.fleet.terminals, held, hold_s=HOLD_S)
    await eventually(lambda: not is_alive(held.holder))


async def test_a_terminal_that_no_session_refers_to_is_ended(
    swept: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = swept
    _, held = await open_terminal(stack, directory)
    monkeypatch.setattr("remoteclaw.tty.renewal.STARTING_S", 0.0)
    assert await end_unknown_terminals(stack.fleet.terminals, stack.home.runs) == 0

    await stack.fleet.scripts.client.flushall()

    assert await end_unknown_terminals(stack.fleet.terminals, stack.home.runs) == 1
    async with asyncio.timeout(HANG_S):
        client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
        assert client is None or isinstance(await client.read(), TerminalEnded)
