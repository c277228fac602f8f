"""A process of `up`: normally a fork, and after an update of the files a program of its own."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from remoteclaw.host.forking import ForkedProcess, ForkServer
from remoteclaw.host.process import spawn
from remoteclaw.host.version import VERSION, installed_version

Part = ForkedProcess | asyncio.subprocess.Process


async def start_part(
    forks: ForkServer,
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    log: Path,
    sockets: Sequence[socket.socket] = (),
) -> Part:
    """Run `python -m MODULE ARGUMENTS` with an option `--socket` for each of the `sockets`.

    After `git pull`, a fork would import what the fork server has not loaded, such as the settings
    of a worker, from files that don't fit what it has. So the program is started anew then.
    """
    if installed_version() == VERSION:
        options = [f"--socket={number}" for number in range(3, 3 + len(sockets))]
        return await forks.fork(module, *arguments, *options, env=env, log=log, sockets=sockets)
    keep = [each.fileno() for each in sockets]
    options = [f"--socket={number}" for number in keep]
    argv = [sys.executable, "-P", "-m", module, *arguments, *options]
    return await spawn(argv, env=env, log=log, death_signal=signal.SIGKILL, keep=keep)
