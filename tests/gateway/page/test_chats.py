"""The page's chats as a channel: every stored event can be read, also after a reconnect."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from remoteclaw.channels.web.adapter import WebAdapter
from remoteclaw.errors import PlatformRefused
from remoteclaw.fleet import keys, web
from remoteclaw.gateway import chats
from remoteclaw.gateway.page import door as pages
from remoteclaw.protocols import Operation
from tests.support.doors import Refused, RpcClient, opened
from tests.support.pages import chat_key, login, paged
from tests.support.stack import Stack

CHAT = "admin.ada"
JOB = {"name": "morning", "schedule": {"every": 3600}, "message": "Say good morning."}


async def say(stack: Stack, count: int, *, size: int = 0) -> list[str]:
    """Store `count` messages of an agent; return their ids."""
    return [
        await stack.fleet.web.add(
            CHAT,
            "message",
            {"from": "agent", "text": f"number {number}".ljust(size, "."), "files": []},
            once="",
            keep_ms=60_000,
        )
        for number in range(count)
    ]


async def received(page: RpcClient, until: str) -> list[str]:
    """Return the ids of the events that a page receives, up to and including `until`."""
    ids = [(await page.event("chat.event"))["id"]]
    while ids[-1] != until:
        ids.append((await page.event("chat.event"))["id"])
    return ids


async def history(page: RpcClient, before: str) -> list[str]:
    """Return the ids of all events before an event."""
    ids: list[str] = []
    has_earlier = True
    while has_earlier:
        found = await page.call(
            "chat.history", {"sessionKey": chat_key(), "before": (ids or [before])[0]}
        )
        ids[:0] = [event["id"] for event in found["events"]]
        has_earlier = found["hasEarlier"]
    return ids


async def do(stack: Stack, name: Any, **args: Any) -> Any:
    """Have the page's adapter carry out an operation in the chat."""
    adapter = WebAdapter(stack.fleet.web, lambda: 60_000)
    return await adapter.operate(Operation(name, CHAT, None, args, 0))


async def read(stack: Stack, limit: int = 3) -> list[dict[str, Any]]:
    return list((await do(stack, "read", limit=limit))["messages"])


async def test_every_stored_message_can_get_a_reaction_and_be_deleted(stack: Stack) -> None:
    """After any number of later events, and with a reaction that returns after another one."""
    ids = await say(stack, 3)
    for emoji in ("👍", "👀", "👍"):
        await do(stack, "react", messageId=ids[0], emoji=emoji)
    for _ in range(web.PAGE + 1):
        await do(stack, "react", messageId=ids[2], emoji="🎉")
    shown = await read(stack)
    assert [(one["id"], one["from"]) for one in shown] == [(each, "you") for each in ids]
    assert [[own["emoji"] for own in one["reactions"]] for one in shown] == [["👍"], [], ["🎉"]]

    await do(stack, "delete", messageId=ids[0])
    await do(stack, "delete", messageId=ids[0])  # as a retry after a lost answer
    assert [one["id"] for one in await read(stack)] == ids[1:]
    for gone in (ids[0], "1-1", "none", "", "9" * 30):
        with pytest.raises(PlatformRefused, match="There is no message"):
            await do(stack, "react", messageId=gone, emoji="👍")


async def test_earlier_messages_are_read_page_by_page(stack: Stack) -> None:
    """The page receives the newest events at once, and the others when a person scrolls up."""
    ids = await say(stack, 2 * chats.NEWEST_EVENTS + 30)
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        here = await page.call("chat.open")
        newest = await received(page, ids[-1])
        earlier = await history(page, newest[0])
        found = await page.call(
            "chat.history", {"sessionKey": chat_key(), "before": ids[2], "limit": 1}
        )

    assert (here["isAfresh"], here["hasEarlier"]) == (True, True)
    assert newest == ids[-chats.NEWEST_EVENTS :]
    assert earlier + newest == ids
    (event,) = found["events"]
    assert (event["id"], event["html"]) == (ids[1], '<p dir="auto">number 1</p>')


async def test_a_history_of_long_messages_is_sent_in_parts(stack: Stack) -> None:
    ids = await say(stack, 8, size=300_000)
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        await page.call("chat.open")
        newest = await received(page, ids[-1])
        earlier = await history(page, newest[0])

    assert len(newest) == 3
    assert earlier + newest == ids


@pytest.mark.parametrize("much", [(20, 0), (chats.MAX_EVENTS, 0), (8, 300_000)], ids=str)
async def test_a_page_that_reconnects_misses_no_message(
    stack: Stack, much: tuple[int, int]
) -> None:
    """It receives the new events; of very many, the newest, and it can read the others."""
    count, size = much
    async with opened(stack) as door:
        ada = await login(stack, door)
        (last,) = await say(stack, 1)
        ids = await say(stack, count, size=size)
        async with paged(door, ada) as page:
            here = await page.call("chat.open", {"after": last})
            newest = await received(page, ids[-1])
            earlier = await history(page, newest[0]) if here["isAfresh"] else [last]

    assert here["isAfresh"] is (count != 20)
    assert earlier + newest == [last, *ids]


async def test_a_burst_of_messages_is_sent_completely(stack: Stack) -> None:
    """Also if the burst is larger than one batch of events."""
    client: Any = stack.fleet.scripts.client
    about = orjson.dumps({"from": "agent", "text": "x" * 300_000, "files": []})
    ids = [f"1795395600000-{number}" for number in range(8)]
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        await page.call("chat.open")
        async with client.pipeline() as pipeline:
            for each in ids:
                pipeline.xadd(keys.web(CHAT), {"kind": "message", "about": about}, id=each)
            pipeline.publish(keys.WEB_UPDATES, f"{ids[-1]} {CHAT}")
            await pipeline.execute()
        assert await received(page, ids[-1]) == ids


async def test_tools_and_cron_jobs_reach_a_person_on_the_page(stack: Stack) -> None:
    await stack.start_worker()
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        here = await page.call("chat.open")
        await page.call("message.send", {"target": f"web:{CHAT}", "message": "by a tool"})
        assert (await page.event("chat.event"))["text"] == "by a tool"

        job = {**JOB, "sessionKey": here["sessionKey"]}
        made = await page.call("cron.add", {"job": job})
        await page.call("cron.run", {"jobId": made["job"]["id"]})
        ran = await page.event("chat.event")
        assert (ran["from"], ran["origin"]) == ("agent", "cron job morning")


async def test_the_conversations_of_a_person_are_limited(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is also a session: without a limit, a person who may write could fill Redis."""
    monkeypatch.setattr(web, "MAX_CONVERSATIONS", 2)

    async def write(page: RpcClient, *names: str) -> Sequence[Any]:
        return [
            await page.call(
                "chat.send",
                {"sessionKey": chat_key(conversation=name), "messageId": name, "text": "x"},
            )
            for name in names
        ]

    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            await write(page, "1", "2")
            with pytest.raises(Refused, match="which is the limit: continue one of them"):
                await write(page, "3")
            await write(page, "1", "2")
            assert await stack.fleet.web.before(web.chat_name(CHAT, "3")) == []
        async with paged(door, await login(stack, door, name="bo")) as page:
            await write(page, "3")


async def test_opening_a_long_chat_does_not_block_other_clients(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rendering a whole chat without a pause would block the gateway for seconds."""
    turns, rendered = 0, []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def render(text: str) -> str:
        rendered.append(turns)
        return text

    monkeypatch.setattr(pages, "_rendered", render)
    ids = await say(stack, 50)
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        busy = asyncio.create_task(others())
        await page.call("chat.open")
        assert await received(page, ids[-1]) == ids
        busy.cancel()

    assert len(set(rendered)) == 50


async def test_two_tabs_that_open_at_once_both_receive_the_history(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as one, paged(door, ada) as other:
            ids = await say(stack, 3)
            await asyncio.gather(one.call("chat.open"), other.call("chat.open"))
            assert await received(one, ids[-1]) == await received(other, ids[-1]) == ids
