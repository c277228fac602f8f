"""Read me first: one message's whole story, with a real Redis and a stock `rq worker`."""

from tests.support.processes import is_alive
from tests.support.stack import Stack, said


async def test_a_message_becomes_a_reply(stack: Stack) -> None:
    # A worker is RQ's own program; our settings tell it where Redis is, our job class lets it run
    # nothing but drains.
    worker = await stack.start_worker()

    # A channel adapter accepts a message: it is on the stream of its session before anything else
    # happens, and a hint (an RQ job with the session's id, and nothing more) wakes a worker.
    accepted = await stack.append("hello")
    assert accepted.session.conversation == "chat-1:alice:_"
    assert not accepted.is_duplicate

    # The worker forks a work-horse, which takes the session's lease and asks the agent. The message
    # has exactly one outcome.
    outcome = await stack.outcome(accepted)
    assert outcome.status == "done"
    assert "RemoteClaw's demo agent" in said(outcome)
    assert "```text\n(an empty directory)\n```" in said(outcome)

    # Every state that it passed through is on record.
    assert [step.name for step in outcome.steps] == [
        "accepted",
        "begun",
        "spawned",
        "tool",
        "output",
        "finished",
    ]

    # What the person reads went onto the reply stream in the same step as the outcome. An adapter
    # delivers it and leaves a receipt.
    reader = stack.fleet.replies.reader("test", "default")
    replies = reader.replies()
    reply = await anext(replies)
    await replies.aclose()
    assert reply.text == said(outcome)
    assert reply.channel_id == "chat-1"
    assert reply.entries == (accepted.entry_id,)
    await reader.receipt(reply)
    assert await stack.reached(accepted, "delivered")

    # Nobody works on the session any more; its agent waits in its holder, warm.
    await stack.until_idle(accepted)
    agent = int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])
    assert is_alive(agent)

    # The next message is answered by the very same process, though another work-horse drives it.
    again = await stack.append("memory")
    assert "- hello" in said(await stack.outcome(again))
    assert await stack.reached(again, "spawned") == f"warm demo, pid {agent}"

    # The platform sends the first message once more. It is recognised, and nothing happens.
    repeated = await stack.append("hello", id="a platform's id")
    assert await stack.outcome(repeated)
    same = await stack.append("hello", id="a platform's id")
    assert same.is_duplicate
    assert same.entry_id == repeated.entry_id
    assert worker.poll() is None
