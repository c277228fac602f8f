"""Damaged records in Redis affect only what they are about."""

from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.gateway import gateway as gateway_module
from tests.support.cli import run
from tests.support.doors import calling, opened, own_token
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_outcome_steps_of_a_newer_version_are_listed_last(stack: Stack) -> None:
    accepted = await stack.append("hello")
    client: Any = stack.fleet.scripts.client
    sid = accepted.session.sid
    key = keys.outcome(sid, accepted.entry_id)
    at = (await client.hget(key, "accepted")).decode().partition(" ")[0]
    await client.hset(key, mapping={"checked": at, "cost": "0.25 dollars", "tool.x": at})

    outcome = await stack.fleet.outcomes.read(sid, accepted.entry_id)

    assert outcome is not None
    assert [step.name for step in outcome.steps] == ["accepted", "checked"]


async def test_an_unreadable_outcome_closes_no_connection(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    accepted = await stack.append("hello")
    client: Any = stack.fleet.scripts.client
    sid = accepted.session.sid
    async with opened(stack) as door, door.connected(own_token(stack)) as listener:
        await listener.call("sessions.subscribe", {"sessionKey": sid})
        key = keys.outcome(sid, accepted.entry_id)
        await client.hset(key, mapping={"status": "done", "reply": '[{"words": "secret"}]'})
        await client.publish(keys.outcome_channel(sid), accepted.entry_id)
        await client.publish(keys.outcome_channel(sid), b"\xff")
        await client.publish(keys.live(sid), b"{secret")
        await client.publish(keys.live(sid), b"[1]")
        await eventually(lambda: caplog.text.count("can't be followed") >= 3)
        await client.publish(keys.live(sid), b'{"text": "on"}')

        assert (await listener.event("session.live"))["text"] == "on"
        assert (await door.get("/healthz")).status == 200
    records = [record for record in caplog.records if "can't be followed" in record.getMessage()]
    assert records
    assert all("secret" not in record.getMessage() for record in records)
    assert all(record.exc_info is None for record in records)


async def test_a_damaged_token_record_is_an_invalid_token(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "TOKEN_CHECK_S", 0.05)
    token, view = await stack.fleet.tokens.create("mine", "read", None)
    other, _ = await stack.fleet.tokens.create("other", "read", None)
    client: Any = stack.fleet.scripts.client
    async with opened(stack) as door, door.connected(other) as lasting:
        async with door.connected(token) as mine:
            await client.hset(keys.TOKENS, view.id, b'{"name": "x"}')

            assert await mine.closed() == (1008, "This token is not valid any more.")
        assert (await door.invoke(token, "sessions_list")).status == 401
        assert await lasting.call("health")
    listed = run(stack, "token", "list")
    assert (listed.returncode, "other" in listed.stdout) == (0, True)


async def test_an_unknown_scope_gives_no_rights(stack: Stack) -> None:
    token, view = await stack.fleet.tokens.create("mine", "read", None)
    client: Any = stack.fleet.scripts.client
    record = await client.hget(keys.TOKENS, view.id)
    await client.hset(keys.TOKENS, view.id, record.replace(b'"read"', b'"everything"'))
    async with opened(stack) as door:
        assert (await door.invoke(token, "sessions_list")).status == 401


async def test_a_damaged_session_closes_only_its_own_agents_connection(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gateway_module, "TOKEN_CHECK_S", 0.05)
    client: Any = stack.fleet.scripts.client
    async with (
        opened(stack) as door,
        calling(stack) as agent,
        door.connected(own_token(stack)) as lasting,
        door.connected(agent.token) as mine,
    ):
        await client.hset(keys.state(agent.lease.sid), "grant", b"{secret")

        assert (await mine.closed())[0] == 1008
        assert await lasting.call("health")
    assert "a token can't be checked: JSONDecodeError" in caplog.text
    assert "secret" not in caplog.text
