"""A channel compared with a bare `Bot`, on a fake Telegram: `python -m tests.bench.chats`.

Both call the same server, which runs in another process, so both include its time.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from telegram import Bot
from telegram.request import HTTPXRequest

from remoteclaw.channels.budget import MAX_AT_ONCE
from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from tests.bench.baselines import ECHO_AGENT
from tests.bench.gateway import RowParts
from tests.bench.load import Figure, workers
from tests.bench.stack import FleetStack
from tests.support.command import REMOTECLAW
from tests.support.processes import proportional_mb
from tests.support.stack import Stack
from tests.support.talks import Talk, wait_for_live_text_listener
from tests.support.telegram import Telegram, TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

ACCOUNT = "telegram", "default"
#: The number of chats that show a running turn, and of chats that get a reply at once.
SHOWN, MANY = 100, 1000
#: The minimum time between two edits of a preview: Telegram's pace and a margin, in seconds.
PACE_S = 1.2
#: The smallest program that polls with the same library.
_BARE_POLL = """
import asyncio, sys
from telegram import Bot
asyncio.run(Bot(sys.argv[1], base_url=sys.argv[2]).get_updates(timeout=20))
"""


async def bench_chats(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure an account's process from its start to a thousand chats at once."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        directory = Path(name) / "telegram"
        with Telegram.shared(directory) as telegram:
            bot = telegram.bot()
            async with bare_bot(bot) as bare:
                measured = await _Bench(stack, bot, bare).run(rounds)
        await eventually(lambda: not (directory / "url").exists())
    return measured


@contextlib.asynccontextmanager
async def bare_bot(bot: TelegramBot) -> AsyncIterator[Bot]:
    """Open a client of the library itself, with the same token."""
    request = HTTPXRequest(connection_pool_size=128, pool_timeout=60, read_timeout=60)
    async with Bot(bot.token, base_url=f"{bot.api_url}/bot", request=request) as bare:
        yield bare


class _Bench:
    """One bot, the stack that runs it, and a bare client with the same token."""

    def __init__(self, stack: Stack, bot: TelegramBot, bare: Bot) -> None:
        self._stack = stack
        self._bot = bot
        self._bare = bare
        self._chats = iter(range(1_000, 1_000_000))

    async def run(self, rounds: int) -> tuple[list[RowParts], list[Figure]]:
        """Return the rows, and the memory of the process."""
        agent = {"runtime": "demo", "command": list(ECHO_AGENT)}
        await workers(self._stack, 0, agent, channels={})
        Channel(self._stack, self._bot, agent=agent, linger_s=5)
        rows = [await self._starts(max(3, rounds // 6))]
        process = await self._started()
        try:
            idle = proportional_mb(process.pid)
            worker = await self._stack.start_worker()
            rows += await self._replies(rounds)
            worker.kill()
            worker.wait()
            few = max(3, rounds // 10)
            rows += [await self._edits(few), await self._many(few)]
            full = proportional_mb(process.pid)
        finally:
            process.kill()
            process.wait()
        return rows, [
            Figure("channel run, one bot, just started", idle, "MB", "≤ 60"),
            Figure(f"… after {MANY:,} chats at once", full, "MB", "≤ 60"),
        ]

    async def _starts(self, rounds: int) -> RowParts:
        ours, baseline = [], []
        for _ in range(rounds):
            started = time.perf_counter()
            process = await self._started()
            ours.append(time.perf_counter() - started)
            process.terminate()
            process.wait()
            polls, started = self._bot.polls(), time.perf_counter()
            where = (self._bot.token, f"{self._bot.api_url}/bot")
            with subprocess.Popen([sys.executable, "-c", _BARE_POLL, *where]) as bare:
                await self._until("getUpdates", polls + 1)
                baseline.append(time.perf_counter() - started)
                bare.kill()
        return "channel run, started, first poll", "bare Bot.get_updates", ours, baseline, ""

    async def _started(self) -> "subprocess.Popen[bytes]":
        """Start the process as a program, not as a fork; return it once it polls."""
        polls, command = self._count("getUpdates"), (REMOTECLAW, "channel", "run")
        with (self._stack.home.logs / "channel.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._stack.env(), stdout=log, stderr=log)
        await self._until("getUpdates", polls + 1)
        return process

    async def _replies(self, rounds: int) -> list[RowParts]:
        """Measure the time from a user's message to the reply in the chat, with an echo agent."""
        await self._replied(ANN)
        same = await _measure_alternately(
            lambda: self._replied(ANN), lambda: self._sent([ANN]), rounds
        )
        new = iter(await self._paired_chats(rounds))
        others = await _measure_alternately(
            lambda: self._replied(next(new)), lambda: self._sent([ANN]), rounds
        )
        baseline = "bare Bot.send_message"
        return [
            ("Telegram, reply in the same chat", baseline, *same, "≤ 100 ms added"),
            ("Telegram, reply in a new chat", baseline, *others, "≤ 100 ms added"),
        ]

    async def _replied(self, chat: int) -> float:
        count = self._count("sendMessage")
        await asyncio.to_thread(self._bot.say, "x", chat=chat)
        started = time.perf_counter()
        await self._until("sendMessage", count + 1)
        seconds = time.perf_counter() - started
        await self._delivered()
        return seconds

    async def _edits(self, rounds: int) -> RowParts:
        """Measure edits in many chats with running turns, as the time per edit."""
        fleet = self._stack.fleet
        await wait_for_live_text_listener(fleet, "telegram")
        chats = await self._paired_chats(SHOWN)
        talks = [await Talk.begin(fleet, provider="telegram", chat=str(chat)) for chat in chats]
        sent = self._count("sendMessage")
        await asyncio.gather(*(talk.show("Words") for talk in talks))
        await self._until("sendMessage", sent + SHOWN)
        shown = [(await self._bare.send_message(chat, "Words")).message_id for chat in chats]

        async def ours() -> float:
            await asyncio.sleep(PACE_S)
            count, text = self._count("editMessageText"), f"Words {time.perf_counter()}"
            started = time.perf_counter()
            await asyncio.gather(*(talk.show(text) for talk in talks))
            await self._until("editMessageText", count + SHOWN)
            return (time.perf_counter() - started) / SHOWN

        async def baseline() -> float:
            text, started = f"Words {time.perf_counter()}", time.perf_counter()
            edits = zip(chats, shown, strict=True)
            await _some_at_once(
                partial(self._bare.edit_message_text, text, chat, name) for chat, name in edits
            )
            return (time.perf_counter() - started) / SHOWN

        measured = await _measure_alternately(ours, baseline, rounds)
        await asyncio.gather(*(talk.end("Done.") for talk in talks))
        await self._delivered()
        return f"Telegram, an edit, {SHOWN} chats at once", "bare Bot edits", *measured, ""

    async def _many(self, rounds: int) -> RowParts:
        """Measure replies in many chats at once, as the time per reply."""
        chats = await self._paired_chats(MANY)
        put = self._stack.put_reply

        async def ours() -> float:
            count, started = self._count("sendMessage"), time.perf_counter()
            await asyncio.gather(*(put(*ACCOUNT, "Words", chat=str(chat)) for chat in chats))
            await self._until("sendMessage", count + MANY)
            seconds = (time.perf_counter() - started) / MANY
            await self._delivered()
            return seconds

        async def baseline() -> float:
            return await self._sent(chats) / MANY

        measured = await _measure_alternately(ours, baseline, rounds)
        return f"Telegram, a reply, {MANY:,} chats at once", "bare Bot sends", *measured, ""

    async def _sent(self, chats: Sequence[int]) -> float:
        """Send a message to each chat with the bare bot; return the seconds that it took."""
        started = time.perf_counter()
        await _some_at_once(partial(self._bare.send_message, chat, "ok") for chat in chats)
        return time.perf_counter() - started

    async def _paired_chats(self, count: int) -> list[int]:
        """Return new chats of paired users."""
        chats = [next(self._chats) for _ in range(count)]
        for chat in chats:
            self._bot.chat(chat)
            await self._stack.fleet.pairings.add(*ACCOUNT, str(chat), name="a person", by="bench")
        return chats

    async def _delivered(self) -> None:
        client: Any = self._stack.fleet.scripts.client

        async def is_empty() -> bool:
            return not await client.xlen(keys.replies(*ACCOUNT))

        await eventually(is_empty)

    def _count(self, method: str) -> int:
        return self._bot.until(method)

    async def _until(self, method: str, count: int) -> None:
        await asyncio.to_thread(self._bot.until, method, count)


async def _some_at_once(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Make calls, as many at once as the relay does; the library fails with a thousand at once."""
    left = iter(calls)

    async def lane() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(lane() for _ in range(MAX_AT_ONCE)))


async def _measure_alternately(
    ours: Callable[[], Awaitable[float]], baseline: Callable[[], Awaitable[float]], rounds: int
) -> tuple[list[float], list[float]]:
    pairs = [(await ours(), await baseline()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _lines(rows: Sequence[RowParts], figures: Sequence[Figure]) -> Iterator[str]:
    for name, baseline_name, *measured, goal in rows:
        ours, baseline = (statistics.median(each) * 1000 for each in measured)
        times = f"{ours:8.2f} ms {baseline:8.2f} ms {ours / baseline:6.2f}"
        yield f"{name:42} {times} {goal} ({baseline_name})"
    for figure in figures:
        yield f"{figure.name:42} {figure.value:8.1f} {figure.unit} {figure.goal}"


async def alone(
    bench: Callable[[Stack, int], Awaitable[tuple[list[RowParts], list[Figure]]]], rounds: int
) -> None:
    """Run one benchmark and print its rows."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        stack = FleetStack(Home(Path(name) / "home").create(), appendfsync="everysec")
        await stack.start()
        try:
            for line in _lines(*await bench(stack, rounds)):
                sys.stdout.write(f"{line}\n")
        finally:
            await stack.stop()


if __name__ == "__main__":
    asyncio.run(alone(bench_chats, int(sys.argv[1]) if len(sys.argv) > 1 else 20))
