"""Commands that act on a session's work: /stop and /new."""

from remoteclaw.commands.asked import Answer, Asked

__all__ = ["new", "stop"]


async def stop(asked: Asked) -> Answer:
    """Stop what the session does, and drop what it has waiting."""
    count = await asked.fleet.sessions.stop(asked.session.sid, call=asked.id)
    # What is stopped says so itself, in its place.
    return Answer("" if count else "Nothing runs here.")


async def new(asked: Asked) -> Answer:
    """End the conversation: what runs is stopped, and the next message begins another one."""
    await asked.fleet.inbound.end_conversation(asked.session, "new", call=asked.id)
    return Answer("A new conversation.", forward=asked.rest)
