"""A channel compared with a bare `Bot`, on a fake Telegram.

Both call the same server, which runs in another process, so both include its time.
"""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from telegram import Bot
from telegram.request import HTTPXRequest

from remoteclaw.channels.budget import MAX_AT_ONCE
from remoteclaw.fleet import keys
from tests.bench.baselines import ECHO_AGENT
from tests.bench.gateway import RowParts
from tests.bench.load import workers
from tests.support.command import REMOTECLAW
from tests.support.stack import Stack
from tests.support.telegram import Telegram, TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

ACCOUNT = "telegram", "default"
#: The time from one message to a chat to the next one, in seconds.
CHAT_S = 1.1


async def bench_chats(stack: Stack, rounds: int) -> list[RowParts]:
    """Measure the time from a user's message to the reply in the chat."""
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

    async def run(self, rounds: int) -> list[RowParts]:
        """Return the rows."""
        agent = {"runtime": "demo", "command": list(ECHO_AGENT)}
        await workers(self._stack, 0, agent, channels={})
        Channel(self._stack, self._bot, agent=agent, linger_s=5)
        process = await self._started()
        try:
            worker = await self._stack.start_worker()
            rows = await self._replies(rounds)
            worker.kill()
            worker.wait()
        finally:
            process.kill()
            process.wait()
        return rows

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
        # A chat gets a message a second, as Telegram allows: more would wait for that.
        await asyncio.sleep(started + CHAT_S - time.perf_counter())
        return seconds

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
