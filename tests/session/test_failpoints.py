"""Kills, freezes and lost connections at every step between accepting a message and its outcome.

Each case stops a stock `rq worker` at one step (`tests/support/failpoints.py`), lets a second
message arrive, and causes a failure. At the end, both messages must have one outcome, which was
delivered once and in order, and no process may be left.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config, QueueMode, QueueOverride
from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.host import process
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Reply
from remoteclaw.session.notices import RESET, SECOND_TRY
from remoteclaw.tasks.tell import tell
from tests.support.bridges import script
from tests.support.command import REMOTECLAW, run_command, start_program
from tests.support.doors import gateway_process
from tests.support.failpoints import Failpoint, Proxy, Side
from tests.support.leases import started_task
from tests.support.processes import is_alive
from tests.support.stack import REPLIES, Stack, message
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Longer than any case lasts: otherwise another worker would take over its session.
LEASE_S = 12.0
#: For workers that are frozen until their lease has expired.
SHORT_LEASE_S = 2.0

#: An agent that writes each message to a file, uses a tool, and answers in two messages. As an
#: aside, a message that begins with a verdict gets that verdict.
AGENT = """
import re, select
def aside(message):
    word = message['prompt'].split()[-1]
    with open('asked', 'a') as asked:
        asked.write('beside-' + word + chr(10))
    key = re.search('answered:([0-9a-f]+)', message['prompt'])[1]
    verdict = re.match('answered|work|stop|branch|', word)[0] or 'later'
    say(type='aside', id=message['id'], text=f'{word} beside{chr(10)}[[{verdict}:{key}]]')
pipe = open(0, 'rb', buffering=0, closefd=False)
def turn():
    line = pipe.readline()
    if not line: sys.exit()
    return json.loads(line)
while True:
    message = turn()
    if message['type'] == 'aside':
        aside(message)
        continue
    if message['type'] != 'turn':
        say(type='refused', id=message.get('id'))
        continue
    word = message['prompt'].split()[-1]
    with open('asked', 'a') as asked:
        asked.write(word + chr(10))
    if os.path.exists('spoilt-' + sys.argv[-1]):
        say(type='done', error='refused', category='invalid_request')
        continue
    if word.startswith('spoil'):  # each further message of this conversation is refused
        open('spoilt-' + sys.argv[-1], 'w')
    if word.startswith('busy') and not os.path.exists('failed-' + word):
        open('failed-' + word, 'w')
        say(type='done', error='busy', category='retryable', retry_at_ms=time.time() * 1000 + 60000)
        continue
    filling = 1960
    if word.startswith('wait'):
        say(type='text', text=f'{word} waits. ')
        filling -= (len(word) + 9) // 2
    while word.startswith('wait') and not os.path.exists('go-' + word):
        time.sleep(0.005)
        if select.select([0], [], [], 0)[0]:
            message = turn()
            if message['type'] == 'aside':
                aside(message)
                continue
            if message['type'] == 'interrupt':
                break
            joined = message['prompt'].split()[-1]
            with open('asked', 'a') as asked:
                asked.write(joined + chr(10))
            say(type='steered', id=message['id'])
            say(type='text', text=f'{joined} joined. ')
    if message['type'] == 'interrupt':
        say(type='done', aborted=True)
        continue
    say(type='tool_use', id='1', name='look', input={})
    say(type='tool_result', id='1', output='nothing')
    say(type='text', text=f'{word} begins' + ' x' * filling)
    say(type='text', text=chr(10) * 2 + f'{word} ends')
    say(type='done')
"""

#: The steps of a first turn, in their order.
STEPS = ("acquire", "begin", "phase", "remember", "publish", "finish", "close")


class Lab:
    """Workers that reach Redis through a proxy, shared by all cases."""

    def __init__(self, stack: Stack, proxy: Proxy) -> None:
        self.stack = stack
        self.proxy = proxy
        self.workspace = stack.home.path / "workspaces" / "main"

    async def keep_workers(self) -> None:
        """Keep two workers running: RQ's workers may exit at any time after Redis was down."""
        while True:
            running = [worker for worker in self.stack.workers if worker.poll() is None]
            self.stack.workers = running
            if len(running) < 2:
                with contextlib.suppress(AssertionError, RedisUnavailable):  # Redis may be down
                    await self.stack.start_worker()
            else:
                await asyncio.sleep(0.05)

    def asked(self, word: str) -> int:
        """Return how often the agent was asked `word`."""
        return (self.workspace / "asked").read_text().split().count(word)

    async def at_work(self, mode: QueueMode) -> tuple[str, Accepted]:
        """Start a turn that waits, in a queue mode; return its word and its message."""
        word = f"wait{uuid.uuid4().hex}"
        first = await self.stack.append("hello", from_=word)
        await self.stack.outcome(first)
        await self.stack.fleet.sessions.configure(first.session, QueueOverride(mode=mode))
        await self.stack.until_idle(first)
        accepted = await self.stack.append(word, from_=word)
        await eventually(lambda: self.asked(word) == 1)
        return word, accepted

    async def replies(self, sid: str) -> list[Reply]:
        """Return the replies of one session, oldest first."""
        reader = self.stack.fleet.replies.reader("test", "default", token="the test's")
        count = await self.stack.fleet.scripts.client.xlen(REPLIES)
        stream = reader.replies()
        replies = [await anext(stream) for _ in range(count)]
        await stream.aclose()
        return [reply for reply in replies if reply.sid == sid]

    async def check_outcomes(self, first: Accepted, second: Accepted) -> None:
        """Check that both messages are done, with complete replies in order, each sent once."""
        for accepted in (first, second):
            outcome = await self.stack.outcome(accepted)
            assert outcome.status == "done"
        await self.stack.until_idle(first)
        sid = first.session.sid
        assert await self.stack.fleet.scripts.client.xlen(keys.inbound(sid)) == 0
        replies = await self.replies(sid)
        positions = [(reply.turn, reply.attempt, reply.index) for reply in replies]
        assert len(positions) == len(set(positions)), "a message was sent twice"
        finals = [reply for reply in replies if reply.is_final]
        assert [reply.entries for reply in finals] == [(first.entry_id,), (second.entry_id,)]
        assert [reply.text.split()[1] for reply in finals] == ["ends", "ends"]
        for final in finals:
            of_turn = [r for r in replies if (r.turn, r.attempt) == (final.turn, final.attempt)]
            assert [reply.index for reply in of_turn] == list(range(len(of_turn)))
            texts = [reply.text for reply in of_turn if reply.text != SECOND_TRY]
            assert len(texts) == 2
            assert texts[0].split()[0] == texts[1].split()[0], "two attempts were mixed"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    """Workers with leases that outlast every case."""
    async with laboratory(LEASE_S) as lab:
        yield lab


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def short_lab() -> AsyncIterator[Lab]:
    """Workers with leases that expire soon."""
    async with laboratory(SHORT_LEASE_S) as lab:
        yield lab


@contextlib.asynccontextmanager
async def laboratory(lease_s: float) -> AsyncIterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        directory = Path(name)
        stack = Stack(Home(directory / "home").create())
        await stack.start()
        proxy = Proxy(stack.redis.socket, directory / "proxy")
        await proxy.start()
        command = list(script(directory, AGENT))
        agent = {"runtime": "demo", "command": command}
        stack.configure(agent, lease_s=lease_s, redis_url=proxy.url)
        await stack.fleet.aclose()
        stack.reopen()
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        lab = Lab(stack, proxy)
        keeping = asyncio.create_task(lab.keep_workers())
        try:
            yield lab
        finally:
            sweeping.cancel()
            keeping.cancel()
            await proxy.stop()
            await stack.stop()


async def lose(lab: Lab, failpoint: Failpoint) -> None:
    """Break the connection, so that the command or its reply never arrives."""
    failpoint.cut()


async def kill(lab: Lab, failpoint: Failpoint) -> None:
    """Kill the work-horse, and let a sweeper of its host notice it before the lease expires."""
    os.kill(failpoint.pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(failpoint.pid))
    failpoint.cut()
    stack = lab.stack
    await stack.fleet.sweeper.release_dead(stack.home.host_id, process.is_alive)


async def end_redis(lab: Lab, failpoint: Failpoint) -> None:
    """Kill Redis, and start it again at once."""
    lab.stack.redis.kill()
    await asyncio.to_thread(lab.stack.redis.start)
    failpoint.cut()


#: A command that has not reached Redis is sent again after any failure, so only a kill is tested
#: before a step. A kill or freeze after a step equals one before the next step, so most of these
#: cases are `thorough`. A restart of Redis is always tested at the steps of a plain turn only.
#: `tests/fleet/test_lost_replies.py` tests for each script that a repetition after a lost reply
#: counts once.
CASES = [
    pytest.param(side, failure, id=f"{side}-{failure.__name__}")
    for side, failure in (("before", kill), ("after", kill), ("after", lose), ("after", end_redis))
]


@pytest.mark.thorough(*(f"{step}-after-kill" for step in STEPS[:-1]))
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", STEPS)
async def test_messages_have_one_outcome_if_a_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    word = uuid.uuid4().hex
    failpoint = lab.proxy.arm(step, side)
    first = await lab.stack.append(f"first{word}", from_=word)
    await failpoint.wait()

    second = await lab.stack.append(f"second{word}", from_=word)
    await failure(lab, failpoint)  # type: ignore[operator]

    await lab.check_outcomes(first, second)
    if failure is not kill:
        assert (lab.asked(f"first{word}"), lab.asked(f"second{word}")) == (1, 1)


@pytest.mark.thorough(*(f"{step}-after" for step in STEPS[:-1]))
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_messages_have_one_outcome_if_a_worker_freezes_past_its_lease_at(
    short_lab: Lab, step: str, side: Side
) -> None:
    lab = short_lab
    word = uuid.uuid4().hex
    failpoint = lab.proxy.arm(step, side)
    first = await lab.stack.append(f"first{word}", from_=word)
    horse = await failpoint.wait()
    second = await lab.stack.append(f"second{word}", from_=word)

    os.kill(horse, signal.SIGSTOP)
    await lab.check_outcomes(first, second)
    os.kill(horse, signal.SIGCONT)
    failpoint.release()

    await eventually(lambda: not is_alive(horse))
    await lab.check_outcomes(first, second)


@pytest.mark.thorough("end_redis", "steer-after-kill", "finish-after-lose")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["steer", "finish"])
async def test_a_joining_message_has_one_outcome_if_its_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    word, first = await lab.at_work("steer")
    sid = first.session.sid
    failpoint = lab.proxy.arm(step, side)
    second = await lab.stack.append(f"second{word}", from_=word)
    if step == "finish":
        await eventually(lambda: lab.asked(f"second{word}") == 1)
        (lab.workspace / f"go-{word}").touch()
    await failpoint.wait()
    third = await lab.stack.append(f"third{word}", from_=word)
    await failure(lab, failpoint)  # type: ignore[operator]
    (lab.workspace / f"go-{word}").touch()

    statuses = [(await lab.stack.outcome(each)).status for each in (first, second, third)]
    await lab.stack.until_idle(first)
    assert set(statuses) <= {"done", "steered"}
    assert await lab.stack.fleet.scripts.client.xlen(keys.inbound(sid)) == 0
    _, *finals = [reply.entries for reply in await lab.replies(sid) if reply.is_final]
    # Each message is answered once and in order, alone or together with others.
    answered = [entry_id for entries in finals for entry_id in entries]
    assert answered == [each.entry_id for each in (first, second, third)]
    if failure is not kill:
        assert [lab.asked(f"{which}{word}") for which in ("", "second", "third")] == [1, 1, 1]


@pytest.mark.thorough(
    *("end_redis", "aside_ask-answered-after-kill", "work-after-lose", "stop-after-lose")
)
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        ("aside_ask", "answered"),
        ("aside_end", "answered"),
        ("aside_end", "work"),
        ("aside_end", "stop"),
    ],
)
async def test_an_aside_has_one_outcome_if_its_worker_fails_at(
    lab: Lab, step: str, verdict: str, side: Side, failure: object
) -> None:
    """The message has one outcome and one answer, as an aside or in a turn."""
    word, first = await lab.at_work("aside")
    sid = first.session.sid
    failpoint = lab.proxy.arm(step, side)
    second = await lab.stack.append(f"{verdict}{word}", from_=word)
    await failpoint.wait()
    third = await lab.stack.append(f"third{word}", from_=word)
    await failure(lab, failpoint)  # type: ignore[operator]
    (lab.workspace / f"go-{word}").touch()

    statuses = [(await lab.stack.outcome(each)).status for each in (first, second, third)]
    await lab.stack.until_idle(first)
    assert statuses[0] in ("done", "stopped" if verdict == "stop" else "done")
    assert set(statuses[1:]) <= {"done", "steered"}
    assert await lab.stack.fleet.scripts.client.xlen(keys.inbound(sid)) == 0
    _, *finals = [reply for reply in await lab.replies(sid) if reply.is_final]
    answered = [entry_id for reply in finals for entry_id in reply.entries]
    assert sorted(answered) == sorted(each.entry_id for each in (first, second, third))
    assert len([reply for reply in finals if reply.is_aside]) <= (verdict == "answered")
    assert lab.asked(f"beside-{verdict}{word}") <= (2 if failure is kill else 1)


@pytest.mark.thorough("end_redis", "aside_move-after-kill", "begin-after-lose", "finish-after-lose")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["aside_move", "begin", "finish"])
async def test_a_message_moved_to_a_branch_is_answered_once_if_a_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """The failure is in the worker of the conversation or in that of the branch."""
    word, first = await lab.at_work("aside")
    sid = first.session.sid
    failpoint = lab.proxy.arm(step, side)
    second = await lab.stack.append(f"branch{word}", from_=word)
    await failpoint.wait()
    await failure(lab, failpoint)  # type: ignore[operator]
    if step == "aside_move":
        (lab.workspace / f"go-{word}").touch()
    outcome = await lab.stack.outcome(second)
    (lab.workspace / f"go-{word}").touch()

    assert (await lab.stack.outcome(first)).status == "done"
    assert outcome.status == "done"
    await lab.stack.until_idle(first)
    branches = await lab.stack.fleet.sessions.children(sid)
    assert len(branches) <= 1  # after the turn, the conversation itself may have answered it
    replies = [*await lab.replies(sid)]
    for branch in branches:
        replies += await lab.replies(branch.sid)
        assert branch.waiting == 0
    answered = [entry for reply in replies if reply.is_final for entry in reply.entries]
    assert answered.count(second.entry_id) == 1
    assert await lab.stack.fleet.scripts.client.xlen(keys.inbound(sid)) == 0
    if failure is not kill:
        assert lab.asked(f"branch{word}") == 1


@pytest.mark.thorough("end_redis", "renew-after-kill")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["renew", "live"])
async def test_messages_have_one_outcome_if_a_worker_fails_in_a_long_turn_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    word = f"wait{uuid.uuid4().hex}"
    failpoint = lab.proxy.arm(step, side)
    first = await lab.stack.append(word, from_=word)
    await failpoint.wait()

    second = await lab.stack.append(f"second{word}", from_=word)
    await failure(lab, failpoint)  # type: ignore[operator]
    (lab.workspace / f"go-{word}").touch()

    await lab.check_outcomes(first, second)
    if failure is not kill:
        assert (lab.asked(word), lab.asked(f"second{word}")) == (1, 1)


@pytest.mark.thorough("end_redis")
@pytest.mark.parametrize(("side", "failure"), CASES)
async def test_messages_have_one_outcome_if_a_leaving_worker_fails_at_its_release(
    lab: Lab, side: Side, failure: object
) -> None:
    """A worker that is terminated during a turn returns the waiting messages."""
    word = f"wait{uuid.uuid4().hex}"
    first = await lab.stack.append(word, from_=word)
    await lab.stack.reached(first, "output")
    second = await lab.stack.append(f"second{word}", from_=word)
    failpoint = lab.proxy.arm("release", side)
    client = lab.stack.fleet.scripts.client
    for worker in lab.stack.workers:
        worker.terminate()

    async def is_leaving() -> bool:
        names = [name async for name in client.scan_iter("rq:worker:*")]
        return any([await client.hexists(name, "shutdown_requested_date") for name in names])

    await eventually(is_leaving)
    (lab.workspace / f"go-{word}").touch()
    await failpoint.wait()
    await failure(lab, failpoint)  # type: ignore[operator]

    await lab.check_outcomes(first, second)
    assert (lab.asked(word), lab.asked(f"second{word}")) == (1, 1)


@pytest.mark.thorough("end_redis")
@pytest.mark.parametrize(("side", "failure"), CASES)
async def test_messages_have_one_outcome_if_a_worker_fails_as_it_postpones_a_turn(
    lab: Lab, side: Side, failure: object
) -> None:
    word = f"busy{uuid.uuid4().hex}"
    failpoint = lab.proxy.arm("postpone", side)
    first = await lab.stack.append(word, from_=word)
    await failpoint.wait()
    await failure(lab, failpoint)  # type: ignore[operator]

    async def is_postponed_or_done() -> bool:
        view = await lab.stack.fleet.sessions.view(first.session.sid)
        outcome = await lab.stack.fleet.outcomes.read(first.session.sid, first.entry_id)
        return bool((view and view.postponed) or (outcome and outcome.is_final))

    await eventually(is_postponed_or_done)
    sid, client = first.session.sid, lab.stack.fleet.scripts.client
    await client.hdel(keys.state(sid), "postponed_until_ms")  # the pause is over
    await client.zadd(keys.ACTIVE, {sid: 1}, xx=True)
    second = await lab.stack.append(f"second{word}", from_=word)

    await lab.check_outcomes(first, second)
    texts = [reply.text for reply in await lab.replies(first.session.sid)]
    assert len([text for text in texts if text.startswith("The model is busy.")]) <= 1
    if failure is not kill:
        assert (lab.asked(word), lab.asked(f"second{word}")) == (2, 1)


@pytest.mark.thorough("end_redis", "begin", "phase", "finish-after-kill", "after-lose")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["begin", "phase", "finish", "close"])
async def test_the_result_of_a_task_arrives_once_if_its_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """The session that started the task gets its result once."""
    word = uuid.uuid4().hex
    parent = SessionKey("main", "test", "default", "chat-1", word)
    task = message(f"first{word}", from_=word)
    failpoint = lab.proxy.arm(step, side)
    child, entry_id = await started_task(lab.stack.fleet, parent, task, call=word)
    await failpoint.wait()
    await failure(lab, failpoint)  # type: ignore[operator]

    outcome = await lab.stack.outcome(Accepted(child, entry_id, False))
    assert outcome.status == "done"
    await lab.stack.until_idle(Accepted(child, entry_id, False))

    async def has_processed_result() -> bool:
        view = await lab.stack.fleet.sessions.view(parent.sid)
        return view is not None and view.status == "idle" and bool(view.last_entry)

    await eventually(has_processed_result)
    recorded = (await lab.stack.fleet.records.of(parent.sid)).splitlines()
    (result,) = [line["text"] for line in map(orjson.loads, recorded) if line["role"] == "user"]
    assert result.endswith(f"first{word} ends")
    assert [reply.is_final for reply in await lab.replies(parent.sid)].count(True) == 1
    assert await lab.replies(child.sid) == []
    if failure is not kill:
        assert lab.asked(f"first{word}") == 1


@pytest.mark.thorough("end_redis", "steer-after-kill", "finish-after-lose")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["steer", "finish"])
async def test_a_message_to_a_task_is_in_one_result_if_its_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """Each message to the task is in exactly one of its results."""
    word, fleet = f"wait{uuid.uuid4().hex}", lab.stack.fleet
    begun = await lab.stack.append("hello", from_=word)
    await lab.stack.outcome(begun)
    await lab.stack.until_idle(begun)
    parent = begun.session
    child, entry_id = await started_task(fleet, parent, message(word, from_=word), call=word)
    await eventually(lambda: lab.asked(word) == 1)
    views = [await fleet.sessions.view(each.sid) for each in (parent, child)]
    failpoint = lab.proxy.arm(step, side)
    if step != "steer":
        (lab.workspace / f"go-{word}").touch()
        await failpoint.wait()
    text = f"second{word}"
    sending = asyncio.create_task(
        tell(
            *(fleet.sessions, fleet.calls, fleet.task_trees, fleet.outcomes),
            *(Config(), None, f"tell-{word}"),
            text=text,
            parent=views[0],  # type: ignore[arg-type]
            child=views[1],  # type: ignore[arg-type]
            people=(),
            side_effect={},
        )
    )
    if step == "steer":
        await failpoint.wait()
    else:
        await sending
    await failure(lab, failpoint)  # type: ignore[operator]
    (lab.workspace / f"go-{word}").touch()
    runs = {entry_id, (await sending).run}

    async def results() -> list[str]:
        recorded = (await fleet.records.of(parent.sid)).splitlines()
        texts = [line["text"] for line in map(orjson.loads, recorded) if line["role"] == "user"]
        return texts[1:]

    async def has_last_result() -> bool:
        return text in "".join(await results())

    await eventually(has_last_result)
    await lab.stack.until_idle(Accepted(child, entry_id, False))
    reported = await results()
    assert len(reported) == len(runs)
    assert sum(text in result for result in reported) == 1
    assert await lab.replies(child.sid) == []
    if failure is not kill:  # a second attempt gets both messages, and answers only the last one
        assert f"{word} begins" in reported[0].replace(text, "")
        assert (lab.asked(word), lab.asked(text)) == (1, 1)


@pytest.mark.thorough(
    *("end_redis", "acquire", "begin-after", "reset-after-kill", "finish-after", "close-after-lose")
)
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["acquire", "begin", "reset", "finish", "close"])
async def test_a_conversation_ends_once_if_its_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """The end is announced once, and later messages do not continue the old conversation."""
    word = uuid.uuid4().hex
    first = await lab.stack.append(f"first{word}", from_=word)
    await lab.stack.outcome(first)
    await lab.stack.until_idle(first)
    sid, client = first.session.sid, lab.stack.fleet.scripts.client
    before = await client.hvals(keys.session_map(sid))
    failpoint = lab.proxy.arm(step, side)
    command = await lab.stack.append("/new", from_=word)
    await failpoint.wait()

    second = await lab.stack.append(f"second{word}", from_=word)
    await failure(lab, failpoint)  # type: ignore[operator]

    assert (await lab.stack.outcome(command)).status == "done"
    await lab.stack.outcome(second)
    await lab.stack.until_idle(first)
    replies = await lab.replies(sid)
    assert [reply.text for reply in replies if command.entry_id in reply.entries] == [RESET]
    assert [reply.text for reply in replies].count(RESET) == 1
    assert await client.llen(keys.archive(sid)) == 1
    archived: Any = await client.get(f"{keys.archive(sid)}:{command.entry_id}")
    assert f"first{word}".encode() in archived
    assert b"first" not in await lab.stack.fleet.records.of(sid)
    assert set(before).isdisjoint(await client.hvals(keys.session_map(sid)))


@pytest.mark.thorough("phase", "publish-before", "finish-after", "lose", "end_redis")
@pytest.mark.parametrize(("side", "failure"), CASES)
@pytest.mark.parametrize("step", ["phase", "publish", "remember", "finish"])
async def test_a_refused_conversation_is_replaced_only_by_one_that_answered_if_a_worker_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """The steps are those of the turn in the new conversation."""
    word = uuid.uuid4().hex
    first = await lab.stack.append(f"spoil{word}", from_=word)
    await lab.stack.outcome(first)
    await lab.stack.until_idle(first)
    sid, client = first.session.sid, lab.stack.fleet.scripts.client
    (before,) = await client.hvals(keys.session_map(sid))
    failpoint = lab.proxy.arm(step, side)
    second = await lab.stack.append(f"second{word}", from_=word)
    await failpoint.wait()
    (during,) = await client.hvals(keys.session_map(sid))
    await failure(lab, failpoint)  # type: ignore[operator]

    outcome = await lab.stack.outcome(second)
    third = await lab.stack.append(f"third{word}", from_=word)
    texts = [payload["text"] for payload in (await lab.stack.outcome(third)).reply]
    await lab.stack.until_idle(first)

    (after,) = await client.hvals(keys.session_map(sid))
    is_replaced = step == "finish" or (step, side) == ("remember", "after")
    assert (during != before) is is_replaced
    assert after != before
    assert outcome.status == "done"
    assert outcome.reply[-1]["text"].endswith("ends")
    assert [text.split()[-1] for text in texts] == ["x", "ends"]
    finals = [reply.entries for reply in await lab.replies(sid) if reply.is_final]
    assert finals == [(each.entry_id,) for each in (first, second, third)]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_worker_that_freezes_in_a_reset_does_not_end_the_next_conversation(
    short_lab: Lab, side: Side
) -> None:
    """When the worker continues, a new conversation has already begun."""
    lab = short_lab
    word = uuid.uuid4().hex
    first = await lab.stack.append(f"first{word}", from_=word)
    await lab.stack.outcome(first)
    await lab.stack.until_idle(first)
    sid, client = first.session.sid, lab.stack.fleet.scripts.client
    failpoint = lab.proxy.arm("reset", side)
    command = await lab.stack.append(f"/new second{word}", from_=word)
    horse = await failpoint.wait()

    os.kill(horse, signal.SIGSTOP)
    assert (await lab.stack.outcome(command)).status == "done"
    await lab.stack.until_idle(first)
    ids = await client.hvals(keys.session_map(sid))
    os.kill(horse, signal.SIGCONT)
    failpoint.release()
    await eventually(lambda: not is_alive(horse))

    assert ids
    assert await client.hvals(keys.session_map(sid)) == ids
    assert await client.llen(keys.archive(sid)) == 1
    assert lab.asked(f"second{word}") == 1


@pytest.mark.thorough("before-lose")
@pytest.mark.parametrize("failure", [lose, kill], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("step", "side"),
    [("append", "before"), ("append", "after"), ("hint", "before")],
)
async def test_a_message_is_answered_once_if_the_gateway_fails_at(
    lab: Lab, step: str, side: Side, failure: object
) -> None:
    """The gateway dies or loses its connection, and `send` sends the message again."""
    word = uuid.uuid4().hex
    argv = ["send", f"first{word}", "--from", word, "--message-id", word, "--wait", "30"]
    log = lab.stack.home.logs / "send.log"
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(gateway_process(lab.stack))
        failpoint = lab.proxy.arm(step, side)
        sending = start_program([REMOTECLAW, *argv], env=lab.stack.env(), log=log)
        await failpoint.wait()

        await failure(lab, failpoint)  # type: ignore[operator]

        if failure is kill:
            await running.enter_async_context(gateway_process(lab.stack))
        repeated = await asyncio.to_thread(run_command, *argv, env=lab.stack.env())
        assert f"first{word} ends" in repeated.stdout
        assert lab.asked(f"first{word}") == 1
        await eventually(lambda: sending.poll() is not None)
