"""Who may call what: every method of the contract, every kind of principal, both doors.

What is expected stands here as a table and is not computed, so that a mistake in the policy can't
be in both. A method without a row fails.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.dispatch import Call, Handler
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.tools.catalog import METHODS, TOOLS, Method
from tests.support.doors import Door, Refused, calling, opened
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The columns of the table. Those of one session are agents: of the owner, of somebody else, of
#: somebody whose tools are limited; between turns; with a token that another one has followed; and
#: of another session of the owner's, saying that it is about the first one.
PRINCIPALS = (
    *("none", "wrong", "expired", "revoked"),
    *("read", "write", "admin"),
    *("owner", "stranger", "limited", "idle", "stale", "elsewhere"),
)
#: Y: it is answered. U: who is that? F: forbidden. N: there is no such method. T: no turn runs.
EXPECTED = {
    # ----------------- none…revoked  read write admin owner stranger limited idle stale elsewhere
    "sessions.list": "       U U U U     Y    Y     Y      Y     Y        Y     T    U     F",
    "chat.history": "        U U U U     Y    Y     Y      Y     Y        Y     T    U     F",
    "sessions.send": "       U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "sessions.spawn": "      U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "sessions.status": "     U U U U     Y    Y     Y      Y     Y        Y     T    U     F",
    "agents.list": "         U U U U     Y    Y     Y      Y     Y        Y     T    U     F",
    "sessions.subagents": "  U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "message.send": "        U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "message.reply": "       U U U U     F    Y     Y      Y     Y        Y     T    U     F",
    "message.threadReply": " U U U U     F    Y     Y      Y     Y        Y     T    U     F",
    "message.broadcast": "   U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "message.react": "       U U U U     F    Y     Y      Y     Y        Y     T    U     F",
    "message.delete": "      U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "message.sendAttachment": "U U U U   F    Y     Y      Y     Y        F     T    U     F",
    "message.sendWithEffect": "U U U U   F    Y     Y      Y     Y        F     T    U     F",
    "message.pin": "         U U U U     F    Y     Y      Y     Y        F     T    U     F",
    "message.read": "        U U U U     Y    Y     Y      Y     Y        Y     T    U     F",
    "cron.status": "         U U U U     Y    Y     Y      Y     F        F     T    U     F",
    "cron.list": "           U U U U     Y    Y     Y      Y     F        F     T    U     F",
    "cron.add": "            U U U U     F    F     Y      Y     F        F     T    U     F",
    "cron.update": "         U U U U     F    F     Y      Y     F        F     T    U     F",
    "cron.remove": "         U U U U     F    F     Y      Y     F        F     T    U     F",
    "cron.run": "            U U U U     F    F     Y      Y     F        F     T    U     F",
    "cron.runs": "           U U U U     Y    Y     Y      Y     F        F     T    U     F",
    "gateway.restart": "     U U U U     F    F     Y      Y     F        F     T    U     F",
    "config.get": "          U U U U     Y    Y     Y      Y     F        F     T    U     F",
    "config.apply": "        U U U U     F    F     Y      Y     F        F     T    U     F",
    "config.patch": "        U U U U     F    F     Y      Y     F        F     T    U     F",
    "config.schema": "       U U U U     Y    Y     Y      Y     F        F     T    U     F",
    "config.pending": "      U U U U     Y    Y     Y      F     F        F     F    U     F",
    "config.confirm": "      U U U U     F    F     Y      F     F        F     F    U     F",
    "config.reject": "       U U U U     F    F     Y      F     F        F     F    U     F",
    "health": "              U U U U     Y    Y     Y      F     F        F     F    U     F",
    "status": "              U U U U     Y    Y     Y      F     F        F     F    U     F",
    "tools.catalog": "       U U U U     Y    Y     Y      F     F        F     F    U     F",
    "agent": "               U U U U     F    Y     Y      F     F        F     F    U     F",
    "agent.wait": "          U U U U     Y    Y     Y      F     F        F     F    U     F",
    "sessions.stop": "       U U U U     F    Y     Y      F     F        F     F    U     F",
    "sessions.reset": "      U U U U     F    F     Y      F     F        F     F    U     F",
    "sessions.subscribe": "  U U U U     Y    Y     Y      F     F        F     F    U     F",
    "sessions.unsubscribe": "U U U U     Y    Y     Y      F     F        F     F    U     F",
}
#: What each method needs to be called; nothing where it isn't here.
JOB = {"name": "j", "schedule": {"every": 60}, "message": "m"}
PARAMS: dict[str, dict[str, Any]] = {
    "chat.history": {"sessionKey": "k"},
    "sessions.send": {"sessionKey": "k", "message": "m"},
    "sessions.spawn": {"prompt": "p"},
    "message.send": {"target": "t", "message": "m"},
    "message.reply": {"message": "m"},
    "message.threadReply": {"message": "m", "threadId": "1"},
    "message.broadcast": {"targets": ["t"], "message": "m"},
    "message.react": {"emoji": "+", "messageId": "1"},
    "message.delete": {"messageId": "1"},
    "message.sendAttachment": {"target": "t", "file": "f"},
    "message.sendWithEffect": {"target": "t", "message": "m", "effectId": "e"},
    "message.pin": {"messageId": "1"},
    "cron.add": {"job": JOB},
    "cron.update": {"jobId": "0" * 16, "updates": {"enabled": False}},
    "cron.remove": {"jobId": "0" * 16},
    "config.apply": {"config": {}, "baseHash": "0" * 64},
    "config.patch": {"patches": {}},
    "config.confirm": {"id": "0" * 12},
    "config.reject": {"id": "0" * 12},
    "cron.run": {"jobId": "0" * 16},
    "agent": {"message": "m", "channel": "c", "from": "f"},
    "agent.wait": {"runId": "0-1-1"},
    "sessions.stop": {"sessionKey": "k"},
    "sessions.reset": {"sessionKey": "k"},
    "sessions.subscribe": {"sessionKey": "k"},
    "sessions.unsubscribe": {"sessionKey": "k"},
}
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
    return EXPECTED[method].split()[PRINCIPALS.index(principal)]


@contextlib.asynccontextmanager
async def token_of(stack: Stack, principal: str) -> AsyncIterator[tuple[str | None, str | None]]:
    """Yield the token of a principal, and the session that its calls name."""
    tokens = stack.fleet.tokens
    if principal in ("none", "wrong"):
        yield {"none": None, "wrong": "0" * 64}[principal], None
    elif principal in ("read", "write", "admin"):
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
    assert set(EXPECTED) == set(METHODS)
    assert all(len(row.split()) == len(PRINCIPALS) for row in EXPECTED.values())


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_over_websocket(stack: Stack, principal: str) -> None:
    stack.configure(channels=CHANNELS)
    async with token_of(stack, principal) as (token, session), opened(stack, REACHED) as door:
        beside = {"sessionKey": session} if session else {}
        found = {}
        try:
            async with door.connected(token or "") as client:
                for name in METHODS:
                    with pytest.raises(Refused) as refused:
                        await client.call(name, PARAMS.get(name), **beside)
                    found[name] = CODES[refused.value.code]
        except Refused as refusal:
            found = dict.fromkeys(METHODS, CODES[refusal.code])

    assert found == {name: expected(name, principal) for name in METHODS}


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_over_http(stack: Stack, principal: str) -> None:
    """Only tools can be called there; for the rest it is as if there were none."""
    stack.configure(channels=CHANNELS)
    async with token_of(stack, principal) as (token, session), opened(stack, REACHED) as door:
        beside = {"sessionKey": session} if session else {}
        found = {}
        for method in METHODS.values():
            await _forget_failures(door)
            name = method.tool or method.name
            answer = await door.invoke(token, name, PARAMS.get(method.name), **beside)
            found[method.name] = CODES[answer.code]

    def wanted(method: Method) -> str:
        code = expected(method.name, principal)
        return code if method.tool or code == "U" else "N"

    assert found == {method.name: wanted(method) for method in METHODS.values()}


async def _forget_failures(door: Door) -> None:
    """Let as many wrong tokens be tried as there are methods."""
    assert door.gateway is not None
    door.gateway.authenticator.attempts._failures.clear()
