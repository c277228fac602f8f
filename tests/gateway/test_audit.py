"""The audit: who did what with terminals, and never what was typed or shown."""

from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway import audit
from tests.support.cockpit import Cockpit, Terminals
from tests.support.doors import Refused, opened, own_token
from tests.support.stack import Stack


async def deeds(stack: Stack) -> list[tuple[str, str, str, bool]]:
    """Return what is written down, oldest first."""
    found = reversed(await stack.fleet.audit.newest(100))
    return [(deed.who, deed.did, deed.outcome, deed.is_forced) for deed in found]


async def test_what_is_done_and_refused_is_written_down(stack: Stack) -> None:
    sid = (await stack.append("hello")).session.sid
    writes, _ = await stack.fleet.tokens.create("ada", "write", None)
    terminals = Terminals()
    async with opened(stack, terminals.handlers) as door:
        owner, ada = Cockpit(door, own_token(stack)), Cockpit(door, writes)
        asked: list[tuple[Cockpit, str, Any]] = [
            (ada, "", {"agent": "main", "prompt": "SECRET"}),
            (owner, "/SID/take", {"force": True}),
            (owner, "/SID/input", {"text": "SECRET"}),
            (owner, "/SID/key", {"key": "SECRET"}),
            (ada, "/SID/key", {"key": "SECRET"}),
            (ada, "/SID/key", {"key": "SECRET"}),
            (owner, "/SID/park", {}),
        ]
        for cockpit, path, body in asked:
            await cockpit.ask("POST", f"/sessions{path.replace('SID', sid)}", body)
        terminals.created = False
        await ada.ask("POST", "/sessions", {"agent": "main"})  # it is open: nothing was done
        terminals.refuses = CallRefused("TOO_MANY", "Too often.")
        await ada.ask("POST", "/sessions", {"agent": "main"})
        terminals.refuses = None
        async with door.connected(own_token(stack)) as client:
            await client.call("terminals.watch", {"sid": sid})
            with pytest.raises(Refused):
                await client.call("terminals.watch", {})
        await owner.ask("DELETE", f"/sessions/{sid}")
    found = {(deed.did, deed.address) for deed in await stack.fleet.audit.newest(100)}
    assert {address for _, address in found} == {"127.0.0.1"}

    assert await deeds(stack) == [
        ("ada", "open", "ok", False),
        ("the operator", "take", "ok", True),
        ("ada", "type", "FORBIDDEN", False),  # once: the same again is no news
        ("the operator", "park", "ok", False),
        ("ada", "open", "TOO_MANY", False),
        ("the operator", "watch", "ok", False),
        ("the operator", "watch", "INVALID_REQUEST", False),
        ("the operator", "end", "ok", False),
    ]
    kept = await stack.fleet.scripts.client.xrange(keys.AUDIT)
    assert "SECRET" not in str(kept)


async def test_the_same_refusal_is_told_again_after_a_while(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "AGAIN_S", 0.0)
    writes, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack, Terminals().handlers) as door, door.connected(writes) as client:
        for _ in range(2):
            with pytest.raises(Refused):
                await client.call("terminals.take", {"sid": "x" * 1000})
        for _ in range(2):
            with pytest.raises(Refused):
                await client.call("terminals.take", {"sid": "a\nb"})

    assert await deeds(stack) == [("ada", "take", "FORBIDDEN", False)] * 4
    assert all(len(deed.session) <= 100 for deed in await stack.fleet.audit.newest(9))


async def test_a_damaged_deed_is_none(stack: Stack) -> None:
    damaged: Any = ({"x": "y"}, {"deed": "{"}, {"deed": '{"who":1}'})
    for fields in damaged:
        await stack.fleet.scripts.client.xadd(keys.AUDIT, fields)

    assert await stack.fleet.audit.newest(10) == []
