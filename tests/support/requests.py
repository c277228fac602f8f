"""Agents that make requests to people, and open requests."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from remoteclaw import commands
from remoteclaw.commands.answers import answer_request
from remoteclaw.commands.call import CommandCall
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.requests.request import Change, Request, Verdict, new_id
from remoteclaw.fleet.requests.turn_requests import TurnRequests
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.messages import SessionKey
from tests.support.conversations import drain
from tests.support.stack import Stack
from tests.support.waiting import eventually

OWNER = "alice"

#: An agent that asks whether it may run the command in each message, and replies with the answer.
#: It writes allowed commands to the file `runs`. LONG in a command stands for 200 KB.
BODY = """
prompt = begin()
while True:
    words = prompt['params']['prompt'][0]['text'].split(chr(10))
    is_granted = words[-1].startswith('You may do exactly')
    command = (words[-3] if is_granted else words[-1]).split(': ')[-1]
    text('I try.')
    say(jsonrpc='2.0', id=100, method='session/request_permission', params=dict(sessionId='s',
        toolCall=dict(toolCallId='1', title=command, kind='execute',
            rawInput=dict(command=command.replace('LONG', 'x ' * 100_000 + '.'))),
        options=[dict(optionId=i, kind=k, name=k) for i, k in (('yes', 'allow_once'),
            ('no', 'reject_once'))]))
    got = asked()
    if got.get('method') == 'session/cancel':
        got = asked()
        answer(prompt, stopReason='cancelled')
    else:
        told = got['result']['outcome'].get('optionId', '-')
        if told == 'yes':
            with open('runs', 'a') as runs:
                runs.write(command + chr(10))
        text(command + ' ' + told)
        answer(prompt, stopReason='end_turn')
    prompt = asked('session/prompt')
"""

DATABASE = {
    "question": "Which DB?",
    "header": "DB",
    "multiSelect": False,
    "options": [
        {"label": "Postgres", "description": "a server"},
        {"label": "SQLite", "description": "a file"},
    ],
}
COLOURS = {
    "question": "Which colours?",
    "header": "Look",
    "multiSelect": True,
    "options": [{"label": name, "description": ""} for name in ("red", "green", "blue")],
}
#: A claude that asks both questions once, and repeats the answers. If a message is an answer, it
#: replies so.
QUESTIONS = f"""
while True:
    message = heard()
    echo(message)
    words = message['message']['content'][0]['text']
    if 'is answered by' in words:
        result(words)
        continue
    asked = dict(questions={[DATABASE, COLOURS]!r})
    say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',
        tool_name='AskUserQuestion', input=asked))
    told = heard('control_response')['response']['response']
    result(told.get('message') or json.dumps(told['updatedInput']['answers']))
"""


async def open_request(stack: Stack) -> Request:
    """Wait until exactly one request is open, and return it."""
    waiting: list[Request] = await eventually(stack.fleet.requests.waiting)
    return waiting[0]


async def asking(
    stack: Stack, text: str, **fields: Any
) -> tuple[Accepted, "asyncio.Task[None]", Request]:
    """Run an agent on a message until it makes a request; return message, drain and request."""
    accepted = await stack.append(text, **fields)
    return accepted, drain(stack, accepted), await open_request(stack)


def change_request(session: SessionKey) -> Request:
    """Return a request for a change of the configuration, on a host that does not exist."""
    change = Change(
        host="here",
        patch={"queue": {"cap": 5}},
        base="",
        after="",
        changed=["queue.cap"],
        needs_restart=[],
    )
    return Request(
        id=new_id(),
        session=session,
        turn="1-1",
        tool="gateway_config_patch",
        what="+queue.cap = 5",
        where="here",
        deliver="channel",
        here=session.place,
        people=("test:alice",),
        change=change,
    )


async def put_request(
    stack: Stack, accepted: Accepted, *, tool: str, what: str, choices: Sequence[str] = ()
) -> Request:
    """Store a request of a turn for a message that no worker has taken."""
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="requests", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    requests = TurnRequests(lease, accepted.entry_id)
    return await put_in(requests, accepted, tool=tool, what=what, choices=choices)


async def put_in(
    requests: TurnRequests,
    accepted: Accepted,
    *,
    tool: str,
    what: str,
    choices: Sequence[str] = (),
    is_plan: bool = False,
) -> Request:
    """Store a request in a running turn; with `choices`, a multiple-choice question."""
    request = Request(
        id=new_id(),
        session=accepted.session,
        turn=accepted.entry_id,
        tool=tool,
        what=what,
        where="/tmp",
        deliver="channel",
        here=accepted.session.place,
        people=(f"{accepted.session.place.provider}:alice",),
        is_question=bool(choices),
        choices=choices,
        is_multiple=bool(choices),
        is_plan=is_plan,
        offers_edits=is_plan,
    )
    told = await requests.ask(
        request,
        holders=[["*"]],
        digest=request.id,
        rule=request.id,
        is_again=False,
        hold_ms=600_000,
        keep_ms=0,
        shown=None,
    )
    assert told == ("open", request.id)
    return request


async def answered(
    stack: Stack, request: Request, verdict: Verdict, *, by: str = OWNER, words: str = ""
) -> str:
    """Answer a request as a person in the chat, and return the reply to that person."""
    told = await answer_request(
        stack.fleet.requests,
        stack.home,
        load_config(stack.home.config_file, {}),
        request,
        verdict,
        by=f"test:{by}",
        name=by,
        is_owner=by == OWNER,
        words=words,
    )
    return told.text


async def sooner(stack: Stack, request: Request) -> None:
    """End the time for which the turn waits for an answer."""
    client = stack.fleet.scripts.client
    await client.zadd(keys.REQUESTS, {request.id: 1})
    await stack.fleet.requests.expire_due()
    await client.publish(keys.bell(request.session.sid), "")


async def newest(stack: Stack, accepted: Accepted) -> Outcome:
    """Return the outcome of a session's newest entry."""
    client: Any = stack.fleet.scripts.client
    entry = await client.hget(keys.state(accepted.session.sid), "last_entry")
    assert entry is not None
    return await stack.outcome(replace(accepted, entry_id=entry.decode()))


async def shown(stack: Stack) -> AsyncIterator[str]:
    """Yield the texts of the replies on the chat's reply stream."""
    client: Any = stack.fleet.scripts.client
    for _, fields in await client.xrange(keys.replies("test", "default")):
        yield orjson.loads(fields[b"reply"])["text"]


async def next_request(stack: Stack, after: Request) -> Request:
    """Wait for the request that follows `after`."""

    async def there() -> list[Request]:
        return [one for one in await stack.fleet.requests.waiting() if one.id != after.id]

    waiting: list[Request] = await eventually(there)
    return waiting[0]


async def write(stack: Stack, accepted: Accepted, text: str, reply_to: str = "") -> str | None:
    """Write in the chat as its owner; return the answer, or None if the agent gets the message."""
    taken = await commands.handle_message(
        text,
        lambda rest: CommandCall(
            id=uuid.uuid4().hex,
            arguments=rest,
            session=accepted.session,
            sender="alice",
            reply_to=reply_to,
            is_owner=True,
            fleet=stack.fleet,
            config=load_config(stack.home.config_file, {}),
            home=stack.home,
        ),
        has_files=False,
    )
    return taken.reply.text if taken.reply else None


async def cut_off(stack: Stack, accepted: Accepted, task: "asyncio.Task[None]") -> None:
    """End the worker of a turn as if it had died."""
    task.cancel()
    await asyncio.wait((task,))
    await stack.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)
