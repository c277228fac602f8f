"""Redis behind Sentinel: a failover in mid-turn, and an old primary that lives on."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import PerhapsSent, RedisUnavailable, RedisUnfit
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.messages import ChatPlace
from remoteclaw.session.notices import SECOND_TRY
from tests.support.bridges import script
from tests.support.processes import marked_processes
from tests.support.sentinels import NAME, PASSWORD, Group, running_group
from tests.support.servers import installed_servers
from tests.support.stack import SID, Stack, said
from tests.support.waiting import eventually

#: The lease of the old side, which ends during the test.
LEASE_S = 3.0
#: A reply that only the old primary has, after its replicas are gone.
LOST = "a reply that a failover loses"

#: An agent that holds the first message of all until the test lets it go, and answers others.
HOLDS = """
while True:
    prompt = turn()['prompt']
    say(type='text', text='begun')
    if not os.path.exists('DIRECTORY/asked'):
        open('DIRECTORY/asked', 'w')
        while not os.path.exists('DIRECTORY/go'): time.sleep(0.02)
    say(type='text', text='answered')
    say(type='done')
"""


@pytest.fixture
def group(directory: Path) -> Iterator[Group]:
    with running_group(installed_servers()[0], directory / "group") as group:
        yield group


@pytest.fixture
async def clustered(stack: Stack, group: Group, directory: Path) -> AsyncIterator[Stack]:
    """A stack on the group's new side, with a sweeper."""
    await on_group(stack, group.url, directory)
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    yield stack
    sweeping.cancel()
    await asyncio.wait((sweeping,))


async def on_group(stack: Stack, url: str, directory: Path, *, lease_s: float = 30.0) -> None:
    body = HOLDS.replace("DIRECTORY", str(directory))
    agent = {"runtime": "demo", "command": list(script(directory, body))}
    stack.configure(agent, redis_url=url, lease_s=lease_s)
    if hasattr(stack, "fleet"):
        await stack.fleet.aclose()
    stack.reopen(url)


async def test_a_turn_survives_a_failover_and_is_answered_once(
    clustered: Stack, group: Group, directory: Path
) -> None:
    worker = await clustered.start_worker()
    accepted = await clustered.append("hello")
    await clustered.reached(accepted, "output")

    group.primary.kill()
    await eventually(group.is_promoted)
    (directory / "go").touch()

    outcome = await clustered.outcome(accepted)
    assert (said(outcome), outcome.status) == ("begunanswered", "done")
    assert [step.attempt for step in outcome.steps if step.name == "begun"] == [1]
    assert await clustered.fleet.replies.waiting("test", "default") == 1
    assert "answered" in await clustered.ask("again")
    assert worker.poll() is None
    shown = "".join(Path(f"/proc/{each.pid}/cmdline").read_text() for each in clustered.workers)
    assert PASSWORD not in shown + clustered.worker_logs()


async def test_an_old_primary_that_lives_on_says_nothing_and_its_turn_is_done_elsewhere(
    clustered: Stack, group: Group, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Stack(Home(directory / "old").create())
    os.mkfifo(old.lifeline)
    old.open_lifeline()
    await on_group(old, group.old_url, directory, lease_s=LEASE_S)
    old_said: list[str] = []
    reading = asyncio.create_task(read(old.fleet, old_said.append))
    worker = await old.start_worker()
    accepted = await old.append("hello")
    await old.reached(accepted, "output")

    group.split()
    # It takes writes until `min-replicas-max-lag` has passed; here it does forever.
    group.config(group.primary, "min-replicas-to-write", "0")
    await put_reply_unreplicated(old.fleet, LOST)
    monkeypatch.setattr("remoteclaw.fleet.turns.inbound.APPEND_S", 1.0)
    with pytest.raises(PerhapsSent):
        await old.append("a message that is lost, and is said to be", from_="bob")
    await eventually(group.is_promoted)
    client = clustered.fleet.scripts.client
    async for name in client.scan_iter(match=keys.host(f"*@{old.home.host_id}")):
        await client.delete(name)  # as if the time for the host's own workers had passed
    await clustered.start_worker()

    outcome = await clustered.outcome(accepted)
    assert said(outcome).startswith(SECOND_TRY)
    assert said(outcome).endswith("\n\nbegunanswered")
    assert [step.attempt for step in outcome.steps if step.name == "begun"] == [1, 2]
    assert not marked_processes(old.home)  # it ended before the second attempt could begin
    assert old_said == []

    group.heal()
    await eventually(group.has_rejoined)
    await eventually(lambda: "begunanswered" in old_said)
    reading.cancel()
    await asyncio.wait((reading,))
    assert old_said.count("begunanswered") == 1
    assert LOST not in old_said
    await clustered.end_processes()
    if worker.poll() is not None:  # as a supervisor does: it could write nothing
        await old.start_worker()
    assert "answered" in await old.ask("again", from_="carol")
    await old.end_processes()
    await old.fleet.aclose()


async def test_sentinel_is_used_only_if_no_acknowledged_write_can_be_lost(group: Group) -> None:
    async def problem(url: str) -> str:
        client = open_redis(url)
        with pytest.raises((RedisUnfit, RedisUnavailable)) as error:
            await check_fitness(client, url)
        await client.aclose()
        assert PASSWORD not in str(error.value)
        return str(error.value)

    assert "no Sentinel answers that knows a primary" in await problem(
        group.url.replace(NAME, "nobody")
    )
    sentinel = f"redis://{group.url.partition('@')[2].partition(',')[0]}"
    assert r"it is a Sentinel: write redis+sentinel://" in await problem(sentinel)
    group.config(group.primary, "min-replicas-to-write", "0")
    assert "set `min-replicas-to-write 1`, also on each replica" in await problem(group.url)


async def read(fleet: Fleet, say: Callable[[str], None]) -> None:
    """Read an account's replies as its adapter does, and say them."""
    replies = fleet.replies.reader("test", "default", claim_ms=2000).replies()
    async with contextlib.aclosing(replies):
        async for reply in replies:
            say(reply.text)


async def put_reply_unreplicated(fleet: Fleet, text: str) -> None:
    """Put a reply on the stream of the primary that this side sees, whoever has a copy."""
    payload = reply_payload(
        ChatPlace("test", "default", "chat-1"), text, sid=SID, turn="1-0", attempt=1, index=0
    )
    client: Any = fleet.scripts.client
    await client.xadd(keys.replies("test", "default"), {"reply": orjson.dumps(payload)})
