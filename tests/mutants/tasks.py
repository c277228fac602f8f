"""Mutants of `remoteclaw/tasks/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "results that start new tasks forever",
        before="relays=relays_of(turn.entries) + 1,",
        after="relays=0,",
        test="test_turns_about_results_cannot_start_new_tasks_forever",
    ),
    Mutant(
        "sessions that trigger each other forever",
        before="hops=hops_of(turn.entries) + 1,",
        after="hops=0,",
        test="test_sessions_cannot_trigger_each_other_forever",
    ),
    Mutant(
        "a message to a session that waits for the sender",
        before="if target == caller.state.parent or target.sid in caller.turn.via:",
        after="if target == caller.state.parent:",
        test="test_a_session_cannot_write_to_a_session_that_waits_for_it",
    ),
    Mutant(
        "a stopped task's result without its partial text",
        before='if status == "done":',
        after="if True:",
        test="test_a_stopped_task_returns_its_partial_text_and_its_last_tools",
    ),
)
