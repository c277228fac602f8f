"""The gateway over WebSocket: frames, limits, events, and connections that have to end."""

import asyncio
import contextlib
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from remoteclaw.fleet import keys
from remoteclaw.gateway import gateway as gateway_module
from remoteclaw.gateway import limits
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.doors import ws
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.tools.base import Method, NoParams, Result
from remoteclaw.tools.catalog import METHODS, TOOLS
from remoteclaw.tools.fleet import Health
from tests.support.doors import Refused, RpcClient, calling, hello, opened, own_token
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


class Gate:
    """A method that waits until the test opens the gate."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0

    async def health(self, _call: Call, _params: NoParams) -> Health:
        self.waiting += 1
        try:
            await self.open.wait()
        finally:
            self.waiting -= 1
        return Health(status="ok", version="0")

    @property
    def handlers(self) -> dict[str, Handler]:
        return {**HANDLERS, "health": self.health}


# -- connect --------------------------------------------------------------------------------------


async def test_connect_returns_the_clients_rights_methods_and_limits(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack) as door, door.connected(token) as client:
        hello_ok = client.hello

        assert (hello_ok["type"], hello_ok["protocol"]) == ("hello-ok", 3)
        assert hello_ok["server"].keys() == {"version", "connId"}
        assert hello_ok["policy"] == {
            "maxPayload": 2 * 1024 * 1024,
            "maxBufferedBytes": 8 * 1024 * 1024,
            "tickIntervalMs": 30_000,
        }
        assert hello_ok["auth"] == {"role": "operator", "scopes": ["read", "write"]}
        assert {"outcomes.wait", "sessions.subscribe", "sessions.write"} <= set(
            hello_ok["features"]["methods"]
        )
        assert "cron.add" not in hello_ok["features"]["methods"]
        assert "session.outcome" in hello_ok["features"]["events"]
        assert (await client.call("health"))["status"] == "ok"


async def test_the_root_path_accepts_websocket_connections(stack: Stack) -> None:
    async with opened(stack) as door, connect(door.ws_url.removesuffix("ws")) as socket:
        assert orjson.loads(await socket.recv())["event"] == "connect.challenge"


async def test_an_agent_may_connect_and_call_its_tools(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        calling(stack, tools={"sessions_list"}) as agent,
        door.connected(agent.token) as client,
    ):
        assert client.hello["auth"] == {"role": "agent", "scopes": []}
        assert client.hello["features"] == {
            "methods": ["sessions.search"],
            "events": ["tick", "shutdown"],
        }
        (session,) = (await client.call("sessions.search"))["sessions"]
        assert session["isSelf"]
        with pytest.raises(Refused, match="FORBIDDEN"):
            await client.call("sessions.subscribe", {"sessionKey": session["key"]})


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ({"method": "health", "params": {}}, "The first request is connect."),
        ({"method": "connect", "params": {"minProtocol": 3}}, "maxProtocol Field required"),
        ({"method": "connect", "params": hello("x", minProtocol=4)}, "speaks protocol 3"),
        ({"method": "connect", "params": hello("wrong")}, "connect needs a valid token"),
        ({"method": "connect", "params": hello("x", auth={"password": "x"})}, "a valid token"),
        ({"type": "event", "method": "connect"}, "type Input should be 'req'"),
    ],
)
async def test_an_invalid_connect_request_is_refused(
    stack: Stack, frame: dict[str, Any], why: str
) -> None:
    async with opened(stack) as door, door.socket() as client:
        await client.frame()
        await client.socket.send(orjson.dumps({"type": "req", "id": "1", **frame}).decode())

        answer = await client.answer("1")

        assert not answer["ok"]
        assert why in answer["error"]["message"]
        assert (await client.closed())[0] == 1008


async def test_a_client_that_sends_no_connect_request_is_disconnected(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ws, "HANDSHAKE_S", 0.2)
    async with opened(stack) as door, door.socket() as client:
        await client.frame()

        assert await client.closed() == (1008, "No connect within 0.2 s.")


async def test_no_event_is_sent_before_authentication(stack: Stack) -> None:
    async with opened(stack) as door, door.socket() as client:
        await client.frame()
        assert door.gateway is not None
        await eventually(lambda: len(door.gateway.clients) == 1)  # type: ignore[union-attr]
        (connection,) = door.gateway.clients

        connection.send_event("tick", {})
        await client.begin("connect", hello("wrong"))

        assert (await client.frame())["type"] == "res"


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        ("{", 1007, "A frame is a JSON object with an id."),
        ('{"type":"req","id":7,"method":"health"}', 1007, "A frame is"),
        ("[" * 100_000, 1007, "A frame is"),
        (b"{}", 1003, "Frames are text."),
        ("x" * (2 * 1024 * 1024 + 1), 1009, ""),
    ],
)
async def test_an_invalid_frame_closes_the_connection(
    stack: Stack, frame: str | bytes, code: int, reason: str
) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with contextlib.suppress(ConnectionClosed):
            await client.socket.send(frame)

        found = await client.closed()

        assert found[0] == code
        assert found[1].startswith(reason)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"type": "res"}, "type Input should be 'req'"),
        ({"scope": "admin"}, "scope Extra inputs are not permitted"),
        ({"sessionKey": "a\nb"}, "sessionKey"),
        ({"id": "x" * 1000}, "id String should have at most"),
    ],
)
async def test_an_invalid_request_frame_is_refused_and_the_connection_stays(
    stack: Stack, more: dict[str, Any], why: str
) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        frame = {"type": "req", "id": "mine", "method": "health", **more}
        await client.socket.send(orjson.dumps(frame).decode())

        answer = await client.answer(frame["id"][:200])

        assert answer["error"]["code"] == "INVALID_REQUEST"
        assert why in answer["error"]["message"]
        assert (await client.call("health"))["status"] == "ok"


async def test_unknown_methods_and_parameters_are_refused_and_the_connection_stays(
    stack: Stack,
) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for method in ("nothing", "connect", "__class__", "sessions.spoon"):
            with pytest.raises(Refused, match="NOT_FOUND"):
                await client.call(method)
        with pytest.raises(Refused, match="x is no parameter"):
            await client.call("health", {"x": 1})
        assert (await client.call("health"))["status"] == "ok"


async def test_websocket_frames_are_not_compressed(stack: Stack) -> None:
    async with opened(stack) as door, door.socket(compression="deflate") as client:
        assert client.socket.protocol.extensions == []


async def test_answers_are_sent_as_soon_as_they_are_ready(stack: Stack) -> None:
    gate = Gate()
    async with opened(stack, gate.handlers) as door, door.connected(own_token(stack)) as client:
        slow = await client.begin("health")
        assert (await client.call("sessions.search"))["isComplete"]
        gate.open.set()

        assert (await client.answer(slow))["ok"]


# -- limits ---------------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_cancelled(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CALL_S", 0.1)
    gate = Gate()
    async with opened(stack, gate.handlers) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="TIMEOUT") as refused:
            await client.call("health")

        assert refused.value.error["retryable"]
        assert gate.waiting == 0


async def test_calls_of_a_disconnected_client_are_cancelled(stack: Stack) -> None:
    gate = Gate()
    async with opened(stack, gate.handlers) as door:
        async with door.connected(own_token(stack)) as client:
            await client.begin("health")
            await eventually(lambda: gate.waiting == 1)

        await eventually(lambda: gate.waiting == 0)


class _Text(Result):
    text: str


async def large_result(_call: Call, _params: NoParams) -> _Text:
    return _Text(text="x" * 1024 * 1024)


async def oversized_result(_call: Call, _params: NoParams) -> _Text:
    return _Text(text="x" * 7 * 1024 * 1024)


async def invalid_unicode(_call: Call, _params: NoParams) -> _Text:
    return _Text(text="\ud800")


async def test_a_client_that_reads_too_slowly_is_disconnected(stack: Stack) -> None:
    """Otherwise its unsent answers would fill the gateway's memory."""
    async with opened(stack, {**HANDLERS, "health": large_result}) as door:
        async with door.connected(own_token(stack)) as client:
            client.socket.transport.pause_reading()
            for _ in range(30):
                await client.begin("health")
            assert door.gateway is not None

            await eventually(lambda: not door.gateway.clients)  # type: ignore[union-attr]

            client.socket.transport.resume_reading()
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await client.frame()
        async with door.connected(own_token(stack)) as client:
            assert await client.call("sessions.search")


@pytest.mark.parametrize(
    ("handler", "why"),
    [(oversized_result, "larger than 6 MB"), (invalid_unicode, "can't be written as JSON")],
)
async def test_an_answer_that_cannot_be_sent_is_reported_as_an_error(
    stack: Stack, handler: Handler, why: str
) -> None:
    async with (
        opened(stack, {**HANDLERS, "health": handler}) as door,
        door.connected(own_token(stack)) as client,
    ):
        with pytest.raises(Refused, match=why):
            await client.call("health")


# -- repeated calls -------------------------------------------------------------------------------

ASK = {"message": "hello", "channel": "test", "from": "bob"}


async def test_calls_with_the_same_idempotency_key_are_done_once(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        first = await client.call("sessions.write", ASK, idempotencyKey="k")
        again = await client.call("sessions.write", {**ASK, "message": "other"}, idempotencyKey="k")
        new = await client.call("sessions.write", ASK, idempotencyKey="l")

        assert not first["isDuplicate"]
        assert again == {**first, "isDuplicate": True}
        assert new["runId"] != first["runId"]
        assert (await client.call("sessions.write", ASK))["runId"] != first["runId"]


async def test_idempotency_keys_of_two_operators_are_independent(stack: Stack) -> None:
    one, _ = await stack.fleet.tokens.create("same name", "write", None)
    other, _ = await stack.fleet.tokens.create("same name", "write", None)
    runs = []
    async with opened(stack) as door:
        for token in (one, other):
            async with door.connected(token) as client:
                runs.append((await client.call("sessions.write", ASK, idempotencyKey="k"))["runId"])

    assert len(set(runs)) == 2


async def test_a_repeated_stop_call_does_not_stop_later_messages(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        accepted = await client.call("sessions.write", ASK)
        session = {"sessionKey": accepted["sessionKey"]}
        stopped = {"stopped": 1, "unsent": 0}
        assert await client.call("sessions.stop", session, idempotencyKey="k") == stopped
        await client.call("sessions.write", ASK)

        assert await client.call("sessions.stop", session, idempotencyKey="k") == stopped

        sid = accepted["runId"].partition("-")[0]
        first = accepted["runId"].partition("-")[2]
        state = await stack.fleet.scripts.client.hget(keys.state(sid), "stop_entry")
        assert state == first.encode()


# -- methods of operators -------------------------------------------------------------------------


async def test_outcomes_wait_returns_the_answer_to_a_message(stack: Stack) -> None:
    await stack.start_worker()
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        accepted = await client.call("sessions.write", ASK)

        answer = await client.call("outcomes.wait", {"runId": accepted["runId"]})

        assert answer["status"] == "done"
        assert "RemoteClaw's demo agent" in answer["reply"][0]["text"]
        assert answer["sessionKey"] == accepted["sessionKey"]
        assert (
            await client.call("outcomes.wait", {"runId": accepted["runId"], "timeout": 0}) == answer
        )
        sid = accepted["runId"].partition("-")[0]
        with pytest.raises(Refused, match="NOT_FOUND"):
            await client.call("outcomes.wait", {"runId": f"{sid}-1-1"})


async def test_outcomes_wait_returns_accepted_for_an_unanswered_message(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        accepted = await client.call("sessions.write", ASK)

        answer = await client.call("outcomes.wait", {"runId": accepted["runId"], "timeout": 0.1})

        assert (answer["status"], answer["reply"], answer["error"]) == ("accepted", [], None)


async def test_fleet_status_counts_workers_hints_and_busy_sessions(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("sessions.write", ASK)

        status = await client.call("fleet.status")

    assert (status["workers"], status["busySessions"], status["deadLetters"]) == ([], 1, 0)
    assert [lane["hints"] for lane in status["lanes"]] == [1, 0]
    assert {problem["subject"] for problem in status["problems"]} == {"workers", "sweeper"}


async def test_speaking_for_an_owner_needs_the_scope_admin(stack: Stack) -> None:
    """Otherwise a token with the scope write could have an agent add cron jobs."""
    stack.configure(channels={"test": {"owners": ["ada"]}})
    write, _ = await stack.fleet.tokens.create("w", "write", None)
    async with opened(stack) as door:
        async with door.connected(write) as client:
            for channel, sender in (("test", "ada"), ("web", "admin.anybody")):
                with pytest.raises(Refused, match="is an owner on"):
                    await client.call("sessions.write", {**ASK, "channel": channel, "from": sender})
            for channel in ("Test", "t\u0435st"):
                with pytest.raises(Refused, match="a channel's name has small letters"):
                    await client.call("sessions.write", {**ASK, "channel": channel, "from": "ada"})
            assert await client.call("sessions.write", {**ASK, "from": "bob"})
        async with door.connected(own_token(stack)) as client:
            assert await client.call("sessions.write", {**ASK, "from": "ada"})


# -- events ---------------------------------------------------------------------------------------


async def test_a_subscriber_receives_live_text_and_the_outcome(stack: Stack) -> None:
    await stack.start_worker()
    before = await stack.append("hello")
    await stack.outcome(before)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        key = str(before.session)
        assert await client.call("sessions.subscribe", {"sessionKey": key[:]}) == {
            "sessionKey": key
        }

        accepted = await stack.append("slow")
        while not (live := await client.event("session.live"))["text"]:
            assert live["sessionKey"] == key  # the turn has begun
        assert live["sessionKey"] == key
        assert live["text"].startswith("1")
        await stack.fleet.sessions.stop(accepted.session.sid)
        outcome = await client.event("session.outcome")

        assert outcome["runId"] == f"{accepted.session.sid}-{accepted.entry_id}"
        assert outcome["sessionKey"] == key
        assert outcome["status"] == "stopped"
        assert not [event for event in client.events if event["event"] == "session.outcome"]


async def test_a_client_that_subscribes_during_a_turn_receives_the_last_live_text(
    stack: Stack,
) -> None:
    """The agent may produce no new text for minutes."""
    async with (
        opened(stack) as door,
        calling(stack) as agent,
        door.connected(own_token(stack)) as first,
        door.connected(own_token(stack)) as second,
    ):
        await agent.lease.turns.publish_live_text({"sid": agent.lease.sid, "text": "so far"})
        for client in (first, second):
            await client.call("sessions.subscribe", {"sessionKey": agent.lease.sid})

            assert (await client.event("session.live"))["text"] == "so far"


async def test_an_outcome_missed_while_redis_was_away_is_sent_once(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        calling(stack) as agent,
        door.connected(own_token(stack)) as client,
    ):
        await client.call("sessions.subscribe", {"sessionKey": agent.lease.sid})
        assert door.gateway is not None
        # Drop the announcement, as a lost connection to Redis does.
        pubsub = door.gateway.feeds._subscriptions
        listen, pubsub._call_listeners = pubsub._call_listeners, lambda message: None  # type: ignore[method-assign]
        await agent.finish()
        pubsub._call_listeners = listen  # type: ignore[method-assign]

        await asyncio.to_thread(stack.redis.kill)
        await asyncio.to_thread(stack.redis.start)

        outcome = await client.event("session.outcome")
        assert outcome["runId"] == f"{agent.lease.sid}-{agent.accepted.entry_id}"
        assert await client.call("health")
        assert not [event for event in client.events if event["event"] == "session.outcome"]


async def test_several_clients_subscribe_to_one_session_and_may_unsubscribe(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, calling(stack) as agent:
        subscribed = {"sessionKey": agent.lease.sid}
        async with door.connected(token) as one, door.connected(token) as other:
            async with door.connected(token) as third:
                for client in (one, other, third):
                    await client.call("sessions.subscribe", subscribed)
            await other.call("sessions.unsubscribe", subscribed)

            await agent.finish()

            assert (await one.event("session.outcome"))["status"] == "done"
            assert await other.call("health")
            assert not other.events
        assert door.gateway is not None
        await eventually(lambda: not door.gateway.feeds._feeds)  # type: ignore[union-attr]


async def test_the_subscriptions_of_a_client_are_limited(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ws, "MAX_SUBSCRIPTIONS", 2)
    keys = [str((await stack.append("x", channel_id=f"c{n}")).session) for n in range(3)]
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for key in keys[:2]:
            await client.call("sessions.subscribe", {"sessionKey": key})
            await client.call("sessions.subscribe", {"sessionKey": key})

        with pytest.raises(Refused, match="follows 2 sessions at most"):
            await client.call("sessions.subscribe", {"sessionKey": keys[2]})

        await client.call("sessions.unsubscribe", {"sessionKey": keys[0]})
        await client.call("sessions.subscribe", {"sessionKey": keys[2]})


async def test_a_missing_session_cannot_be_subscribed_to(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for method in ("sessions.subscribe", "sessions.unsubscribe", "sessions.stop"):
            with pytest.raises(Refused, match="is no session"):
                await client.call(method, {"sessionKey": "0" * 32})


async def test_clients_receive_a_periodic_tick(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "TICK_S", 0.05)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.event("tick")
        first = client.events
        await client.event("tick")

        assert first == []


# -- connections that have to end -----------------------------------------------------------------


async def expect_invalid_token(client: RpcClient) -> None:
    """Wait until the connection is closed because of its token."""
    assert await client.closed() == (1008, "This token is not valid any more.")


async def test_connections_with_a_rotated_gateway_token_are_closed(stack: Stack) -> None:
    operator, _ = await stack.fleet.tokens.create("ada", "read", None)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        async with door.connected(operator) as other:
            TokenFile(stack.home.path).rotate()

            await expect_invalid_token(client)
            assert await other.call("health")
        async with door.connected(own_token(stack)) as again:
            assert await again.call("health")


async def test_connections_close_when_their_token_expires(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "read", 1000)
    async with opened(stack) as door, door.connected(token) as client:
        await expect_invalid_token(client)


async def test_connections_of_a_replaced_agent_are_closed(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        calling(stack) as agent,
        door.connected(agent.token) as client,
    ):
        assert await client.call("sessions.search")
        await agent.lease.grant(digest(new_agent_token(agent.lease.sid)), tuple(TOOLS))

        await expect_invalid_token(client)


async def test_no_call_is_answered_after_its_token_is_revoked(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even before the next periodic check of the token."""
    monkeypatch.setattr(gateway_module, "TOKEN_CHECK_S", 3600)
    token, view = await stack.fleet.tokens.create("ada", "admin", None)
    async with opened(stack) as door, door.connected(token) as client:
        await stack.fleet.tokens.revoke(view.id)

        with pytest.raises(Refused, match="UNAUTHORIZED"):
            await client.call("sessions.write", ASK)

        await expect_invalid_token(client)
        assert await stack.fleet.sessions.list(limit=1) == []


async def test_while_redis_is_away_connections_stay_and_calls_are_refused(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "read", None)
    async with opened(stack) as door, door.connected(token) as client:
        await asyncio.to_thread(stack.redis.kill)

        with pytest.raises(Refused, match="UNAVAILABLE") as refused:
            await client.call("fleet.status")

        assert refused.value.error["retryable"]
        await asyncio.to_thread(stack.redis.start)
        assert await client.call("fleet.status")


async def test_an_ending_gateway_notifies_clients_and_lets_calls_finish(stack: Stack) -> None:
    gate, token = Gate(), own_token(stack)
    async with opened(stack, gate.handlers) as door, door.connected(token) as client:
        assert door.gateway is not None
        call = await client.begin("health")
        await eventually(lambda: gate.waiting == 1)
        ending = asyncio.create_task(door.gateway.end("stopped", within_s=HANG_S))

        assert await client.event("shutdown") == {"reason": "stopped"}
        gate.open.set()

        assert (await client.answer(call))["ok"]
        assert await client.closed() == (1012, "The gateway ends.")
        await ending


def test_every_method_that_changes_something_needs_more_than_the_scope_read() -> None:
    def is_fit(method: Method) -> bool:
        return method.effect == "none" or method.scope != "read"

    assert [name for name, method in METHODS.items() if not is_fit(method)] == []
