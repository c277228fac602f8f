"""The chat's side beside a bare `Bot`, on the tests' Telegram: `python -m tests.bench.chats`.

What both ask is judged and kept by a server in a process of its own, so both pay for that.
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
from tests.bench.floors import ECHO_AGENT
from tests.bench.gateway import Pairs
from tests.bench.load import Figure, workers
from tests.support.command import REMOTECLAW
from tests.support.processes import proportional_mb
from tests.support.stack import Stack
from tests.support.talks import Talk, heard
from tests.support.telegram import Telegram, TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

ACCOUNT = "telegram", "default"
#: How many chats are shown a running turn, and how many are answered at once.
SHOWN, MANY = 100, 1000
#: How long a preview stays as it is, at least: Telegram's pace and some more, in seconds.
PACE_S = 1.2
#: The least that polls with the same library.
_BARE_POLL = """
import asyncio, sys
from telegram import Bot
asyncio.run(Bot(sys.argv[1], base_url=sys.argv[2]).get_updates(timeout=20))
"""


async def bench_chats(stack: Stack, rounds: int) -> tuple[list[Pairs], list[Figure]]:
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
    """Have nothing but the library, with the same token."""
    request = HTTPXRequest(connection_pool_size=128, pool_timeout=60, read_timeout=60)
    async with Bot(bot.token, base_url=f"{bot.api_url}/bot", request=request) as bare:
        yield bare


class _Bench:
    """One bot, what runs it, and a bare one with the same token."""

    def __init__(self, stack: Stack, bot: TelegramBot, bare: Bot) -> None:
        self._stack = stack
        self._bot = bot
        self._bare = bare
        self._chats = iter(range(1_000, 1_000_000))

    async def run(self, rounds: int) -> tuple[list[Pairs], list[Figure]]:
        """Return the rows, and what the process keeps in memory."""
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

    async def _starts(self, rounds: int) -> Pairs:
        ours, floor = [], []
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
                floor.append(time.perf_counter() - started)
                bare.kill()
        return "channel run, started, first poll", "bare Bot.get_updates", ours, floor, ""

    async def _started(self) -> "subprocess.Popen[bytes]":
        """Start the process, as a program and not as a fork; return it once it polls."""
        polls, command = self._count("getUpdates"), (REMOTECLAW, "channel", "run")
        with (self._stack.home.logs / "channel.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._stack.env(), stdout=log, stderr=log)
        await self._until("getUpdates", polls + 1)
        return process

    async def _replies(self, rounds: int) -> list[Pairs]:
        """From a message that a person sends to the words that stand there, with an echo agent."""
        await self._replied(ANN)
        same = await _by_turns(lambda: self._replied(ANN), lambda: self._sent([ANN]), rounds)
        new = iter(await self._let_in(rounds))
        others = await _by_turns(
            lambda: self._replied(next(new)), lambda: self._sent([ANN]), rounds
        )
        floor = "bare Bot.send_message"
        return [
            ("Telegram, reply in the same chat", floor, *same, "≤ F + 100 ms"),
            ("Telegram, reply in a new chat", floor, *others, "≤ F + 100 ms"),
        ]

    async def _replied(self, chat: int) -> float:
        count = self._count("sendMessage")
        await asyncio.to_thread(self._bot.say, "x", chat=chat)
        started = time.perf_counter()
        await self._until("sendMessage", count + 1)
        seconds = time.perf_counter() - started
        await self._delivered()
        return seconds

    async def _edits(self, rounds: int) -> Pairs:
        """One edit in each of many chats whose turns run, by the time that one takes."""
        fleet = self._stack.fleet
        await heard(fleet, "telegram")
        chats = await self._let_in(SHOWN)
        talks = [await Talk.begin(fleet, provider="telegram", chat=str(chat)) for chat in chats]
        sent = self._count("sendMessage")
        await asyncio.gather(*(talk.show("Words") for talk in talks))
        await self._until("sendMessage", sent + SHOWN)
        shown = [(await self._bare.send_message(chat, "Words")).message_id for chat in chats]

        async def ours() -> float:
            await asyncio.sleep(PACE_S)
            count, words = self._count("editMessageText"), f"Words {time.perf_counter()}"
            started = time.perf_counter()
            await asyncio.gather(*(talk.show(words) for talk in talks))
            await self._until("editMessageText", count + SHOWN)
            return (time.perf_counter() - started) / SHOWN

        async def floor() -> float:
            words, started = f"Words {time.perf_counter()}", time.perf_counter()
            edits = zip(chats, shown, strict=True)
            await _some_at_once(
                partial(self._bare.edit_message_text, words, chat, name) for chat, name in edits
            )
            return (time.perf_counter() - started) / SHOWN

        measured = await _by_turns(ours, floor, rounds)
        await asyncio.gather(*(talk.end("Done.") for talk in talks))
        await self._delivered()
        return f"Telegram, an edit, {SHOWN} chats at once", "bare Bot edits", *measured, ""

    async def _many(self, rounds: int) -> Pairs:
        """A reply in each of many chats, by the time that one takes."""
        chats = await self._let_in(MANY)
        put = self._stack.put_reply

        async def ours() -> float:
            count, started = self._count("sendMessage"), time.perf_counter()
            await asyncio.gather(*(put(*ACCOUNT, "Words", chat=str(chat)) for chat in chats))
            await self._until("sendMessage", count + MANY)
            seconds = (time.perf_counter() - started) / MANY
            await self._delivered()
            return seconds

        async def floor() -> float:
            return await self._sent(chats) / MANY

        measured = await _by_turns(ours, floor, rounds)
        return f"Telegram, a reply, {MANY:,} chats at once", "bare Bot sends", *measured, ""

    async def _sent(self, chats: Sequence[int]) -> float:
        """Send by the bare bot to all; return how long that took."""
        started = time.perf_counter()
        await _some_at_once(partial(self._bare.send_message, chat, "ok") for chat in chats)
        return time.perf_counter() - started

    async def _let_in(self, count: int) -> list[int]:
        """Return chats that nobody has written in, with people who may."""
        chats = [next(self._chats) for _ in range(count)]
        for chat in chats:
            self._bot.chat(chat)
            await self._stack.fleet.pairings.add(*ACCOUNT, str(chat), name="a person", by="bench")
        return chats

    async def _delivered(self) -> None:
        client: Any = self._stack.fleet.scripts.client

        async def is_empty() -> bool:
            return not await client.xlen(keys.reply_stream(*ACCOUNT))

        await eventually(is_empty)

    def _count(self, method: str) -> int:
        return self._bot.until(method)

    async def _until(self, method: str, count: int) -> None:
        await asyncio.to_thread(self._bot.until, method, count)


async def _some_at_once(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Make calls, as many at once as the relay: of a thousand at once the library makes a mess."""
    left = iter(calls)

    async def lane() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(lane() for _ in range(MAX_AT_ONCE)))


async def _by_turns(
    ours: Callable[[], Awaitable[float]], floor: Callable[[], Awaitable[float]], rounds: int
) -> tuple[list[float], list[float]]:
    pairs = [(await ours(), await floor()) for _ in range(rounds)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _lines(rows: Sequence[Pairs], figures: Sequence[Figure]) -> Iterator[str]:
    for name, floor_name, *measured, goal in rows:
        ours, floor = (statistics.median(each) * 1000 for each in measured)
        yield f"{name:42} {ours:8.2f} ms {floor:8.2f} ms {ours / floor:6.2f} {goal} ({floor_name})"
    for figure in figures:
        yield f"{figure.name:42} {figure.value:8.1f} {figure.unit} {figure.goal}"


async def alone(
    bench: Callable[[Stack, int], Awaitable[tuple[list[Pairs], list[Figure]]]], rounds: int
) -> None:
    """Print the rows of one part alone."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        stack = Stack(Home(Path(name) / "home").create(), appendfsync="everysec")
        await stack.start()
        try:
            for line in _lines(*await bench(stack, rounds)):
                sys.stdout.write(f"{line}\n")
        finally:
            await stack.stop()


if __name__ == "__main__":
    asyncio.run(alone(bench_chats, int(sys.argv[1]) if len(sys.argv) > 1 else 20))
