"""The stack of the benchmarks: its workers are processes of their own, as in a fleet."""

import subprocess
from pathlib import Path
from typing import cast

from tests.support.command import Process
from tests.support.stack import Stack


class FleetStack(Stack):
    """A stack with stock `rq worker`s.

    The workers of tests are forks of a server that has loaded everything that tests need. Their
    work-horses would start 2 ms later, because a fork takes longer the more memory it copies.
    """

    def _start(self, argv: list[str], log: Path, **env: str) -> Process:
        with log.open("ab") as file:
            started = subprocess.Popen(
                argv, env=self.env(**env), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        worker = cast(Process, started)
        self.workers.append(worker)
        return worker
