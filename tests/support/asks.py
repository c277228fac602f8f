"""Agents that ask people, and requests that wait for them."""

from remoteclaw.fleet.asks import Request, TurnAsks, new_id
from remoteclaw.fleet.inbound import Accepted
from tests.support.stack import Stack
from tests.support.waiting import eventually

__all__ = ["BODY", "open_request", "put_request"]

#: Asks whether it may run the command that it is sent, and says what it is told.
BODY = """
prompt = begin()
while True:
    words = prompt['params']['prompt'][0]['text'].split(chr(10))
    command = (words[-3] if words[-1].startswith('Exactly') else words[-1]).split(': ')[-1]
    text('I try.')
    say(jsonrpc='2.0', id=100, method='session/request_permission', params=dict(sessionId='s',
        toolCall=dict(toolCallId='1', title=command, kind='execute',
            rawInput=dict(command=command)),
        options=[dict(optionId=i, kind=k, name=k) for i, k in (('yes', 'allow_once'),
            ('no', 'reject_once'))]))
    got = asked()
    if got.get('method') == 'session/cancel':
        got = asked()
        answer(prompt, stopReason='cancelled')
    else:
        text(command + ' ' + got['result']['outcome'].get('optionId', '-'))
        answer(prompt, stopReason='end_turn')
    prompt = asked('session/prompt')
"""


async def open_request(stack: Stack) -> Request:
    """Wait for the one request that waits."""
    waiting: list[Request] = await eventually(stack.fleet.asks.waiting)
    return waiting[0]


async def put_request(stack: Stack, accepted: Accepted, *, tool: str, what: str) -> Request:
    """Make a request, of a turn about a message that no worker has."""
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="asks", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    request = Request(
        id=new_id(),
        session=accepted.session,
        turn=accepted.entry_id,
        tool=tool,
        what=what,
        where="/tmp",
        deliver="channel",
        people=("test:alice",),
    )
    told = await TurnAsks(lease, accepted.entry_id).ask(
        request,
        digest=request.id,
        rule=request.id,
        is_again=False,
        hold_ms=600_000,
        keep_ms=0,
        shown=None,
    )
    assert told == ("open", request.id)
    return request
