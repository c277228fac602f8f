"""Conversations that a person opens within a terminal: new ones, and one of another session."""

from pathlib import Path

import orjson

from tests.support.pages import OPERATOR
from tests.support.stack import Stack
from tests.support.terminal_kills import delivered, walked
from tests.support.waiting import eventually


async def has_message_event(stack: Stack, sid: str, text: str) -> bool:
    """Whether a terminal's events have a message, which its screen shows slightly earlier."""
    events = await stack.fleet.terminals.events(sid)
    return any(event.data.get("text") == text for event in events)


async def test_a_terminal_records_each_conversation_and_ends_at_one_of_another_session(
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
        await eventually(lambda: has_message_event(stack, walk.sid, "You said three."))
        await walk.type(f"goto {taken}\r")

        await walk.is_at("parked")
        await walk.outcome(walk.accepted.pop())
        expected = ["two", "You said two.", "three", "You said three."]
        events = await stack.fleet.terminals.events(walk.sid)
        assert [e.data["text"] for e in events if e.data["type"] == "message"] == expected
        lines = (await stack.fleet.records.of(walk.sid)).splitlines()
        assert [orjson.loads(line)["text"] for line in lines] == expected
        record, view = await walk.record(), await sessions.view(walk.sid)
        reason = (
            "it went to another session's conversation, which "
            f"`remoteclaw attach {other.sid[:8]}` opens"
        )
        assert (record.reason, record.conversation) == (reason, "fresh")
        assert view is not None
        assert [*view.session_ids.values()] == ["fresh"]
        (event,) = await delivered(stack.fleet, OPERATOR)
        notice = f"The terminal is ended as soon as it is idle: {reason}."
        assert event.about["text"] == notice
