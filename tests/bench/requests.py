"""Requests to people, from the click to the continuing agent: `python -m tests.bench.requests`.

The agent is a script that reports the times of its requests and of their answers.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from telegram import Bot

from remoteclaw.commands.answers import answer_request
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from tests.bench.chats import alone, bare_bot
from tests.bench.gateway import RowParts, measure_alternately
from tests.bench.load import Figure, workers
from tests.support.bridges import acp_script
from tests.support.leases import begun
from tests.support.requests import answered, open_request, put_in
from tests.support.stack import Stack, said
from tests.support.telegram import Telegram, TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

#: The number of open requests: the maximum of the fleet, and of one session.
MANY, OF_SESSION = 1000, 8
#: The number of sessions that wait for an answer, more than there are workers.
WAITING = 8
#: The number of measured turns, and of requests at the start of each that do not count.
BLOCKS, FIRST = 5, 5
#: The time that a turn has waited before its request is answered, in seconds.
SETTLED_S = 0.1
#: An agent that makes as many requests as its message says, and reports the times.
BODY = """
prompt = begin()
while True:
    count = prompt['params']['prompt'][0]['text'].split()[-1]
    times = []
    for _ in range(int(count)):
        times.append(time.perf_counter())
        say(jsonrpc='2.0', id=100, method='session/request_permission', params=dict(sessionId='s',
            toolCall=dict(toolCallId='1', title='x', kind='execute',
                rawInput=dict(command='touch x')),
            options=[dict(optionId=i, kind=k, name=k) for i, k in (('yes', 'allow_once'),
                ('no', 'reject_once'))]))
        asked()
        times.append(time.perf_counter())
    text('at ' + ' '.join(map(str, times)))
    answer(prompt, stopReason='end_turn')
    prompt = asked('session/prompt')
"""


async def bench_requests(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure a click, a rule, and the maximum number of open requests."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        directory = Path(name)
        agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
        with Telegram.shared(directory / "telegram") as telegram:
            click = await _clicks(stack, agent, telegram.bot(), telegram.bot(), max(5, rounds // 3))
        await eventually(lambda: not (directory / "telegram" / "url").exists())
        rule = await _rule(stack, agent, rounds * 4)
        many, figure = await _many(stack, rounds)
        ninth = await _ninth(stack, agent)
    return [click, rule, *many], [figure, ninth]


async def _clicks(
    stack: Stack, agent: dict[str, Any], bot: TelegramBot, other: TelegramBot, rounds: int
) -> RowParts:
    """Measure the time from a pressed button until the agent continues."""
    await workers(stack, 0, agent, channels={})
    channel = Channel(stack, bot, agent=agent, linger_s=5)
    await stack.start_worker()
    channel.start()
    ours, baseline = [], []
    async with bare_bot(other) as bare:
        message, offset = other.say("hi", chat=9), await _newest(bare)
        for number in range(rounds + 1):
            bot.say("1", chat=ANN)
            card = await _card(bot)
            await asyncio.sleep(SETTLED_S)
            started = time.perf_counter()
            await asyncio.to_thread(bot.press, "Allow once", chat=ANN, message=card)
            times = await _times(bot, number + 1)
            ours.append(times[-1] - started)
            polling = asyncio.create_task(bare.get_updates(offset=offset, timeout=20))
            await asyncio.sleep(SETTLED_S)
            started = time.perf_counter()
            await asyncio.to_thread(other.press, data="x:once", chat=9, message=message)
            offset = (await polling)[-1].update_id + 1
            baseline.append(time.perf_counter() - started)
    channel.end()
    name = "Telegram, from a click to the agent"
    return name, "bare Bot.get_updates", ours[1:], baseline[1:], "≤ 50 ms added"


async def _newest(bare: Bot) -> int:
    return int((await bare.get_updates(timeout=20))[-1].update_id) + 1


async def _card(bot: TelegramBot) -> int:
    """Wait for a message with buttons, and return its id."""

    def card_ids() -> list[int]:
        return [each["message_id"] for each in bot.chat(ANN) if "reply_markup" in each]

    (card, *_) = await eventually(card_ids)
    return int(card)


async def _times(bot: TelegramBot, count: int) -> list[float]:
    """Wait until the agent has reported times `count` times; return the last ones."""

    def reports() -> list[str]:
        texts = [text for text in bot.texts(ANN) if text.startswith("at ") and text.count(" ") > 1]
        return texts if len(texts) == count else []

    return _times_in((await eventually(reports))[-1])


def _times_in(text: str) -> list[float]:
    return [float(word) for word in text.split()[1:]]


async def _rule(stack: Stack, agent: dict[str, Any], rounds: int) -> RowParts:
    """Measure a request that a rule of the conversation allows, and one of an agent with `auto`."""
    await workers(stack, 1, {**agent, "permissions": "ask"})
    accepted = await stack.append("1", channel_id="ask")
    await answered(stack, await open_request(stack), "conversation")
    await stack.outcome(accepted)
    measured: dict[str, list[float]] = {"ask": [], "auto": []}
    for permissions in ("ask", "auto") * BLOCKS:  # alternately, so that other load affects both
        stack.configure({**agent, "permissions": permissions})
        count = str(FIRST + rounds // BLOCKS)
        asked = await stack.append(count, channel_id=permissions)
        times = _times_in(said(await stack.outcome(asked)))[2 * FIRST :]
        took = zip(times[::2], times[1::2], strict=True)
        measured[permissions] += [end - begin for begin, end in took]
    name, baseline = "a request that a rule answers", 'permissions = "auto"'
    return name, baseline, measured["ask"], measured["auto"], "≤ 2 ms added"


async def _ninth(stack: Stack, agent: dict[str, Any]) -> Figure:
    """Measure a message without a request, while more sessions wait than there are workers."""
    await workers(stack, 4, agent)
    for number in range(WAITING):
        await stack.append("1", channel_id=f"chat-{number}")

    async def all_wait() -> bool:
        return len(await stack.fleet.requests.waiting()) == WAITING

    await eventually(all_wait)
    started = time.perf_counter()
    await stack.outcome(await stack.append("0", channel_id="ninth"))
    took_ms = (time.perf_counter() - started) * 1000
    return Figure("four workers, eight waiting: a ninth session", took_ms, "ms", "≤ 2,000")


async def _many(stack: Stack, rounds: int) -> tuple[list[RowParts], Figure]:
    """Measure listing, answering and expiring with the maximum number of open requests."""
    await workers(stack, 0, {"runtime": "demo"})
    fleet, client = stack.fleet, stack.fleet.scripts.client
    for number in range(MANY // OF_SESSION):
        lease, accepted = await begun(fleet, channel_id=f"chat-{number}")
        for _ in range(OF_SESSION):
            await put_in(
                TurnRequests(lease, accepted.entry_id), accepted, tool="Bash", what="touch x"
            )
    requests = await fleet.requests.waiting()
    assert len(requests) == MANY
    unanswered = iter(requests)

    async def listed() -> None:
        assert await fleet.requests.waiting()

    async def bare_list() -> None:
        pipeline = client.pipeline(transaction=False)
        for request in requests:
            pipeline.hgetall(keys.request(request.id))
        await pipeline.execute()

    config = load_config(stack.home.config_file, {})

    async def one_answered() -> None:
        about: dict[str, Any] = {"by": "test:alice", "name": "Alice", "is_owner": True}
        assert (
            await answer_request(
                fleet.requests, stack.home, config, next(unanswered), "once", **about
            )
        ).counts

    async def swept() -> None:
        assert not await fleet.requests.expire_due()

    async def bare_ping() -> None:
        await client.ping()

    rows: list[RowParts] = []
    for name, baseline, measure, bare, goal in (
        (f"{MANY:,} open requests: list", "bare HGETALLs", listed, bare_list, ""),
        (f"{MANY:,} open requests: answer one", "bare PING", one_answered, bare_ping, ""),
        (f"{MANY:,} open requests: sweep", "bare PING", swept, bare_ping, ""),
    ):
        rows.append((name, baseline, *await measure_alternately(measure, bare, rounds), goal))
    await _make_due(client, [request.id for request in unanswered])
    started = time.perf_counter()
    while await fleet.requests.expire_due():
        pass
    took_ms = (time.perf_counter() - started) * 1000
    return rows, Figure(f"{MANY:,} requests that expire at once", took_ms, "ms", "")


async def _make_due(client: Any, ids: Sequence[str]) -> None:
    await client.zadd(keys.REQUESTS, dict.fromkeys(ids, 1))


if __name__ == "__main__":
    asyncio.run(alone(bench_requests, int(sys.argv[1]) if len(sys.argv) > 1 else 20))
