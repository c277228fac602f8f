"""Which principal may call which method, over WebSocket and over HTTP.

`PROMISED` has a row for each method; a method without a row fails.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.doors import Refused, calling, opened
from tests.support.promised import AGENTS, OPERATORS, PROMISED, good_params
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: Callers without a valid token; `stale` is an agent whose token was replaced.
UNAUTHENTICATED = ("none", "wrong", "expired", "revoked", "stale")
#: All callers: also operators by scope, a signed token, agents by the sender of their turn, an
#: agent between turns (`idle`), and an agent that names another session (`elsewhere`).
PRINCIPALS = (*UNAUTHENTICATED, *OPERATORS, "signed", *AGENTS, "elsewhere")
CODES = {
    "UNAUTHORIZED": "U",
    "FORBIDDEN": "F",
    "NOT_FOUND": "N",
    "NO_TURN": "T",
    "UNAVAILABLE": "Y",  # the answer of the handlers below
}
CHANNELS = {"test": {"owners": ["alice"], "senders": {"lim": {"tools": {"profile": "limited"}}}}}
PEOPLE = {"stranger": "mallory", "limited": "lim"}


async def reached(_call: Call, _params: Any) -> Any:
    """Refuse each call with a code that shows that its handler was reached."""
    raise CallRefused("UNAVAILABLE", "reached")


REACHED: dict[str, Handler] = dict.fromkeys(METHODS, reached)


def expected(method: str, principal: str) -> str:
    """Return the expected code: Y reached, U unauthorized, F forbidden, T no turn runs."""
    if principal in UNAUTHENTICATED:
        return "U"
    if principal == "elsewhere":
        return "F"
    if principal == "signed":  # as an admin, with a key for terminals
        return expected(method, "terminal")
    operators, agents = PROMISED[method].rights.split()
    return dict(zip((*OPERATORS, *AGENTS), operators + agents, strict=True))[principal]


@contextlib.asynccontextmanager
async def token_of(stack: Stack, principal: str) -> AsyncIterator[tuple[str | None, str | None]]:
    """Yield the token of a principal, and the session that its calls name."""
    tokens = stack.fleet.tokens
    if principal in ("none", "wrong"):
        yield {"none": None, "wrong": "0" * 64}[principal], None
    elif principal == "signed":
        secret = secret_file(stack.home.path)
        key = {"secret_file": str(secret), "scope": "terminal"}
        stack.configure(
            {**stack.agent, "memory": True}, channels=CHANNELS, gateway={"jwt": {"cockpit": key}}
        )
        yield signed(secret, scope="admin"), None
    elif principal in OPERATORS:
        yield (await tokens.create("x", principal, None))[0], None  # type: ignore[arg-type]
    elif principal == "revoked":
        token, view = await tokens.create("x", "admin", None)
        assert await tokens.revoke(view.id)
        yield token, None
    elif principal == "expired":
        token, view = await tokens.create("x", "admin", 1)

        async def is_over() -> bool:
            found = await tokens.read(view.id)
            return found is not None and found.is_expired

        await eventually(is_over)
        yield token, None
    else:
        sender = PEOPLE.get(principal, "alice")
        async with calling(stack, from_=sender, channel_id=sender) as agent:
            session = None
            if principal == "idle":
                await agent.finish()
            elif principal == "stale":
                await agent.lease.grant(digest(new_agent_token(agent.lease.sid)), tuple(TOOLS))
            elif principal == "elsewhere":
                session = str((await stack.append("x", channel_id="other")).session)
            yield agent.token, session


def test_every_method_has_promised_rights() -> None:
    assert set(PROMISED) == set(METHODS)


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_rights_are_as_promised_over_websocket_and_http(stack: Stack, principal: str) -> None:
    stack.configure({**stack.agent, "memory": True}, channels=CHANNELS)
    async with token_of(stack, principal) as (token, session), opened(stack, REACHED) as door:
        more = {"sessionKey": session} if session else {}
        over_websocket, over_http = {}, {}
        try:
            async with door.connected(token or "") as client:
                for name in METHODS:
                    with pytest.raises(Refused) as refused:
                        await client.call(name, good_params(METHODS[name]), **more)
                    over_websocket[name] = CODES[refused.value.code]
        except Refused as refusal:
            over_websocket = dict.fromkeys(METHODS, CODES[refusal.code])
        for method in METHODS.values():
            name = method.tool or method.name
            answer = await door.invoke(token, name, good_params(method), **more)
            over_http[method.name] = CODES[answer.code]

    assert over_websocket == {name: expected(name, principal) for name in METHODS}
    assert over_http == over_websocket
