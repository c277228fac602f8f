"""Messages that arrive while their session is busy: queue modes, the cap, crashes, dead letters."""

from typing import Any

import orjson
import pytest

from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import NotFound
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.messages import Entry, Origin
from remoteclaw.session.queue import settling_pause_s
from tests.support.conversations import answers, append, busy, drain, dying, go, renewed
from tests.support.leases import started_task
from tests.support.stack import REPLIES, Stack, message, said
from tests.support.waiting import HANG_S, eventually


def configure(stack: Stack, **queue: object) -> None:
    stack.configure(stack.agent, queue={"debounce_ms": 0, **queue})


async def heard(stack: Stack, *accepted: Accepted) -> list[str]:
    """Return the replies without the list of earlier messages: `heard` and the turn's messages."""
    return [answer.partition(", knew ")[0] for answer in await answers(stack, *accepted)]


async def statuses(stack: Stack, *accepted: Accepted) -> list[str]:
    return [(await stack.outcome(each)).status for each in accepted]


# -- followup and collect -------------------------------------------------------------------------


async def test_collect_answers_all_waiting_messages_in_one_turn(agent: Stack) -> None:
    configure(agent, mode="collect")
    _, task = await busy(agent)
    two, three = await append(agent, "two", "three")
    go(agent)
    await task

    assert await heard(agent, two, three) == ["heard two + three"] * 2
    outcome = await agent.outcome(three)
    assert outcome.turn == two.entry_id  # each outcome names the turn that answered its message
    assert outcome.status == "done"


async def test_collect_waits_until_the_person_has_stopped_typing(agent: Stack) -> None:
    configure(agent, mode="collect", debounce_ms=3000)
    first, task = await busy(agent)
    two = await agent.append("two")
    go(agent)
    await agent.outcome(first)
    three = await agent.append("three")  # within the pause
    await task

    assert await heard(agent, two, three) == ["heard two + three"] * 2


# -- the cap --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "drop", "expected", "text"),
    [
        ("followup", "old", ["dropped", "dropped", "done", "done"], "I left out 2"),
        ("followup", "new", ["done", "done", "dropped", "dropped"], "I left out 2"),
        ("collect", "summarize", ["dropped", "dropped", "done", "done"], "heard four + five"),
    ],
)
async def test_messages_beyond_the_cap_are_dropped_and_their_sender_is_informed(
    agent: Stack, mode: str, drop: str, expected: list[str], text: str
) -> None:
    configure(agent, mode=mode, cap=2, drop=drop)
    _, task = await busy(agent)
    waiting = await append(agent, "two", "three", "four", "five")
    go(agent)
    await task

    assert await statuses(agent, *waiting) == expected
    dropped = waiting[expected.index("dropped")]
    assert text in said(await agent.outcome(dropped))


# -- interrupt ------------------------------------------------------------------------------------


async def test_interrupt_stops_the_turn_for_the_new_message(agent: Stack) -> None:
    configure(agent, mode="interrupt")
    first, task = await busy(agent)

    second = await agent.append("two")
    await task

    outcome = await agent.outcome(first)
    assert outcome.status == "interrupted"
    assert said(outcome) == "heard wait, knew -\n\n(I left this for your next message.)"
    assert await heard(agent, second) == ["heard two"]


# -- results and cron jobs ------------------------------------------------------------------------


async def result(stack: Stack, parent: Accepted, task: str) -> Accepted:
    """Run a task of a session to its end, and return the entry of the result."""
    key = parent.session
    child, entry_id = await started_task(stack.fleet, key, message(task), call=task)
    await drain(stack, Accepted(child, entry_id, False))
    view = await stack.fleet.sessions.view(key.sid)
    assert view is not None
    return Accepted(key, str(view.last_entry), False)


@pytest.mark.parametrize("mode", ["followup", "collect"])
async def test_results_that_arrive_together_share_a_turn(
    agent: Stack, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle session also waits for more results, until a person's message arrives."""
    for name in ("SETTLE_MS", "MAX_SETTLE_MS"):
        monkeypatch.setattr(f"remoteclaw.session.queue.{name}", HANG_S * 1000)
    configure(agent, mode=mode)
    first = await agent.append("hi")
    await drain(agent, first)
    one = await result(agent, first, "one")
    task = drain(agent, first)

    async def is_served() -> bool:
        view = await agent.fleet.sessions.view(first.session.sid)
        return view is not None and view.status == "running"

    await eventually(is_served)
    two, three = [await result(agent, first, text) for text in ("two", "three")]
    assert await outcomes_so_far(agent, one, two, three) == ["accepted"] * 3
    await agent.append("now")
    await task

    turns = {(await agent.outcome(each)).turn for each in (one, two, three)}
    assert turns == {one.entry_id}


async def outcomes_so_far(stack: Stack, *accepted: Accepted) -> list[str]:
    return [(await stack.outcome_so_far(each)).status for each in accepted]


@pytest.mark.parametrize(
    ("origins", "at_ms", "pause_s"),
    [
        (("result",), (0,), 0.5),
        (("result", "result"), (0, 300), 0.5),
        (("result", "result"), (0, 1800), 0.2),  # the first one has waited long enough
        (("result", "chat"), (0, 300), 0.0),
        (("chat",), (0,), 0.0),
    ],
)
def test_only_results_wait_for_more_results_and_only_briefly(
    origins: tuple[Origin, ...], at_ms: tuple[int, ...], pause_s: float
) -> None:
    waiting = [
        Entry(f"{at}-0", message("x"), origin=origin)
        for at, origin in zip(at_ms, origins, strict=True)
    ]

    assert settling_pause_s(waiting, now_ms=at_ms[-1]) == pause_s
    assert settling_pause_s(waiting, now_ms=at_ms[-1] + 60_000) == 0


@pytest.mark.parametrize("mode", ["interrupt", "steer"])
async def test_a_result_neither_interrupts_nor_joins_the_running_turn(
    agent: Stack, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    configure(agent, mode=mode)
    first, task = await busy(agent)
    arrived = await result(agent, first, "hi")
    await renewed(agent, first, times=2)
    go(agent)
    await task

    assert await statuses(agent, first, arrived) == ["done", "done"]
    assert await heard(agent, first, arrived) == ["heard wait", "heard heard hi"]


async def test_a_turn_for_a_cron_job_is_not_interrupted(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cron entry would not be sent again, so messages of people wait for the next turn."""
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    configure(agent, mode="interrupt")
    first = await agent.append("hello")
    await drain(agent, first)
    tick = await agent.write(first.session, "wait", "cron", deliver="channel")
    cron = Accepted(first.session, tick, False)
    together = await agent.append("two")
    task = drain(agent, first)
    await agent.reached(cron, "output")
    later = await agent.append("three")
    await renewed(agent, first, times=2)
    go(agent)
    await task

    assert await statuses(agent, cron, together, later) == ["done"] * 3
    assert await heard(agent, cron) == ["heard wait"]
    assert await heard(agent, together, later) == ["heard two + three"] * 2


# -- overrides ------------------------------------------------------------------------------------


async def test_a_session_can_override_the_queue_mode(agent: Stack) -> None:
    configure(agent, mode="collect", channels={"test": {"mode": "interrupt"}})
    first = await agent.append("hello")
    await agent.fleet.sessions.configure(first.session, QueueOverride(mode="followup"))
    await drain(agent, first)
    _, task = await busy(agent)
    waiting = await append(agent, "two", "three")
    go(agent)
    await task

    assert await heard(agent, *waiting) == ["heard two", "heard three"]


# -- crashes --------------------------------------------------------------------------------------


async def crashed(stack: Stack, *batch: Accepted, phase: str) -> None:
    """Leave a session in the state of a worker that was killed in a turn for the messages."""
    async with dying(stack, *batch) as lease:
        await lease.turns.note_phase(phase)


async def test_a_collected_batch_is_repeated_with_the_same_messages_after_a_crash(
    agent: Stack,
) -> None:
    configure(agent, mode="collect")
    one, two = await append(agent, "one", "two")
    await crashed(agent, one, two, phase="accepted")
    three = await agent.append("three")

    await drain(agent, one)

    assert await heard(agent, one, two, three) == ["heard one + two"] * 2 + ["heard three"]


async def test_a_message_that_kills_its_worker_does_not_fail_other_messages(agent: Stack) -> None:
    """After two failures of the batch, each message is tried alone, up to three failures."""
    configure(agent, mode="collect")
    poison, good = await append(agent, "poison", "good")
    await crashed(agent, poison, good, phase="output")
    await crashed(agent, poison, good, phase="output")
    await crashed(agent, poison, phase="output")

    await drain(agent, poison)

    assert await statuses(agent, poison, good) == ["dead", "done"]
    assert (await heard(agent, good))[0].endswith("heard good")


async def test_a_dropped_message_stays_dropped_after_a_crash(agent: Stack) -> None:
    configure(agent, mode="collect", cap=1, drop="old")
    one, two = await append(agent, "one", "two")
    async with dying(agent, one, phase="dropped"):
        pass

    await drain(agent, one)

    assert await statuses(agent, one, two) == ["dropped", "done"]


# -- edge cases -----------------------------------------------------------------------------------


async def test_stopped_messages_do_not_run_with_messages_sent_after_the_stop(agent: Stack) -> None:
    configure(agent, mode="collect")
    first, task = await busy(agent)
    two = await agent.append("two")
    await agent.fleet.sessions.stop(first.session.sid)
    three = await agent.append("three")
    await task

    assert await statuses(agent, first, two, three) == ["stopped", "stopped", "done"]
    assert await heard(agent, three) == ["heard three"]


async def test_the_cap_still_applies_after_another_worker_takes_over(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.session.queue.MAX_TURNS", 1)
    configure(agent, mode="collect", cap=2, drop="old")
    _, task = await busy(agent)
    waiting = await append(agent, "m1", "m2", "m3", "m4")
    await agent.append("another session, for which this one releases its worker", from_="bob")
    go(agent)
    await task
    view = await agent.fleet.sessions.view(waiting[0].session.sid)
    assert view is not None
    assert view.status == "scheduled"
    await agent.fleet.scripts.client.delete("rq:queue:agents")  # other workers take these hints

    await drain(agent, waiting[0])

    assert await statuses(agent, *waiting) == ["dropped", "dropped", "done", "done"]


async def test_summarized_messages_stay_dropped_after_a_crash(agent: Stack) -> None:
    configure(agent, mode="collect", cap=1)
    one, two, three = await append(agent, "one", "two", "three")
    for _ in range(2):
        async with dying(agent, one, two, three, left_out=[one.entry_id, two.entry_id]) as lease:
            await lease.turns.note_phase("output")

    await drain(agent, one)

    assert await statuses(agent, one, two, three) == ["dropped", "dropped", "done"]


async def test_a_turn_that_was_cut_off_is_not_dropped_for_later_messages(agent: Stack) -> None:
    configure(agent, mode="followup", cap=1, drop="old")
    first = await agent.append("one")
    await crashed(agent, first, phase="output")
    waiting = await append(agent, "two", "three", "four")

    await drain(agent, first)

    assert await statuses(agent, first, *waiting) == ["done", "dropped", "dropped", "done"]


# -- dead letters ---------------------------------------------------------------------------------


async def dead(stack: Stack, text: str) -> Accepted:
    """Append a message that kills its worker three times, so that it becomes a dead letter."""
    accepted = await stack.append(text)
    for _ in range(3):
        await crashed(stack, accepted, phase="output")
    await drain(stack, accepted)
    outcome = await stack.outcome(accepted)
    assert outcome.status == "dead"
    assert "was cut off while it worked on your message, more than once" in said(outcome)
    return accepted


async def test_a_dead_letter_is_kept_until_it_is_retried_or_dropped(agent: Stack) -> None:
    configure(agent)
    accepted = await dead(agent, "poison")
    (letter,) = await agent.fleet.dead_letters.list()
    assert letter.entry is not None
    assert letter.entry.message.text == "poison"
    assert (letter.attempts, letter.category) == (3, "interrupted")
    assert letter.entry_id == accepted.entry_id

    retried = await agent.fleet.dead_letters.retry(letter.id)
    await drain(agent, retried)

    assert await heard(agent, retried) == ["heard poison"]
    assert await agent.fleet.dead_letters.list() == []
    assert retried.entry_id in await agent.reached(accepted, "retried")
    with pytest.raises(NotFound):
        await agent.fleet.dead_letters.retry(letter.id)
    await dead(agent, "poison again")
    (letter,) = await agent.fleet.dead_letters.list()
    await agent.fleet.dead_letters.drop(letter.id)
    assert await agent.fleet.dead_letters.list() == []


async def append_awaited(stack: Stack, text: str) -> Accepted:
    """Append a message of the chat for whose outcome somebody waits."""
    return await stack.fleet.inbound.append(message(text), agent="main", waits=True)


@pytest.mark.parametrize("mode", ["aside", "collect", "followup", "steer", "interrupt"])
@pytest.mark.parametrize("drop", ["old", "new", "summarize"])
async def test_a_message_that_somebody_waits_for_is_alone_and_never_dropped(
    agent: Stack, mode: str, drop: str
) -> None:
    configure(agent, mode=mode, cap=1, drop=drop)
    _, task = await busy(agent)
    waited = [await append_awaited(agent, text) for text in ("two", "three")]
    four = await agent.append("four")
    go(agent)
    await task

    assert await heard(agent, *waited, four) == ["heard two", "heard three", "heard four"]
    for each in waited:
        assert (await agent.outcome(each)).turn == each.entry_id
    published: Any = await agent.fleet.scripts.client.xrange(REPLIES)
    texts = [orjson.loads(fields[b"reply"])["text"].partition(",")[0] for _, fields in published]
    assert texts[-3:] == ["heard two", "heard three", "heard four"]


async def test_a_turn_that_somebody_waits_for_is_repeated_alone_after_a_crash(
    agent: Stack,
) -> None:
    configure(agent, mode="collect")
    one = await append_awaited(agent, "one")
    two = await agent.append("two")
    await crashed(agent, one, phase="output")

    await drain(agent, one)

    first, second = await heard(agent, one, two)
    assert first.endswith("heard one")
    assert second == "heard two"


async def test_a_retried_dead_letter_of_such_a_message_is_alone_again(agent: Stack) -> None:
    configure(agent, mode="collect")
    accepted = await append_awaited(agent, "poison")
    for _ in range(3):
        await crashed(agent, accepted, phase="output")
    await drain(agent, accepted)
    (letter,) = await agent.fleet.dead_letters.list()
    retried = await agent.fleet.dead_letters.retry(letter.id)
    later = await agent.append("later")
    await drain(agent, retried)

    assert await heard(agent, retried, later) == ["heard poison", "heard later"]


async def test_each_outcome_that_somebody_waits_for_says_that_it_was_stopped(
    agent: Stack,
) -> None:
    """The chat's own messages are stopped without a further sentence."""
    configure(agent, mode="collect")
    _, task = await busy(agent)
    waited = [await append_awaited(agent, text) for text in ("two", "three")]
    four = await agent.append("four")
    await agent.fleet.sessions.stop(four.session.sid, call="s")
    await task

    outcomes = [await agent.outcome(each) for each in (*waited, four)]
    assert [each.status for each in outcomes] == ["stopped"] * 3
    assert [bool(said(each)) for each in outcomes] == [True, True, False]
