"""The cost of the inbox: what storing a report and removing it adds to accepting a message."""

import time

from remoteclaw.fleet import keys
from remoteclaw.protocols import Incoming
from tests.support.stack import Stack

#: A report's median is taken over more reports than other rows', because it takes less than 1 ms.
REPORTS = 50
ROW = ("a report in the inbox", "an XADD")
ACCOUNT = "bench", "default"


async def bench_inbox(stack: Stack, rounds: int) -> tuple[str, str, list[float], list[float], str]:
    """Measure the calls of Redis that store a report with its cursor, and remove it."""
    fleet = stack.fleet
    reader = fleet.replies.reader(*ACCOUNT)
    await reader.wait_for_claim()

    async def ours(number: int) -> float:
        report = Incoming(id=f"{number}", chat="7", sender="7", at_ms=1, text="x" * 100)
        started = time.perf_counter()
        (stored,) = await fleet.inbox.store(reader, [report], {"updates": f"{number}"})
        await fleet.inbox.done(reader, accepted=[stored.id])
        return time.perf_counter() - started

    async def baseline() -> float:
        started = time.perf_counter()
        await fleet.scripts.client.xadd("bench", {"message": "x" * 100})
        return time.perf_counter() - started

    pairs = [(await ours(number), await baseline()) for number in range(rounds * REPORTS)]
    await fleet.accounts.leave(reader)
    await fleet.scripts.client.delete("bench", keys.account(*ACCOUNT), keys.cursors(*ACCOUNT))
    times, baselines = ([pair[side] for pair in pairs[REPORTS:]] for side in (0, 1))
    return (*ROW, times, baselines, "≤ 1 ms")
