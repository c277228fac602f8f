"""Access to a terminal's holder. An invalid message costs only its sender's connection."""

import asyncio
import os
import socket
from pathlib import Path

from remoteclaw.clock import boottime
from remoteclaw.holder.client import HolderClient
from remoteclaw.holder.terminal_client import (
    TerminalClient,
    TerminalEnded,
    beat_terminal,
    end_terminal,
)
from tests.support.holders import FAR, KEY, Reader, attach, end, parked_agent, remains, sh
from tests.support.processes import is_alive, parent
from tests.support.waiting import HANG_S, eventually


async def send(path: Path, message: bytes) -> bytes:
    """Send a message to a holder; return everything that it answers until it disconnects."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(message)
        async with asyncio.timeout(HANG_S):
            return await reader.read()
    except ConnectionError:  # it disconnected before everything was sent
        return b""
    finally:
        writer.close()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def test_a_client_without_the_key_is_denied_everything(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    far = boottime() + FAR

    assert await TerminalClient.attach(terminal.path, key="another") is None
    assert not await beat_terminal(terminal.path, key="another", deadline=far)
    assert not await end_terminal(terminal.path, key="another")
    for nonsense in (
        b"\n",
        b"ATTACH\n",
        b"ATTACH 1\n",
        b"ATTACH 1 pty\n",
        f"ATTACH 1 pty {KEY} more\n".encode(),
        f"ATTACH 2 pty {KEY}\n".encode(),  # of a future version
        f"ATTACH 1 pipes {KEY}\n".encode(),
        f"SHOW 1 pty {KEY}\n".encode(),
        f"BEAT 1 pty {KEY} nan\n".encode(),
        f"BEAT 1 pty {KEY} inf\n".encode(),
        f"BEAT 1 pty {KEY} -1\n".encode(),
        f"BEAT 1 pty {KEY} soon\n".encode(),
        f"END 1 pty {KEY} nan 0\n".encode(),
        f"END 1 pty {KEY}\n".encode(),
        b"\xff" * 100 + b"\n",
    ):
        assert await send(terminal.path, nonsense) == b"DENIED\n", nonsense
    for without_answer in (b"IN 100000\n", b"KEEP 1 -1\n", b"x" * 8 * 1024 * 1024):
        assert await send(terminal.path, without_answer) == b"", without_answer[:20]

    assert await terminal.write(b"still attached\n")
    await Reader(terminal).until(b"still attached\r\nstill attached\r\n")
    assert (terminal.path.stat().st_mode & 0o777, terminal.path.parent.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    await end(terminal)


NONSENSE = [
    b"BEAT nan\n",
    b"BEAT inf\n",
    b"BEAT -1\n",
    b"BEAT\n",
    b"SIZE 0 0\n",
    b"SIZE -1 5\n",
    b"SIZE 5000 5\n",
    b"SIZE 80\n",
    b"IN -1\n",
    b"IN x\n",
    b"IN 1100001\n",
    b"KEEP x 1\nx",
    b"KEEP -3 1\nx",
    b"PARK 1 5 0\n",
    b"\n",
    b"x" * 1_200_000,
]


async def test_an_invalid_message_costs_only_its_clients_connection(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    for nonsense in NONSENSE:
        answer = await send(terminal.path, f"ATTACH 1 pty {KEY}\n".encode() + nonsense)
        assert b"EXIT" not in answer
        again = await attach(terminal)
        assert (again.pid, again.cols, again.rows) == (terminal.pid, 120, 32), nonsense
        again.close()
    await end(terminal)


async def test_clients_that_only_connect_are_dropped(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    holder = parent(terminal.pid)
    before = descriptors(holder)
    silent: list[socket.socket] = []
    try:
        for number in range(200):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            silent.append(sock)
            sock.connect(str(terminal.path))
            if number % 2:
                socket.send_fds(sock, [b"ATTACH 1 p"], [0])  # half a message, and a descriptor
        again = await attach(terminal)
        assert descriptors(holder) < before + 40

        await eventually(lambda: descriptors(holder) <= before + 1)
        assert await again.write(b"echo\n")
        await Reader(again).until(b"echo\r\necho\r\n")
        await end(again, terminal)
    finally:
        for sock in silent:
            sock.close()


async def test_clients_of_the_other_mode_are_refused(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    agent = await parked_agent(directory / "agent")
    far = boottime() + FAR

    assert await HolderClient.attach(terminal.path, key=KEY, epoch=9, deadline=far) is None
    assert await TerminalClient.attach(agent.path, key=KEY) is None
    assert not await beat_terminal(agent.path, key=KEY, deadline=far)
    assert not await end_terminal(agent.path, key=KEY)

    assert is_alive(terminal.pid)
    warm = await HolderClient.attach(agent.path, key=KEY, epoch=2, deadline=far)
    assert warm is not None
    await warm.end()
    await end(terminal)


async def test_a_holder_of_another_version_is_recognized(directory: Path) -> None:
    async def newer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HELLO 2 pty 1 2 3\n")
        writer.close()

    path = directory / "holder.sock"
    async with await asyncio.start_unix_server(newer, str(path)):
        assert await TerminalClient.attach(path, key=KEY) is None
        assert not await end_terminal(path, key=KEY)


async def test_replaced_clients_that_never_read_keep_few_descriptors(directory: Path) -> None:
    frozen = [await sh(directory, "exec yes")]
    holder = parent(frozen[0].pid)
    before = descriptors(holder)
    for _ in range(12):
        frozen.append(await attach(frozen[0]))

    assert descriptors(holder) <= before + 5

    assert await end_terminal(frozen[0].path, key=KEY)
    assert (await remains(directory))["reason"] == "asked"
    assert isinstance(await Reader(frozen[-1]).rest(), TerminalEnded)
    for client in frozen:
        client.close()
