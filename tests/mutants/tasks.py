"""Mutants of `remoteclaw/tasks/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "results that start something new for ever",
        before="relays=relays_of(turn.entries) + 1,",
        after="relays=0,",
        test="test_results_start_nothing_new_for_ever_and_are_all_told",
    ),
    Mutant(
        "sessions that set each other going for ever",
        before="hops=hops_of(turn.entries) + 1,",
        after="hops=0,",
        test="test_sessions_dont_set_each_other_going_for_ever",
    ),
    Mutant(
        "a message to a session that waits for this one",
        before="if target == caller.parent or target.sid in caller.turn.via:",
        after="if target == caller.parent:",
        test="test_nobody_writes_to_who_waits_for_it",
    ),
    Mutant(
        "a task that was told to join and is said to wait",
        before="return outcome is not None and outcome.turn not in (None, entry_id)",
        after="return False",
        test="test_what_a_running_task_is_told_joins_its_turn[collect]",
    ),
    Mutant(
        "a task that is said to have been told what waits",
        before="return outcome is not None and outcome.turn not in (None, entry_id)",
        after="return True",
        test="test_a_turn_that_takes_nothing_in_leaves_it_waiting",
    ),
    Mutant(
        "a result without what was answered before it",
        before="answers = [_words(answer) for answer in earlier]",
        after="answers: list[str] = []",
        test="test_what_a_turn_does_not_take_up_is_answered_behind_it_in_one_result",
    ),
    Mutant(
        "a result with the name of a run that has ended",
        before='run = f"{lease.sid}-{begun_as or turn.id}"',
        after='run = f"{lease.sid}-{state.task_entry or turn.id}"',
        test="test_a_task_goes_on_under_another_name_with_the_same_worker",
    ),
    Mutant(
        "a result that doesn't say how far a stopped task was",
        before='if status == "done":',
        after="if True:",
        test="test_a_stopped_task_tells_what_it_had_said_and_its_last_tools",
    ),
)
