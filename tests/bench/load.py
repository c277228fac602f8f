"""The load of many sessions, measured on a fleet of real workers."""

import asyncio
import os
import signal
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.events import AgentRunResult
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted, decode_entry
from remoteclaw.fleet.turns.turn import RecordAppend
from remoteclaw.messages import AgentDeliveryResult, McpSideEffects, ReplyPayload, Turn
from remoteclaw.protocols import Conversation
from remoteclaw.session.record import lines_of
from tests.bench.baselines import ECHO_AGENT
from tests.support.agents import AgentCli
from tests.support.bridges import script
from tests.support.processes import children
from tests.support.stack import Stack

#: The number of concurrent calls to Redis.
AT_ONCE = 64
#: The pause of people between two messages, in seconds.
PAUSE_S = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its goal."""

    name: str
    value: float
    unit: str
    goal: str

    def line(self) -> str:
        """Return the figure as a line of text."""
        return f"{self.name:44} {self.value:>12,.2f} {self.unit:9} {self.goal}"

    def as_json(self) -> dict[str, object]:
        """Return the figure for a JSON file."""
        return {"name": self.name, "value": round(self.value, 3), "unit": self.unit} | {
            "goal": self.goal
        }


async def bench_load(stack: Stack, claude: AgentCli | None, *, sessions: int) -> list[Figure]:
    """Measure the figures that need many sessions."""
    return [
        *await many_sessions(stack, sessions),
        *await one_busy_session(stack),
        *await a_crowd(stack, claude),
        await recovery(stack),
    ]


async def workers(stack: Stack, count: int, agent: dict[str, Any], **options: Any) -> None:
    """Replace the workers by `count` new ones with this configuration."""
    for old in stack.workers:
        old.kill()
        old.wait()
    stack.workers.clear()
    await stack.fleet.scripts.client.flushall()
    stack.configure(agent, **options)
    await stack.fleet.aclose()
    stack.reopen()
    for _ in range(count):
        await stack.start_worker()


async def in_parallel(stack: Stack, senders: Sequence[str], work: Any) -> float:
    """Call `work` for each sender, some at once; return the seconds for all of them."""
    queue = iter(senders)
    started = time.perf_counter()

    async def lane() -> None:
        for sender in queue:
            await work(sender)

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
    return time.perf_counter() - started


async def many_sessions(stack: Stack, count: int) -> list[Figure]:
    """Measure one message to each of many sessions, without an agent."""
    await workers(stack, 0, {"runtime": "demo"})
    client: Any = stack.fleet.scripts.client
    empty = (await client.info("memory"))["used_memory"]
    senders = [f"person-{number}" for number in range(count)]
    accepted: dict[str, Accepted] = {}

    async def append(sender: str) -> None:
        accepted[sender] = await stack.append("hello", from_=sender)

    async def serve(sender: str) -> None:
        each = accepted[sender]
        lease = await stack.fleet.leases.acquire(each.session.sid, worker="bench", host="here")
        assert lease is not None
        await lease.turns.begin([each.entry_id])
        await lease.remember("main|claude|/work", Conversation(str(uuid.uuid4())))
        entry = decode_entry(*(await lease.entries())[0])
        result = AgentDeliveryResult((ReplyPayload("ok"),), AgentRunResult(), McpSideEffects())
        lines = lines_of(Turn(lease.session, (entry,)), (), result, at_ms=entry.at_ms)
        record = RecordAppend(lines, max_bytes=256 * 1024, keep_ms=30 * 24 * 3600 * 1000)
        await lease.turns.finish("done", reply=[{"text": "ok"}], record=record)
        assert await lease.close()

    appending = await in_parallel(stack, senders, append)
    serving = await in_parallel(stack, senders, serve)
    lost = 0
    for each in accepted.values():
        outcome = await stack.fleet.outcomes.read(each.session.sid, each.entry_id)
        lost += outcome is None or outcome.status != "done"
    await client.delete("rq:queue:agents")
    async for key in client.scan_iter(match="rq:job:*", count=1000):
        await client.delete(key)
    kept = (await client.info("memory"))["used_memory"] - empty
    for pattern in (keys.outcome("*", "*"), "rc:known:*"):
        async for key in client.scan_iter(match=pattern, count=1000):
            await client.delete(key)
    with_record = (await client.info("memory"))["used_memory"] - empty
    async for key in client.scan_iter(match=keys.record("*"), count=1000):
        await client.delete(key)
    idle = (await client.info("memory"))["used_memory"] - empty
    scale = 100_000 / count / 1e6
    return [
        Figure(f"{count:,} sessions: accepted", count / appending, "msg/s", "≥ 20,000"),
        Figure(f"{count:,} sessions: turns without an agent", count / serving, "turns/s", ""),
        Figure(f"{count:,} sessions: lost", lost, "messages", "0"),
        Figure("100,000 idle sessions with a CLI's id (scaled)", idle * scale, "MB", "≤ 60"),
        Figure("… and a record of one turn each", with_record * scale, "MB", ""),
        Figure("… and that turn's outcome, for a week", kept * scale, "MB", ""),
    ]


async def latencies(stack: Stack, senders: Sequence[str]) -> list[float]:
    """Send one message of each sender, one after another; return the seconds of each."""
    seconds = []
    for sender in senders:
        started = time.perf_counter()
        await stack.outcome(await stack.append("hello", from_=sender))
        seconds.append(time.perf_counter() - started)
    return seconds


async def one_busy_session(stack: Stack) -> list[Figure]:
    """Measure a thousand messages to one session, and a hundred people with one message each."""
    agent = {"runtime": "demo", "command": list(ECHO_AGENT), "warm_s": 0}
    await workers(stack, 2, agent)
    people = [uuid.uuid4().hex for _ in range(100)]
    alone = await latencies(stack, people)
    client: Any = stack.fleet.scripts.client
    before = int(
        await client.xlen(keys.WAKE) and (await client.xinfo_stream(keys.WAKE))["entries-added"]
    )
    flood = [await stack.append(f"m{number}", from_="flooder") for number in range(1000)]
    loaded = await latencies(stack, [uuid.uuid4().hex for _ in range(100)])
    outcomes = [await stack.outcome(each, within_s=300) for each in flood]
    order = [
        step.at_ms for outcome in outcomes for step in outcome.steps if step.name == "finished"
    ]
    hints = int((await client.xinfo_stream(keys.WAKE))["entries-added"]) - before
    return [
        Figure("1,000 to one session: out of order", float(order != sorted(order)), "", "0"),
        Figure("… hints, those of the 100 others included", hints, "jobs", "few"),
        Figure("… p95 of the others, without load = 1", p95(loaded) / p95(alone), "×", "< 2"),
    ]


async def a_crowd(stack: Stack, claude: AgentCli | None) -> list[Figure]:
    """Measure 20 sessions with 3 messages each at once, and 8 people who chat, on 4 workers."""
    agent = claude.config() if claude else {"runtime": "demo", "command": list(ECHO_AGENT)}
    name = "real claude" if claude else "echo agent"
    text = "SAY:x" if claude else "x"
    queue = {"mode": "followup", "debounce_ms": 0, "cap": 0}
    await workers(stack, 4, agent, queue=queue, max_agents=30)
    started = time.perf_counter()
    accepted = [
        await stack.append(text, from_=f"person-{person}") for _ in range(3) for person in range(20)
    ]
    outcomes = [await stack.outcome(each, within_s=120) for each in accepted]
    seconds = time.perf_counter() - started
    answered = sum(outcome.status == "done" for outcome in outcomes)
    await workers(stack, 4, agent, queue=queue)
    warm = total = 0
    for turn in range(4):
        # The pause is longer than a drain lingers, so that agents are parked and workers shared.
        await asyncio.sleep(PAUSE_S)
        chats = [await stack.append(text, from_=f"person-{person}") for person in range(8)]
        for chat in chats:
            await stack.outcome(chat)
            if turn:
                warm += (await stack.reached(chat, "spawned")).startswith("warm")
                total += 1
    return [
        Figure(f"20 × 3 at once, {name}: answered", answered, "of 60", "60"),
        Figure(f"20 × 3 at once, {name}", seconds, "s", "≤ 15"),
        Figure(
            f"8 people on 4 workers, {PAUSE_S} s apart: agent found warm",
            100 * warm / total,
            "%",
            "≥ 95",
        ),
    ]


async def recovery(stack: Stack) -> Figure:
    """Measure the time from a worker's kill during a turn until the turn begins again."""
    lease_s = 5
    directory = stack.home.path
    body = "while True:\n    turn(); say(type='text', text='x'); time.sleep(1000)"
    agent = {"runtime": "demo", "command": list(script(directory, body))}
    await workers(stack, 2, agent, lease_s=lease_s)
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    accepted = await stack.append("hello")
    await stack.reached(accepted, "output")
    busy = next(worker for worker in stack.workers if children(worker.pid))
    started = time.perf_counter()
    os.kill(busy.pid, signal.SIGKILL)

    async def again() -> float:
        while True:
            outcome = await stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
            assert outcome is not None
            if any(step.name == "begun" and step.attempt == 2 for step in outcome.steps):
                return time.perf_counter() - started
            await asyncio.sleep(0.02)

    seconds = await again()
    sweeping.cancel()
    return Figure(f"worker killed, lease {lease_s} s: running again", seconds, "s", "≤ lease + 5")


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]
