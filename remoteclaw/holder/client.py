"""The client of a holder in the mode `pipes`: start, attach, beat, park and end.

The holder ends the agent's tree when the connection closes without PARK, for instance because this
process has died.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remoteclaw.holder.wire import (
    ANSWER_S,
    END_S,
    PROTOCOL,
    HolderConnection,
    encode_fields,
    reap_holders,
    start_holder,
)


@dataclass(frozen=True, slots=True)
class HolderLaunch:
    """The data with which a holder starts its CLI."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    run_dir: Path
    """A new directory of this holder with the mode 0700; the holder removes it at its end."""
    key: str
    """The secret with which clients attach."""
    lifeline: str = ""
    """The path of a FIFO; the parked agent ends `leave_s` after its last writer is gone. Empty for
    no lifeline."""
    leave_s: float = 0.0

    @property
    def socket_path(self) -> Path:
        """The path of the holder's socket."""
        return self.run_dir / "holder.sock"


class HolderClient(HolderConnection):
    """A client that is attached to a holder: it has the CLI's pipes and keeps the CLI alive."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        super().__init__(sock, path)
        self.state = b""
        """The state that the last client gave `park()`; empty for a new agent."""
        self.output = b""
        """The output of the CLI while it was parked."""

    # -- starting and attaching ----------------------------------------------------------------

    @classmethod
    async def start(cls, launch: HolderLaunch, *, epoch: int, deadline: float) -> Self:
        """Start a holder and its CLI; return an attached client.

        `epoch` is that of the caller's lease, and the agent ends at `deadline`, on `boottime()`,
        unless `beat()` moves it. Raises `LaunchFailed` if the CLI can't be executed, and
        TimeoutError if the holder doesn't answer.
        """
        holder = cls(start_holder(launch.run_dir), launch.socket_path)
        try:
            body = _launch_data(launch, epoch, deadline)
            await holder._send(f"START {PROTOCOL} pipes {len(body)}\n".encode() + body)
            await holder._read_launch()
        except BaseException:
            holder._close()
            raise
        return holder

    @classmethod
    async def attach(cls, path: Path, *, key: str, epoch: int, deadline: float) -> Self | None:
        """Return a client that has attached to a parked agent.

        None if the agent has ended, if it had to be ended because an older client is attached, or
        if the holder refuses. Raises TimeoutError if the holder doesn't answer.
        """
        return await cls._attach(path, f"ATTACH {PROTOCOL} {epoch} {key} {deadline}\n")

    def take_pipes(self) -> tuple[int, ...]:
        """Return the CLI's standard input, output and error; the caller closes them."""
        pipes, self.descriptors = self.descriptors, ()
        return pipes

    # -- while attached ------------------------------------------------------------------------

    def beat(self, deadline: float) -> None:
        """Let the agent live until `deadline` on `boottime()`.

        A beat that can't be sent, because the connection is closed or its buffer is full, is lost;
        then the agent ends at its earlier deadline.
        """
        with contextlib.suppress(OSError):
            self._sock.send(f"BEAT {deadline}\n".encode())

    async def gone(self) -> int | None:
        """Wait until the agent has ended by itself; return its exit status.

        None if the holder was killed, in which case processes of the agent may be left. Must not
        run at the same time as `park()` or `end()`.
        """
        status = None
        with contextlib.suppress(OSError, EOFError):
            while True:
                words = (await self._line()).split()
                if words[:1] == ["EXIT"]:
                    status = int(words[1])
        self._close()
        return status

    # -- parking and ending --------------------------------------------------------------------

    async def park(self, *, epoch: int, warm_s: float, state: bytes) -> bool:
        """Leave the agent to the holder for `warm_s` seconds; return False if the agent is gone.

        The caller has closed the pipes, which the holder reads from now on. The next client gets
        `state`. Raises TimeoutError if the holder doesn't answer.
        """
        if self._sock.fileno() < 0:
            return False
        try:
            await self._send(f"PARK {epoch} {warm_s} {len(state)}\n".encode() + state)
            words = await self._answer()
            return words == ["PARKED"]
        except TimeoutError:
            raise
        except (OSError, EOFError):
            return False
        finally:
            self._close()

    async def end(self) -> bool:
        """End the agent's whole process tree, and wait until it is gone.

        False if the holder doesn't answer, in which case processes may be left.
        """
        if self._sock.fileno() < 0:
            return True
        try:
            await self._send(b"END\n")
            while (await self._answer(END_S)) != ["ENDED"]:
                pass
            return True
        except (OSError, EOFError, TimeoutError):
            return False
        finally:
            self._close()
            reap_holders()

    def drop(self) -> None:
        """Close the connection without PARK, so that the holder ends the agent's tree."""
        self._close()

    async def _read_hello(self, words: list[str]) -> bool:
        # HELLO 1 pipes PID STATE-SIZE OUTPUT-SIZE
        if words[:3] != ["HELLO", PROTOCOL, "pipes"]:
            return False
        self.pid, state_size, output_size = (int(word) for word in words[3:6])
        async with asyncio.timeout(ANSWER_S):
            while len(self._buffer) < state_size + output_size:
                await self._receive()
        self.state = self._buffer[:state_size]
        self.output = self._buffer[state_size : state_size + output_size]
        self._buffer = self._buffer[state_size + output_size :]
        return True

    def _close(self) -> None:
        """Close the connection, and the pipes unless the caller has taken them."""
        super()._close()
        for descriptor in self.take_pipes():
            os.close(descriptor)


def _launch_data(launch: HolderLaunch, epoch: int, deadline: float) -> bytes:
    """Return the body of START."""
    fields = [launch.key, str(launch.socket_path), str(launch.run_dir), launch.lifeline]
    fields += [str(launch.leave_s), launch.cwd, str(epoch), str(deadline)]
    fields += [str(len(launch.argv)), *launch.argv]
    fields += [f"{name}={value}" for name, value in launch.env.items()]
    return encode_fields(fields)
