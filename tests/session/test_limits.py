"""A spent plan, a busy model and a lost network: the message waits, and is answered by itself."""

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.session.drain import Drain
from remoteclaw.session.notices import CONTEXT_LOST, NOTHING_RUNS, RESET, SECOND_TRY
from tests.conftest import shifted
from tests.support.agents import AgentCli
from tests.support.bridges import script
from tests.support.cli import run
from tests.support.command import REMOTECLAW
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import HANG_S, eventually

HOUR_MS = 3_600_000
ZONE = "Europe/Berlin"

#: An agent that fails as it is told to in a file, and answers once nothing is left there.
AGENT = """
open('starts', 'a').write('x')
while True:
    word = turn()['prompt'].split()[-1]
    open('asked', 'a').write(word + chr(10))
    failures = json.load(open('failures')) if os.path.exists('failures') else []
    if failures:
        failure = failures.pop(0)
        json.dump(failures, open('failures', 'w'))
        for event in failure.pop('first', []): say(**event)
        say(type='done', error='it failed', **failure)
        continue
    while word == 'wait' and not os.path.exists('go'): time.sleep(0.01)
    say(type='text', text=word + ' is answered'); say(type='done')
"""


class Chat:
    """A person's chat with an agent that fails as it is told to, on a clock that can be moved."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.workspace = stack.home.path / "workspaces" / "main"

    def fail(self, *failures: dict[str, Any]) -> None:
        """Have the agent fail so."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        (self.workspace / "failures").write_text(json.dumps(failures))

    def asked(self) -> list[str]:
        file = self.workspace / "asked"
        return file.read_text().split() if file.exists() else []

    def starts(self) -> int:
        file = self.workspace / "starts"
        return len(file.read_text()) if file.exists() else 0

    async def append(self, text: str, **fields: Any) -> Accepted:
        return await self.stack.append(text, timezone=ZONE, **fields)

    async def drain(self, accepted: Accepted, hooks: Hooks | None = None) -> None:
        """Serve the session, as a work-horse would."""
        config = load_config(self.stack.home.config_file, {})
        drain = Drain(self.stack.fleet, config, self.stack.home, hooks or Hooks())
        await drain.run(accepted.session.sid)

    async def hints(self) -> int:
        """Return how many hints wait, and take them away."""
        client = self.stack.fleet.scripts.client
        count = await self.stack.fleet.workers.waiting()
        await client.delete("rq:queue:agents", "rq:queue:background")
        host = self.stack.home.host_id
        await client.delete(*(f"rq:queue:{lane}@{host}" for lane in keys.LANES))
        return count

    async def let_pass(self, milliseconds: int) -> None:
        """Move the clock, and have the sweeper look."""
        await self.stack.fleet.scripts.client.incrby("test:shift", milliseconds)
        await self.stack.fleet.sweeper.sweep()

    async def said(self, user: str = "alice") -> list[str]:
        """Return what was said in the chat with a user, without the ends of turns."""
        client = self.stack.fleet.scripts.client
        found: Any = await client.xrange(REPLIES)
        replies = [json.loads(fields[b"reply"]) for _, fields in found]
        sid = SessionKey.of(message("hi", from_=user), agent="main").sid
        return [reply["text"] for reply in replies if reply["sid"] == sid and reply["text"]]

    async def status(self, accepted: Accepted) -> str:
        outcome = await self.stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
        assert outcome is not None
        return outcome.status


def limit(until_ms: int | None = None) -> dict[str, Any]:
    """Return a failure by a spent plan."""
    end = {} if until_ms is None else {"retry_at_ms": until_ms}
    return {"category": "usage_limit", **end}


def in_an_hour() -> int:
    return int(time.time() * 1000) + HOUR_MS


def busy(pause_s: float | None = None) -> dict[str, Any]:
    """Return a failure by a model that is overloaded."""
    again = {} if pause_s is None else {"retry_at_ms": int((time.time() + pause_s) * 1000)}
    return {"category": "retryable", **again}


@pytest_asyncio.fixture
async def chat(stack: Stack, directory: Path) -> AsyncIterator[Chat]:
    stack.configure({"runtime": "demo", "command": list(script(directory, AGENT))})
    await stack.fleet.aclose()
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    stack.fleet = Fleet.open(stack.redis.url, scripts=scripts)
    yield Chat(stack)


# -- a spent plan ---------------------------------------------------------------------------------


async def test_a_message_waits_for_the_end_of_a_limit_and_is_answered_then(chat: Chat) -> None:
    until = in_an_hour()
    chat.fail(limit(until))
    accepted = await chat.append("hello")
    await chat.hints()

    await chat.drain(accepted)

    (told,) = await chat.said()
    assert re.fullmatch(
        r"The plan's limit is used up\. Your message is kept, and I try again from "
        r"\w{3} \d\d \w{3}, \d\d:\d\d CES?T on; /stop drops it\.",
        told,
    )
    assert await chat.status(accepted) == "accepted"
    view = await chat.stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert (view.status, view.worker, view.waiting) == ("scheduled", None, 1)
    assert (view.postponed, view.postponed_until_ms) == ("usage_limit", until)
    assert await chat.hints() == 0

    await chat.let_pass(HOUR_MS)
    assert await chat.hints() == 1
    await chat.drain(accepted)

    assert await chat.said() == [told, "hello is answered"]
    assert (await chat.stack.outcome(accepted)).status == "done"
    assert chat.starts() == 1, "its warm agent was not used again"


async def test_at_the_console_a_limit_comes_with_the_reason(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    await chat.drain(await chat.append("hello", provider="console"))

    stream = keys.reply_stream("console", "default")
    found: Any = await chat.stack.fleet.scripts.client.xrange(stream)
    ((_, fields),) = found
    told = json.loads(fields[b"reply"])["text"]
    assert told.startswith("The plan's limit is used up (`it failed`). Your message is kept, and")


async def test_a_stray_hint_does_not_ask_before_the_time(chat: Chat) -> None:
    chat.fail(busy(3600), busy(3600))
    accepted = await chat.append("hello")
    await chat.drain(accepted)

    await chat.drain(accepted)
    await chat.let_pass(HOUR_MS // 2)
    await chat.drain(accepted)

    assert chat.asked() == ["hello"]


async def test_a_limit_that_goes_on_is_told_once_and_a_new_one_again(chat: Chat) -> None:
    until = in_an_hour()
    chat.fail(limit(until), limit(until + 1000), limit(until + 5 * HOUR_MS))
    accepted = await chat.append("hello")

    await chat.drain(accepted)
    await chat.let_pass(HOUR_MS)
    await chat.drain(accepted)
    assert len(await chat.said()) == 1
    await chat.let_pass(HOUR_MS)
    await chat.drain(accepted)

    assert len(await chat.said()) == 2
    assert chat.asked() == ["hello"] * 3


async def test_a_limit_without_an_end_is_waited_for_and_a_busy_model_behind_it(
    chat: Chat,
) -> None:
    chat.fail(*(limit() for _ in range(6)), busy(60))
    accepted = await chat.append("hello")

    for _ in range(8):
        await chat.drain(accepted)
        await chat.let_pass(HOUR_MS)

    told, busy_too, answer = await chat.said()
    assert told.startswith("The plan's limit is used up.")
    assert busy_too.startswith("The model is busy.")
    assert answer == "hello is answered"


async def test_what_comes_meanwhile_waits_behind(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    await chat.hints()

    await chat.append("second")
    await chat.append("third", id="3")
    assert (await chat.append("third", id="3")).is_duplicate

    assert await chat.hints() == 0
    (told,) = await chat.said()
    await chat.let_pass(HOUR_MS)
    await chat.drain(first)
    assert await chat.said() == [told, *(f"{n} is answered" for n in ("first", "second", "third"))]


async def test_operators_see_until_when_a_session_waits(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    accepted = await chat.append("hello")
    await chat.drain(accepted)
    sid = accepted.session.sid[:8]

    def look(*command: str) -> str:
        told = run(chat.stack, *command)
        return told.stdout + told.stderr

    for command in (["status"], ["sessions", "list"], ["sessions", "show", sid]):
        told = await asyncio.to_thread(look, *command)
        assert re.search(r"waits until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(usage_limit\)", told)
    told = await asyncio.to_thread(look, "sessions", "trace", sid)
    assert re.search(r"postponed +attempt 1 +until \S+: usage_limit", told)


@pytest.mark.usefixtures("gateway")
async def test_whoever_waits_for_the_reply_is_told_why_it_does_not_come(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    arguments = ["send", "hello", "--channel", "test", "--from", "alice", "--wait", "20"]
    send = await asyncio.create_subprocess_exec(
        REMOTECLAW, *arguments, env=chat.stack.env(), stderr=asyncio.subprocess.PIPE
    )
    session = SessionKey.of(message("hi", channel_id="alice"), agent="main")
    sessions = chat.stack.fleet.sessions
    await eventually(lambda: sessions.view(session.sid))

    await chat.drain(Accepted(session, "", is_duplicate=False))

    assert send.stderr is not None
    told = b""
    while b"asked again" not in told:
        told = await asyncio.wait_for(send.stderr.readline(), HANG_S)
    assert b"It is asked again by itself until " in told
    assert await chat.said() == [], "its reply is for the caller"
    send.kill()
    await send.wait()


# -- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["an operator's stop", "an operator's reset", "/stop", "/new"])
async def test_a_stop_wakes_a_session_that_waits(chat: Chat, how: str) -> None:
    chat.fail(limit(in_an_hour()), limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    second = await chat.append("second") if "stop" in how else first
    told = await chat.said()
    await chat.hints()

    match how:
        case "an operator's stop":
            assert await chat.stack.fleet.sessions.stop(first.session.sid) == 2
        case "an operator's reset":
            inbound = chat.stack.fleet.inbound
            await inbound.end_conversation(first.session, "reset", call="1")
        case word:
            assert (await chat.append(word)).entry_id

    assert await chat.hints() == 1
    await chat.drain(first)
    assert [await chat.status(each) for each in (first, second)] == ["stopped", "stopped"]
    answers = ["Stopped."] if second is first else ["Stopped.", "Stopped."]
    assert await chat.said() == [*told, *answers, *([RESET] if how == "/new" else [])]
    assert set(chat.asked()) == {"first"}
    await chat.drain(await chat.append("third"))
    assert chat.asked()[-1] == "third"


async def test_a_person_stops_a_running_turn(chat: Chat) -> None:
    first, second = await chat.append("wait"), await chat.append("second")
    draining = asyncio.create_task(chat.drain(first))
    await eventually(lambda: chat.asked() == ["wait"])

    stop = await chat.append("/stop")
    third = await chat.append("third")
    await draining

    statuses = [await chat.status(each) for each in (first, second, stop, third)]
    assert statuses == ["stopped", "stopped", "done", "done"]
    assert chat.asked() == ["wait", "third"]


async def test_a_stop_that_is_repeated_stops_nothing_that_came_later(chat: Chat) -> None:
    stop = await chat.append("/stop", id="1")
    later = await chat.append("later")

    assert (await chat.append("/stop", id="1")).is_duplicate

    await chat.drain(later)
    assert await chat.said() == [NOTHING_RUNS, "later is answered"]
    assert (await chat.stack.outcome(stop)).status == "done"


async def test_a_new_conversation_that_comes_while_the_turn_is_postponed(
    chat: Chat,
) -> None:
    """It finds no postponed session to wake, so the drain has to see it."""
    proxy = await chat.stack.proxied()
    chat.fail(limit(in_an_hour()))
    first = await chat.append("first")
    postponing = proxy.arm("postpone", "before")
    there, chat.stack.fleet = chat.stack.fleet, chat.stack.open_at(proxy.url)
    draining = asyncio.create_task(chat.drain(first))
    await postponing.wait()

    new = await there.inbound.append(message("/new"), agent="main")
    postponing.release()
    await draining

    chat.stack.fleet = there
    assert await chat.status(first) == "stopped"
    assert await chat.status(new) == "done"


async def test_what_only_looks_like_a_command_stops_nothing(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()), limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    told = await chat.said()

    await chat.append("/help")
    await chat.drain(first)

    assert chat.asked() == ["first"]
    assert await chat.said() == told
    view = await chat.stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.postponed == "usage_limit"


# -- a busy model ---------------------------------------------------------------------------------


async def test_a_short_pause_and_the_same_agent_is_asked_again(chat: Chat) -> None:
    chat.fail(busy())
    accepted = await chat.append("hello")

    await chat.drain(accepted)

    assert await chat.said() == ["hello is answered"]
    assert chat.asked() == ["hello", "hello"]
    outcome = await chat.stack.outcome(accepted)
    assert [step.name for step in outcome.steps].count("postponed") == 1
    assert outcome.status == "done"


async def test_a_long_pause_holds_no_worker(chat: Chat) -> None:
    chat.fail(busy(60))
    accepted = await chat.append("hello")

    await chat.drain(accepted)

    (told,) = await chat.said()
    assert told.startswith("The model is busy. Your message is kept, and I try again from ")
    other = await chat.append("hi", from_="bob")
    await chat.drain(other)
    assert await chat.said("bob") == ["hi is answered"], "a busy model is not a spent plan"
    await chat.let_pass(60_000)
    await chat.drain(accepted)
    assert await chat.said() == [told, "hello is answered"]


async def test_an_end_of_the_tries_is_told(chat: Chat) -> None:
    chat.fail(*(busy(n * 60) for n in range(1, 12)))
    accepted = await chat.append("hello")

    for _ in range(8):
        await chat.drain(accepted)
        await chat.let_pass(10 * 60_000)

    outcome = await chat.stack.outcome(accepted)
    assert outcome.status == "failed"
    assert said(outcome).startswith("The model behind main is busy.")
    assert len(await chat.said()) == 2
    assert len(chat.asked()) == 6


@pytest.mark.parametrize(
    "first",
    [
        {"type": "text", "text": "I have begun"},
        {"type": "tool_use", "id": "1", "name": "write", "input": {}},
    ],
    ids=["text", "tool"],
)
@pytest.mark.parametrize("failure", [busy(60), limit(in_an_hour())], ids=["busy", "limit"])
async def test_what_has_begun_is_not_asked_again(
    chat: Chat, first: dict[str, Any], failure: dict[str, Any]
) -> None:
    chat.fail({**failure, "first": [first]})
    accepted = await chat.append("hello")

    await chat.drain(accepted)

    assert (await chat.stack.outcome(accepted)).status == "failed"
    assert chat.asked() == ["hello"]


async def test_a_stop_ends_a_short_pause(chat: Chat) -> None:
    chat.fail(busy(8))
    accepted = await chat.append("hello")
    draining = asyncio.create_task(chat.drain(accepted))
    await chat.stack.reached(accepted, "postponed")

    await chat.append("/stop")
    await draining

    assert await chat.status(accepted) == "stopped"
    assert chat.asked() == ["hello"]


async def test_what_was_said_before_a_pause_is_not_said_again_behind_it(chat: Chat) -> None:
    first = await chat.append("first")
    await chat.drain(first)
    client = chat.stack.fleet.scripts.client
    await client.delete(keys.session_map(first.session.sid))
    chat.fail(busy(60))
    second = await chat.append("second")

    await chat.drain(second)
    await chat.let_pass(60_000)
    await chat.drain(second)

    assert (await chat.said()).count(CONTEXT_LOST) == 1
    assert (await chat.said())[-1] == "second is answered"


@pytest.mark.parametrize("pause_s", [8, 60], ids=["a worker waits", "the session waits"])
async def test_a_worker_that_is_killed_while_a_turn_waits_loses_nothing(
    stack: Stack, directory: Path, pause_s: int
) -> None:
    agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    stack.configure(agent, lease_s=2)
    stack.reopen()
    chat = Chat(stack)
    chat.fail(busy(pause_s))
    worker = await stack.start_worker()
    accepted = await chat.append("hello")
    await stack.reached(accepted, "postponed")

    worker.kill()
    await stack.start_worker()
    if pause_s == 60:  # it is not waited for here
        assert await stack.fleet.sessions.stop(accepted.session.sid) == 1
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    outcome = await stack.outcome(accepted)
    sweeping.cancel()

    texts = await chat.said()
    assert SECOND_TRY not in texts
    assert outcome.status == ("stopped" if pause_s == 60 else "done")
    assert len(texts) == len(set(texts))


# -- a conversation that is too long --------------------------------------------------------------


async def test_a_message_behind_too_long_a_conversation_is_asked_again(chat: Chat) -> None:
    first = await chat.append("first")
    await chat.drain(first)
    chat.fail({"category": "context_overflow"})
    second = await chat.append("second")

    await chat.drain(second)

    assert await chat.said() == ["first is answered", CONTEXT_LOST, "second is answered"]
    assert (await chat.stack.outcome(second)).status == "done"


async def test_a_message_that_is_too_long_in_itself_is_told(chat: Chat) -> None:
    await chat.drain(await chat.append("first"))
    chat.fail({"category": "context_overflow"}, {"category": "context_overflow"})
    second = await chat.append("second")

    await chat.drain(second)

    _, lost, failed = await chat.said()
    assert lost == CONTEXT_LOST
    assert failed.startswith("This conversation, or your message, is too long")
    assert chat.asked() == ["first", "second", "second"]


# -- a real CLI -----------------------------------------------------------------------------------


async def test_a_real_cli_at_a_busy_model_answers_in_the_end(
    stack: Stack, claude: AgentCli
) -> None:
    """The others' failures are named in `tests/contracts/test_runtimes.py`."""
    stack.configure(claude.config())
    await stack.start_worker()
    chat = Chat(stack)
    await stack.outcome(await chat.append("SAY:before"))

    # Claude repeats the request once by itself.
    accepted = await chat.append(f"HTTP:529*2 {uuid.uuid4().hex} SAY:answered")
    outcome = await stack.outcome(accepted)

    assert (outcome.status, said(outcome)) == ("done", "answered")
    assert "postponed" in [step.name for step in outcome.steps]
    assert (await chat.said())[-1] == "answered"
