"""The pure decision functions of `session/queue.py`: tables of cases, and properties of batches."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.turn import Batch, Finished
from remoteclaw.messages import Deliver, Entry, Origin, SessionKey, Turn
from remoteclaw.session.queue import (
    MAX_SECONDS,
    MAX_TURNS,
    BatchStep,
    DrainStep,
    Fate,
    NextBatch,
    OpenTurn,
    TurnReaction,
    after_turn,
    batch_step,
    gathering_pause_s,
    interrupts,
    may_be_postponed,
    next_batch,
    reaction,
    settling_pause_s,
    typing_pause_s,
)
from tests.support.rows import for_each
from tests.support.stack import message

SESSION = SessionKey.of(message("hi"), agent="main")


def entry(
    at_ms: int, text: str = "hi", *, deliver: Deliver = "channel", origin: Origin = "chat"
) -> Entry:
    return Entry(f"{at_ms}-0", message(text), deliver, origin)


def turn(*entries: Entry) -> Turn:
    return Turn(SESSION, entries)


def result(at_ms: int) -> Entry:
    return entry(at_ms, origin="result")


def caller(at_ms: int) -> Entry:
    return entry(at_ms, deliver="caller")


def awaited(at_ms: int) -> Entry:
    """Return a message of the chat for whose outcome somebody waits."""
    return replace(entry(at_ms), waits=True)


# -- the next batch -------------------------------------------------------------------------------

KINDS = st.sampled_from(
    ["chat", "chat", "chat", "caller", "awaited", "result", "/new", "/new go on", "/stop"]
)


@st.composite
def waiting_entries(draw: st.DrawFn) -> list[Entry]:
    """Draw the entries that wait in a session, oldest first."""
    drawn = []
    for at_ms, kind in enumerate(draw(st.lists(KINDS, min_size=1, max_size=12)), start=1):
        if kind == "caller":
            drawn.append(caller(at_ms))
        elif kind == "awaited":
            drawn.append(awaited(at_ms))
        elif kind == "result":
            drawn.append(result(at_ms))
        else:
            drawn.append(entry(at_ms, kind))
    return drawn


queues = st.builds(
    QueueConfig,
    mode=st.sampled_from(["collect", "followup", "steer", "interrupt"]),
    cap=st.integers(0, 4),
    drop=st.sampled_from(["old", "new", "summarize"]),
)


def plans(
    waiting: Sequence[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> list[NextBatch]:
    """Plan batches until no entry waits."""
    planned = []
    left = list(waiting)
    while left:
        plan = next_batch(left, queue, busy_since_ms=busy_since_ms)
        assert plan.batch, "the entries would wait forever"
        planned.append(plan)
        left = [each for each in left if each.id not in plan.batch]
    return planned


@given(waiting_entries(), queues, st.none() | st.integers(0, 12))
def test_every_entry_is_in_one_batch_and_the_order_is_kept(
    waiting: list[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> None:
    planned = plans(waiting, queue, busy_since_ms)

    ids = [each.id for each in waiting]
    assert sorted(itertools.chain(*(plan.batch for plan in planned))) == sorted(ids)
    answered = [
        each
        for plan in planned
        if not plan.is_dropped
        for each in plan.batch
        if each not in plan.left_out
    ]
    assert answered == [each for each in ids if each in answered]


CROWD = [entry(1), result(2), entry(3), entry(4, "/new"), entry(5, "/new go on"), entry(6)]


@for_each(
    ("settings", "busy_since_ms", "expected"),
    [
        ({"cap": 3}, 1, NextBatch(("1-0", "2-0", "3-0"))),
        ({"cap": 2}, 2, NextBatch(("1-0", "2-0", "3-0"))),
        ({"cap": 2}, None, NextBatch(("1-0", "2-0", "3-0"))),
        ({"cap": 0}, 1, NextBatch(("1-0", "2-0", "3-0"))),
        ({"cap": 2, "drop": "old"}, 1, NextBatch(("1-0",), is_dropped=True)),
        ({"cap": 2, "drop": "new"}, 1, NextBatch(("6-0",), is_dropped=True)),
        ({"cap": 1, "drop": "new"}, 1, NextBatch(("3-0", "6-0"), is_dropped=True)),
        ({"cap": 1, "drop": "summarize"}, 1, NextBatch(("1-0", "2-0", "3-0"), ("1-0", "3-0"))),
        ({"cap": 2, "mode": "followup"}, 1, NextBatch(("1-0", "2-0"), ("1-0",))),
    ],
)
def test_the_cap_drops_messages_of_people_but_no_results_or_commands(
    settings: dict[str, object], busy_since_ms: int | None, expected: NextBatch
) -> None:
    queue = QueueConfig.model_validate(settings)

    plan = next_batch(CROWD, queue, busy_since_ms=busy_since_ms)

    assert plan == expected


@given(waiting_entries(), queues, st.none() | st.integers(0, 12))
def test_only_messages_of_people_are_dropped_and_only_beyond_the_cap(
    waiting: list[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> None:
    planned = plans(waiting, queue, busy_since_ms)

    by_id = {each.id: each for each in waiting}
    dropped = [
        by_id[each]
        for plan in planned
        for each in (plan.batch if plan.is_dropped else plan.left_out)
    ]
    for each in dropped:
        assert (each.deliver, each.origin, command_of(each)) == ("channel", "chat", None)
        assert not each.waits
        assert busy_since_ms is not None
        assert each.at_ms >= busy_since_ms
    if not queue.cap:
        assert not dropped


@given(waiting_entries(), queues, st.none() | st.integers(0, 12))
def test_commands_and_entries_for_which_somebody_waits_have_their_own_batch(
    waiting: list[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> None:
    planned = plans(waiting, queue, busy_since_ms)

    for each in waiting:
        if each.deliver != "channel" or each.waits or command_of(each):
            assert NextBatch((each.id,)) in planned


@given(waiting_entries(), queues, st.none() | st.integers(0, 12))
def test_interruptible_and_other_entries_never_share_a_turn(
    waiting: list[Entry], queue: QueueConfig, busy_since_ms: int | None
) -> None:
    planned = plans(waiting, queue.model_copy(update={"mode": "interrupt"}), busy_since_ms)

    by_id = {each.id: each for each in waiting}
    for plan in planned:
        answered = [by_id[each] for each in plan.batch if each not in plan.left_out]
        assert len({each.origin == "chat" for each in answered}) <= 1


# -- typing ---------------------------------------------------------------------------------------


@for_each(
    ("waiting", "settings", "now_ms", "expected"),
    [
        ([entry(100)], {}, 100, 1.0),
        ([entry(100)], {}, 700, 0.4),
        ([entry(100)], {}, 5000, 0.0),
        ([entry(100)], {}, 0, 1.0),
        ([entry(100)], {"mode": "followup"}, 100, 1.0),
        ([entry(100)], {"mode": "steer"}, 100, 0.0),
        ([entry(100)], {"mode": "interrupt"}, 100, 0.0),
        ([entry(100), entry(101)], {"cap": 2}, 101, 0.0),
        ([entry(100), caller(101)], {}, 101, 0.0),
        ([entry(100), awaited(101)], {}, 101, 0.0),
        ([awaited(100), entry(101)], {}, 101, 0.0),
        ([entry(100), entry(101, "/new")], {}, 101, 0.0),
    ],
)
def test_a_batch_waits_while_the_person_may_still_be_typing(
    waiting: list[Entry], settings: dict[str, object], now_ms: int, expected: float
) -> None:
    queue = QueueConfig.model_validate({"debounce_ms": 1000, **settings})

    assert typing_pause_s(waiting, queue, now_ms=now_ms) == expected


# -- bursts ---------------------------------------------------------------------------------------


def overheard(at_ms: int, text: str = "hi", **fields: object) -> Entry:
    """Return a message in a group that does not address the agent."""
    about = {"chat_kind": "group", "is_addressed": False, **fields}
    return Entry(f"{at_ms}-0", message(text, **about))


@for_each(
    ("waiting", "settings", "now_ms", "expected"),
    [
        ([overheard(100)], {}, 100, 1.5),
        ([overheard(100)], {}, 700, 0.9),
        ([overheard(100)], {}, 1600, 0.0),
        ([overheard(100, chat_kind="thread")], {}, 100, 1.5),
        ([overheard(100), overheard(900)], {}, 900, 1.5),
        ([overheard(100), overheard(4600)], {}, 4600, 0.5),  # the first one has waited long enough
        ([overheard(100), overheard(6000)], {}, 6000, 0.0),
        ([overheard(100_000)], {}, 3, 1.5),  # the clock was set back
        ([overheard(100_000), overheard(104_000)], {}, 3, 1.0),
        ([overheard(100)], {"mode": "interrupt"}, 100, 1.5),
        ([overheard(100)], {"mode": "followup"}, 100, 0.0),
        ([overheard(100)], {"mode": "steer"}, 100, 0.0),
        ([overheard(100)], {"gather_ms": 0}, 100, 0.0),
        ([overheard(100)], {"gather_most_ms": 0}, 100, 0.0),
        ([overheard(100), overheard(101)], {"cap": 2}, 101, 0.0),
        ([overheard(100), overheard(101)], {"cap": 0}, 101, 1.5),
        ([overheard(100, chat_kind="direct")], {}, 100, 0.0),
        ([overheard(100, chat_kind=None)], {}, 100, 0.0),
        ([overheard(100, is_addressed=None)], {}, 100, 0.0),
        ([overheard(100), overheard(101, is_addressed=True)], {}, 101, 0.0),
        ([overheard(100, is_addressed=True), overheard(101)], {}, 101, 0.0),
        ([overheard(100), overheard(101, "/new")], {}, 101, 0.0),
        ([overheard(100), caller(101)], {}, 101, 0.0),
        ([overheard(100), result(101)], {}, 101, 0.0),
        ([overheard(100), entry(101, origin="cron")], {}, 101, 0.0),
    ],
)
def test_only_group_messages_that_do_not_address_the_agent_are_gathered(
    waiting: list[Entry], settings: dict[str, object], now_ms: int, expected: float
) -> None:
    queue = QueueConfig.model_validate(settings)

    assert gathering_pause_s(waiting, queue, now_ms=now_ms) == expected


# -- the step for a batch -------------------------------------------------------------------------


def batch(*, failures: int = 0, is_stopped: bool = False, is_dropped: bool = False) -> Batch:
    return Batch(
        turn="1-0",
        attempt=failures + 1,
        failures=failures,
        furthest_phase_before="",
        is_stopped=is_stopped,
        is_dropped=is_dropped,
        entries=(),
        left_out=frozenset(),
    )


DAMAGED = Entry("1-0", message("hi"), unreadable="it is damaged")
OPERATOR = entry(1, "operator: new", deliver="caller", origin="operator")


@for_each(
    ("begun", "first", "expected"),
    [
        (batch(), entry(1), BatchStep.AGENT),
        (batch(), entry(1, "/new"), BatchStep.RESET),
        (batch(), entry(1, "/new go on"), BatchStep.AGENT),
        (batch(), OPERATOR, BatchStep.RESET),
        (batch(is_stopped=True), OPERATOR, BatchStep.RESET),
        (batch(is_stopped=True), entry(1), BatchStep.STOPPED),
        (batch(is_stopped=True), entry(1, "/new"), BatchStep.STOPPED),
        (batch(is_stopped=True), entry(1, "/stop"), BatchStep.STOP_NOTICE),
        (batch(is_dropped=True), entry(1), BatchStep.DROPPED),
        (batch(failures=2), entry(1), BatchStep.AGENT),
        (batch(failures=3), entry(1), BatchStep.GIVEN_UP),
        (batch(failures=3), entry(1, "/new"), BatchStep.GIVEN_UP),
        (batch(), DAMAGED, BatchStep.UNREADABLE),
        (batch(is_stopped=True), DAMAGED, BatchStep.STOPPED),
    ],
)
def test_the_step_for_a_batch_depends_on_its_state_and_its_first_entry(
    begun: Batch, first: Entry, expected: BatchStep
) -> None:
    assert batch_step(begun, turn(first), command=command_of(first)) is expected


# -- entries that arrive during a turn ------------------------------------------------------------


@for_each(
    ("running", "mode", "stop", "newest", "expected"),
    [
        (turn(entry(5)), "collect", "", "9-0", TurnReaction.NOTHING),
        (turn(entry(5)), "followup", "", "9-0", TurnReaction.NOTHING),
        (turn(entry(5)), "interrupt", "", "9-0", TurnReaction.INTERRUPT),
        (turn(entry(5)), "interrupt", "", "6-0", TurnReaction.NOTHING),
        (turn(entry(5)), "interrupt", "", "", TurnReaction.NOTHING),
        (turn(result(5)), "interrupt", "", "9-0", TurnReaction.NOTHING),
        (turn(entry(4), result(5)), "interrupt", "", "9-0", TurnReaction.NOTHING),
        (turn(caller(5)), "interrupt", "", "9-0", TurnReaction.NOTHING),
        (turn(awaited(5)), "interrupt", "", "9-0", TurnReaction.NOTHING),
        (turn(awaited(5)), "interrupt", "5-0", "9-0", TurnReaction.STOP),
        (turn(entry(5)), "steer", "", "9-0", TurnReaction.READ),
        (turn(entry(5)), "steer", "", "6-0", TurnReaction.NOTHING),
        (turn(entry(5)), "aside", "", "9-0", TurnReaction.READ),
        (turn(result(5)), "aside", "", "9-0", TurnReaction.READ),
        (turn(entry(5)), "steer", "5-0", "9-0", TurnReaction.STOP),
        (turn(entry(5)), "collect", "5-0", "", TurnReaction.STOP),
        (turn(entry(5)), "collect", "4-9", "", TurnReaction.NOTHING),
        (turn(entry(3), entry(5)), "collect", "4-0", "", TurnReaction.NOTHING),
        (turn(result(5)), "interrupt", "10-0", "9-0", TurnReaction.STOP),
    ],
)
def test_the_reaction_of_a_running_turn_depends_on_its_entries_and_the_mode(
    running: Turn, mode: str, stop: str, newest: str, expected: TurnReaction
) -> None:
    queue = QueueConfig.model_validate({"mode": mode})

    assert reaction(running, queue, newest_known="6-0", stop=stop, newest=newest) is expected


@pytest.mark.parametrize(
    ("running", "waiting", "mode", "can_steer", "expected"),
    [
        (turn(entry(5)), [], "steer", True, True),
        (turn(entry(5)), [], "steer", False, False),
        (turn(entry(5)), [], "collect", True, False),
        (turn(entry(5)), [entry(6)], "steer", True, False),
        (turn(entry(5)), [result(6)], "steer", True, True),
        (turn(caller(5)), [], "steer", True, False),
        (turn(awaited(5)), [], "steer", True, False),
    ],
)
def test_messages_join_a_turn_only_if_it_can_be_steered_and_no_message_waits(
    running: Turn, waiting: list[Entry], mode: str, can_steer: bool, expected: bool
) -> None:
    queue = QueueConfig.model_validate({"mode": mode})
    turn = OpenTurn(running, queue, waiting, can_steer, can_aside=False)

    assert (turn.fate(entry(9)) is Fate.JOINS) is expected


@for_each(
    ("arrived", "mode", "expected"),
    [
        (entry(9), "steer", Fate.JOINS),
        (entry(9), "aside", Fate.ASIDE),
        (entry(9), "collect", Fate.WAITS),
        (entry(9, "/new"), "steer", Fate.CLOSES),
        (entry(9, "/new"), "aside", Fate.CLOSES),
        (entry(9, "/newer"), "steer", Fate.JOINS),
        (caller(9), "steer", Fate.CLOSES),
        (caller(9), "aside", Fate.CLOSES),
        (awaited(9), "steer", Fate.CLOSES),
        (awaited(9), "aside", Fate.CLOSES),
        (result(9), "steer", Fate.WAITS),
        (result(9), "aside", Fate.WAITS),
        (entry(9, origin="cron"), "steer", Fate.WAITS),
        (entry(9, origin="session", deliver="parent"), "collect", Fate.WAITS),
        (Entry("9-0", message("hi"), unreadable="it is damaged"), "steer", Fate.CLOSES),
        (overheard(9), "steer", Fate.JOINS),
        (overheard(9), "aside", Fate.WAITS),
    ],
)
def test_a_message_joins_a_turn_or_becomes_an_aside_or_waits(
    arrived: Entry, mode: str, expected: Fate
) -> None:
    queue = QueueConfig.model_validate({"mode": mode})
    running = OpenTurn(turn(entry(5)), queue, (), can_steer=True, can_aside=True)

    assert running.fate(arrived) is expected


# -- after a turn ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ([], True),
        ([entry(6)], True),
        ([entry(6), entry(7, "/new")], False),
        ([OPERATOR], False),
        ([entry(6, "/stop")], True),
    ],
)
def test_a_turn_can_be_postponed_unless_a_waiting_entry_ends_the_conversation(
    waiting: list[Entry], expected: bool
) -> None:
    assert may_be_postponed(waiting) is expected


@for_each(
    ("left", "hints", "turns", "seconds", "is_leaving", "expected"),
    [
        (0, 0, 1, 1.0, False, DrainStep.LINGER),
        (0, 0, 99, 999.0, False, DrainStep.LINGER),
        (0, 3, 1, 1.0, False, DrainStep.READ_WAITING),
        (0, 0, 1, 1.0, True, DrainStep.READ_WAITING),
        (2, 0, 99, 999.0, False, DrainStep.READ_WAITING),
        (2, 1, 1, 1.0, False, DrainStep.READ_WAITING),
        (2, 1, 1, MAX_SECONDS, False, DrainStep.READ_WAITING),
        (2, 1, MAX_TURNS, 1.0, False, DrainStep.RELEASE),
        (2, 1, 1, MAX_SECONDS + 1, False, DrainStep.RELEASE),
        (2, 0, 1, 1.0, True, DrainStep.RELEASE),
    ],
)
def test_the_step_after_a_turn_depends_on_waiting_entries_hints_and_time(
    left: int, hints: int, turns: int, seconds: float, is_leaving: bool, expected: DrainStep
) -> None:
    ended = Finished(left=left, competing_hints=hints, at_ms=0)

    step = after_turn(ended, turns=turns, seconds=seconds, is_leaving=is_leaving)

    assert step is expected


# -- tasks, results and several people ------------------------------------------------------------


def parents(at_ms: int) -> Entry:
    """Return a message of the parent to its task."""
    return entry(at_ms, origin="session", deliver="parent")


def of_bob(at_ms: int) -> Entry:
    return Entry(f"{at_ms}-0", message("hi", from_="bob"))


@for_each(
    ("waiting", "mode", "expected"),
    [
        ([parents(1), parents(2), entry(3)], "collect", ("1-0", "2-0")),
        ([entry(1), entry(2), result(3)], "interrupt", ("1-0", "2-0")),
        ([result(1), result(2), entry(3)], "interrupt", ("1-0", "2-0")),
        ([entry(1), result(2), entry(3)], "collect", ("1-0", "2-0", "3-0")),
        ([result(1), result(2), entry(3)], "followup", ("1-0", "2-0")),
        ([entry(1), entry(2), result(3)], "followup", ("1-0",)),
        ([entry(1, deliver="parent", origin="result"), result(2)], "collect", ("1-0",)),
    ],
)
def test_the_mode_and_the_origin_of_entries_decide_which_share_a_turn(
    waiting: list[Entry], mode: str, expected: tuple[str, ...]
) -> None:
    queue = QueueConfig.model_validate({"mode": mode, "cap": 0})

    assert next_batch(waiting, queue, busy_since_ms=0).batch == expected


def test_a_flood_of_one_person_drops_no_message_of_another_person() -> None:
    waiting = [of_bob(1), entry(2), entry(3), entry(4)]
    queue = QueueConfig.model_validate({"mode": "collect", "cap": 2, "drop": "old"})

    assert next_batch(waiting, queue, busy_since_ms=0) == NextBatch(("2-0", "3-0"), is_dropped=True)


@for_each(
    ("waiting", "now_ms", "expected"),
    [
        ([result(1000)], 1000, 0.5),
        ([result(1000)], 1200, 0.3),
        ([result(1000)], 1500, 0.0),
        ([result(1000)], 9000, 0.0),
        ([result(1000), result(2900)], 2900, 0.1),
        ([result(1000), entry(1100)], 1100, 0.0),
        ([entry(1000, origin="result", deliver="caller")], 1000, 0.0),
    ],
)
def test_only_results_for_the_chat_wait_for_more_results_and_two_seconds_at_most(
    waiting: list[Entry], now_ms: int, expected: float
) -> None:
    assert settling_pause_s(waiting, now_ms=now_ms) == expected


@for_each(
    ("running", "arrived", "is_owner", "expected"),
    [
        (turn(entry(5)), entry(9), False, True),
        (turn(entry(5)), of_bob(9), False, False),
        (turn(entry(5), of_bob(6)), entry(9), False, False),
        (turn(entry(5)), of_bob(9), True, True),
        (turn(entry(5)), result(9), True, False),
    ],
)
def test_a_turn_is_interrupted_only_by_an_owner_or_by_its_only_person(
    running: Turn, arrived: Entry, is_owner: bool, expected: bool
) -> None:
    assert interrupts(running, arrived, is_owner=is_owner) is expected


@for_each(
    ("running", "waiting", "arrived", "expected"),
    [
        (turn(parents(5)), [], parents(9), Fate.JOINS),
        (turn(parents(5)), [parents(6)], parents(9), Fate.WAITS),
        (turn(entry(5)), [], parents(9), Fate.WAITS),
    ],
)
def test_a_message_to_a_running_task_joins_its_turn_in_every_mode(
    running: Turn, waiting: list[Entry], arrived: Entry, expected: Fate
) -> None:
    queue = QueueConfig.model_validate({"mode": "collect"})

    assert OpenTurn(running, queue, waiting, True, can_aside=True).fate(arrived) is expected
    if arrived.is_from_parent and running.entries[0].is_from_parent:
        assert (
            reaction(running, queue, newest_known="6-0", stop="", newest="9-0") is TurnReaction.READ
        )


def test_nothing_joins_a_command_of_the_agents_cli_or_a_turn_that_takes_nothing() -> None:
    command = Entry("5-0", message("/compact"), is_command=True)
    aside, steer = (QueueConfig.model_validate({"mode": mode}) for mode in ("aside", "steer"))

    def open_turn(entry: Entry, queue: QueueConfig, *, can: bool = True) -> OpenTurn:
        return OpenTurn(turn(entry), queue, (), can_steer=can, can_aside=can)

    assert open_turn(entry(5), aside).takes_asides
    assert not open_turn(entry(5), aside, can=False).takes_asides
    assert not open_turn(entry(5), steer).takes_asides
    assert not open_turn(command, aside).takes_asides
    assert open_turn(entry(5), steer).takes_messages
    assert not open_turn(command, steer).takes_messages
    assert open_turn(entry(5), aside).can_take_aside
    assert not open_turn(entry(5), aside, can=False).can_take_aside
    assert not open_turn(caller(5), aside).can_take_aside
    assert not open_turn(command, aside).can_take_aside
    assert next_batch([entry(1), command], steer, busy_since_ms=None).batch == ("1-0",)
    assert next_batch([command, entry(6)], aside, busy_since_ms=None).batch == ("5-0",)
