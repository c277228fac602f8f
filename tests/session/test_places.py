"""A turn is answered in its own chat (`Turn.place`), whichever chat its session's key names."""

from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.conversations import drain, go
from tests.support.stack import Stack, message


async def test_a_turn_is_answered_in_the_chat_of_its_message(agent: Stack) -> None:
    first = await agent.append("hello")
    go(agent)
    await drain(agent, first)
    client = agent.fleet.scripts.client
    here = await client.xlen(keys.replies("test", "default"))

    elsewhere = message("and here?", account="phone", channel_id="chat-2", thread_id="t")
    entry_id, _ = await agent.fleet.calls.put_entry(
        None, "1", first.session, elsewhere, effect=None, provenance=None, deliver="channel"
    )
    await drain(agent, Accepted(first.session, entry_id, True))

    replies: Any = await client.xrange(keys.replies("test", "phone"))
    sent = [orjson.loads(fields[b"reply"]) for _, fields in replies]
    assert {(each["channel_id"], each["thread_id"]) for each in sent} == {("chat-2", "t")}
    assert await client.xlen(keys.replies("test", "default")) == here
