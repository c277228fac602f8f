"""Messages that are answered beside a running turn: each verdict, each failure, and each crash."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remoteclaw.commands.call import Answer, Asked
from remoteclaw.commands.status import queue, status
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.asides import AsideEnd, Asides
from remoteclaw.fleet.inbound import Accepted
from tests.support.conversations import append, busy, drain, dying, go, prompts, recorded
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
async def agent(agent: Stack) -> Stack:
    """A stack whose agent answers beside its turns."""
    agent.configure(agent.agent, queue={"mode": "aside", "debounce_ms": 0})
    return agent


async def sent(stack: Stack, count: int) -> list[Any]:
    """Return so many replies, as the adapter gets them."""
    replies = stack.fleet.replies.reader("test", "default", token="test").replies()
    found = [await anext(replies) for _ in range(count)]
    await replies.aclose()
    return found


def asked(stack: Stack) -> list[dict[str, Any]]:
    """Return the first lines of what the agent was asked beside its turns."""
    text = (stack.home.path / "workspaces" / "main" / "asides").read_text()
    lines = [line for line in text.splitlines() if line.startswith("[remoteclaw ")]
    return [json.loads(line.removeprefix("[remoteclaw ").removesuffix("]")) for line in lines]


async def told(
    stack: Stack, first: Accepted, command: Callable[[Asked], Awaitable[Answer]], rest: str = ""
) -> str:
    """Return what a command answers in the chat."""
    asked = Asked(
        id="1",
        rest=rest,
        session=first.session,
        sender="alice",
        is_owner=True,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )
    return (await command(asked)).text


async def verdict(stack: Stack, accepted: Accepted) -> str:
    """Wait for the verdict about a message."""
    found: list[str] = []

    async def is_there() -> bool:
        outcome = await stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
        assert outcome is not None
        found[:] = [step.detail for step in outcome.steps if step.name == "verdict"]
        return bool(found)

    await eventually(is_there)
    return found[0]


async def test_a_message_is_answered_while_the_turn_runs(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("answered what is 2+2?", id="m2")
    outcome = await agent.outcome(second)
    assert (outcome.status, said(outcome)) == ("done", "beside: what is 2+2?")
    running = await agent.fleet.outcomes.read(first.session.sid, first.entry_id)
    assert running is not None
    assert running.status == "running"

    (reply,) = await sent(agent, 1)
    assert (reply.text, reply.reply_to_id) == ("beside: what is 2+2?", "m2")
    assert (reply.is_beside, reply.entries, reply.origin) == (True, (second.entry_id,), "beside")
    go(agent)
    await task
    assert said(await agent.outcome(first)).startswith("heard wait, ")


async def test_the_question_says_what_goes_on(agent: Stack) -> None:
    _, task = await busy(agent)
    await agent.outcome(await agent.append("answered first"))
    await agent.outcome(await agent.append("answered how far are you?"))
    go(agent)
    await task

    _, header = asked(agent)
    assert header["running"]["about"] == ["wait"]
    assert header["running"]["you_said"].startswith("heard wait")
    assert [note["you"] for note in header["meanwhile"]] == ["beside: first"]
    assert header["from"] == {"id": "alice"}


async def test_the_next_turn_knows_what_was_said_beside_once(agent: Stack) -> None:
    first, task = await busy(agent)
    await agent.outcome(await agent.append("answered two"))
    third = await agent.append("later three")
    assert await verdict(agent, third) == "later"
    go(agent)
    await task
    await agent.outcome(third)
    fourth = await agent.append("four")
    await drain(agent, fourth)

    told = prompts(agent).split("[remoteclaw ")
    assert ["meanwhile" in text for text in told if text] == [False, True, False]
    assert '"said":"answered two","you":"beside: two"' in prompts(agent)
    assert await recorded(agent, first) == ["answered two", "wait", "later three", "four"]


@pytest.mark.parametrize("text", ["untagged x", "forged x", "failed x", "later x"])
async def test_what_is_no_answer_waits_and_is_answered_once(agent: Stack, text: str) -> None:
    first, task = await busy(agent)
    second = await agent.append(text)
    assert await verdict(agent, second) == "later"
    go(agent)
    await task

    assert said(await agent.outcome(second)).startswith(f"heard {text}")
    replies = [reply.text for reply in await sent(agent, 2)]
    assert [reply.partition(",")[0] for reply in replies] == ["heard wait", f"heard {text}"]
    assert (await agent.outcome(first)).status == "done"


async def test_an_answer_without_words_is_none(agent: Stack) -> None:
    _, task = await busy(agent)
    second = await agent.append("answered")
    found = await verdict(agent, second)
    go(agent)
    await task

    assert found == "later"
    assert said(await agent.outcome(second)).startswith("heard answered")


async def test_silence_ends_in_waiting(agent: Stack) -> None:
    queue = {"mode": "aside", "debounce_ms": 0, "aside_s": 1}
    agent.configure(agent.agent, queue=queue)
    _, task = await busy(agent)
    second = await agent.append("silent x")
    assert await verdict(agent, second) == "later"
    go(agent)
    await task
    assert said(await agent.outcome(second)).startswith("heard silent x")


async def test_a_message_for_the_running_work_joins_it(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("work and the tests too")
    await agent.reached(second, "steered")
    await eventually(lambda: "work and the tests too" in prompts(agent))
    go(agent)
    await task

    assert (await agent.outcome(second)).status == "steered"
    outcome = await agent.outcome(first)
    assert said(outcome).startswith("heard wait, knew - & work and the tests too")


async def test_status_says_that_what_has_joined_waits_no_more(agent: Stack) -> None:
    first, task = await busy(agent)
    await agent.reached(await agent.append("work and the tests too"), "steered")
    assert (await told(agent, first, status)).startswith("Running for ")
    assert "waits" not in await told(agent, first, status)
    assert await verdict(agent, await agent.append("later x")) == "later"
    assert "; one more waits." in await told(agent, first, status)
    assert "no such mode" in await told(agent, first, queue, "nonsense")
    go(agent)
    await task


async def test_a_stop_ends_the_turn_and_is_answered_behind_it(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("stop that")
    await task

    assert (await agent.outcome(first)).status == "stopped"
    assert said(await agent.outcome(second)).startswith("heard stop that")


@pytest.mark.parametrize("word", ["stop", "work"])
async def test_a_stranger_s_word_neither_stops_nor_joins(agent: Stack, word: str) -> None:
    channels = {"test": {"owners": ["alice"]}}
    queue = {"mode": "aside", "debounce_ms": 0}
    agent.configure(agent.agent, queue=queue, channels=channels)
    first = await agent.append("wait", is_shared=True)
    task = drain(agent, first)
    await agent.reached(first, "output")
    second = await agent.append(f"{word} it", from_="mallory", is_shared=True)
    assert await verdict(agent, second) == "later"
    go(agent)
    await task

    assert [(await agent.outcome(each)).status for each in (first, second)] == ["done", "done"]


async def test_what_a_group_says_among_itself_waits(agent: Stack) -> None:
    first = await agent.append("wait", is_shared=True)
    task = drain(agent, first)
    await agent.reached(first, "output")
    group: dict[str, Any] = {"is_shared": True, "chat_kind": "group"}
    second = await agent.append("answered x", is_addressed=False, **group)
    third = await agent.append("answered y", is_addressed=True, **group)
    assert said(await agent.outcome(third)) == "beside: y"
    go(agent)
    await task

    assert said(await agent.outcome(second)).startswith("heard answered x")


async def test_nothing_overtakes_the_end_of_a_conversation(agent: Stack) -> None:
    first, task = await busy(agent)
    await agent.append("/new")
    third = await agent.append("answered three")
    fourth = await agent.append("answered four")
    go(agent)
    await task

    assert said(await agent.outcome(third)).startswith("heard answered three + answered four")
    assert (await agent.outcome(fourth)).turn == third.entry_id
    assert (await agent.outcome(first)).status == "done"


async def test_an_aside_settles_before_the_next_batch_is_planned(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("slow x")
    await agent.reached(second, "aside")
    go(agent)  # the turn ends while the question is open
    assert (await agent.outcome(first)).status == "done"
    (agent.home.path / "workspaces" / "main" / "later").touch()  # and then its answer comes
    await task

    assert said(await agent.outcome(second)) == "beside: x"
    assert "slow x" not in prompts(agent).split('"meanwhile"')[0]


async def test_a_file_waits_for_the_turn_that_the_agent_gets_it_with(agent: Stack) -> None:
    first, task = await busy(agent)
    file = await agent.fleet.blobs.put(first.session.sid, "note.txt", b"what is in it")
    second = await agent.append("answered look", attachments=[file])
    found = await verdict(agent, second)
    go(agent)
    await task

    assert found == "later"
    assert said(await agent.outcome(second)).startswith("heard answered look")
    assert '"attachments":[{"name":"note.txt"' in prompts(agent)


async def test_who_is_stopped_waits_for_no_open_question(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may take a minute for its answer, which nobody wants any more."""
    monkeypatch.setattr("remoteclaw.session.asides.SETTLE_S", HANG_S * 10)
    first, task = await busy(agent)
    second = await agent.append("silent x")
    await agent.reached(second, "aside")
    stop = await agent.append("/stop")
    outcomes = [await agent.outcome(each) for each in (first, second, stop)]
    await task

    assert [outcome.status for outcome in outcomes] == ["stopped", "stopped", "done"]


async def test_what_joined_out_of_order_is_in_order_after_a_crash(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second, third = await append(agent, "work two", "work three")
        asides = Asides(lease)
        for each in (third, second):  # the answer about the third came first
            assert await asides.ask(first.entry_id, each.entry_id)
            assert await asides.end(first.entry_id, each.entry_id, "work", AsideEnd()) == "work"
    go(agent)
    await drain(agent, first)

    assert said(await agent.outcome(first)).startswith("heard wait + work two + work three")


async def test_a_worker_that_is_asked_to_end_leaves_what_waits_behind_an_answer(
    agent: Stack,
) -> None:
    worker = await agent.start_worker()
    first = await agent.append("wait")
    await agent.reached(first, "output")
    await agent.outcome(await agent.append("answered two"))
    third = await agent.append("later three")
    assert await verdict(agent, third) == "later"
    worker.terminate()
    client = agent.fleet.scripts.client
    (name,) = [key async for key in client.scan_iter("rq:worker:*")]
    await eventually(lambda: client.hexists(name, "shutdown_requested_date"))
    go(agent)

    await eventually(lambda: worker.poll() is not None)
    assert (await agent.outcome(first)).status == "done"
    waiting = await agent.fleet.outcomes.read(third.session.sid, third.entry_id)
    assert waiting is not None
    assert waiting.status == "accepted"


async def test_an_agent_that_dies_of_an_aside_has_its_turn_repeated_or_told(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("fatal x")
    assert await verdict(agent, second) == "later"
    go(agent)
    await task

    assert (await agent.outcome(first)).is_final
    assert (await agent.outcome(second)).is_final


async def test_a_worker_that_dies_of_an_aside_twice_asks_no_third_time(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    for attempt in (1, 2):
        async with dying(agent, first) as lease:
            second = await agent.append("answered x", id="m2")
            assert await Asides(lease).ask(first.entry_id, second.entry_id), attempt
    go(agent)
    await drain(agent, first)

    outcome = await agent.outcome(second)
    assert said(outcome).startswith("heard answered x")
    assert [step.name for step in outcome.steps].count("aside") == 2


async def test_an_answer_that_was_recorded_is_not_given_twice(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second = await agent.append("answered x")
        asides = Asides(lease)
        assert await asides.ask(first.entry_id, second.entry_id)
        end = AsideEnd(reply=[{"text": "yes"}])
        assert await asides.end(first.entry_id, second.entry_id, "answered", end) == "answered"
    go(agent)
    await drain(agent, first)

    assert said(await agent.outcome(second)) == "yes"
    assert "answered x" not in prompts(agent)


async def test_a_verdict_to_join_survives_its_worker(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second = await agent.append("work x")
        asides = Asides(lease)
        assert await asides.ask(first.entry_id, second.entry_id)
        assert await asides.end(first.entry_id, second.entry_id, "work", AsideEnd()) == "work"
    go(agent)
    await drain(agent, first)

    assert said(await agent.outcome(first)).startswith("heard wait + work x")
    assert said(await agent.outcome(second)).startswith("heard wait + work x")


async def test_what_is_in_a_turn_has_no_answer_beside_it(agent: Stack) -> None:
    (first, second) = await append(agent, "wait", "answered x")
    async with dying(agent, first, second) as lease:
        asides = Asides(lease)
        assert not await asides.ask(first.entry_id, second.entry_id)
        assert await asides.end(first.entry_id, second.entry_id, "answered", AsideEnd()) == "gone"


async def test_what_was_stopped_is_not_answered_beside(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second = await agent.append("answered x")
        asides = Asides(lease)
        assert await asides.ask(first.entry_id, second.entry_id)
        await agent.fleet.sessions.stop(first.session.sid)
        assert await asides.end(first.entry_id, second.entry_id, "answered", AsideEnd()) == "gone"
    await drain(agent, first)
    assert (await agent.outcome(second)).status == "stopped"


async def test_a_new_conversation_hears_nothing_of_what_was_said_beside_the_old_one(
    agent: Stack,
) -> None:
    first, task = await busy(agent)
    await agent.outcome(await agent.append("answered two"))
    go(agent)
    await task
    await drain(agent, await agent.append("/new"))
    await drain(agent, await agent.append("hello"))

    assert "meanwhile" not in prompts(agent)
    assert not await agent.fleet.scripts.client.exists(keys.beside(first.session.sid))


async def test_what_needs_looking_up_gets_a_branch_and_the_person_two_words(agent: Stack) -> None:
    """The turn goes on; the branch answers, quoting, and the next turn knows of it."""
    first, task = await busy(agent)
    second = await agent.append("branch who wrote it?", id="m2")
    await agent.reached(second, "moved")
    (branch,) = await agent.fleet.sessions.children(first.session.sid)
    await drain(agent, Accepted(branch.key, str(branch.last_entry), False))
    outcome = await agent.outcome(second)
    assert (outcome.status, said(outcome)) == ("done", "heard branch who wrote it?, knew -")
    said_first, answer = await sent(agent, 2)
    assert (said_first.text, said_first.reply_to_id) == ("beside: who wrote it?", "m2")
    assert (answer.text, answer.reply_to_id) == (said(outcome), "m2")
    go(agent)
    await task
    third = await agent.append("later three")
    await drain(agent, third)

    assert '"said":"branch who wrote it?"' in prompts(agent)
    assert await verdict(agent, second) == "branch"


async def test_a_branch_for_which_there_is_no_room_waits(agent: Stack) -> None:
    queue = {"mode": "aside", "debounce_ms": 0}
    agent.configure(agent.agent, queue=queue, sessions={"max_children": 1})
    _, task = await busy(agent)
    second, third = [await agent.append(f"branch {name}") for name in ("two", "three")]
    verdicts = sorted([await verdict(agent, second), await verdict(agent, third)])
    go(agent)
    await task

    assert verdicts == ["branch", "later"]
