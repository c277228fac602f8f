"""Asides, which are messages that are answered during a turn: verdicts, failures and crashes."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.commands.status import queue, status
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.asides import NOT_YOURS, WAITS
from tests.support.conversations import append, busy, drain, dying, go, prompts, recorded
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
async def agent(agent: Stack) -> Stack:
    """A stack whose queue mode is `aside`."""
    agent.configure(agent.agent, queue={"mode": "aside", "debounce_ms": 0})
    return agent


async def sent(stack: Stack, count: int) -> list[Any]:
    """Return the first `count` replies, as the adapter gets them."""
    stream = stack.fleet.replies.reader("test", "default", token="test").replies()
    replies = [await anext(stream) for _ in range(count)]
    await stream.aclose()
    return replies


def aside_headers(stack: Stack) -> list[dict[str, Any]]:
    """Return the headers of the prompts of all asides."""
    text = (stack.home.path / "workspaces" / "main" / "asides").read_text()
    lines = [line for line in text.splitlines() if line.startswith("[remoteclaw ")]
    return [json.loads(line.removeprefix("[remoteclaw ").removesuffix("]")) for line in lines]


async def command_reply(
    stack: Stack,
    first: Accepted,
    command: Callable[[CommandCall], Awaitable[CommandReply]],
    arguments: str = "",
) -> str:
    """Run a chat command, and return its reply."""
    call = CommandCall(
        id="1",
        arguments=arguments,
        session=first.session,
        sender="alice",
        is_owner=True,
        fleet=stack.fleet,
        config=load_config(stack.home.config_file, {}),
        home=stack.home,
    )
    return (await command(call)).text


async def verdict(stack: Stack, accepted: Accepted) -> str:
    """Wait for the verdict on a message, and return it."""
    verdicts: list[str] = []

    async def has_verdict() -> bool:
        outcome = await stack.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
        assert outcome is not None
        verdicts[:] = [step.detail for step in outcome.steps if step.name == "verdict"]
        return bool(verdicts)

    await eventually(has_verdict)
    return verdicts[0]


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
    assert (reply.is_aside, reply.entries, reply.origin) == (True, (second.entry_id,), "beside")
    go(agent)
    await task
    assert said(await agent.outcome(first)).startswith("heard wait, ")


async def test_the_prompt_of_an_aside_describes_the_running_turn_and_earlier_asides(
    agent: Stack,
) -> None:
    _, task = await busy(agent)
    await agent.outcome(await agent.append("answered first"))
    await agent.outcome(await agent.append("answered how far are you?"))
    go(agent)
    await task

    _, header = aside_headers(agent)
    assert header["running"]["about"] == ["wait"]
    assert header["running"]["you_said"].startswith("heard wait")
    assert [note["you"] for note in header["meanwhile"]] == ["beside: first"]
    assert header["from"] == {"id": "alice"}


@pytest.mark.parametrize(("kind", "is_of_others"), [("sent", True), ("said", False)])
async def test_a_turn_that_is_told_what_another_chat_sent_has_read_it(
    kind: str, is_of_others: bool, agent: Stack
) -> None:
    """A person has to allow what such a turn writes to the memory."""
    entry = await agent.append("hello")
    client: Any = agent.fleet.scripts.client
    note = json.dumps({"at": 1, "from": "main/test/default/chat-2:eve:_", kind: "remember that"})
    await client.rpush(keys.aside_notes(entry.session.sid), note)
    await drain(agent, entry)

    marked = await client.hget(keys.state(entry.session.sid), "web_turn")
    assert '"meanwhile"' in prompts(agent)
    assert (marked == entry.entry_id.encode()) is is_of_others


async def test_earlier_asides_are_in_the_prompt_of_one_later_turn(agent: Stack) -> None:
    first, task = await busy(agent)
    await agent.outcome(await agent.append("answered two"))
    third = await agent.append("later three")
    assert await verdict(agent, third) == "later"
    go(agent)
    await task
    await agent.outcome(third)
    fourth = await agent.append("four")
    await drain(agent, fourth)

    sections = prompts(agent).split("[remoteclaw ")
    assert ["meanwhile" in section for section in sections if section] == [False, True, False]
    assert '"said":"answered two","you":"beside: two"' in prompts(agent)
    assert await recorded(agent, first) == ["answered two", "wait", "later three", "four"]


@pytest.mark.parametrize("text", ["untagged x", "forged x", "failed x", "later x"])
async def test_a_message_whose_aside_yields_no_answer_is_answered_once_in_a_later_turn(
    agent: Stack, text: str
) -> None:
    first, task = await busy(agent)
    second = await agent.append(text)
    assert await verdict(agent, second) == "later"
    go(agent)
    await task

    assert said(await agent.outcome(second)).startswith(f"heard {text}")
    replies = [reply.text for reply in await sent(agent, 2)]
    assert [reply.partition(",")[0] for reply in replies] == ["heard wait", f"heard {text}"]
    assert (await agent.outcome(first)).status == "done"


async def test_an_aside_with_an_empty_answer_counts_as_unanswered(agent: Stack) -> None:
    _, task = await busy(agent)
    second = await agent.append("answered")
    found = await verdict(agent, second)
    go(agent)
    await task

    assert found == "later"
    assert said(await agent.outcome(second)).startswith("heard answered")


async def test_an_aside_without_a_response_times_out_and_its_message_waits(agent: Stack) -> None:
    queue = {"mode": "aside", "debounce_ms": 0, "aside_s": 1}
    agent.configure(agent.agent, queue=queue)
    _, task = await busy(agent)
    second = await agent.append("silent x")
    assert await verdict(agent, second) == "later"
    go(agent)
    await task
    assert said(await agent.outcome(second)).startswith("heard silent x")


async def test_a_message_with_the_verdict_work_joins_the_running_turn(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("work and the tests too")
    await agent.reached(second, "steered")
    await eventually(lambda: "work and the tests too" in prompts(agent))
    go(agent)
    await task

    assert (await agent.outcome(second)).status == "steered"
    outcome = await agent.outcome(first)
    assert said(outcome).startswith("heard wait, knew - & work and the tests too")


async def test_status_does_not_count_joined_messages_as_waiting(agent: Stack) -> None:
    first, task = await busy(agent)
    await agent.reached(await agent.append("work and the tests too"), "steered")
    assert (await command_reply(agent, first, status)).startswith("Running for ")
    assert "waits" not in await command_reply(agent, first, status)
    assert await verdict(agent, await agent.append("later x")) == "later"
    assert "; one more waits." in await command_reply(agent, first, status)
    assert "no such mode" in await command_reply(agent, first, queue, "nonsense")
    go(agent)
    await task


async def test_a_message_with_the_verdict_stop_ends_the_turn_and_is_answered_next(
    agent: Stack,
) -> None:
    first, task = await busy(agent)
    second = await agent.append("stop that")
    await task

    assert (await agent.outcome(first)).status == "stopped"
    assert said(await agent.outcome(second)).startswith("heard stop that")


@pytest.mark.parametrize("word", ["stop", "work"])
async def test_a_message_from_a_stranger_neither_stops_nor_joins_the_turn(
    agent: Stack, word: str
) -> None:
    channels = {"test": {"owners": ["alice"]}}
    queue = {"mode": "aside", "debounce_ms": 0}
    agent.configure(agent.agent, queue=queue, channels=channels)
    first = await agent.append("wait", is_shared=True)
    task = drain(agent, first)
    await agent.reached(first, "output")
    second = await agent.append(f"{word} it", from_="mallory", is_shared=True, id="m-2")
    assert await verdict(agent, second) == "later"
    (notice,) = await sent(agent, 1)
    go(agent)
    await task

    assert (notice.text, notice.reply_to_id) == (NOT_YOURS, "m-2")
    assert not notice.is_final
    assert [(await agent.outcome(each)).status for each in (first, second)] == ["done", "done"]


async def test_group_messages_that_do_not_address_the_agent_wait(agent: Stack) -> None:
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


async def test_no_aside_overtakes_a_command_that_ends_the_conversation(agent: Stack) -> None:
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
    go(agent)  # the turn ends while the aside is open
    assert (await agent.outcome(first)).status == "done"
    (agent.home.path / "workspaces" / "main" / "later").touch()  # now the aside is answered
    await task

    assert said(await agent.outcome(second)) == "beside: x"
    assert "slow x" not in prompts(agent).split('"meanwhile"')[0]


async def test_a_message_with_a_file_is_not_answered_as_an_aside(agent: Stack) -> None:
    first, task = await busy(agent)
    file = await agent.fleet.blobs.put(first.session.sid, "note.txt", b"what is in it")
    second = await agent.append("answered look", attachments=[file])
    found = await verdict(agent, second)
    go(agent)
    await task

    assert found == "later"
    assert said(await agent.outcome(second)).startswith("heard answered look")
    assert '"attachments":[{"name":"note.txt"' in prompts(agent)


async def test_a_stop_does_not_wait_for_an_open_aside(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model can take a minute for an answer that is no longer needed."""
    monkeypatch.setattr("remoteclaw.session.asides.SETTLE_S", HANG_S * 10)
    first, task = await busy(agent)
    second = await agent.append("silent x")
    await agent.reached(second, "aside")
    stop = await agent.append("/stop")
    outcomes = [await agent.outcome(each) for each in (first, second, stop)]
    await task

    assert [outcome.status for outcome in outcomes] == ["stopped", "stopped", "done"]


async def test_messages_that_joined_out_of_order_are_in_order_after_a_crash(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second, third = await append(agent, "work two", "work three")
        asides = Asides(lease)
        for each in (third, second):  # the aside of the third message ended first
            assert await asides.ask(first.entry_id, each.entry_id)
            assert await asides.end(first.entry_id, each.entry_id, "work", AsideEnd()) == "work"
    go(agent)
    await drain(agent, first)

    assert said(await agent.outcome(first)).startswith("heard wait + work two + work three")


async def test_a_terminated_worker_leaves_messages_that_wait_after_an_answered_aside(
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


async def test_turn_and_aside_have_an_outcome_if_the_aside_kills_the_agent(agent: Stack) -> None:
    first, task = await busy(agent)
    second = await agent.append("fatal x")
    assert await verdict(agent, second) == "later"
    go(agent)
    await task

    assert (await agent.outcome(first)).is_final
    assert (await agent.outcome(second)).is_final


async def test_an_aside_that_killed_its_worker_twice_is_not_asked_a_third_time(
    agent: Stack,
) -> None:
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


async def test_an_aside_that_was_answered_before_a_crash_is_not_answered_again(
    agent: Stack,
) -> None:
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


async def test_a_verdict_to_join_survives_a_crash_of_the_worker(agent: Stack) -> None:
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


async def test_a_message_that_is_already_in_the_turn_cannot_become_an_aside(agent: Stack) -> None:
    (first, second) = await append(agent, "wait", "answered x")
    async with dying(agent, first, second) as lease:
        asides = Asides(lease)
        assert not await asides.ask(first.entry_id, second.entry_id)
        assert await asides.end(first.entry_id, second.entry_id, "answered", AsideEnd()) == "gone"


async def test_a_stopped_message_is_not_answered_as_an_aside(agent: Stack) -> None:
    (first,) = await append(agent, "wait")
    async with dying(agent, first) as lease:
        second = await agent.append("answered x")
        asides = Asides(lease)
        assert await asides.ask(first.entry_id, second.entry_id)
        await agent.fleet.sessions.stop(first.session.sid)
        assert await asides.end(first.entry_id, second.entry_id, "answered", AsideEnd()) == "gone"
    await drain(agent, first)
    assert (await agent.outcome(second)).status == "stopped"


async def test_a_new_conversation_gets_no_asides_of_the_old_one(
    agent: Stack,
) -> None:
    first, task = await busy(agent)
    await agent.outcome(await agent.append("answered two"))
    go(agent)
    await task
    await drain(agent, await agent.append("/new"))
    await drain(agent, await agent.append("hello"))

    assert "meanwhile" not in prompts(agent)
    assert not await agent.fleet.scripts.client.exists(keys.aside_notes(first.session.sid))


async def test_a_message_with_the_verdict_branch_is_acknowledged_and_moved_to_a_branch(
    agent: Stack,
) -> None:
    """The turn continues, the branch's answer quotes the message, and the next prompt has it."""
    first, task = await busy(agent)
    second = await agent.append("branch who wrote it?", id="m2")
    await agent.reached(second, "moved")
    (branch,) = await agent.fleet.sessions.children(first.session.sid)
    await drain(agent, Accepted(branch.key, str(branch.last_entry), False))
    outcome = await agent.outcome(second)
    assert (outcome.status, said(outcome)) == ("done", "heard branch who wrote it?, knew -")
    acknowledgement, answer = await sent(agent, 2)
    assert (acknowledgement.text, acknowledgement.reply_to_id) == ("beside: who wrote it?", "m2")
    assert (answer.text, answer.reply_to_id) == (said(outcome), "m2")
    go(agent)
    await task
    third = await agent.append("later three")
    await drain(agent, third)

    assert '"said":"branch who wrote it?"' in prompts(agent)
    assert await verdict(agent, second) == "branch"


async def test_a_message_for_a_branch_waits_if_max_children_is_reached(agent: Stack) -> None:
    queue = {"mode": "aside", "debounce_ms": 0}
    agent.configure(agent.agent, queue=queue, sessions={"max_children": 1})
    _, task = await busy(agent)
    second, third = [await agent.append(f"branch {name}") for name in ("two", "three")]
    verdicts = sorted([await verdict(agent, second), await verdict(agent, third)])
    texts = [reply.text for reply in await sent(agent, 2)]
    go(agent)
    await task

    assert verdicts == ["branch", "later"]
    assert WAITS in texts
