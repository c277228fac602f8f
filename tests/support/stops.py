"""The ways in which RemoteClaw is run and stopped: `up`, its parts, honcho, systemd, a container.

The programs are real ones, and none is forked from the tests' fork server.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_spec

from tests.support.command import ROOT
from tests.support.processes import is_alive
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: How many workers a host has.
WORKERS = 2
_PROGRAMS = Path(sys.executable).parent


class Host:
    """One host: a state directory, and the programs that run there."""

    def __init__(self, stack: Stack, code: Path = ROOT) -> None:
        self.stack = stack
        self.code = code
        self.env = stack.env(
            PATH=f"{_PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            PYTHONPATH=str(code),
            REMOTECLAW__FLEET__WORKERS=str(WORKERS),
        )
        del self.env["REMOTECLAW_LIFELINE"]  # the agents end with their workers
        self.log = stack.home.logs / "host.log"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str) -> "subprocess.Popen[bytes]":
        """Start a program, in a process group of its own, as a shell does."""
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                argv, cwd=self.code, env=self.env, stdout=log, stderr=log, process_group=0
            )
        self.running.append(started)
        return started

    def run(self, *arguments: str) -> str:
        """Run a command of `remoteclaw` to its end, and return its output."""
        argv = [sys.executable, "-m", "remoteclaw.cli", *arguments]
        ended = subprocess.run(
            argv, cwd=self.code, env=self.env, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start_up(self) -> "subprocess.Popen[bytes]":
        """Start `remoteclaw up`."""
        return self.start(sys.executable, "-m", "remoteclaw.cli", "up")

    def start_parts(self) -> None:
        """Start the parts that docs/operations.md names, with the stock `rq worker`s last."""
        for part in ("gateway", "sweep"):
            self.start(sys.executable, "-m", "remoteclaw.cli", part)
        for _ in range(WORKERS):
            self.start(sys.executable, "-m", "remoteclaw.cli", "worker")

    def start_honcho(self) -> "subprocess.Popen[bytes]":
        """Start honcho with the repository's Procfile."""
        counts = f"worker={WORKERS},gateway=1,sweep=1,channels=1"
        self.env["REMOTECLAW__REDIS__URL"] = self.stack.redis.url
        honcho = [sys.executable, "-m", "honcho", "-f", "Procfile", "start", "-c", counts]
        return self.start(*honcho)

    def start_container(self) -> "subprocess.Popen[bytes]":
        """Start what a container of compose.yaml runs, in process and mount namespaces."""
        instructions = (ROOT / "Dockerfile").read_text()
        words = [
            json.loads(found)
            for name in ("ENTRYPOINT", "CMD")
            for found in re.findall(rf"^{name} (.*)$", instructions, re.MULTILINE)
        ]
        namespaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return self.start(*namespaces, *(word for each in words for word in each))

    async def has_workers(self) -> None:
        """Wait until the workers of this host are ready."""

        async def are_ready() -> bool:
            views = await self.stack.fleet.workers.list()
            ours = [view for view in views if view.host_id == self.stack.home.host_id]
            return len(ours) == WORKERS

        await eventually(are_ready)

    def processes(self) -> list[int]:
        """Return the processes of this host that run."""
        wanted, found = os.fsencode(f"REMOTECLAW_HOME={self.stack.home.path}\0"), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes() and is_alive(int(name)):
                    found.append(int(name))
        return found

    def kill(self) -> None:
        """End what a failed test has left."""
        for started in self.running:
            started.kill()
            started.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def grace_of_compose() -> float:
    """Return the seconds after which compose kills a container that it stops."""
    composed = compose_spec.PyCompose.from_yaml((ROOT / "compose.yaml").read_text())
    host: dict[str, Any] = composed.to_dict()["services"]["host"]
    return 60.0 * int(host["stop_grace_period"].removesuffix("m"))
