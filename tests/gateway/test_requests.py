"""Requests of agents over the gateway: operators receive and answer them."""

from typing import Any

import pytest

from remoteclaw.commands.allow_deny import NEEDS_ADMIN
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.methods import HANDLERS
from tests.support.doors import opened, own_token
from tests.support.requests import put_request
from tests.support.stack import Stack
from tests.support.turns import gateway, operator


async def test_subscribers_of_a_session_receive_open_and_new_requests(stack: Stack) -> None:
    accepted = await stack.append("hello")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        subscribed = {"sessionKey": accepted.session.sid}
        await client.call("sessions.subscribe", subscribed)
        request = await put_request(stack, accepted, tool="Bash", what="touch x")

        event = await client.event("session.request")
        assert (event["id"], event["what"], event["state"]) == (request.id, "touch x", "open")
        assert event["sessionKey"] == str(accepted.session)

        async with door.connected(own_token(stack)) as late:
            await late.call("sessions.subscribe", subscribed)
            assert (await late.event("session.request"))["id"] == request.id


async def test_an_operator_answers_a_request_once_and_can_read_the_answer(stack: Stack) -> None:
    request = await put_request(stack, await stack.append("hello"), tool="Bash", what="touch x")
    dispatcher = gateway(stack.fleet, stack.home, dict(HANDLERS))

    async def call(method: str, **params: Any) -> Any:
        return (await dispatcher.call(operator(), method, params))[0].to_json()

    (waits,) = (await call("requests.list"))["requests"]
    assert waits["people"] == ["test:alice"]
    denied = await call("requests.answer", id=request.id, verdict="deny", reason="not now")
    assert denied["counts"]
    late = await call("requests.answer", id=request.id, verdict="once")

    assert (late["counts"], "“not now”" in late["detail"]) == (False, True)
    assert await call("requests.list") == {"requests": []}
    (closed,) = (await call("requests.list", all=True))["requests"]
    assert closed["answer"]["by"] == "operator"
    assert closed == await call("requests.show", id=request.id)
    with pytest.raises(CallRefused, match="There is no request 'x'"):
        await call("requests.show", id="x")


@pytest.mark.parametrize("text", ["1", "/allow"])
async def test_a_write_token_cannot_answer_on_a_persons_behalf(stack: Stack, text: str) -> None:
    stack.configure(requests={"who": ["test:bob"]})
    accepted = await stack.append("hello", from_="bob")
    await put_request(stack, accepted, tool="Bash", what="touch x")
    token, _ = await stack.fleet.tokens.create("x", "write", None)
    async with opened(stack) as door, door.connected(token) as client:
        sent = {"sessionKey": str(accepted.session), "text": text, "messageId": "m"}
        result = await client.call("chat.send", sent)

    assert result["reply"] == NEEDS_ADMIN
    assert [one.state for one in await stack.fleet.requests.waiting()] == ["open"]


async def test_an_operator_answers_a_question_by_numbers(stack: Stack) -> None:
    choices, question = ("red", "green", "blue"), "Which?\n1. red\n2. green\n3. blue"
    accepted = await stack.append("hello")
    request = await put_request(stack, accepted, tool="Ask", what=question, choices=choices)
    dispatcher = gateway(stack.fleet, stack.home, dict(HANDLERS))

    async def call(method: str, **params: Any) -> Any:
        return (await dispatcher.call(operator(), method, params))[0].to_json()

    (waits,) = (await call("requests.list"))["requests"]
    assert waits["offered"][-1] == ["deny", "No answer"]
    assert (waits["isQuestion"], waits["choices"]) == (True, list(choices))
    wrong = await call("requests.answer", id=request.id, verdict="once")
    assert (wrong["counts"], "That is a question" in wrong["detail"]) == (False, True)
    result = await call("requests.answer", id=request.id, verdict="words", reason="1, 3")
    assert result["counts"]
    answer = (await call("requests.show", id=request.id))["answer"]
    assert (answer["verdict"], answer["words"]) == ("words", "red, blue")
