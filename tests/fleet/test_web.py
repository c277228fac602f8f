"""The page's chats in Redis."""

from remoteclaw.fleet import keys
from remoteclaw.fleet.web import MAX_BYTES
from tests.support.stack import Stack


async def test_a_chat_of_the_page_keeps_its_newest_messages_within_its_limit(stack: Stack) -> None:
    """The ids of messages that a chat has dropped are deleted, too."""
    client, web = stack.fleet.scripts.client, stack.fleet.web
    for number in range(2 * MAX_BYTES // 1_000_000):
        about = {"from": "user.ada", "text": "x" * 1_000_000, "number": number}
        await web.add("user.ada", "message", about, once=str(number), keep_ms=60_000)
    kept = await web.before("user.ada")

    assert [event.about["number"] for event in kept] == list(range(16 - len(kept), 16))
    assert 4 <= len(kept) <= 8
    assert (await client.memory_usage(keys.web("user.ada"), samples=0) or 0) <= MAX_BYTES
    assert await client.hlen(keys.web_event_ids("user.ada")) == len(kept)
