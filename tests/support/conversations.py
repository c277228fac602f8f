"""Conversations with an agent that repeats its messages, the current one and the earlier ones."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.session.drain import Drain
from tests.support.stack import Stack, said
from tests.support.waiting import eventually

#: An agent that replies with its message and the earlier ones, and writes each prompt to a file.
#: `wait` makes it wait for the file `go` and read messages meanwhile, `deaf` makes it wait without
#: reading, and `die` ends it. An aside begins with the verdict that the agent gives, as in
#: `answered two`, or with a fault: `untagged` (no tag), `forged` (a wrong tag), `silent` (no
#: answer), `slow` (an answer after the turn, once the file `later` exists), `failed`, or `fatal`
#: (the agent ends).
AGENT = """
import re, select
late = []
def aside(message):
    with open('asides', 'a') as asides: asides.write(message['prompt'] + chr(10))
    header, _, asked = message['prompt'].partition(chr(10) + chr(10))
    verdict, _, text = asked.partition(' ')
    if verdict == 'silent': return
    if verdict == 'slow':
        late.append(message | {'prompt': header + chr(10) * 2 + 'answered ' + text})
        return
    if verdict == 'fatal': os._exit(3)
    if verdict == 'failed': return say(type='aside', id=message['id'], error='it failed')
    said = 'beside: ' + text if text else ''
    key = re.search('answered:([0-9a-f]+)', header)[1]
    tag = {'untagged': '', 'forged': '[[answered:00]]'}.get(verdict, f'[[{verdict}:{key}]]')
    say(type='aside', id=message['id'], text=said + chr(10) + tag)
pipe = open(0, 'rb', buffering=0, closefd=False)
def turn():
    line = pipe.readline()
    if not line: sys.exit()
    return json.loads(line)
file = 'said-' + sys.argv[2]
def words(message):
    with open('prompts', 'a') as prompts: prompts.write(message['prompt'] + chr(10))
    return [line for line in message['prompt'].splitlines() if line and line[0] != '[']
while True:
    message = turn()
    if message['type'] == 'steer':
        say(type='refused', id=message['id'])
        continue
    if message['type'] == 'interrupt':
        continue
    if message['type'] == 'aside':
        aside(message)
        while late: aside(late.pop())
        continue
    asked = words(message)
    known = open(file).read().split(chr(10))[:-1] if os.path.exists(file) else []
    with open(file, 'a') as before: before.writelines(line + chr(10) for line in asked)
    say(type='text', text='heard ' + ' + '.join(asked) + ', knew ' + (' + '.join(known) or '-'))
    while 'deaf' in asked and not os.path.exists('go'):
        time.sleep(0.005)
    while 'wait' in asked and not os.path.exists('go'):
        time.sleep(0.005)
        if select.select([0], [], [], 0)[0]:
            message = turn()
            if message['type'] == 'aside':
                aside(message)
                continue
            if message['type'] == 'steer':
                say(type='steered', id=message['id'])
                joined = words(message)
                if 'die' in joined: os._exit(3)
                say(type='text', text=' & '.join(['', *joined]))
                continue
            say(type='done', aborted=True)
            break
    else:
        say(type='done')
        while late and not os.path.exists('later'): time.sleep(0.005)
        while late: aside(late.pop())
"""


def configure(stack: Stack, **sections: Any) -> None:
    queue = {"debounce_ms": 0, **sections.pop("queue", {})}
    stack.configure(stack.agent, queue=queue, **sections)


def drain(stack: Stack, accepted: Accepted) -> "asyncio.Task[None]":
    """Run the session here, as a work-horse would."""
    worker = Drain(stack.fleet, load_config(stack.home.config_file, {}), stack.home, Hooks())
    return asyncio.create_task(worker.run(accepted.session.sid))


async def append(stack: Stack, *texts: str, **fields: Any) -> list[Accepted]:
    return [await stack.append(text, **fields) for text in texts]


async def answers(stack: Stack, *accepted: Accepted) -> list[str]:
    return [said(await stack.outcome(each)) for each in accepted]


async def talk(stack: Stack, *texts: str, **fields: Any) -> list[str]:
    """Send messages one after another, and return the replies."""
    replies = []
    for text in texts:
        accepted = await stack.append(text, **fields)
        await drain(stack, accepted)
        replies += await answers(stack, accepted)
    return replies


async def busy(
    stack: Stack, text: str = "wait", **fields: Any
) -> tuple[Accepted, "asyncio.Task[None]"]:
    """Start a turn that runs until the test lets it go on; return its message and its drain."""
    first = await stack.append(text, **fields)
    task = drain(stack, first)
    await stack.reached(first, "output")
    return first, task


@contextlib.asynccontextmanager
async def dying(stack: Stack, first: Accepted, *rest: Accepted, **how: Any) -> AsyncIterator[Lease]:
    """Serve a session like a worker that is killed during a turn for the messages.

    `how` are arguments of `begin()`. The lease ends at exit.
    """
    lease = await stack.fleet.leases.acquire(first.session.sid, worker="dead", host="here")
    assert lease is not None
    assert await lease.turns.begin([each.entry_id for each in (first, *rest)], **how)
    yield lease
    await stack.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)


def go(stack: Stack) -> None:
    workspace = stack.home.path / "workspaces" / "main"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "go").touch()


def prompts(stack: Stack) -> str:
    """Return all prompts that agents have received."""
    return (stack.home.path / "workspaces" / "main" / "prompts").read_text()


async def recorded(stack: Stack, accepted: Accepted) -> list[str]:
    """Return the texts of people in the record."""
    lines = (await stack.fleet.records.of(accepted.session.sid)).splitlines()
    return [line["text"] for line in map(json.loads, lines) if line["role"] == "user"]


async def ended(stack: Stack, accepted: Accepted) -> list[str]:
    """Return the texts of people in the archived conversations, newest first."""
    client, name = stack.fleet.scripts.client, keys.archive(accepted.session.sid)
    lines: Any = await client.lrange(name, 0, -1)
    records: Any = [await client.get(f"{name}:{line.decode().split()[0]}") for line in lines]
    return [json.loads(record.splitlines()[0])["text"] for record in records]


async def renewed(stack: Stack, accepted: Accepted, *, times: int) -> None:
    """Wait until a session's lease was renewed `times` times."""
    seen: set[object] = set()

    async def is_renewed() -> bool:
        name = keys.state(accepted.session.sid)
        seen.add(await stack.fleet.scripts.client.hget(name, "lease_until_ms"))
        return len(seen) > times

    await eventually(is_renewed)


IDLE_2_H = {"sessions": {"reset": {"idle_minutes": 120}}}


async def passed(stack: Stack, accepted: Accepted, hours: float) -> None:
    """Move a session's last message from a person back by `hours`."""
    client, name = stack.fleet.scripts.client, keys.state(accepted.session.sid)
    heard: Any = await client.hget(name, "last_heard_ms")
    await client.hset(name, "last_heard_ms", int(heard) - int(hours * 3_600_000))


async def answered(stack: Stack, text: str, **fields: Any) -> Accepted:
    accepted = await stack.append(text, **fields)
    await drain(stack, accepted)
    await stack.outcome(accepted)
    return accepted
