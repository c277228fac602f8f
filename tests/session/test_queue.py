"""What becomes of messages that arrive while their session is busy: each mode, and each crash."""

from pathlib import Path

import pytest

from remoteclaw.config.model import QueueOverride
from remoteclaw.errors import UnknownDeadLetter
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.messages import Provenance
from tests.support.bridges import script
from tests.support.conversations import answers, append, busy, drain, dying, go, renewed
from tests.support.stack import Stack, message, said

#: An agent that says which texts it was asked, and waits first where the text asks for it.
ECHO = """
while True:
    words = [line for line in turn()['prompt'].splitlines() if line and line[0] != '[']
    say(type='text', text='heard ' + ' + '.join(words))
    while 'wait' in words and not os.path.exists('go'):
        time.sleep(0.005)
        if select.select([0], [], [], 0)[0]:
            say(type='done', aborted=True)
            turn()
            break
    else:
        say(type='done')
"""


@pytest.fixture
async def echo(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent says what it was asked."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, "import select" + ECHO))}
    return stack


def configure(stack: Stack, **queue: object) -> None:
    stack.configure(stack.agent, queue={"debounce_ms": 0, **queue})


async def statuses(stack: Stack, *accepted: Accepted) -> list[str]:
    return [(await stack.outcome(each)).status for each in accepted]


# -- followup and collect -------------------------------------------------------------------------


async def test_collect_answers_what_waits_in_one_turn(echo: Stack) -> None:
    configure(echo, mode="collect")
    _, task = await busy(echo)
    two, three = await append(echo, "two", "three")
    go(echo)
    await task

    assert await answers(echo, two, three) == ["heard two + three"] * 2
    outcome = await echo.outcome(three)
    assert outcome.turn == two.entry_id  # each names the turn that answered it
    assert outcome.status == "done"


async def test_a_message_is_collected_when_the_person_has_stopped_typing(echo: Stack) -> None:
    configure(echo, mode="collect", debounce_ms=3000)
    first, task = await busy(echo)
    two = await echo.append("two")
    go(echo)
    await echo.outcome(first)
    three = await echo.append("three")  # within the pause
    await task

    assert await answers(echo, two, three) == ["heard two + three"] * 2


# -- too many -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "drop", "expected", "words"),
    [
        ("followup", "old", ["dropped", "dropped", "done", "done"], "I left out 2"),
        ("followup", "new", ["done", "done", "dropped", "dropped"], "I left out 2"),
        ("collect", "summarize", ["dropped", "dropped", "done", "done"], "heard four + five"),
    ],
)
async def test_beyond_the_cap_messages_are_left_out_and_their_sender_is_told(
    echo: Stack, mode: str, drop: str, expected: list[str], words: str
) -> None:
    configure(echo, mode=mode, cap=2, drop=drop)
    _, task = await busy(echo)
    waiting = await append(echo, "two", "three", "four", "five")
    go(echo)
    await task

    assert await statuses(echo, *waiting) == expected
    dropped = waiting[expected.index("dropped")]
    assert words in said(await echo.outcome(dropped))


# -- interrupt ------------------------------------------------------------------------------------


async def test_interrupt_stops_the_turn_for_the_new_message(echo: Stack) -> None:
    configure(echo, mode="interrupt")
    first, task = await busy(echo)

    second = await echo.append("two")
    await task

    outcome = await echo.outcome(first)
    assert outcome.status == "interrupted"
    assert said(outcome) == "heard wait\n\n(I left this for your next message.)"
    assert await answers(echo, second) == ["heard two"]


# -- what no person has sent ----------------------------------------------------------------------


async def result(stack: Stack, parent: Accepted, task: str) -> Accepted:
    """Have a session that another one has started do its task; return the result's entry."""
    key = parent.session
    child, entry_id = await stack.fleet.calls.spawn(
        None,
        task,
        key,
        message(task),
        note=None,
        provenance=Provenance(by=str(key), via=(key.sid,), hops=1),
        parent=key,
        depth=1,
        label=None,
        max_unfinished=5,
    )
    await drain(stack, Accepted(child, entry_id, False))
    view = await stack.fleet.sessions.view(key.sid)
    assert view is not None
    return Accepted(key, str(view.last_entry), False)


@pytest.mark.parametrize("mode", ["interrupt", "steer"])
async def test_a_result_waits_for_the_running_turn(
    echo: Stack, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    configure(echo, mode=mode)
    first, task = await busy(echo)
    came = await result(echo, first, "hi")
    await renewed(echo, first, times=2)
    go(echo)
    await task

    assert await statuses(echo, first, came) == ["done", "done"]
    assert await answers(echo, first, came) == ["heard wait", "heard heard hi"]


async def test_a_turn_about_what_no_person_has_sent_is_not_interrupted(
    echo: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would send it again. What a person sends is answered behind it, in its own turn."""
    monkeypatch.setattr("remoteclaw.fleet.connection.LISTEN_S", 0.05)
    configure(echo, mode="interrupt")
    first = await echo.append("hello")
    await drain(echo, first)
    tick = await echo.write(first.session, "wait", "cron", deliver="channel")
    cron = Accepted(first.session, tick, False)
    together = await echo.append("two")
    task = drain(echo, first)
    await echo.reached(cron, "output")
    later = await echo.append("three")
    await renewed(echo, first, times=2)
    go(echo)
    await task

    assert await statuses(echo, cron, together, later) == ["done"] * 3
    assert await answers(echo, cron) == ["heard wait"]
    assert await answers(echo, together, later) == ["heard two + three"] * 2


# -- overrides ------------------------------------------------------------------------------------


async def test_a_session_may_have_a_mode_of_its_own(echo: Stack) -> None:
    configure(echo, mode="collect", channels={"test": {"mode": "interrupt"}})
    first = await echo.append("hello")
    await echo.fleet.sessions.configure(first.session.sid, QueueOverride(mode="followup"))
    await drain(echo, first)
    _, task = await busy(echo)
    waiting = await append(echo, "two", "three")
    go(echo)
    await task

    assert await answers(echo, *waiting) == ["heard two", "heard three"]


# -- crashes --------------------------------------------------------------------------------------


async def crashed(stack: Stack, *batch: Accepted, phase: str) -> None:
    """Leave a session as a worker does that was killed in a turn about some messages."""
    async with dying(stack, *batch) as lease:
        await lease.turns.mark(phase)


async def test_a_collected_batch_is_repeated_exactly(echo: Stack) -> None:
    configure(echo, mode="collect")
    one, two = await append(echo, "one", "two")
    await crashed(echo, one, two, phase="accepted")
    three = await echo.append("three")

    await drain(echo, one)

    assert await answers(echo, one, two, three) == ["heard one + two"] * 2 + ["heard three"]


async def test_what_kills_its_worker_takes_no_other_message_along(echo: Stack) -> None:
    """After two failures together, each message is tried alone; then it is given up."""
    configure(echo, mode="collect")
    poison, good = await append(echo, "poison", "good")
    await crashed(echo, poison, good, phase="output")
    await crashed(echo, poison, good, phase="output")
    await crashed(echo, poison, phase="output")

    await drain(echo, poison)

    assert await statuses(echo, poison, good) == ["dead", "done"]
    assert said(await echo.outcome(good)).endswith("heard good")


async def test_a_dropped_message_stays_dropped(echo: Stack) -> None:
    configure(echo, mode="collect", cap=1, drop="old")
    one, two = await append(echo, "one", "two")
    async with dying(echo, one, phase="dropped"):
        pass

    await drain(echo, one)

    assert await statuses(echo, one, two) == ["dropped", "done"]


# -- at the edges ---------------------------------------------------------------------------------


async def test_what_was_stopped_is_not_run_with_what_came_after_the_stop(echo: Stack) -> None:
    configure(echo, mode="collect")
    first, task = await busy(echo)
    two = await echo.append("two")
    await echo.fleet.sessions.stop(first.session.sid)
    three = await echo.append("three")
    await task

    assert await statuses(echo, first, two, three) == ["stopped", "stopped", "done"]
    assert await answers(echo, three) == ["heard three"]


async def test_the_cap_is_not_forgotten_when_the_session_changes_hands(
    echo: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.session.queue.MOST_TURNS", 1)
    configure(echo, mode="collect", cap=2, drop="old")
    _, task = await busy(echo)
    waiting = await append(echo, "m1", "m2", "m3", "m4")
    await echo.append("another session, so that this one lets others go first", from_="bob")
    go(echo)
    await task
    view = await echo.fleet.sessions.view(waiting[0].session.sid)
    assert view is not None
    assert view.status == "scheduled"
    await echo.fleet.scripts.client.delete("rq:queue:agents")  # the others are served

    await drain(echo, waiting[0])

    assert await statuses(echo, *waiting) == ["dropped", "dropped", "done", "done"]


async def test_what_is_only_mentioned_gets_no_turn_after_a_crash_either(echo: Stack) -> None:
    configure(echo, mode="collect", cap=1)
    one, two, three = await append(echo, "one", "two", "three")
    for _ in range(2):
        async with dying(echo, one, two, three, left_out=[one.entry_id, two.entry_id]) as lease:
            await lease.turns.mark("output")

    await drain(echo, one)

    assert await statuses(echo, one, two, three) == ["dropped", "dropped", "done"]


async def test_a_turn_that_was_cut_off_is_not_dropped_for_what_came_behind_it(echo: Stack) -> None:
    configure(echo, mode="followup", cap=1, drop="old")
    first = await echo.append("one")
    await crashed(echo, first, phase="output")
    waiting = await append(echo, "two", "three", "four")

    await drain(echo, first)

    assert await statuses(echo, first, *waiting) == ["done", "dropped", "dropped", "done"]


# -- dead letters ---------------------------------------------------------------------------------


async def dead(stack: Stack, text: str) -> Accepted:
    """Have a message that killed its worker three times."""
    accepted = await stack.append(text)
    for _ in range(3):
        await crashed(stack, accepted, phase="output")
    await drain(stack, accepted)
    outcome = await stack.outcome(accepted)
    assert outcome.status == "dead"
    assert "was cut off while it worked on your message, more than once" in said(outcome)
    return accepted


async def test_a_dead_letter_is_kept_and_can_be_tried_again_or_dropped(echo: Stack) -> None:
    configure(echo)
    accepted = await dead(echo, "poison")
    (letter,) = await echo.fleet.dead_letters.list()
    assert letter.entry is not None
    assert letter.entry.message.text == "poison"
    assert (letter.attempts, letter.category) == (3, "interrupted")
    assert letter.entry_id == accepted.entry_id

    again = await echo.fleet.dead_letters.retry(letter.id)
    await drain(echo, again)

    assert await answers(echo, again) == ["heard poison"]
    assert await echo.fleet.dead_letters.list() == []
    assert again.entry_id in await echo.reached(accepted, "retried")
    with pytest.raises(UnknownDeadLetter):
        await echo.fleet.dead_letters.retry(letter.id)
    await dead(echo, "poison again")
    (letter,) = await echo.fleet.dead_letters.list()
    await echo.fleet.dead_letters.drop(letter.id)
    assert await echo.fleet.dead_letters.list() == []
