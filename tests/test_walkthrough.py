"""Read this first: the whole way of one message, with a real Redis and a stock `rq worker`."""

from tests.support.processes import is_alive
from tests.support.stack import Stack, said


async def test_a_message_is_answered_from_start_to_end(stack: Stack) -> None:
    # A worker is RQ's own program. Our settings give it the address of Redis; our job class allows
    # only drains.
    worker = await stack.start_worker()

    # A channel adapter accepts a message: it is first appended to its session's inbound stream, and
    # then a hint (an RQ job that only has the session's id) wakes a worker.
    accepted = await stack.append("hello")
    assert accepted.session.conversation == "chat-1:alice:_"
    assert not accepted.is_duplicate

    # The worker forks a work-horse, which takes the session's lease and prompts the agent. The
    # message has exactly one outcome.
    outcome = await stack.outcome(accepted)
    assert outcome.status == "done"
    assert "RemoteClaw's demo agent" in said(outcome)
    assert "```text\n(an empty directory)\n```" in said(outcome)

    # The outcome lists every step.
    assert [step.name for step in outcome.steps] == [
        "accepted",
        "begun",
        "spawned",
        "tool",
        "output",
        "finished",
    ]

    # The reply is added to the reply stream in the same transaction as the outcome. An adapter
    # delivers it and writes a receipt.
    reader = stack.fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)
    await replies.aclose()
    assert reply.text == said(outcome)
    assert reply.channel_id == "chat-1"
    assert reply.entries == (accepted.entry_id,)
    await reader.receipt(reply)
    assert await stack.reached(accepted, "delivered")

    # No worker has the session's lease; its agent waits in its holder, warm.
    await stack.until_idle(accepted)
    agent = int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])
    assert is_alive(agent)

    # The same agent process answers the next message, under another work-horse.
    again = await stack.append("memory")
    assert "- hello" in said(await stack.outcome(again))
    assert await stack.reached(again, "spawned") == f"warm demo, pid {agent}"

    # The platform sends a message twice. The second one is recognized as a duplicate and ignored.
    repeated = await stack.append("hello", id="a platform's id")
    assert await stack.outcome(repeated)
    same = await stack.append("hello", id="a platform's id")
    assert same.is_duplicate
    assert same.entry_id == repeated.entry_id
    assert worker.poll() is None
