"""Commands on a test's own state directory, and checks of their errors."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.command import REMOTECLAW, run_command
from tests.support.stack import Stack


def run(
    stack: Stack, *arguments: str, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, env=stack.env(**env), stdin=stdin)


@contextlib.contextmanager
def started(stack: Stack, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command, and kill it at exit if it is still running."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [REMOTECLAW, *arguments], env=stack.env(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def without_stack(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a state directory that may not exist yet.

    Not even root can make its HOME, in which the agents' CLIs would leave files.
    """
    return run_command(
        *arguments,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/proc/nobody",
            "REMOTECLAW_HOME": str(home),
            **env,
        },
    )


def loaded_by(*arguments: str, env: Mapping[str, str] | None = None) -> set[str]:
    """Run a command, and return the modules that are loaded when it ends."""
    program = (
        "import sys\nfrom remoteclaw.cli import main\n"
        "try: main.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=True,
        env=env,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return set(result.stderr.split())


def refused(result: subprocess.CompletedProcess[str], why: str, *, code: int = 1) -> None:
    """Check that a command has failed, and that its error is one line that contains `why`."""
    assert result.returncode == code
    assert result.stderr.startswith("remoteclaw: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert why in result.stderr
    assert result.stdout == ""


async def give_up(stack: Stack, *messages: Accepted) -> None:
    """Make dead letters of messages, as if each had killed three workers, and start a worker."""
    leases = stack.fleet.leases
    for accepted in messages:
        for _ in range(3):
            lease = await leases.acquire(accepted.session.sid, worker="dead", host="here")
            assert lease is not None
            await lease.turns.begin([accepted.entry_id])
            await stack.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)
    await stack.start_worker()
    for accepted in messages:
        await stack.fleet.waker.hint(accepted.session.sid, "test", queue="agents")
        assert (await stack.outcome(accepted)).status == "dead"
