"""Who may call what: every method of the contract, every kind of principal, both doors.

`PROMISED` has a row for each method; a method without one fails.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.tools.base import Method
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.doors import Refused, calling, opened
from tests.support.promised import AGENTS, OPERATORS, PROMISED, good_params
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: Who asks, beside operators whose token is not valid. Those of one session are agents: of the
#: owner, of somebody else, of somebody whose tools are limited; between turns; with a token that
#: another one has followed; and of another session, which names the first one.
NOBODY = ("none", "wrong", "expired", "revoked", "stale")
PRINCIPALS = (*NOBODY, *OPERATORS, "signed", *AGENTS, "elsewhere")
CODES = {
    "UNAUTHORIZED": "U",
    "FORBIDDEN": "F",
    "NOT_FOUND": "N",
    "NO_TURN": "T",
    "UNAVAILABLE": "Y",  # which is what the handlers here say
}
CHANNELS = {"test": {"owners": ["alice"], "senders": {"lim": {"tools": {"profile": "limited"}}}}}
PEOPLE = {"stranger": "mallory", "limited": "lim"}


async def reached(_call: Call, _params: Any) -> Any:
    """Do nothing, but say that it would have been done."""
    raise CallRefused("UNAVAILABLE", "reached")


REACHED: dict[str, Handler] = dict.fromkeys(METHODS, reached)


def expected(method: str, principal: str) -> str:
    """Return Y: answered. U: unauthorized. F: forbidden. T: no turn runs."""
    if principal in NOBODY:
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
        stack.configure(channels=CHANNELS, gateway={"jwt": {"cockpit": key}})
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


def test_every_method_has_a_row() -> None:
    assert set(PROMISED) == set(METHODS)


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_over_websocket_and_http(stack: Stack, principal: str) -> None:
    """Over HTTP only tools can be called; for the rest it is as if there were none, as those see
    who could call most of it elsewhere.
    """
    stack.configure(channels=CHANNELS)
    async with token_of(stack, principal) as (token, session), opened(stack, REACHED) as door:
        beside = {"sessionKey": session} if session else {}
        found, over_http = {}, {}
        try:
            async with door.connected(token or "") as client:
                for name in METHODS:
                    with pytest.raises(Refused) as refused:
                        await client.call(name, good_params(METHODS[name]), **beside)
                    found[name] = CODES[refused.value.code]
        except Refused as refusal:
            found = dict.fromkeys(METHODS, CODES[refusal.code])
        asked = [one for one in METHODS.values() if one.tool or principal in ("admin", "owner")]
        for method in asked:
            name = method.tool or method.name
            answer = await door.invoke(token, name, good_params(method), **beside)
            over_http[method.name] = CODES[answer.code]

    def wanted(method: Method) -> str:
        code = expected(method.name, principal)
        return code if method.tool or code == "U" else "N"

    assert found == {name: expected(name, principal) for name in METHODS}
    assert over_http == {method.name: wanted(method) for method in asked}
