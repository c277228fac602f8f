"""Tokens that are for some agents alone: of the others they learn and change nothing."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.gateway.agent_scope import may_call
from remoteclaw.gateway.auth import Authenticator
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.principals import Operator, Principal
from remoteclaw.messages import SessionKey
from remoteclaw.tools import terminals
from remoteclaw.tools.base import Method
from remoteclaw.tools.catalog import METHODS
from tests.support.doors import Refused, opened, own_token
from tests.support.promised import good_params, schema_of
from tests.support.stack import Stack, message

#: What a narrowed token may ask at all; of everything else it is told that it is about more.
ALLOWED = {
    *("agent.wait", "agents.list", "chat.history", "chat.open", "chat.outcome", "chat.send"),
    *("chat.shown", "health", "sessions.archive", "sessions.archived", "sessions.label"),
    *("sessions.list", "sessions.send", "sessions.status", "sessions.stop", "sessions.subscribe"),
    *("sessions.tree", "sessions.unsubscribe", *(method.name for method in terminals.METHODS)),
}
#: The names of parameters by which a call may mean a session, a run, an agent or a chat.
NAMING = {"sessionKey", "session", "sid", "label", "agentId", "agent", "what", "runId"}


async def _terminal(call: Call, params: Any) -> Any:
    raise CallRefused("UNAVAILABLE", f"reached with {list(call.config.agents)}: {params}")


class World:
    """Two agents, each with a session; and who asks."""

    def __init__(self, stack: Stack) -> None:
        tree = tomlkit.parse(stack.home.config_file.read_text()).unwrap()
        tree["agents"] = {"beta": {"runtime": "demo"}, "alpha": {"runtime": "demo"}}
        stack.home.config_file.write_text(tomlkit.dumps(tree))
        self.config = CurrentConfig(stack.home, load_config(stack.home.config_file))
        reached = {method.name: _terminal for method in terminals.METHODS}
        handlers: dict[str, Handler] = {**HANDLERS, **reached}
        self.stack = stack
        self.door = Dispatcher(stack.fleet, stack.home, self.config, handlers, methods=METHODS)
        self.authenticator = Authenticator(
            stack.fleet, self.door, (), lambda: self.config().gateway
        )

    async def session(self, agent: str, **fields: Any) -> Accepted:
        """Have a session of an agent, of which a little is known."""
        inbound, sessions = self.stack.fleet.inbound, self.stack.fleet.sessions
        said = message("a question", from_=f"{agent}-person", channel_id=f"{agent}-chat", **fields)
        accepted = await inbound.append(said, agent=agent)
        view = await sessions.view(accepted.session.sid)
        assert view is not None
        await sessions.label(view, f"{agent}-label")
        return accepted

    async def token(self, *agents: str) -> Principal:
        """Return an operator who may do everything, for some agents."""
        made, _ = await self.stack.fleet.tokens.create("c", "admin", None, agents=agents or None)
        found = await self.authenticator.principal(made)
        assert found is not None
        return found

    async def asked(self, who: Principal, name: str, params: dict[str, Any], **more: Any) -> str:
        """Return the answer to a call, or its refusal, as text."""
        try:
            result, _ = await self.door.call(who, name, params, **more)
        except CallRefused as refusal:
            return f"{refusal.code}: {refusal}"
        return orjson.dumps(result.told()).decode()

    async def kept_of(self, session: SessionKey) -> dict[str, Any]:
        """Return everything that Redis has of a session."""
        client = self.stack.fleet.scripts.client
        found: dict[str, Any] = {}
        async for key in client.scan_iter(match=f"*{session.sid}*"):
            found[key.decode()] = await client.dump(key)
        return found


@pytest.fixture
async def world(stack: Stack) -> World:
    """Two agents, each with a session."""
    return World(stack)


def calls_about(method: Method, named: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Yield parameters of a method that name in every way what is another's."""
    good, properties = good_params(method), schema_of(method).get("properties", {})
    yield good
    for name in NAMING & set(properties):
        for value in named.get(name, named["sessionKey"]):
            required = {**good, "text": "x"} if name == "sid" and "text" in properties else good
            yield {**required, name: value}


def test_every_method_is_decided() -> None:
    narrowed = Operator("c", "admin", "c/1", ("alpha",))

    assert {name for name, method in METHODS.items() if may_call(narrowed, method)} == ALLOWED


async def test_a_narrowed_token_learns_and_changes_nothing_of_another_agent(world: World) -> None:
    """Every method, with every name that another agent's session has."""
    await world.session("alpha")
    theirs = await world.session("beta")
    session = theirs.session
    host = world.stack.home.host_id
    named = {
        "sessionKey": [
            *(str(session), session.sid, session.sid[:8], "beta-label", session.conversation),
            f"beta/console/{host}/console:x:_",
            f"alpha/console/{host}/console:x:_",  # which is where beta's console is shown
            f"alpha/test/default/{session.conversation}",
        ],
        "agentId": ["beta"],
        "agent": ["beta"],
        "runId": [f"{session.sid}-{theirs.entry_id}", f"{session.sid[:8]}-{theirs.entry_id}"],
        "what": [f"{session.sid[:8]}-{theirs.entry_id}"],
        "label": ["beta-label"],
    }
    narrowed, wide = await world.token("alpha"), await world.token()
    before = await world.kept_of(session)
    learnt = {}

    for name, method in METHODS.items():
        for params in calls_about(method, named):
            told = await world.asked(narrowed, name, params)
            beside = await world.asked(narrowed, name, params, session_key=str(session))
            texts = [it for it in params.values() if isinstance(it, str)]
            asked = [str(session), *texts, *(it.partition("-")[0] for it in texts)]
            for value in asked:  # what they are told in return is no news
                told, beside = told.replace(value, "ASKED"), beside.replace(value, "ASKED")
            if "beta" in told + beside or session.sid[:8] in told + beside:
                learnt[name] = (params, told, beside)
            if name not in ALLOWED:
                assert "FORBIDDEN" in told, name

    assert learnt == {}
    assert await world.kept_of(session) == before
    for name in ("sessions.list", "agents.list", "sessions.search"):
        assert "beta" in await world.asked(wide, name, {}), "or nothing was to be learnt"


async def test_what_is_another_agent_s_is_as_what_there_is_not(world: World) -> None:
    theirs = (await world.session("beta")).session
    narrowed = await world.token("alpha")
    nowhere = SessionKey("beta", "test", "default", "nobody", "nobody")

    for name, method in METHODS.items():
        for params in calls_about(method, {"sessionKey": ["X"]}):
            there, missing = [
                (await world.asked(narrowed, name, _with(params, one))).replace(one, "X")
                for one in (str(theirs), str(nowhere))
            ]
            assert there == missing, name


def _with(params: dict[str, Any], named: str) -> dict[str, Any]:
    return {name: named if value == "X" else value for name, value in params.items()}


async def test_a_narrowed_token_has_its_own_agents_sessions(world: World) -> None:
    own = (await world.session("alpha")).session
    await world.session("beta")
    narrowed = await world.token("alpha", "gone")

    for name in (str(own), own.sid):
        assert "alpha-label" in await world.asked(narrowed, "sessions.list", {})
        assert str(own) in await world.asked(narrowed, "sessions.status", {"sessionKey": name})
        assert "reached with ['alpha']" in await world.asked(
            narrowed, "terminals.get", {"sid": name}
        )
    chat = orjson.loads(await world.asked(narrowed, "chat.open", {"follow": "nothing"}))
    assert chat["agent"] == "alpha"
    assert f"alpha/console/{world.stack.home.host_id}.alpha/" in chat["sessionKey"]
    sent = {"sessionKey": chat["sessionKey"], "message": "hello", "messageId": "1"}
    assert "entry" in await world.asked(narrowed, "chat.send", {**sent, "toCaller": True})


async def test_another_agent_s_console_is_not_shown_under_an_own_name(world: World) -> None:
    """Its account says where a console's messages go, whatever agent the key begins with."""
    narrowed = await world.token("alpha")
    theirs = str(SessionKey("alpha", "console", world.stack.home.host_id, "console", "x"))
    said = {"message": "hello", "messageId": "1", "toCaller": True}

    opened_ = await world.asked(narrowed, "chat.open", {"sessionKey": theirs, "follow": "nothing"})
    sent = await world.asked(narrowed, "chat.send", {"sessionKey": theirs, **said})

    assert opened_ == sent == f"NOT_FOUND: There is no session '{theirs}' that this token may see."


async def test_a_token_whose_agents_are_gone_is_good_for_nothing(world: World) -> None:
    narrowed = await world.token("gone")

    for name in ("sessions.list", "health", "chat.open"):
        assert "None of the agents of this token" in await world.asked(narrowed, name, {})


async def test_the_other_doors_know_a_narrowed_token(stack: Stack) -> None:
    """Metrics and files, the tools over MCP and what a connection is offered."""
    token, view = await stack.fleet.tokens.create("c", "admin", None, agents=("other",))
    own = (await stack.append("hello")).session
    blob = await stack.fleet.blobs.put(own.sid, "a.txt", b"secret", chat=own)
    path = f"/files/{own.sid}/{blob.blob}?size=6"
    async with opened(stack) as door:
        assert (await door.get("/metrics", token)).status == 403
        assert (await door.get(path, own_token(stack))).body == b"secret"
        assert (await door.get(path, token)).status == 404
        sent = await door.post(f"/files?session={own}&name=x", token, b"x")
        assert sent.status == 404
        async with door.connected(token) as client:
            offered = set(client.hello["features"]["methods"])
            with pytest.raises(Refused, match="FORBIDDEN"):
                await client.call("config.get")
            # What the token is for may change, and then nothing of before counts.
            assert door.gateway is not None
            kept = {"name": "c", "scope": "admin", "digest": view.digest, "agents": ["main"]}
            data = orjson.dumps({**kept, "created_ms": 1, "expires_ms": None})
            await stack.fleet.scripts.client.hset(keys.TOKENS, view.id, data)
            assert (await client.closed())[0] == 1008

    assert offered == ALLOWED


@pytest.mark.parametrize("agents", ["main", [1], {"main": True}])
async def test_a_damaged_list_of_agents_is_no_token(stack: Stack, agents: Any) -> None:
    token, view = await stack.fleet.tokens.create("c", "read", None, agents=("main",))
    client = stack.fleet.scripts.client
    kept = orjson.loads(await client.hget(keys.TOKENS, view.id) or b"")
    await client.hset(keys.TOKENS, view.id, orjson.dumps({**kept, "agents": agents}))

    assert await stack.fleet.tokens.find(token) is None
