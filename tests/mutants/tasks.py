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
)
