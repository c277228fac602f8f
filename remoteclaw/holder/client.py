"""The holder's client: start, attach, beat, PARK and END.

The connection itself is the dead man's switch: if this process dies or closes it without PARK, the
agent's tree is ended.
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
    Connection,
    joined,
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
    """A 0700 directory of this process alone; the holder removes it when it ends."""
    key: str
    """The secret that clients attach with."""
    lifeline: str = ""
    """Path of a FIFO; when its writer is gone, the agent ends. Empty for none."""

    @property
    def socket_path(self) -> Path:
        """The path of the holder's socket."""
        return self.run_dir / "holder.sock"


class HolderClient(Connection):
    """An attached holder: the CLI's pipes, and a connection that keeps the CLI alive."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        super().__init__(sock, path)
        self.state = b""
        """The state that the last worker left when it parked the agent; empty for a new one."""
        self.output = b""
        """The output of the CLI while it was parked."""

    # -- coming --------------------------------------------------------------------------------

    @classmethod
    async def start(cls, launch: HolderLaunch, *, epoch: int, deadline: float) -> Self:
        """Start a holder and its CLI, attached; `deadline` is on `boottime()`.

        Raises `LaunchFailed` when the CLI can't be executed and TimeoutError when the holder does
        not answer.
        """
        holder = cls(start_holder(launch.run_dir), launch.socket_path)
        try:
            body = _launch_data(launch, epoch, deadline)
            await holder._send(f"START {PROTOCOL} pipes {len(body)}\n".encode() + body)
            await holder._started()
        except BaseException:
            holder._close()
            raise
        return holder

    @classmethod
    async def attach(cls, path: Path, *, key: str, epoch: int, deadline: float) -> Self | None:
        """Attach to a parked agent; None when it has ended, or had to be ended, or refuses.

        Raises TimeoutError when the holder does not answer.
        """
        return await cls._attached(path, f"ATTACH {PROTOCOL} {epoch} {key} {deadline}\n")

    def take_pipes(self) -> tuple[int, ...]:
        """Return the CLI's standard input, output and error; the caller closes them."""
        pipes, self.descriptors = self.descriptors, ()
        return pipes

    # -- staying -------------------------------------------------------------------------------

    def beat(self, deadline: float) -> None:
        """Let the agent live until `deadline` on `boottime()`.

        Too late or too full to be sent is the same as not sent: the agent ends.
        """
        with contextlib.suppress(OSError):
            self._sock.send(f"BEAT {deadline}\n".encode())

    async def gone(self) -> int | None:
        """Wait until the agent has ended by itself; return its exit status.

        None means that the holder was killed, and that processes of the agent may be left.
        Not to be awaited while `park()` or `end()` runs.
        """
        status = None
        with contextlib.suppress(OSError, EOFError):
            while True:
                words = (await self._line()).split()
                if words[:1] == ["EXIT"]:
                    status = int(words[1])
        self._close()
        return status

    # -- going ---------------------------------------------------------------------------------

    async def park(self, *, epoch: int, warm_s: float, state: bytes) -> bool:
        """Leave the agent warm for `warm_s` seconds; False when it is gone instead.

        The caller has closed the pipes: from here on the holder reads them.
        Raises TimeoutError when the holder does not answer.
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
        """End the agent's whole tree and wait until it is gone.

        False means that the holder did not answer, and that processes may be left.
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
        """Close the connection without PARK: the holder ends the agent's tree."""
        self._close()

    async def _greeted(self, words: list[str]) -> bool:
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
        """Close the connection, and the pipes if they were not taken."""
        super()._close()
        for descriptor in self.take_pipes():
            os.close(descriptor)


def _launch_data(launch: HolderLaunch, epoch: int, deadline: float) -> bytes:
    """Return the body of START."""
    fields = [launch.key, str(launch.socket_path), str(launch.run_dir), launch.lifeline]
    fields += [launch.cwd, str(epoch), str(deadline), str(len(launch.argv)), *launch.argv]
    fields += [f"{name}={value}" for name, value in launch.env.items()]
    return joined(fields)
