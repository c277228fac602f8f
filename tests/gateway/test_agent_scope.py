"""Tokens for certain agents only: they read and change nothing of other agents."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.agent_scope import may_call
from remoteclaw.gateway.auth.authenticator import Authenticator
from remoteclaw.gateway.auth.principals import Operator, Principal
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.messages import SessionKey
from remoteclaw.tools import terminals
from remoteclaw.tools.base import Method
from remoteclaw.tools.catalog import METHODS
from tests.support.doors import Refused, opened, own_token
from tests.support.promised import good_params, schema_of
from tests.support.stack import Stack, message

#: The methods that a token for one agent may call; all others are refused.
ALLOWED = {
    *("outcomes.wait", "agents.list", "chat.files", "chat.history", "chat.open"),
    *(
        "chat.send",
        "chat.waiting",
        "push.key",
        "push.subscribe",
        "push.unsubscribe",
        "push.visible",
    ),
    *("health", "sessions.archive", "sessions.history", "sessions.label", "sessions.write"),
    *("sessions.search", "sessions.send", "sessions.show", "sessions.stop", "sessions.subscribe"),
    *("sessions.retry", "tasks.tree", "sessions.unsubscribe"),
    *(method.name for method in terminals.METHODS),
}
#: The parameters that can name a session, a run, an agent or a chat.
NAMING = {"sessionKey", "session", "sid", "label", "agentId", "agent", "what", "runId"}


async def _terminal(call: Call, params: Any) -> Any:
    raise CallRefused("UNAVAILABLE", f"reached with {list(call.config.agents)}: {params}")


class World:
    """Two agents, their sessions, and callers with tokens."""

    def __init__(self, stack: Stack) -> None:
        tree = tomlkit.parse(stack.home.config_file.read_text()).unwrap()
        tree["agents"] = {"beta": {"runtime": "demo"}, "alpha": {"runtime": "demo"}}
        stack.home.config_file.write_text(tomlkit.dumps(tree))
        self.config = CurrentConfig(stack.home, load_config(stack.home.config_file))
        reached = {method.name: _terminal for method in terminals.METHODS}
        handlers: dict[str, Handler] = {**HANDLERS, **reached}
        self.stack = stack
        self.door = Dispatcher(stack.fleet, stack.home, self.config, handlers, methods=METHODS)
        tokens, links = stack.fleet.tokens, stack.fleet.guest_links
        self.authenticator = Authenticator(tokens, links, self.door, (), self.config)

    async def session(self, agent: str, **fields: Any) -> Accepted:
        """Create a session of an agent, with a label."""
        inbound, sessions = self.stack.fleet.inbound, self.stack.fleet.sessions
        written = message(
            "a question", from_=f"{agent}-person", channel_id=f"{agent}-chat", **fields
        )
        accepted = await inbound.append(written, agent=agent)
        view = await sessions.view(accepted.session.sid)
        assert view is not None
        await sessions.label(view, f"{agent}-label")
        return accepted

    async def token(self, *agents: str) -> Principal:
        """Return an operator with the scope admin, limited to `agents` if any are given."""
        made, _ = await self.stack.fleet.tokens.create("c", "admin", None, agents=agents or None)
        found = await self.authenticator.principal(made)
        assert found is not None
        return found

    async def call_as_text(
        self, who: Principal, name: str, params: dict[str, Any], **more: Any
    ) -> str:
        """Return the answer to a call, or its refusal, as text."""
        try:
            result, _ = await self.door.call(who, name, params, **more)
        except CallRefused as refusal:
            return f"{refusal.code}: {refusal}"
        return orjson.dumps(result.to_json()).decode()

    async def redis_keys_of(self, session: SessionKey) -> dict[str, Any]:
        """Return all Redis keys of a session with their values."""
        client = self.stack.fleet.scripts.client
        found: dict[str, Any] = {}
        async for key in client.scan_iter(match=f"*{session.sid}*"):
            found[key.decode()] = await client.dump(key)
        return found


@pytest.fixture
async def world(stack: Stack) -> World:
    """Two agents, without sessions yet."""
    return World(stack)


def calls_about(method: Method, named: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Yield parameters of a method with each value of `named` in each parameter that takes it."""
    good, properties = good_params(method), schema_of(method).get("properties", {})
    yield good
    for name in NAMING & set(properties):
        for value in named.get(name, named["sessionKey"]):
            required = {**good, "text": "x"} if name == "sid" and "text" in properties else good
            yield {**required, name: value}


def test_a_token_for_one_agent_may_call_exactly_the_allowed_methods() -> None:
    narrowed = Operator("c", "admin", "c/1", ("alpha",))

    assert {name for name, method in METHODS.items() if may_call(narrowed, method)} == ALLOWED


async def test_a_token_for_one_agent_reads_and_changes_nothing_of_another_agent(
    world: World,
) -> None:
    """Every method, with every name that another agent's session has."""
    await world.session("alpha")
    theirs = await world.session("beta")
    session = theirs.session
    named = {
        "sessionKey": [
            *(str(session), session.sid, session.sid[:8], "beta-label", session.conversation),
            "beta/web/default/admin.c:admin.c:beta",
            "alpha/web/default/admin.c:admin.c:beta",  # the conversation with beta
            f"alpha/test/default/{session.conversation}",
        ],
        "agentId": ["beta"],
        "agent": ["beta"],
        "runId": [f"{session.sid}-{theirs.entry_id}", f"{session.sid[:8]}-{theirs.entry_id}"],
        "what": [f"{session.sid[:8]}-{theirs.entry_id}"],
        "label": ["beta-label"],
    }
    narrowed, wide = await world.token("alpha"), await world.token()
    before = await world.redis_keys_of(session)
    leaked = {}

    for name, method in METHODS.items():
        for params in calls_about(method, named):
            by_params = await world.call_as_text(narrowed, name, params)
            by_session_key = await world.call_as_text(
                narrowed, name, params, session_key=str(session)
            )
            texts = [it for it in params.values() if isinstance(it, str)]
            given = [str(session), *texts, *(it.partition("-")[0] for it in texts)]
            for value in given:  # an answer may repeat what the caller gave
                by_params, by_session_key = (
                    by_params.replace(value, "ASKED"),
                    by_session_key.replace(value, "ASKED"),
                )
            if (
                "beta" in by_params + by_session_key
                or session.sid[:8] in by_params + by_session_key
            ):
                leaked[name] = (params, by_params, by_session_key)
            if name not in ALLOWED:
                assert "FORBIDDEN" in by_params, name

    assert leaked == {}
    assert await world.redis_keys_of(session) == before
    for name in ("sessions.search", "agents.list"):
        assert "beta" in await world.call_as_text(wide, name, {}), "a token for all agents sees it"


async def test_another_agents_session_is_refused_like_a_missing_one(world: World) -> None:
    theirs = (await world.session("beta")).session
    narrowed = await world.token("alpha")
    nowhere = SessionKey("beta", "test", "default", "nobody", "nobody")

    for name, method in METHODS.items():
        for params in calls_about(method, {"sessionKey": ["X"]}):
            existing, missing = [
                (await world.call_as_text(narrowed, name, _with(params, one))).replace(one, "X")
                for one in (str(theirs), str(nowhere))
            ]
            assert existing == missing, name


def _with(params: dict[str, Any], named: str) -> dict[str, Any]:
    return {name: named if value == "X" else value for name, value in params.items()}


async def test_a_token_for_one_agent_can_use_the_sessions_of_this_agent(world: World) -> None:
    own = (await world.session("alpha")).session
    await world.session("beta")
    narrowed = await world.token("alpha", "gone")

    for name in (str(own), own.sid):
        assert "alpha-label" in await world.call_as_text(narrowed, "sessions.search", {})
        assert str(own) in await world.call_as_text(narrowed, "sessions.show", {"sessionKey": name})
        assert "reached with ['alpha']" in await world.call_as_text(
            narrowed, "terminals.get", {"sid": name}
        )
    chat = orjson.loads(await world.call_as_text(narrowed, "chat.open", {"follow": "nothing"}))
    assert chat["agent"] == "alpha"
    sent = {"sessionKey": chat["sessionKey"], "text": "hello", "messageId": "1"}
    assert "entry" in await world.call_as_text(narrowed, "chat.send", sent)


async def test_a_token_for_one_agent_has_the_conversations_with_this_agent_only(
    world: World,
) -> None:
    """The conversation decides, whatever agent the key names."""
    narrowed, wide = await world.token("alpha"), await world.token()
    own = orjson.loads(await world.call_as_text(narrowed, "chat.open", {"follow": "nothing"}))
    other = orjson.loads(
        await world.call_as_text(wide, "chat.open", {"agentId": "beta", "follow": "nothing"})
    )
    theirs, written = other["sessionKey"], {"messageId": "1", "text": "hello"}
    await world.call_as_text(wide, "chat.send", {"sessionKey": theirs, **written})
    disguised = theirs.replace("beta/", "alpha/", 1)

    assert own["agent"] == "alpha"
    for key in (theirs, disguised):
        about = {"sessionKey": key}
        for name, params in (
            ("chat.open", {**about, "follow": "nothing"}),
            ("chat.history", {**about, "before": "9-0"}),
            ("chat.waiting", about),
            ("chat.files", about),
            ("chat.send", {**about, **written}),
        ):
            refusal = f"NOT_FOUND: There is no session '{key}' that this token may see."
            assert await world.call_as_text(narrowed, name, params) == refusal


async def test_a_token_for_one_agent_writes_in_no_chat(world: World) -> None:
    own = (await world.session("alpha")).session
    narrowed = await world.token("alpha")
    sender = {"message": "hi", "channel": "test", "from": "bob"}
    session = {"message": "hi", "sessionKey": str(own)}

    for params in (sender, {**sender, "toCaller": True}, session):
        answer = await world.call_as_text(narrowed, "sessions.write", params)
        assert "runId" not in answer, params
    assert "runId" in await world.call_as_text(
        narrowed, "sessions.write", {**session, "toCaller": True}
    )


async def test_a_token_whose_agents_no_longer_exist_is_refused_everything(world: World) -> None:
    narrowed = await world.token("gone")

    for name in ("sessions.search", "health", "chat.open"):
        assert "None of the agents of this token" in await world.call_as_text(narrowed, name, {})


async def test_metrics_files_and_connections_check_the_agents_of_a_token(stack: Stack) -> None:
    """A connection also ends when the agents of its token change."""
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
            # A change of the token's agents closes its connections.
            assert door.gateway is not None
            record = {"name": "c", "scope": "admin", "digest": view.digest, "agents": ["main"]}
            data = orjson.dumps({**record, "created_ms": 1, "expires_ms": None})
            await stack.fleet.scripts.client.hset(keys.TOKENS, view.id, data)
            assert (await client.closed())[0] == 1008

    assert offered == ALLOWED


@pytest.mark.parametrize("agents", ["main", [1], {"main": True}])
async def test_a_token_with_a_damaged_list_of_agents_is_invalid(stack: Stack, agents: Any) -> None:
    token, view = await stack.fleet.tokens.create("c", "read", None, agents=("main",))
    client = stack.fleet.scripts.client
    record = orjson.loads(await client.hget(keys.TOKENS, view.id) or b"")
    await client.hset(keys.TOKENS, view.id, orjson.dumps({**record, "agents": agents}))

    assert await stack.fleet.tokens.find(token) is None


async def test_a_token_for_one_agent_sees_no_task_of_another_agent(world: World) -> None:
    ours, theirs = (await world.session("alpha")).session, (await world.session("beta")).session
    client = world.stack.fleet.scripts.client
    await client.zadd(keys.children(ours.sid), {theirs.sid: 1})
    await client.hset(keys.state(ours.sid), "parent", str(theirs))
    narrowed, wide = await world.token("alpha"), await world.token()

    params = {"sessionKey": str(ours)}
    assert str(theirs) in await world.call_as_text(wide, "sessions.show", params)
    assert str(theirs) not in await world.call_as_text(narrowed, "sessions.show", params)


@pytest.mark.parametrize("command", ["/sessions", "/pair", "/pair CODE"])
async def test_a_token_for_one_agent_runs_no_command_about_all(world: World, command: str) -> None:
    narrowed = await world.token("alpha")
    opened = orjson.loads(await world.call_as_text(narrowed, "chat.open", {"follow": "nothing"}))
    said = {"sessionKey": opened["sessionKey"], "messageId": "m1", "text": command}

    assert "FORBIDDEN" in await world.call_as_text(narrowed, "chat.send", said)
