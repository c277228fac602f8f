"""`remoteclaw doctor` for clients of the gateway.

It is the command itself, in a process of its own: it starts agent CLIs and waits for them.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from remoteclaw.clock import now_ms
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.host.process import run_to_end
from remoteclaw.tools.fleet import DoctorResult, Finding

#: How long it may take, in seconds: a call has 120. A CLI that hangs costs it 20.
EXAMINE_S = 110.0
#: More than it ever prints, in bytes.
MOST_BYTES = 1_000_000
#: -P, so that no file of the directory in which the gateway was started is taken for a module.
COMMAND = (sys.executable, "-P", "-m", "remoteclaw.cli", "doctor", "--json")
_FINDINGS = TypeAdapter(tuple[Finding, ...])

#: What runs, by its state directory: who asks meanwhile waits for the same.
_running: dict[Path, asyncio.Task[DoctorResult]] = {}


async def examined(home: Home) -> DoctorResult:
    """Return what the doctor finds on this host. Raises `CallRefused`."""
    task = _running.get(home.path)
    if task is None:
        task = _running[home.path] = asyncio.create_task(_examine(home))
        task.add_done_callback(lambda _: _running.pop(home.path))
    return await asyncio.shield(task)


async def _examine(home: Home) -> DoctorResult:
    env = {**os.environ, "REMOTECLAW_HOME": str(home.path)}
    try:
        _, printed = await run_to_end(COMMAND, env=env, timeout_s=EXAMINE_S, most_bytes=MOST_BYTES)
        findings = _FINDINGS.validate_json(printed)
    except TimeoutError:
        raise _refused(f"took longer than {EXAMINE_S:.0f} s") from None
    except (OSError, ValidationError) as error:
        raise _refused(f"failed ({type(error).__name__})") from None
    return DoctorResult(host=socket.gethostname(), at_ms=now_ms(), findings=findings)


def _refused(what: str) -> CallRefused:
    where = socket.gethostname()
    return CallRefused("UNAVAILABLE", f"The doctor {what}: run `remoteclaw doctor` on {where}.")
