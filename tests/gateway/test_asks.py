"""Requests of agents over the gateway: operators hear of them, and answer them."""

from typing import Any

import pytest

from remoteclaw.commands.allow_deny import NEEDS_ADMIN
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.methods import HANDLERS
from tests.support.asks import put_request
from tests.support.doors import opened, own_token
from tests.support.stack import Stack
from tests.support.turns import gateway, operator


async def test_who_follows_a_session_hears_what_waits_and_what_is_asked(stack: Stack) -> None:
    accepted = await stack.append("hello")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        subscribed = {"sessionKey": accepted.session.sid}
        await client.call("sessions.subscribe", subscribed)
        request = await put_request(stack, accepted, tool="Bash", what="touch x")

        heard = await client.event("session.ask")
        assert (heard["id"], heard["what"], heard["state"]) == (request.id, "touch x", "open")
        assert heard["sessionKey"] == str(accepted.session)

        async with door.connected(own_token(stack)) as late:
            await late.call("sessions.subscribe", subscribed)
            assert (await late.event("session.ask"))["id"] == request.id


async def test_an_operator_answers_once_and_finds_what_was_answered(stack: Stack) -> None:
    request = await put_request(stack, await stack.append("hello"), tool="Bash", what="touch x")
    asked = gateway(stack.fleet, stack.home, dict(HANDLERS))

    async def call(method: str, **params: Any) -> Any:
        return (await asked.call(operator(), method, params))[0].told()

    (waits,) = (await call("asks.list"))["asks"]
    assert waits["people"] == ["test:alice"]
    denied = await call("asks.answer", id=request.id, verdict="deny", reason="not now")
    assert denied["counts"]
    late = await call("asks.answer", id=request.id, verdict="once")

    assert (late["counts"], "“not now”" in late["detail"]) == (False, True)
    assert await call("asks.list") == {"asks": []}
    (closed,) = (await call("asks.list", all=True))["asks"]
    assert closed["answer"]["by"] == "operator"
    assert closed == await call("asks.show", id=request.id)
    with pytest.raises(CallRefused, match="There is no request 'x'"):
        await call("asks.show", id="x")


@pytest.mark.parametrize("text", ["1", "/allow"])
async def test_a_token_that_may_write_can_not_answer_in_a_persons_name(
    stack: Stack, text: str
) -> None:
    stack.configure(approvals={"who": ["test:bob"]})
    accepted = await stack.append("hello", from_="bob")
    await put_request(stack, accepted, tool="Bash", what="touch x")
    token, _ = await stack.fleet.tokens.create("x", "write", None)
    async with opened(stack) as door, door.connected(token) as client:
        sent = {"sessionKey": str(accepted.session), "message": text, "messageId": "m"}
        told = await client.call("chat.send", sent)

    assert told["answer"] == NEEDS_ADMIN
    assert [one.state for one in await stack.fleet.asks.waiting()] == ["open"]


async def test_an_operator_answers_a_question_by_numbers(stack: Stack) -> None:
    choices, what = ("red", "green", "blue"), "Which?\n1. red\n2. green\n3. blue"
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what=what, choices=choices)
    asked = gateway(stack.fleet, stack.home, dict(HANDLERS))

    async def call(method: str, **params: Any) -> Any:
        return (await asked.call(operator(), method, params))[0].told()

    (waits,) = (await call("asks.list"))["asks"]
    assert waits["offered"][-1] == ["deny", "No answer"]
    assert (waits["isQuestion"], waits["choices"]) == (True, list(choices))
    wrong = await call("asks.answer", id=request.id, verdict="once")
    assert (wrong["counts"], "That is a question" in wrong["detail"]) == (False, True)
    told = await call("asks.answer", id=request.id, verdict="words", reason="1, 3")
    assert told["counts"]
    answer = (await call("asks.show", id=request.id))["answer"]
    assert (answer["verdict"], answer["words"]) == ("words", "red, blue")
