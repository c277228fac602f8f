"""Sessions that start tasks: tool calls, and turns that a test runs itself."""

from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.auth.principals import Agent, Operator
from remoteclaw.gateway.methods import fleet, sessions, tasks
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.session.drain import Drain
from tests.support.stack import Stack
from tests.support.turns import DIGEST, Turn, gateway

HANDLERS = {**sessions.HANDLERS, **fleet.HANDLERS, **tasks.HANDLERS}


async def call(stack: Stack, caller: Turn | Operator, tool: str, **params: Any) -> Any:
    principal = caller.agent if isinstance(caller, Turn) else caller
    options = {name: params.pop(name) for name in ("call_id", "session_key") if name in params}
    door = gateway(stack.fleet, stack.home, HANDLERS)
    return (await door.call(principal, tool, params, **options))[0]


async def refused(stack: Stack, caller: Turn | Operator, tool: str, **params: Any) -> str:
    with pytest.raises(CallRefused) as refusal:
        await call(stack, caller, tool, **params)
    return str(refusal.value)


async def entries(stack: Stack, session: SessionKey | str) -> list[Entry]:
    """Return the entries on a session's stream."""
    sid = SessionKey.parse(session).sid if isinstance(session, str) else session.sid
    found: Any = await stack.fleet.scripts.client.xrange(keys.inbound(sid))
    return [decode_entry(*entry) for entry in found]


async def work(stack: Stack, session: str) -> None:
    """Run a task's session, as a work-horse does."""
    config = load_config(stack.home.config_file, {})
    await Drain(stack.fleet, config, stack.home, Hooks()).run(SessionKey.parse(session).sid)


async def take_up(stack: Stack, session: SessionKey | str) -> Turn:
    """Begin a turn for a session's oldest entry, with the test as its worker."""
    key = SessionKey.parse(session) if isinstance(session, str) else session
    first = (await entries(stack, key))[0]
    lease = await stack.fleet.leases.acquire(key.sid, worker="test", host=stack.home.host_id)
    assert lease is not None
    assert await lease.turns.begin([first.id])
    await lease.grant(
        DIGEST,
        {"sessions_send", "sessions_spawn", "sessions_list", "subagents", "session_progress"},
    )
    return Turn(first.id, lease, Agent(key.sid, DIGEST), gateway(stack.fleet, stack.home, HANDLERS))


def may(stack: Stack, **sections: Any) -> None:
    """Configure rights that spawned sessions do not have by default."""
    agent = {
        "runtime": "demo",
        "warm_s": 0,
        "sees_sessions": "all",
        "tools": {"also_allow": ["group:sessions"]},
    }
    people = {"test": {"owners": ["alice", "bob", "carol", "dora"]}}
    stack.configure(agent, **{"channels": people, **sections})


async def take_over(stack: Stack, turn: Turn) -> Turn:
    """Begin a turn again, as another worker does."""
    client: Any = stack.fleet.scripts.client
    await client.hset(keys.state(turn.lease.sid), "lease_until_ms", 0)
    lease = await stack.fleet.leases.acquire(turn.lease.sid, worker="two", host=stack.home.host_id)
    assert lease is not None
    batch = await lease.turns.begin([turn.id])
    assert batch is not None
    assert batch.attempt == 2
    await lease.grant("7" * 64, {"sessions_spawn"})  # the grant of another process
    return Turn(turn.id, lease, Agent(lease.sid, "7" * 64), turn.gateway)
