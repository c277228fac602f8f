"""Commands on a test's own state directory, and what a refused one prints."""

import subprocess

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from tests.support.command import run_command
from tests.support.stack import Stack


def run(
    stack: Stack, *arguments: str, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, env=stack.env(**env), stdin=stdin)


def refused(result: subprocess.CompletedProcess[str], why: str, *, code: int = 1) -> None:
    """See that a command failed with one line that says why."""
    assert result.returncode == code
    assert result.stderr.startswith("remoteclaw: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert why in result.stderr
    assert result.stdout == ""


async def give_up(stack: Stack, accepted: Accepted) -> None:
    """Have a message that killed its worker three times, and a worker."""
    for _ in range(3):
        lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="dead", host="here")
        assert lease is not None
        await lease.turns.begin([accepted.entry_id])
        await stack.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)
    await stack.start_worker()
    await stack.fleet.waker.hint(accepted.session.sid, "test", queue="agents")
    assert (await stack.outcome(accepted)).status == "dead"
