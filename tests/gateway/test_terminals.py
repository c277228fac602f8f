"""Terminals through a gateway: watching, typing, handing over, and surviving a kill."""

import asyncio
import os
from pathlib import Path

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.terminals.state import HeldLease
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.terminals import host_terminals
from remoteclaw.holder.terminal_client import ENDED_FILE, TerminalClient, TerminalOutput
from remoteclaw.host.terminal import login_name
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.tty.renewal import remove_old_files
from tests.support.cockpit import Cockpit
from tests.support.doors import Door, Refused, opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import HANG_S, eventually
from tests.support.watched import watching


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)


async def ready(door: Door, held: HeldLease) -> None:
    assert door.gateway is not None
    terminals = door.gateway.terminals

    def is_idle() -> bool:
        record = terminals.held_record(held.sid)
        return record is not None and (record.state, record.activity) == ("live", "idle")

    await eventually(is_idle)


async def test_two_clients_watch_a_terminal_and_one_types(stack: Stack) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        async with watching(door, token, held.sid) as ada, watching(door, token, held.sid) as ben:
            await ada.until(">")
            assert ada.frames[0]["since"] is None
            await ada.client.call("terminals.take", {"sid": held.sid, "cols": 70, "rows": 12})
            await ada.client.call(
                "terminals.type", {"sid": held.sid, "keys": ["t:hel\x1blo", "k:enter"]}
            )
            await ada.until("You said hello.")
            await ben.until("You said hello.")
            assert (await ben.client.event("terminal.bell")) == {"sid": held.sid}

            with pytest.raises(Refused, match=f"CONFLICT: {login_name()} has the keyboard"):
                await ben.client.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
            await ben.client.call("terminals.take", {"sid": held.sid, "force": True})
            with pytest.raises(Refused, match="CONFLICT"):
                await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["t:x"]})
            await ben.client.call("terminals.type", {"sid": held.sid, "keys": ["b:68690d"]})
            await ada.until("You said hi.")
            with pytest.raises(Refused, match=r"REFUSED.*Ctrl-Z"):
                await ben.client.call("terminals.type", {"sid": held.sid, "keys": ["b:1a"]})

            async def has_both_viewers() -> bool:
                terminal = await ben.client.call("terminals.get", {"sid": held.sid})
                return (terminal["state"], terminal["viewers"], terminal["cols"]) == ("live", 2, 70)

            await eventually(has_both_viewers)
            screen = await ben.client.call("terminals.screen", {"sid": held.sid})
            assert "You said hi." in screen["text"]

        async def is_stored() -> bool:
            record = await stack.fleet.terminals.record(held.sid)
            assert record is not None
            return (record.viewers, record.cols, record.state) == (0, 70, "live")

        await eventually(is_stored)

        async def are_published() -> bool:
            events = [each.data for each in await stack.fleet.terminals.events(held.sid)]
            messages = [(e["role"], e["text"]) for e in events if e["type"] == "message"]
            return messages == [
                ("user", "hello"),
                ("agent", "You said hello."),
                ("user", "hi"),
                ("agent", "You said hi."),
            ]

        await eventually(are_published)


async def test_the_gateway_after_a_killed_one_shows_the_same_screen(
    stack: Stack,
) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held:
        async with opened(stack) as door:
            await ready(door, held)
            async with watching(door, token, held.sid) as ada:
                await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["t:work\x00"]})
                await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
                await ada.until("working")
                assert door.gateway is not None
                terminal = door.gateway.terminals._held[held.sid]
                assert terminal.watching is not None
                await terminal.watching.save()
                await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["p:x"]})
                # As after SIGKILL: nothing more is saved, and the connection is cut.
                terminal.watching.client._sock.shutdown(2)
                terminal.watching.client.close()

        async with opened(stack) as door, watching(door, token, held.sid) as ben:
            await ben.until("working")
            state = await ben.client.call("terminals.get", {"sid": held.sid})
            assert state["activity"] in ("busy", "unknown")
            await ben.client.call("terminals.type", {"sid": held.sid, "keys": ["k:x"]})
            await ben.until("worked")
            assert ben.text.splitlines()[:3] == ["> work", "working", "xworked"]


async def test_a_host_that_cannot_show_screens_keeps_a_terminal_until_its_turn_ends(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_terminals, "_problem_of_screens", lambda: "There are no screens.")
    async with held_terminal(stack) as held, opened(stack) as door:
        assert door.gateway is not None
        known, state = door.gateway.terminals._held, keys.state(held.sid)
        await eventually(lambda: held.sid in known)
        await stack.fleet.scripts.client.hset(state, "epoch", str(int(held.epoch) + 1))
        known[held.sid].check_session()
        await eventually(lambda: not known[held.sid]._wake.is_set())
        assert held.sid in known, "kept, because Redis may have lost its last second"

        await stack.fleet.scripts.client.delete(state)
        await eventually(lambda: not known)


async def test_text_input_runs_no_command_and_only_keys_answer_a_dialog(
    stack: Stack,
) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        about = {"sid": held.sid}
        async with watching(door, token, held.sid) as ada:
            for text in ("/clear", "exit", "look at @file", "  !touch x", "\u200b/clear"):
                with pytest.raises(Refused, match="REFUSED"):
                    await ada.client.call(
                        "terminals.type", {**about, "keys": [f"p:{text}"], "submit": True}
                    )
                with pytest.raises(Refused, match="REFUSED"):
                    await ada.client.call("terminals.open", {"agent": "main", "prompt": text})
            await ada.client.call("terminals.type", {**about, "keys": ["p:hello"], "submit": True})
            await ada.until("You said hello.")
            items = ["t:a", "p:b", "b:63", "k:enter"]
            await ready(door, held)
            await ada.client.call("terminals.type", {**about, "keys": items})
            await ada.until("You said abc.")

            await ready(door, held)
            await ada.client.call("terminals.type", {**about, "keys": ["p:ask"], "submit": True})
            await ada.until("Run the tool?")
            with pytest.raises(Refused, match="CONFLICT: The program is not known to be idle"):
                await ada.client.call("terminals.type", {**about, "keys": ["p:no"], "submit": True})
            await ada.client.call("terminals.type", {**about, "keys": ["p:no\nno\n"]})
            with pytest.raises(Refused, match=r"CONFLICT: .*press its key instead"):
                await ada.client.call("terminals.type", {**about, "keys": ["p:\u200b1"]})
            state = await ada.client.call("terminals.get", about)
            assert (state["activity"], state["waitingFor"]) == (
                "waiting",
                "permission to run the tool",
            )
            assert "The tool ran." not in ada.text
            await ada.client.call("terminals.type", {**about, "keys": ["k:enter"]})
            await ada.until("The tool ran.")
            await ready(door, held)
            with pytest.raises(Refused, match="CONFLICT: Something else was typed"):
                await ada.client.call(
                    "terminals.type", {**about, "keys": ["p:hello"], "submit": True}
                )


async def test_a_missing_terminal_or_one_on_another_host_is_refused(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        async with door.connected(token) as client:
            with pytest.raises(Refused, match="NOT_FOUND"):
                await client.call("terminals.get", {"sid": "0" * 32})
            await stack.fleet.scripts.client.hset(keys.terminal(held.sid), "host", "elsewhere")
            assert door.gateway is not None
            record = await stack.fleet.terminals.record(held.sid)
            assert record is not None
            with pytest.raises(Exception, match="is open on elsewhere: only that host"):
                await door.gateway.terminals.attached(record)


async def test_an_agent_without_a_program_for_terminals_is_refused_before_one_opens(
    stack: Stack,
) -> None:
    stack.configure({"runtime": "acp", "command": ["any"]})
    await stack.start_worker()
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        with pytest.raises(Refused, match=r"acp has no program for terminals; .*, opencode\.$"):
            await client.call("terminals.open", {"cols": 80, "rows": 24})


async def replies_in_chat(stack: Stack) -> list[str]:
    return [event.about["text"] for event in await stack.fleet.web.before("admin.ada")]


async def write_in_chat(stack: Stack, held: HeldLease, text: str) -> Accepted:
    message = held.session.message(
        id=text, text=text, timestamp=1, chat_kind="direct", is_addressed=True
    )
    return await stack.fleet.inbound.append(message, agent="main", deliver="channel")


async def test_a_message_waits_while_the_terminal_is_watched_and_then_gets_its_turn(
    stack: Stack,
) -> None:
    stack.configure(terminals={"handover_s": 1})
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        os.utime(held.place.files, (0, 0))  # as after hours
        await remove_old_files(stack.home.terminals, stack.fleet.terminals.is_open)
        assert (stack.home.terminals / held.sid).exists()
        async with watching(door, token, held.sid) as ada:
            accepted = await write_in_chat(stack, held, "hello")

            async def has_notice() -> bool:
                return bool(await replies_in_chat(stack))

            await eventually(has_notice)
            await ada.client.call(
                "terminals.type", {"sid": held.sid, "keys": ["p:ask"], "submit": True}
            )

            async def has_second_notice() -> bool:
                return len(await replies_in_chat(stack)) > 1

            await eventually(has_second_notice)
            await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
            await ready(door, held)
            await ada.client.call(
                "terminals.type", {"sid": held.sid, "keys": ["p:hi"], "submit": True}
            )
        assert await replies_in_chat(stack) == [
            "A terminal is open (Ada, idle): your message waits. /take ends it.",
            "The agent waits for a person in its terminal: permission to run the tool.",
        ]
        state, client = keys.state(held.sid), stack.fleet.scripts.client

        async def is_ending() -> bool:
            """Whether the terminal is marked as ending, so that an opening waits for its end."""
            return bool(await client.hget(state, "stopped_terminal") == held.place.turn.encode())

        await eventually(is_ending)
        await stack.start_worker()
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        try:
            outcome = await stack.outcome(accepted)
        finally:
            sweeping.cancel()
        assert outcome.status == "done"
        record = await stack.fleet.terminals.record(held.sid)
        assert record is not None
        assert record.state == "parked"
        await check_last_screen(stack, door, held, "You said hi.")


async def check_last_screen(stack: Stack, door: Door, held: HeldLease, text: str) -> None:
    """Check that the last screen of an ended terminal is available for an hour."""
    directory, is_open = stack.home.terminals, stack.fleet.terminals.is_open
    async with door.connected(own_token(stack)) as client:
        await remove_old_files(directory, is_open)
        screen = await client.call("terminals.screen", {"sid": held.sid})
        assert text in screen["text"]
        os.utime(directory / held.sid / ENDED_FILE, (0, 0))
        await remove_old_files(directory, is_open)
        assert not (directory / held.sid).exists()
        with pytest.raises(Refused, match="CONFLICT: No terminal is open"):
            await client.call("terminals.screen", {"sid": held.sid})


async def test_take_ends_the_terminal_and_waiting_messages_are_answered(stack: Stack) -> None:
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        async with watching(door, token, held.sid) as ada:
            await ada.client.call(
                "terminals.type", {"sid": held.sid, "keys": ["p:work"], "submit": True}
            )
            accepted = await write_in_chat(stack, held, "hello")
            with pytest.raises(Refused, match="CONFLICT: The terminal is not known to be idle"):
                await ada.client.call("terminals.park", {"sid": held.sid})
            sent = await ada.client.call(
                "chat.send",
                {"sessionKey": str(held.session), "text": "/take", "messageId": "take"},
            )
            assert sent["reply"] == "The terminal is ended, and what waits is answered."
            await stack.start_worker()
            sweeping = asyncio.create_task(stack.fleet.sweeper.run())
            try:
                outcome = await stack.outcome(accepted)
            finally:
                sweeping.cancel()
            assert outcome.status == "done"
            gone = await ada.client.event("terminal.gone")
            assert gone["record"]["state"] == "parked"
            path = f"/sessions/{held.sid}/input"
            again = await Cockpit(door, token).ask("POST", path, {"text": "go on"})
            assert again.json["result"]["submitted"] is False
            run = {"runId": again.json["result"]["runId"]}
            assert (await ada.client.call("outcomes.wait", run))["status"] == "done"


async def test_terminal_queries_from_before_the_gateway_started_are_not_answered(
    stack: Stack,
) -> None:
    """A late answer would be typed, because the program takes it for a person's input."""
    token = own_token(stack)
    async with held_terminal(stack) as held:
        client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
        assert client is not None
        printed = client.output

        async def until(wanted: bytes) -> None:
            nonlocal printed
            async with asyncio.timeout(HANG_S):
                while wanted not in printed:
                    event = await client.read()
                    assert isinstance(event, TerminalOutput)
                    printed += event.data

        await until(b"idle\x07")
        await client.write(b"ab\x07")  # the program queries the terminal's type
        await until(b"\x1b[c")
        client.close()
        async with opened(stack) as door, watching(door, token, held.sid) as ada:
            await ready(door, held)
            await ada.client.call("terminals.type", {"sid": held.sid, "keys": ["k:enter"]})
            await ada.until("You said")
            notes = Path(held.place.files) / "notes"
            assert orjson.loads(notes.read_text().splitlines()[0])["text"] == "ab"


async def test_two_gateways_in_turn_publish_a_transcript_once(stack: Stack) -> None:
    token = own_token(stack)

    async def messages() -> list[str]:
        events = await stack.fleet.terminals.events(held.sid)
        return [each.data["text"] for each in events if each.data["type"] == "message"]

    async def until(count: int) -> None:
        async def has_messages() -> bool:
            return len(await messages()) >= count

        await eventually(has_messages)

    async with held_terminal(stack) as held:
        for number in (1, 2):
            async with opened(stack) as door, door.connected(token) as client:
                await ready(door, held)
                text = f"number {number}"
                await client.call(
                    "terminals.type", {"sid": held.sid, "keys": [f"p:{text}"], "submit": True}
                )
                await until(2 * number)
        assert await messages() == [
            "number 1",
            "You said number 1.",
            "number 2",
            "You said number 2.",
        ]


async def test_the_newer_of_two_gateways_serves_a_terminal_and_then_the_older_again(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_terminals, "ALONE_S", 0.1)
    token, host = own_token(stack), stack.home.host_id
    async with held_terminal(stack) as held, opened(stack) as first:
        await ready(first, held)
        assert first.gateway is not None
        first.gateway.terminals.address = "http://first"
        async with watching(first, token, held.sid) as ada:
            async with opened(stack) as second, stack.fleet.gateways.announced(host, "http://new"):
                await ready(second, held)
                gone = await ada.client.event("terminal.gone")
                assert gone["record"]["state"] == "live"
                with pytest.raises(Refused, match="Another gateway of this host"):
                    await ada.client.call("terminals.watch", {"sid": held.sid})
                async with watching(second, token, held.sid) as ben:
                    await ben.until(">")
            async with stack.fleet.gateways.announced(host, "http://first"):
                await ready(first, held)
                await ada.client.call("terminals.watch", {"sid": held.sid})
                await ada.until(">")


async def test_a_cockpit_that_loads_late_sees_the_messages_of_an_open_terminal_once(
    stack: Stack,
) -> None:
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        cockpit, path = Cockpit(door, own_token(stack)), f"/sessions/{held.sid}"
        await cockpit.ask("POST", f"{path}/input", {"text": "hello"})
        said = [("user", "hello"), ("agent", "You said hello.")]

        async def messages() -> list[tuple[str, str]]:
            answer = await cockpit.ask("GET", f"{path}/messages")
            return [(item["role"], item["text"]) for item in answer.json["result"]["items"]]

        async def are_shown() -> bool:
            return await messages() == said

        await eventually(are_shown)
        async with cockpit.stream(f"{path}/events?after=1-1") as late:
            assert (await late.next()).name == "reset"
            snapshot = (await late.next()).data["messages"]
        assert [(item["role"], item["text"]) for item in snapshot] == said
        async with cockpit.stream(f"{path}/events") as stream:
            again = (await stream.next()).data["messages"]
        events = await stack.fleet.terminals.events(held.sid)
        ids = [each.data["id"] for each in events if each.data["type"] == "message"]
        assert [item["id"] for item in again] == ids, "a client can tell which ones it has"
        await cockpit.ask("DELETE", path)
        await stack.start_worker()

        async def is_recorded() -> bool:
            return not await stack.fleet.terminals.is_open(held.sid)

        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        try:
            await eventually(is_recorded)
        finally:
            sweeping.cancel()
        await eventually(are_shown)


async def test_an_event_stream_is_a_viewer_and_hears_the_bell(stack: Stack) -> None:
    """A hand-over doesn't end what somebody watches."""
    async with held_terminal(stack) as held, opened(stack) as door:
        await ready(door, held)
        cockpit, path = Cockpit(door, own_token(stack)), f"/sessions/{held.sid}"

        async def has_viewers(count: int) -> bool:
            terminal = (await cockpit.ask("GET", path)).json["result"]
            return bool(terminal["viewers"] == count)

        async with cockpit.stream(f"{path}/events") as stream, cockpit.stream(f"{path}/output"):
            assert (await stream.next()).name == "snapshot"
            await eventually(lambda: has_viewers(2))
            await cockpit.ask("POST", f"{path}/input", {"text": "hello"})
            while (event := await stream.next()).name != "bell":
                pass
            assert event.data == {"sid": held.sid}
        await eventually(lambda: has_viewers(0))
