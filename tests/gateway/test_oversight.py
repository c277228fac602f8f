"""Operators who manage sessions: search, settings, archive, trace and messages."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway import search
from remoteclaw.messages import Turn
from remoteclaw.tools.base import Scope
from tests.support.cli import run
from tests.support.doors import Refused, RpcClient, opened
from tests.support.leases import idle
from tests.support.pages import login, paged
from tests.support.requests import put_request
from tests.support.stack import REPLIES, Stack, message
from tests.support.tasks import entries


@contextlib.asynccontextmanager
async def page(stack: Stack, scope: Scope = "admin") -> AsyncIterator[RpcClient]:
    async with opened(stack) as door:
        ada = await login(stack, door, scope=scope)
        async with paged(door, ada) as client:
            yield client


async def put_record(stack: Stack, accepted: Accepted, *texts: str) -> None:
    lines = [
        orjson.dumps({"at": at, "role": "user", "from": "Bob", "text": text})
        for at, text in enumerate(texts, 1)
    ]
    await stack.fleet.scripts.client.set(keys.record(accepted.session.sid), b"\n".join(lines))


def names(found: dict[str, Any]) -> list[str]:
    return [one["title"] for one in found["sessions"]]


async def test_sessions_that_wait_for_a_person_are_listed_first(stack: Stack) -> None:
    waits = await stack.append("oldest", channel_id="1")
    for number in range(2, 5):
        await stack.append(f"number {number}", channel_id=str(number))
    await put_request(stack, waits, tool="Bash", what="ls")
    async with page(stack, "read") as client:
        found = await client.call("sessions.search", {"limit": 2})
        with_requests = await client.call("sessions.search", {"state": "requests"})

    assert names(found) == ["oldest", "number 4"]
    assert [one["requests"] for one in found["sessions"]] == [1, 0]
    assert not found["isComplete"]
    assert names(with_requests) == ["oldest"]


async def test_sessions_are_found_by_channel_agent_state_and_name(stack: Stack) -> None:
    await stack.append("one", channel_id="1")
    await stack.fleet.inbound.append(message("two", provider="telegram"), agent="main")
    other = await stack.fleet.inbound.append(message("three"), agent="other")
    view = await stack.fleet.sessions.view(other.session.sid)
    assert view is not None
    await stack.fleet.sessions.label(view, "Research")
    async with page(stack, "read") as client:

        async def found(**params: Any) -> list[str]:
            return names(await client.call("sessions.search", params))

        assert await found(channel="telegram") == ["two"]
        assert await found(agent="other") == ["three"]
        assert await found(filter="RESEARCH") == ["three"]
        assert await found(state="idle") == []
        assert await found(state="scheduled") == ["three", "two", "one"]
        await idle(stack.fleet, "four", channel_id="4")  # its worker still holds the lease
        assert await found(state="idle") == ["four"]
        assert await found(state="running") == []
        unfiltered = await client.call("sessions.search")

    assert unfiltered["channels"] == ["telegram", "test"]
    assert unfiltered["agents"] == ["main", "other"]


async def test_a_search_finds_names_and_messages_with_an_excerpt(stack: Stack) -> None:
    one = await stack.append("hi", channel_id="1")
    await stack.append("the blue whale", channel_id="2")
    await put_record(stack, one, "a BLUE whale", "and then", f"a blue\nwhale {'x' * 300}", "bye")
    async with page(stack, "read") as client:
        found = await client.call("sessions.search", {"filter": "Blue"})

    named, said = found["sessions"]
    assert names(found) == ["the blue whale", "hi"]
    assert named["excerpt"] is None
    excerpt = said["excerpt"]
    assert (excerpt["at"], excerpt["who"]) == (3, "Bob")
    assert excerpt["text"].startswith("a blue whale xxx")
    assert excerpt["text"].endswith("x …")
    assert found["searched"] is None


async def test_a_search_stops_at_its_limit_and_says_how_far_it_got(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SEARCHED_BYTES", 150)
    for number in range(3):
        accepted = await stack.append(f"number {number}", channel_id=str(number))
        await put_record(stack, accepted, "needle")
    async with page(stack, "read") as client:
        found = await client.call("sessions.search", {"filter": "needle"})

    assert names(found) == ["number 2", "number 1"]
    assert found["searched"] == 2


async def test_searches_run_one_at_a_time(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise searches from many tabs would block all other calls."""
    barrier = threading.Barrier(2)
    met = []

    def slow_excerpts(records: Sequence[bytes], _words: str) -> list[None]:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.append(barrier.wait(timeout=1))
        return [None] * len(records)

    monkeypatch.setattr(search, "_excerpts", slow_excerpts)
    await stack.append("hi")
    async with page(stack, "read") as client:
        for _ in range(3):
            await client.begin("sessions.search", {"filter": "needle"})
        answers: list[bool] = []
        while len(answers) < 3:
            if (frame := await client.frame())["type"] == "res":
                answers.append(frame["ok"])

    assert (answers, met) == ([True] * 3, [])


async def test_the_command_line_searches_messages(stack: Stack) -> None:
    accepted = await stack.append("hi")
    await put_record(stack, accepted, "a BLUE whale")
    found = await asyncio.to_thread(run, stack, "sessions", "search", "blue")
    nothing = await asyncio.to_thread(run, stack, "sessions", "search", "needle")
    empty = await asyncio.to_thread(run, stack, "sessions", "search", " ")
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "say what to look for" in empty.stderr

    (line,) = found.stdout.splitlines()[1:]
    assert line.split()[:3] == [accepted.session.sid[:8], "hi", "Bob"]
    assert line.endswith("a BLUE whale")
    assert nothing.stdout == "No session contains these words.\n"


async def test_an_operator_reads_and_changes_the_label_and_queue_of_a_session(stack: Stack) -> None:
    accepted = await stack.append("hello", channel_id="1")
    other = await stack.append("hello too", channel_id="2")
    session = {"sessionKey": str(accepted.session)}
    async with page(stack) as client:
        await client.call("sessions.label", {**session, "label": "Blue"})
        await client.call("sessions.queue", {**session, "cap": 7})
        await client.call("sessions.queue", {**session, "mode": "steer"})
        shown = await client.call("sessions.show", session)
        with pytest.raises(Refused, match="choose another"):
            await client.call("sessions.label", {"sessionKey": str(other.session), "label": "Blue"})
        await client.call("sessions.label", session)
        reset = await client.call("sessions.queue", {**session, "reset": True})
        bare = await client.call("sessions.show", session)

    assert shown["label"] == "Blue"
    assert shown["queue"] == {
        **{"mode": "steer", "debounceMs": 0, "cap": 7, "drop": "summarize"},
        **{"gatherMs": 1500, "gatherMostMs": 5000},
        "own": ["mode", "cap"],
    }
    assert bare["label"] is None
    assert (reset["mode"], reset["own"]) == ("followup", [])


async def test_an_ended_conversation_can_be_read(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("my colour is green")
    await stack.outcome(accepted)
    session = {"sessionKey": str(accepted.session)}
    async with page(stack) as client:
        await client.call("sessions.reset", session)
        (ended,) = (await client.call("sessions.archive", session))["ended"]
        place = {**session, "endedMs": ended["endedMs"]}
        items = (await client.call("sessions.history", place))["items"]
        with pytest.raises(Refused, match=r"sessions\.archive lists those that are"):
            await client.call("sessions.history", {**session, "endedMs": 10**12})

    assert (ended["messages"], ended["why"]) == (1, "operator: reset")
    assert [item["role"] for item in items] == ["user", "tool", "agent"]
    assert items[0]["text"] == "my colour is green"


async def test_a_trace_goes_back_message_by_message(stack: Stack) -> None:
    await stack.start_worker()
    accepted = [await stack.append("one")]
    await stack.outcome(accepted[0])
    accepted.append(await stack.append("two"))
    await stack.outcome(accepted[1])
    session = str(accepted[0].session)
    async with page(stack, "read") as client:
        newest = await client.call("sessions.trace", {"what": session})
        both = await client.call("sessions.trace", {"what": session, "limit": 20})
        with pytest.raises(Refused, match="There is no message"):
            await client.call("sessions.trace", {"what": f"{accepted[0].session.sid[:8]}-1-1"})

    references = [f"{one.session.sid[:8]}-{one.entry_id}" for one in reversed(accepted)]
    assert [one["reference"] for one in newest["messages"]] == references[:1]
    assert newest["before"] == references[1]
    assert [one["reference"] for one in both["messages"]] == references
    assert both["before"] is None
    steps = [step["name"] for step in both["messages"][1]["steps"]]
    assert (steps[0], "finished" in steps) == ("accepted", True)
    assert both["messages"][0]["turn"] == references[0]


async def test_a_trace_includes_requests_to_people(stack: Stack) -> None:
    accepted = await stack.append("hello")
    await put_request(stack, accepted, tool="Bash", what="ls")
    async with page(stack, "read") as client:
        trace = await client.call("sessions.trace", {"what": str(accepted.session)})

    last = trace["messages"][0]["steps"][-1]
    assert last["name"] == "asked"
    assert last["detail"].endswith("Bash: ls")


async def test_an_operators_message_is_marked_and_answered_in_the_chat(stack: Stack) -> None:
    accepted = await stack.append("hello")
    session = accepted.session
    async with page(stack) as client:
        params = {"sessionKey": str(session), "message": "How far\nare you?"}
        written = await client.call("sessions.write", params, idempotencyKey="1")
        again = await client.call("sessions.write", params, idempotencyKey="1")
        entry, *more = (await entries(stack, session))[1:]
        await stack.start_worker()
        answer = await client.call("outcomes.wait", {"runId": written["runId"], "timeout": 60})
        history = await client.call("sessions.history", {"sessionKey": str(session)})

    assert (again, more) == (written, [])
    assert entry.people == ("test:alice",)
    header = build_turn_prompt(Turn(session, (entry,))).partition("\n")[0]
    assert '"from":"ada on the page"' in header
    assert answer["status"] == "done"
    stream: Any = await stack.fleet.scripts.client.xrange(REPLIES)
    replies = [orjson.loads(fields[b"reply"]) for _, fields in stream]
    assert [reply["origin"] for reply in replies] == ["", "ada on the page: “How far are you?”"]
    assert replies[1]["reply_to_id"] is None
    people = [item["from"] for item in history["items"] if item["role"] == "user"]
    assert people == ["alice", "ada on the page"]


async def test_an_operators_message_collected_with_a_persons_is_still_marked(
    stack: Stack,
) -> None:
    stack.configure(queue={"mode": "collect", "debounce_ms": 0})
    accepted = await stack.append("hello")
    async with page(stack) as client:
        params = {"sessionKey": str(accepted.session), "message": "x" * 200}
        await client.call("sessions.write", params)
    await stack.start_worker()
    await stack.outcome(accepted)

    stream: Any = await stack.fleet.scripts.client.xrange(REPLIES)
    ((_, fields),) = stream
    assert orjson.loads(fields[b"reply"])["origin"] == f"ada on the page: “{'x' * 100}…”"


async def test_a_refused_operator_is_told_which_scope_is_needed(stack: Stack) -> None:
    accepted = await stack.append("hello")
    session = {"sessionKey": str(accepted.session)}
    async with page(stack, "write") as client:
        await client.call("sessions.label", {**session, "label": "Blue"})
        for method, params in (
            ("sessions.write", {"message": "hello"}),
            ("sessions.queue", {"mode": "steer"}),
            ("sessions.reset", {}),
        ):
            with pytest.raises(Refused, match=f"{method} needs a token with the scope admin"):
                await client.call(method, {**session, **params})
    async with page(stack, "read") as client:
        with pytest.raises(Refused, match=r"sessions\.label needs a token with the scope write"):
            await client.call("sessions.label", session)


async def test_a_token_without_admin_gets_the_answer_for_itself_and_acts_for_nobody(
    stack: Stack,
) -> None:
    accepted = await stack.append("hello")
    params = {"sessionKey": str(accepted.session), "message": "How far are you?"}
    async with page(stack, "write") as client:
        with pytest.raises(Refused, match="to write in a chat; this one has write: with"):
            await client.call("sessions.write", params)
        await client.call("sessions.write", {**params, "toCaller": True})
    async with page(stack) as client:
        await client.call("sessions.write", {**params, "toCaller": True})

    written, by_admin = (await entries(stack, accepted.session))[1:]
    assert (written.deliver, written.people) == ("caller", ())
    assert (by_admin.deliver, by_admin.people) == ("caller", ("test:alice",))


async def test_a_message_names_either_its_session_or_its_sender(stack: Stack) -> None:
    accepted = await stack.append("hello")
    session, sender = {"sessionKey": str(accepted.session)}, {"channel": "test", "from": "bob"}
    async with page(stack) as client:
        for params, why in (
            ({}, "name the session by sessionKey, or the sender by channel and from"),
            ({"channel": "test"}, "or the sender by channel and from"),
            ({**session, **sender}, "channel, from can't be set with sessionKey"),
            ({**session, "messageId": "1"}, "messageId can't be set with sessionKey"),
            ({**sender, "toCaller": True}, "toCaller is for messages to a sessionKey"),
        ):
            with pytest.raises(Refused, match=f"INVALID_REQUEST: .*{why}"):
                await client.call("sessions.write", {"message": "hi", **params})

    assert len(await entries(stack, accepted.session)) == 1


async def test_operators_cannot_write_in_the_session_of_a_task(stack: Stack) -> None:
    accepted = await stack.fleet.inbound.append(message("do it"), agent="main")
    task = replace(accepted.session, task="beef")
    await stack.fleet.sessions.quieten(task, is_quiet=True)
    async with page(stack) as client:
        with pytest.raises(Refused, match="works on a task and takes no messages"):
            await client.call("sessions.write", {"sessionKey": str(task), "message": "hello"})


async def test_a_command_of_an_operator_is_not_sent_as_a_message(stack: Stack) -> None:
    accepted = await stack.append("hello")
    session = {"sessionKey": str(accepted.session)}
    async with page(stack) as client:
        with pytest.raises(Refused, match="/stop was not sent: only people in the chat"):
            await client.call("sessions.write", {**session, "message": " /Stop now"})
        await client.call("sessions.write", {**session, "message": "//stop now"})
        await client.call("sessions.write", {**session, "message": "/etc/hosts is empty"})

    texts = [entry.message.text for entry in await entries(stack, accepted.session)]
    assert texts == ["hello", "/stop now", "/etc/hosts is empty"]
