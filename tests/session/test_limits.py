"""Usage limits, busy models and lost networks: the message waits and is retried automatically."""

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

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import SessionKey
from remoteclaw.session.notices import CONTEXT_LOST, NOTHING_RUNS, RESET, SECOND_TRY
from remoteclaw.session.retry import AFTER_END_MS
from tests.conftest import shifted
from tests.support.agents import AgentCli
from tests.support.bridges import claude_script, script
from tests.support.cli import run
from tests.support.command import REMOTECLAW
from tests.support.leases import opened
from tests.support.limits import AGENT, HOUR_MS, Chat, busy, in_an_hour, limit, subscribed
from tests.support.stack import Stack, message, said
from tests.support.waiting import HANG_S, eventually

#: A turn is asked again at most this long after the end of a limit.
AFTER_MS = AFTER_END_MS[1]


@pytest_asyncio.fixture
async def chat(stack: Stack, directory: Path) -> AsyncIterator[Chat]:
    stack.configure({"runtime": "demo", "command": list(script(directory, AGENT))})
    await stack.fleet.aclose()
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    stack.fleet = Fleet.open(stack.redis.url, scripts=scripts)
    yield Chat(stack)


# -- a usage limit --------------------------------------------------------------------------------


async def test_a_message_waits_for_the_end_of_a_limit_and_is_answered_then(chat: Chat) -> None:
    until = in_an_hour()
    chat.fail(limit(until))
    accepted = await chat.append("hello")
    await chat.hints()

    await chat.drain(accepted)

    (notice,) = await chat.texts()
    assert re.fullmatch(
        r"The plan's limit is used up\. Your message is kept, and I try again from "
        r"\w{3} \d\d \w{3}, \d\d:\d\d CES?T on; /stop drops it\.",
        notice,
    )
    assert await chat.status(accepted) == "accepted"
    view = await chat.stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert (view.status, view.worker, view.waiting) == ("scheduled", None, 1)
    assert view.postponed == "usage_limit"
    assert until + AFTER_END_MS[0] <= (view.postponed_until_ms or 0) <= until + AFTER_MS
    assert await chat.hints() == 0

    await chat.let_pass(HOUR_MS + AFTER_MS)
    assert await chat.hints() == 1
    await chat.drain(accepted)

    assert await chat.texts() == [notice, "hello is answered"]
    assert (await chat.stack.outcome(accepted)).status == "done"
    assert chat.starts() == 1, "its warm agent was not used again"


#: A program with claude's protocol: a request of its model meets a limit; the one of the next
#: process is answered.
LIMITED = """
def asked(**more):
    tokens = dict(input_tokens=100, output_tokens=1)
    say(type='stream_event', event=dict(type='message_start', message=dict(usage=tokens)))
    totals['inputTokens'] += 100
    result('limit' if more else 'hello', total_cost_usd=totals['inputTokens'] / 1e6,
        modelUsage=dict(m=totals), **more)
totals = dict(inputTokens=0)
echo(heard())
if not os.path.exists('refused'):
    open('refused', 'w')
    say(type='rate_limit_event', rate_limit_info=dict(status='rejected', rateLimitType='five_hour',
        resetsAt=time.time() + 3600, isUsingOverage=False))
    asked(is_error=True, api_error_status=429)
    heard()
delta('hello')
asked()
heard()
"""


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_postponed_turn_counts_what_it_has_used_so_far(
    chat: Chat, directory: Path, is_stopped: bool
) -> None:
    """At once, and only once: not again in the attempt that answers it, or when it is stopped."""
    chat.stack.configure({"runtime": "claude", "command": list(claude_script(directory, LIMITED))})
    accepted = await chat.append("hello")
    await chat.drain(accepted)
    assert (await chat.stack.fleet.usage.agents())["main"].input_tokens == 100

    if is_stopped:
        await chat.stack.fleet.sessions.stop(accepted.session.sid)
    await chat.let_pass(HOUR_MS + AFTER_MS)
    await chat.drain(accepted)

    outcome = await chat.stack.outcome(accepted)
    used = (await chat.stack.fleet.usage.agents())["main"]
    assert outcome.status == ("stopped" if is_stopped else "done")
    assert outcome.usage == used
    asked = 1 if is_stopped else 2
    assert (used.turns, used.input_tokens) == (1, asked * 100)
    assert used.cost_usd == asked * 100 / 1e6


async def test_a_persons_own_chat_shows_the_reason_for_a_limit(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    await chat.drain(await chat.append("hello", provider="web"))

    stream = keys.replies("web", "default")
    entries: Any = await chat.stack.fleet.scripts.client.xrange(stream)
    ((_, fields),) = entries
    notice = json.loads(fields[b"reply"])["text"]
    assert notice.startswith("The plan's limit is used up (`it failed`). Your message is kept, and")


async def test_a_stray_hint_does_not_retry_a_postponed_turn_early(chat: Chat) -> None:
    chat.fail(busy(3600), busy(3600))
    accepted = await chat.append("hello")
    await chat.drain(accepted)

    await chat.drain(accepted)
    await chat.let_pass(HOUR_MS // 2)
    await chat.drain(accepted)

    assert chat.asked() == ["hello"]


async def test_a_continuing_limit_is_reported_once_and_a_new_one_again(chat: Chat) -> None:
    until = in_an_hour()
    chat.fail(limit(until), limit(until + 1000), limit(until + 5 * HOUR_MS))
    accepted = await chat.append("hello")

    await chat.drain(accepted)
    await chat.let_pass(HOUR_MS + AFTER_MS)
    await chat.drain(accepted)
    assert len(await chat.texts()) == 1
    await chat.let_pass(HOUR_MS + AFTER_MS)
    await chat.drain(accepted)

    assert len(await chat.texts()) == 2
    assert chat.asked() == ["hello"] * 3


async def test_a_limit_that_goes_on_after_its_end_is_asked_again_soon_and_reported_once(
    chat: Chat,
) -> None:
    """The provider names no other end. The person is told when the promise is minutes late."""
    end = int(time.time() * 1000) - 1000
    chat.fail(limit(end), *(limit() for _ in range(5)))
    accepted = await chat.append("hello")
    notices, pauses_s = [], []
    for _ in range(6):
        await chat.drain(accepted)
        view = await chat.stack.fleet.sessions.view(accepted.session.sid)
        assert view is not None
        pauses_s.append((view.postponed_until_ms or 0) / 1000 - time.time())
        notices.append(len(await chat.texts()))
        await chat.let_pass(HOUR_MS)
    await chat.drain(accepted)

    for pause_s, expected_s in zip(pauses_s, (15, 15, 60, 300, 1800, 1800), strict=True):
        assert expected_s - 1 < pause_s <= expected_s * 1.2
    assert notices == [1, 1, 1, 2, 2, 2]
    assert (await chat.texts())[-1] == "hello is answered"


@pytest.mark.thorough("claude")
@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_real_cli_answers_soon_after_a_limit_that_ends_later_than_announced(
    stack: Stack, chat: Chat, name: str, request: pytest.FixtureRequest
) -> None:
    """Its clock is a second ahead of the provider's. The other CLIs know no end of a limit."""
    cli = request.getfixturevalue(name)
    stack.configure(subscribed(cli) if name == "claude" else cli.config())
    accepted = await chat.append("RETRYAFTER:-1 HTTP:429:limit*2 SAY:answered")
    for _ in range(2):
        await chat.drain(accepted)
        assert await chat.status(accepted) == "accepted"
        await chat.let_pass(18_000)
    await chat.drain(accepted)

    outcome = await stack.outcome(accepted)
    assert (outcome.status, said(outcome)) == ("done", "answered")
    assert len(await chat.texts()) == 2


async def test_a_limit_without_a_known_end_does_not_use_up_the_retries_for_a_busy_model(
    chat: Chat,
) -> None:
    chat.fail(*(limit() for _ in range(6)), busy(60))
    accepted = await chat.append("hello")

    for _ in range(8):
        await chat.drain(accepted)
        await chat.let_pass(HOUR_MS)

    limit_notice, busy_notice, answer = await chat.texts()
    assert limit_notice.startswith("The plan's limit is used up.")
    assert busy_notice.startswith("The model is busy.")
    assert answer == "hello is answered"


async def test_messages_that_arrive_during_a_limit_wait_in_order(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    await chat.hints()

    await chat.append("second")
    await chat.append("third", id="3")
    assert (await chat.append("third", id="3")).is_duplicate

    assert await chat.hints() == 0
    (notice,) = await chat.texts()
    await chat.let_pass(HOUR_MS + AFTER_MS)
    await chat.drain(first)
    assert await chat.texts() == [
        notice,
        *(f"{n} is answered" for n in ("first", "second", "third")),
    ]


async def test_operators_see_until_when_a_session_waits(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()))
    accepted = await chat.append("hello")
    await chat.drain(accepted)
    sid = accepted.session.sid[:8]

    def output_of(*command: str) -> str:
        result = run(chat.stack, *command)
        return result.stdout + result.stderr

    async def check(what: str) -> None:
        for command in (["status"], ["sessions", "list"], ["sessions", "show", sid]):
            output = await asyncio.to_thread(output_of, *command)
            time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
            assert re.search(rf"{what}waits until {time} \(the plan's limit\)", output)

    await check("")
    output = await asyncio.to_thread(output_of, "sessions", "trace", sid)
    assert re.search(r"postponed +attempt 1 +until \S+: usage_limit", output)

    terminal = await opened(chat.stack.fleet)
    assert terminal.session == accepted.session
    await check("the kept turn ")


@pytest.mark.usefixtures("gateway")
async def test_chat_commands_say_for_how_long_and_why_a_message_waits(chat: Chat) -> None:
    chat.fail(limit(in_an_hour() + HOUR_MS // 2))
    await chat.drain(await chat.append("hello", channel_id="alice"))

    async def answer_to(command: str) -> str:
        words = ("send", command, "--channel", "test", "--from", "alice")
        return (await asyncio.to_thread(run, chat.stack, *words)).stdout

    for_now = "for 1 h: the plan's limit."
    assert f"Postponed {for_now}" in await answer_to("/status")
    assert f"an answer yet. The next one waits {for_now}" in await answer_to("/queue")
    await opened(chat.stack.fleet, channel_id="alice")
    assert f"Waiting for a worker; one more waits, {for_now}" in await answer_to("/status")
    assert f"The next one waits {for_now}" in await answer_to("/queue")


@pytest.mark.usefixtures("gateway")
async def test_send_reports_that_its_message_is_postponed(chat: Chat) -> None:
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
    line = b""
    while b"postponed" not in line:
        line = await asyncio.wait_for(send.stderr.readline(), HANG_S)
    assert b"The message is postponed until " in line
    assert await chat.texts() == [], "its reply is for the caller"
    send.kill()
    await send.wait()


# -- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["an operator's stop", "an operator's reset", "/stop", "/new"])
async def test_a_stop_or_reset_wakes_a_postponed_session(chat: Chat, how: str) -> None:
    chat.fail(limit(in_an_hour()), limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    second = await chat.append("second") if "stop" in how else first
    notices = await chat.texts()
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
    assert await chat.texts() == [*notices, "Stopped.", *([RESET] if how == "/new" else [])]
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


async def test_a_repeated_stop_does_not_stop_later_messages(chat: Chat) -> None:
    stop = await chat.append("/stop", id="1")
    later = await chat.append("later")

    assert (await chat.append("/stop", id="1")).is_duplicate

    await chat.drain(later)
    assert await chat.texts() == [NOTHING_RUNS, "later is answered"]
    assert (await chat.stack.outcome(stop)).status == "done"


async def test_a_reset_that_arrives_while_a_turn_is_being_postponed_stops_it(
    chat: Chat,
) -> None:
    """The command finds no postponed session to wake, so the drain must notice it."""
    proxy = await chat.stack.proxied()
    chat.fail(limit(in_an_hour()))
    first = await chat.append("first")
    postponing = proxy.arm("postpone", "before")
    direct, chat.stack.fleet = chat.stack.fleet, chat.stack.open_at(proxy.url)
    draining = asyncio.create_task(chat.drain(first))
    await postponing.wait()

    new = await direct.inbound.append(message("/new"), agent="main")
    postponing.release()
    await draining

    chat.stack.fleet = direct
    assert await chat.status(first) == "stopped"
    assert await chat.status(new) == "done"


async def test_a_message_that_only_looks_like_a_command_stops_no_postponed_turn(chat: Chat) -> None:
    chat.fail(limit(in_an_hour()), limit(in_an_hour()))
    first = await chat.append("first")
    await chat.drain(first)
    notices = await chat.texts()

    await chat.append("/help")
    await chat.drain(first)

    assert chat.asked() == ["first"]
    assert await chat.texts() == notices
    view = await chat.stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.postponed == "usage_limit"


# -- a busy model ---------------------------------------------------------------------------------


async def test_the_same_agent_is_asked_again_after_a_short_pause(chat: Chat) -> None:
    chat.fail(busy())
    accepted = await chat.append("hello")

    await chat.drain(accepted)

    assert await chat.texts() == ["hello is answered"]
    assert chat.asked() == ["hello", "hello"]
    outcome = await chat.stack.outcome(accepted)
    assert [step.name for step in outcome.steps].count("postponed") == 1
    assert outcome.status == "done"


async def test_a_long_pause_occupies_no_worker(chat: Chat) -> None:
    chat.fail(busy(60))
    accepted = await chat.append("hello")

    await chat.drain(accepted)

    (notice,) = await chat.texts()
    assert notice.startswith("The model is busy. Your message is kept, and I try again from ")
    other = await chat.append("hi", from_="bob")
    await chat.drain(other)
    assert await chat.texts("bob") == ["hi is answered"], (
        "a busy model does not postpone other sessions"
    )
    await chat.let_pass(60_000)
    await chat.drain(accepted)
    assert await chat.texts() == [notice, "hello is answered"]


async def test_a_turn_fails_after_its_last_retry(chat: Chat) -> None:
    chat.fail(*(busy(n * 60) for n in range(1, 12)))
    accepted = await chat.append("hello")

    for _ in range(8):
        await chat.drain(accepted)
        await chat.let_pass(10 * 60_000)

    outcome = await chat.stack.outcome(accepted)
    assert outcome.status == "failed"
    assert said(outcome).startswith("The model behind main is busy.")
    assert len(await chat.texts()) == 2
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
async def test_a_turn_that_has_produced_output_is_not_retried(
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


async def test_a_notice_from_before_a_pause_is_not_repeated_after_it(chat: Chat) -> None:
    first = await chat.append("first")
    await chat.drain(first)
    client = chat.stack.fleet.scripts.client
    await client.delete(keys.session_map(first.session.sid))
    chat.fail(busy(60))
    second = await chat.append("second")

    await chat.drain(second)
    await chat.let_pass(60_000)
    await chat.drain(second)

    assert (await chat.texts()).count(CONTEXT_LOST) == 1
    assert (await chat.texts())[-1] == "second is answered"


@pytest.mark.parametrize("pause_s", [8, 60], ids=["a worker waits", "the session waits"])
async def test_a_postponed_turn_survives_a_killed_worker(
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
    if pause_s == 60:  # too long for a test
        assert await stack.fleet.sessions.stop(accepted.session.sid) == 1
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    outcome = await stack.outcome(accepted)
    sweeping.cancel()

    texts = await chat.texts()
    assert SECOND_TRY not in texts
    assert outcome.status == ("stopped" if pause_s == 60 else "done")
    assert len(texts) == len(set(texts))


# -- a conversation that is too long --------------------------------------------------------------


async def test_a_message_is_retried_in_a_new_conversation_if_the_context_overflows(
    chat: Chat,
) -> None:
    first = await chat.append("first")
    await chat.drain(first)
    chat.fail({"category": "context_overflow"})
    second = await chat.append("second")

    await chat.drain(second)

    assert await chat.texts() == ["first is answered", CONTEXT_LOST, "second is answered"]
    assert (await chat.stack.outcome(second)).status == "done"


async def test_a_message_that_is_too_long_by_itself_fails_with_the_reason(chat: Chat) -> None:
    await chat.drain(await chat.append("first"))
    chat.fail({"category": "context_overflow"}, {"category": "context_overflow"})
    second = await chat.append("second")

    await chat.drain(second)

    _, failed = await chat.texts()
    assert failed.startswith("Your message is too long for main's model. Send it again in parts.")
    assert chat.asked() == ["first", "second", "second"]


async def test_a_refused_message_is_not_asked_again_if_the_agent_has_begun_to_answer(
    chat: Chat,
) -> None:
    await chat.drain(await chat.append("first"))
    said_first = {"first": [{"type": "text", "text": "part"}]}
    chat.fail({"category": "invalid_request", **said_first})
    second = await chat.append("second")

    await chat.drain(second)

    _, *answer = await chat.texts()
    assert answer[0] == "part"
    assert answer[1].startswith("main broke off: its model refuses to continue this conversation")
    assert chat.asked() == ["first", "second"]


async def test_a_third_refused_message_is_asked_only_in_the_old_conversation(chat: Chat) -> None:
    """Until the agent has answered; a failure of another kind changes nothing."""
    await chat.drain(await chat.append("first"))
    refused = {"category": "invalid_request"}
    chat.fail(*[refused] * 2, {"category": "auth"}, *[refused] * 4)
    for text in ("second", "other", "third", "fourth", "fifth", "sixth"):
        await chat.drain(await chat.append(text))

    assert chat.asked() == [
        *("first", "second", "second", "other", "third", "third", "fourth", "fifth", "sixth")
    ]
    _, second, _, *texts = await chat.texts()
    assert all("/new begins an empty one" in text for text in (second, *texts[:2]))
    assert texts[3:] == ["sixth is answered"]


async def test_a_turn_that_broke_off_because_it_was_too_long_is_continued_from_notes(
    chat: Chat,
) -> None:
    """Its conversation can't be summarized. The next message is not refused any more."""
    await chat.drain(await chat.append("first"))
    said_first = {"first": [{"type": "text", "text": "part"}]}
    chat.fail({"category": "context_overflow", **said_first})
    await chat.drain(await chat.append("second"))
    await chat.drain(await chat.append("third"))

    _, part, failed, lost, third = await chat.texts()
    assert part == "part"
    assert failed.startswith("main broke off: this conversation has become too long for its model.")
    assert 'write "go on" to continue.' in failed
    assert (lost, third) == (CONTEXT_LOST, "third is answered")
    assert chat.starts() == 2


async def test_a_busy_model_does_not_bring_a_refused_conversation_back(chat: Chat) -> None:
    """The message meets the refusal once, although it is retried after that."""
    await chat.drain(await chat.append("first"))
    chat.fail({"category": "invalid_request"}, {"category": "retryable"})
    second = await chat.append("second")

    await chat.drain(second)

    assert (await chat.texts())[-2:] == [CONTEXT_LOST, "second is answered"]
    assert chat.asked() == ["first", "second", "second", "second"]
    assert chat.starts() == 3


# -- a real CLI -----------------------------------------------------------------------------------


async def test_a_real_cli_answers_after_its_model_was_busy(stack: Stack, claude: AgentCli) -> None:
    """`tests/contracts/test_runtimes.py` tests the failures of the other CLIs."""
    stack.configure(claude.config())
    await stack.start_worker()
    chat = Chat(stack)
    await stack.outcome(await chat.append("SAY:before"))

    # Claude itself repeats the request once.
    accepted = await chat.append(f"HTTP:529*2 {uuid.uuid4().hex} SAY:answered")
    outcome = await stack.outcome(accepted)

    assert (outcome.status, said(outcome)) == ("done", "answered")
    assert "postponed" in [step.name for step in outcome.steps]
    assert (await chat.texts())[-1] == "answered"


@pytest.mark.thorough("True")
@pytest.mark.parametrize("is_first", [True, False])
async def test_claude_has_a_message_once_after_a_limit(
    stack: Stack, chat: Chat, claude: AgentCli, is_first: bool
) -> None:
    """Claude keeps each refused copy of a message, and the model would read all of them."""
    stack.configure(subscribed(claude))
    if not is_first:
        before = await chat.append("SAY:before")
        await chat.drain(before)
        await stack.fleet.sessions.choose_model(before.session, "sonnet")
    word = uuid.uuid4().hex
    accepted = await chat.append(f"RETRYAFTER:-1 HTTP:429:limit*2 {word} SAY:answered")

    for _ in range(2):
        await chat.drain(accepted)
        assert await chat.status(accepted) == "accepted"
        await chat.let_pass(18_000)
    await chat.drain(accepted)
    await chat.drain(await chat.append("SAY:after"))

    assert (await chat.texts())[-2:] == ["answered", "after"]
    (last,) = claude.model.bodies().splitlines()[-1:]
    assert last.count(word) == 1
    assert ("SAY:before" in last) is not is_first


@pytest.mark.thorough("HTTP:529", "False")
@pytest.mark.parametrize("failure", ["HTTP:429", "HTTP:529"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_claude_has_a_message_once_after_a_short_pause(
    stack: Stack, claude: AgentCli, failure: str, is_killed: bool
) -> None:
    """The worker keeps the session in the pause, and may be killed in it."""
    stack.configure(claude.config(), lease_s=2)
    stack.reopen()
    chat = Chat(stack)
    worker = await stack.start_worker()
    await stack.outcome(await chat.append("SAY:before"))
    word = uuid.uuid4().hex
    accepted = await chat.append(f"{failure}*2 {word} SAY:answered")
    await stack.reached(accepted, "postponed")

    if is_killed:
        worker.kill()
        await stack.start_worker()
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    outcome = await stack.outcome(accepted)
    sweeping.cancel()

    assert (outcome.status, said(outcome)) == ("done", "answered")
    (last,) = claude.model.bodies().splitlines()[-1:]
    assert last.count(word) == 1
    assert "SAY:before" in last
