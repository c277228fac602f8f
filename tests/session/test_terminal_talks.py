"""Conversations that a person goes to in a terminal: one's own, and another session's."""

from pathlib import Path
from typing import Any

import orjson

from remoteclaw.fleet import keys
from tests.support.stack import Stack
from tests.support.terminal_kills import walked
from tests.support.waiting import eventually


async def is_told(stack: Stack, sid: str, text: str) -> bool:
    """Whether a terminal's events have a message, which its screen shows a moment before."""
    events = await stack.fleet.terminals.events(sid)
    return any(event.told.get("text") == text for event in events)


async def test_what_is_said_in_each_conversation_is_kept_and_another_session_s_is_left_alone(
    stack: Stack, directory: Path
) -> None:
    async with walked(stack, directory) as walk:
        sessions = stack.fleet.sessions
        await walk.open(name="other")
        await walk.is_at("idle")
        await walk.type("one\r")
        await walk.shows("You said one.")
        await walk.ask("DELETE", f"/{walk.sid}")
        await walk.outcome(walk.accepted.pop())
        other = await sessions.view(walk.sid)
        assert other is not None
        (taken,) = other.session_ids.values()

        await walk.open()
        await walk.is_at("idle")
        await walk.type("two\rgoto fresh\rthree\r")
        await eventually(lambda: is_told(stack, walk.sid, "You said three."))
        await walk.type(f"goto {taken}\r")

        await walk.is_at("parked")
        await walk.outcome(walk.accepted.pop())
        wanted = ["two", "You said two.", "three", "You said three."]
        events = await stack.fleet.terminals.events(walk.sid)
        assert [e.told["text"] for e in events if e.told["type"] == "message"] == wanted
        lines = (await stack.fleet.records.of(walk.sid)).splitlines()
        assert [orjson.loads(line)["text"] for line in lines] == wanted
        record, view = await walk.record(), await sessions.view(walk.sid)
        why = (
            "it went to another session's conversation, which "
            f"`remoteclaw attach {other.sid[:8]}` opens"
        )
        assert (record.reason, record.conversation) == (why, "fresh")
        assert view is not None
        assert [*view.session_ids.values()] == ["fresh"]
        stream = keys.reply_stream("console", stack.home.host_id)
        found: Any = await stack.fleet.scripts.client.xrange(stream)
        ((_, fields),) = found
        said = f"The terminal is ended as soon as it rests: {why}."
        assert orjson.loads(fields[b"reply"])["text"] == said
