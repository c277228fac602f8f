"""The audit: it records who did what with terminals, and never what was typed or shown."""

from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.terminals import audit
from remoteclaw.host.terminal import login_name
from tests.support.cockpit import Cockpit, Terminals
from tests.support.doors import Refused, opened, own_token
from tests.support.stack import Stack


async def audit_entries(stack: Stack) -> list[tuple[str, str, str, bool]]:
    """Return the entries of the audit, oldest first."""
    found = reversed(await stack.fleet.audit.newest(100))
    return [(entry.who, entry.did, entry.outcome, entry.is_forced) for entry in found]


async def test_the_audit_records_actions_and_refusals(stack: Stack) -> None:
    sid = (await stack.append("hello")).session.sid
    writes, _ = await stack.fleet.tokens.create("ada", "write", None)
    terminals = Terminals()
    async with opened(stack, terminals.handlers) as door:
        owner, ada = Cockpit(door, own_token(stack)), Cockpit(door, writes)
        requests: list[tuple[Cockpit, str, Any]] = [
            (ada, "", {"agent": "main", "prompt": "SECRET"}),
            (owner, "/SID/take", {"force": True}),
            (owner, "/SID/input", {"text": "SECRET"}),
            (owner, "/SID/key", {"key": "SECRET"}),
            (ada, "/SID/key", {"key": "SECRET"}),
            (ada, "/SID/key", {"key": "SECRET"}),
            (owner, "/SID/park", {}),
        ]
        for cockpit, path, body in requests:
            await cockpit.ask("POST", f"/sessions{path.replace('SID', sid)}", body)
        terminals.created = False
        await ada.ask("POST", "/sessions", {"agent": "main"})  # already open: not recorded
        terminals.refuses = CallRefused("TOO_MANY", "Too often.")
        await ada.ask("POST", "/sessions", {"agent": "main"})
        await owner.ask("GET", f"/sessions/{sid}/output")
        terminals.refuses = None
        await door.invoke(own_token(stack), "terminals.take", {"sid": sid})
        async with door.connected(own_token(stack)) as client:
            await client.call("terminals.watch", {"sid": sid})
            with pytest.raises(Refused):
                await client.call("terminals.watch", {})
        await owner.ask("DELETE", f"/sessions/{sid}")
    found = {(entry.did, entry.address) for entry in await stack.fleet.audit.newest(100)}
    assert {address for _, address in found} == {"127.0.0.1"}

    assert await audit_entries(stack) == [
        ("ada", "open", "ok", False),
        (login_name(), "take", "ok", True),
        ("ada", "type", "FORBIDDEN", False),  # once, because repetitions are not recorded
        (login_name(), "park", "ok", False),
        ("ada", "open", "TOO_MANY", False),
        (login_name(), "type", "TOO_MANY", False),
        (login_name(), "take", "ok", False),
        (login_name(), "watch", "ok", False),
        (login_name(), "watch", "INVALID_REQUEST", False),
        (login_name(), "end", "ok", False),
    ]
    stored = await stack.fleet.scripts.client.xrange(keys.AUDIT)
    assert "SECRET" not in str(stored)


async def test_a_repeated_refusal_is_recorded_again_after_an_interval(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "REPEAT_S", 0.0)
    writes, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack, Terminals().handlers) as door, door.connected(writes) as client:
        for _ in range(2):
            with pytest.raises(Refused):
                await client.call("terminals.take", {"sid": "x" * 1000})
        for _ in range(2):
            with pytest.raises(Refused):
                await client.call("terminals.take", {"sid": "a\nb"})

    assert await audit_entries(stack) == [("ada", "take", "FORBIDDEN", False)] * 4
    assert all(len(entry.session) <= 100 for entry in await stack.fleet.audit.newest(9))


async def test_damaged_audit_entries_are_skipped(stack: Stack) -> None:
    damaged: Any = ({"x": "y"}, {"deed": "{"}, {"deed": '{"who":1}'})
    for fields in damaged:
        await stack.fleet.scripts.client.xadd(keys.AUDIT, fields)

    assert await stack.fleet.audit.newest(10) == []
