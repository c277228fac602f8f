"""A terminal's holder: the program continues, whatever its clients do."""

import asyncio
import base64
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoteclaw.clock import boottime
from remoteclaw.holder.terminal_client import (
    Replaced,
    TerminalClient,
    TerminalEnded,
    TerminalOutput,
    beat_terminal,
    end_terminal,
)
from remoteclaw.holder.wire import LaunchFailed
from remoteclaw.host import process
from remoteclaw.host.process import end_strays
from tests.support.holders import FAR, KEY, TREE, Reader, attach, end, remains, sh, start
from tests.support.processes import everything, is_alive, parent
from tests.support.waiting import eventually

#: The output of `seq`, so that the byte at each offset is known.
COUNTED = b"".join(b"%d\r\n" % number for number in range(1, 400_001))
COUNT = "seq 1 400000"

#: A program that prints each new size of its window.
SIZES = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
os.write(1, b"ready\\n")
while signal.sigwait([signal.SIGWINCH]):
    os.write(1, b"%d %d\\n" % os.get_terminal_size())
"""

#: A client that attaches, prints the offset of the first output, and keeps reading.
CLIENT = """
import asyncio, pathlib, sys
from remoteclaw.holder.terminal_client import TerminalClient
async def main():
    terminal = await TerminalClient.attach(pathlib.Path(sys.argv[1]), key=sys.argv[2])
    print(terminal.output_offset, flush=True)
    while True:
        await terminal.read()
asyncio.run(main())
"""


async def test_a_program_runs_in_its_own_pseudo_terminal(directory: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM $COLORTERM $LANG; tty"
    terminal = await sh(directory, script + "; exit 3", cols=100, rows=40)
    reader = Reader(terminal)

    assert await reader.rest() == TerminalEnded(3)
    assert reader.seen.startswith(b"40 100\r\nxterm-256color truecolor C.UTF-8\r\n/dev/pts/")


async def test_the_program_gets_no_variables_of_the_outer_terminal(directory: Path) -> None:
    env = {"PATH": os.environ["PATH"], "TMUX": "/x", "STY": "1", "TERM_PROGRAM_VERSION": "3"}
    env |= {"TERM": "dumb", "LC_ALL": "de_DE.UTF-8", "COLUMNS": "7", "OWN": "kept"}
    reader = Reader(await start(directory, "/usr/bin/env", env=env))

    await reader.rest()

    names = dict(line.split("=", 1) for line in reader.seen.decode().splitlines())
    assert names.pop("REMOTECLAW_HOLDER")
    assert names == {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LC_ALL": "de_DE.UTF-8",
        "OWN": "kept",
        "PWD": str(directory),
    }


async def test_an_ended_terminal_leaves_its_status_snapshot_and_tail(directory: Path) -> None:
    terminal = await sh(directory, "echo first; read x; echo last; exit 4")
    reader = Reader(terminal)
    await reader.until(b"first\r\n")
    await terminal.keep(7, b"a picture")
    await terminal.write(b"\n")

    assert await reader.rest() == TerminalEnded(4)

    left = await remains(directory)
    assert isinstance(left.pop("at"), int)
    assert base64.b64decode(str(left.pop("picture"))) == b"a picture"
    assert base64.b64decode(str(left.pop("tail"))) == reader.seen[7:]
    whole = {"status": 4, "reason": "exited", "offset": len(reader.seen), "pictureOffset": 7}
    assert left == {**whole, "cols": 120, "rows": 32}
    assert (directory / "ended").stat().st_mode & 0o777 == 0o600
    assert not (directory / "run").exists()


async def test_a_program_that_cannot_be_executed_is_a_launch_failure(directory: Path) -> None:
    with pytest.raises(LaunchFailed, match="No such file"):
        await start(directory, "/nonexistent/claude")


async def test_the_program_runs_in_the_directory_that_was_opened(directory: Path) -> None:
    """Its path may lead elsewhere by the time of the start."""
    meant = directory / "meant"
    meant.mkdir()
    descriptor = os.open(meant, os.O_RDONLY)
    meant.rename(directory / "moved")

    script = "pwd -P; readlink /proc/$$/fd/*"
    terminal = await sh(directory, script, cwd=str(meant), cwd_fd=descriptor)
    os.close(descriptor)

    reader = Reader(terminal)
    await reader.rest()
    where, *open_files = reader.seen.decode().split()
    assert where == str(directory / "moved")
    assert where not in open_files, "the program would keep the descriptor open"
    assert "/dev/ptmx" not in " ".join(open_files), "the other end of the terminal is the holder's"


# -- clients -----------------------------------------------------------------------------------


async def test_output_without_a_client_is_kept_for_the_next_client(directory: Path) -> None:
    first = await sh(directory, "echo one; read x; echo two; read y; echo three; cat")
    await Reader(first).until(b"one\r\n")
    await first.write(b"read\n")
    first.close()

    second = await attach(first)
    seen = await Reader(second).until(b"two\r\n")
    await second.write(b"\n")
    third = await attach(first)

    assert (third.pid, third.holder) == (first.pid, first.holder)
    assert process.is_alive(third.holder)
    assert (await Reader(third).until(b"three\r\n")).startswith(seen)
    assert await Reader(second).rest() == Replaced()
    assert await end_terminal(first.path, key=KEY)
    assert await Reader(third).rest() == TerminalEnded(-signal.SIGTERM)
    assert (await remains(directory))["reason"] == "asked"


async def test_a_client_that_is_killed_during_a_flood_loses_no_output(directory: Path) -> None:
    first = await sh(directory, f"stty -echo; echo ready; read x; {COUNT}; cat")
    reader = Reader(first)
    await reader.until(b"ready\r\n")
    before = reader.end
    await first.write(b"read\n")
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(first.path), KEY, stdout=asyncio.subprocess.PIPE
    )
    assert killed.stdout is not None
    await killed.stdout.readline()

    killed.kill()
    await killed.wait()

    second = await attach(first)
    at = expect(COUNTED, second.output_offset - before, second.output)
    while at < len(COUNTED):
        event = await second.read()
        assert isinstance(event, TerminalOutput)
        at = expect(COUNTED, event.offset - before, event.data)
    assert at == len(COUNTED)
    await end(second, first)


def expect(whole: bytes, at: int, piece: bytes) -> int:
    """Check that a piece is at its offset; return the offset after it."""
    piece, at = piece[max(-at, 0) :], max(at, 0)  # drop the bytes before `whole`
    assert whole[at : at + len(piece)] == piece, "bytes at a wrong offset"
    return at + len(piece)


async def test_a_client_that_does_not_read_does_not_block_the_program(directory: Path) -> None:
    slow = await sh(directory, COUNT)

    left = await remains(directory)  # it has written 2.7 MB that no client has read, and ended

    assert left["offset"] == len(COUNTED)
    offsets = []
    while isinstance(event := await slow.read(), TerminalOutput):
        assert COUNTED[event.offset : event.offset + len(event.data)] == event.data
        offsets.append((event.offset, event.offset + len(event.data)))
    assert len(offsets) > 1


async def test_the_last_output_of_a_program_is_read(directory: Path) -> None:
    held = await sh(directory, "until [ -e go ]; do sleep 0.01; done; printf 'last words'")
    holder = int(held.holder.split()[1])
    os.kill(holder, signal.SIGSTOP)  # so it sees the output and the end at once
    (directory / "go").touch()
    await eventually(lambda: not is_alive(held.pid))

    os.kill(holder, signal.SIGCONT)

    left = await remains(directory)
    assert base64.b64decode(str(left["tail"])) == b"last words"
    held.close()


async def test_a_slow_client_skips_output_and_continues_at_a_later_offset(directory: Path) -> None:
    slow = await sh(directory, f"{COUNT}; echo done > told; cat")
    await eventually((directory / "told").exists)

    offsets = [0]
    while offsets[-1] < len(COUNTED):
        event = await slow.read()
        assert isinstance(event, TerminalOutput)
        assert COUNTED[event.offset : event.offset + len(event.data)] == event.data
        offsets += [event.offset, event.offset + len(event.data)]

    gaps = [later - end for end, later in zip(offsets[::2], offsets[1::2], strict=False)]
    assert [gap for gap in gaps if gap] == [max(gaps)]
    assert max(gaps) > 0, "nothing was skipped"
    await end(slow)


async def test_a_snapshot_replaces_the_output_before_it(directory: Path) -> None:
    first = await sh(directory, "echo before; echo after; cat")
    reader = Reader(first)
    await reader.until(b"after\r\n")
    await first.keep(1_000_000, b"of bytes that nobody has written")
    await first.keep(8, b"p" * 256 * 1024)
    await first.keep(2, b"older")
    await first.write(b"read\n")
    await reader.until(b"read")  # so the holder has also read the earlier messages
    first.close()

    second = await attach(first)

    assert (second.picture_offset, second.picture) == (8, b"p" * 256 * 1024)
    assert second.output_offset == 8
    assert second.output.startswith(b"after\r\n")
    await end(second)


async def test_the_program_is_notified_of_a_new_window_size(directory: Path) -> None:
    terminal = await start(directory, sys.executable, "-S", "-c", SIZES)
    reader = Reader(terminal)
    await reader.until(b"ready\r\n")

    await terminal.resize(90, 30)
    await reader.until(b"90 30\r\n")
    await terminal.resize(90, 30)  # how a client makes the program repaint everything
    await reader.until(b"90 30\r\n90 30\r\n")

    second = await attach(terminal)
    assert (second.cols, second.rows) == (90, 30)
    await end(second, terminal)


async def test_input_is_queued_in_order_for_a_program_that_does_not_read(directory: Path) -> None:
    os.mkfifo(directory / "go")
    terminal = await sh(directory, "stty raw -echo; echo ready; read x < go; exec cat > typed")
    await Reader(terminal).until(b"ready")
    pieces = iter(b"%05d" % number * 200 for number in range(1000))

    first = await type_until_full(terminal, pieces)
    assert 64 * 1024 <= len(first) < 256 * 1024, (
        "the holder accepts more than it can keep, or too little"
    )
    assert await beat_terminal(terminal.path, key=KEY, deadline=boottime() + FAR)
    second = await attach(terminal)
    more = await type_until_full(second, pieces)
    assert len(first + more) < 256 * 1024, "each client has its own queue"

    (directory / "go").write_text("go\n")
    file = directory / "typed"
    await eventually(lambda: file.exists() and file.stat().st_size >= len(first + more))
    assert file.read_bytes() == first + more
    assert await beat_terminal(terminal.path, key=KEY, deadline=boottime() + FAR)
    await end(second, terminal)


async def test_a_paste_of_a_megabyte_is_typed_as_one_piece(directory: Path) -> None:
    terminal = await sh(directory, "stty raw -echo; echo ready; exec head -c 1000000 > typed")
    await Reader(terminal).until(b"ready")
    text = b"%06d\n" * 142_857 % tuple(range(142_857)) + b"."

    assert await terminal.write(text)

    assert isinstance(await Reader(terminal).rest(), TerminalEnded)
    assert (directory / "typed").read_bytes() == text


async def type_until_full(terminal: TerminalClient, pieces: Iterator[bytes]) -> bytes:
    """Write pieces until the holder accepts no more; return the accepted bytes."""
    accepted = b""
    for piece in pieces:
        if not await terminal.write(piece):
            break
        accepted += piece
    return accepted


async def test_a_client_can_write_again_once_the_program_has_read(directory: Path) -> None:
    terminal = await sh(directory, "stty raw -echo; echo ready; exec head -c 300000 > /dev/null")
    await Reader(terminal).until(b"ready")

    async def type_all() -> None:
        for _ in range(300):
            await eventually(lambda: terminal.write(b"x" * 1000))

    typing = asyncio.create_task(type_all())
    assert await Reader(terminal).rest() == TerminalEnded(0)
    await typing


# -- the end -----------------------------------------------------------------------------------


async def test_ending_a_terminal_leaves_no_process(directory: Path) -> None:
    terminal = await sh(directory, TREE)
    await Reader(terminal).until(b"ready\r\n")
    tree: list[int] = await eventually(
        lambda: len(found := everything(terminal.pid)) >= 3 and found
    )

    await end(terminal)

    assert not [pid for pid in tree if is_alive(pid)]


async def test_an_interrupt_is_sent_before_a_terminal_is_ended(directory: Path) -> None:
    script = "stty raw -echo; echo ready; test $(dd bs=1 count=1 2>/dev/null | od -An -tx1) = 1b"
    terminal = await sh(directory, script + "; exit 7")
    await Reader(terminal).until(b"ready")

    assert await end_terminal(terminal.path, key=KEY, interrupt=True)

    assert await Reader(terminal).rest() == TerminalEnded(7)


async def test_a_program_may_write_at_its_end_and_is_killed_after_the_grace_time(
    directory: Path,
) -> None:
    script = "trap 'echo goodbye' TERM; echo ready; while :; do sleep 1001 & wait; done"
    terminal = await sh(directory, script)
    reader = Reader(terminal)
    await reader.until(b"ready\r\n")

    assert await end_terminal(terminal.path, key=KEY, grace_s=0.5)

    assert await reader.rest() == TerminalEnded(-signal.SIGKILL)
    assert reader.seen.endswith(b"goodbye\r\n")


async def test_a_terminals_program_dies_with_a_killed_holder(directory: Path) -> None:
    terminal = await sh(directory, TREE)
    reader = Reader(terminal)
    await reader.until(b"ready\r\n")
    tree: list[int] = await eventually(
        lambda: len(found := everything(terminal.pid)) >= 3 and found
    )

    os.kill(parent(terminal.pid), signal.SIGKILL)

    assert await reader.rest() == TerminalEnded(None)
    await eventually(lambda: not is_alive(terminal.pid))
    end_strays()
    await eventually(lambda: not [pid for pid in tree if is_alive(pid)])
    assert not (directory / "ended").exists()
    assert not process.is_alive(terminal.holder)


async def test_the_terminal_ends_when_beats_stop(directory: Path) -> None:
    terminal = await sh(directory, "cat")
    assert await beat_terminal(terminal.path, key=KEY, deadline=boottime() + FAR)

    terminal.beat(boottime() + 0.2)

    assert isinstance(await Reader(terminal).rest(), TerminalEnded)
    assert (await remains(directory))["reason"] == "deadline"
    assert not await beat_terminal(terminal.path, key=KEY, deadline=boottime() + FAR)


async def test_a_frozen_terminal_past_its_deadline_gets_no_queued_input(directory: Path) -> None:
    """Another host may have taken over by then, so the input must not reach the program."""
    terminal = await sh(directory, "trap '' TERM; echo ready; read line; echo $line > typed")
    await Reader(terminal).until(b"ready\r\n")
    holder = parent(terminal.pid)
    os.kill(holder, signal.SIGSTOP)
    over = boottime() + 0.1
    terminal.beat(over)
    await eventually(lambda: boottime() > over)
    assert await terminal.write(b"too late\n")

    os.kill(holder, signal.SIGCONT)

    assert isinstance(await Reader(terminal).rest(), TerminalEnded)
    assert (await remains(directory))["reason"] == "deadline"
    assert not (directory / "typed").exists()


async def test_a_terminal_without_clients_and_output_ends(directory: Path) -> None:
    terminal = await sh(directory, "echo ready; cat", idle_s=0.2)
    await Reader(terminal).until(b"ready\r\n")
    await asyncio.sleep(0.5)  # time itself is what is tested
    assert is_alive(terminal.pid), "a client is attached"

    terminal.close()

    assert (await remains(directory))["reason"] == "idle"


@pytest.mark.parametrize("attached", [True, False])
async def test_the_terminal_ends_with_its_lifeline(directory: Path, attached: bool) -> None:
    os.mkfifo(directory / "lifeline")
    keeper = os.open(directory / "lifeline", os.O_RDWR | os.O_NONBLOCK)
    terminal = await sh(directory, "cat", lifeline=str(directory / "lifeline"))
    if not attached:
        terminal.close()

    os.close(keeper)

    assert (await remains(directory))["reason"] == "lifeline"
    terminal.close()


async def test_a_terminals_holder_that_is_asked_to_end_saves_what_remains(directory: Path) -> None:
    terminal = await sh(directory, "echo ready; cat")
    await Reader(terminal).until(b"ready\r\n")

    os.kill(parent(terminal.pid), signal.SIGUSR1)  # idle agents make room; terminals don't
    again = await attach(terminal)
    os.kill(parent(terminal.pid), signal.SIGTERM)

    assert isinstance(await Reader(again).rest(), TerminalEnded)
    assert (await remains(directory))["reason"] == "asked"
    terminal.close()
